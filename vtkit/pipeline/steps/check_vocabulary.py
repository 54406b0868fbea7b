"""Check ``check:vocabulary``: what two vocabularies and some texts say of a transfer before it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from vtkit.evaluation.gates.result import PROBE_TEXTS, Checked, checked
from vtkit.pipeline.stage import Chain, Stage, View, Wired
from vtkit.pipeline.steps.build_vocabulary import VocabularyResult
from vtkit.pipeline.steps.source import source_tokenizer
from vtkit.pipeline.steps.texts import bias_corpus, probe_texts
from vtkit.pipeline.steps.transfer_embeddings import target_tokenizer
from vtkit.pipeline.store import result_of
from vtkit.settings.recipe import Recipe


def check_vocabulary(recipe: View, inputs: Mapping[str, Path], out: Path) -> Checked:
    """:func:`look_at_vocabulary` on the output of the vocabulary stage."""
    return look_at_vocabulary(recipe, inputs, result_of(inputs["vocabulary"], VocabularyResult))


def look_at_vocabulary(recipe: View, inputs: Mapping[str, Path], made: VocabularyResult) -> Checked:
    """The gates overlap and unicode, before any bridge is built; on the source's own vocabulary unicode alone, and
    trimmed where that was trimmed.

    Raises:
        CollapseError: a failure, under a gate that may stop the run.
    """
    from vtkit.evaluation.gates.vocabularies import Aligned, vocabulary_gates
    from vtkit.vocabulary.pair import pair_of

    target, section = target_tokenizer(recipe, inputs), recipe.transfer
    texts = probe_texts(recipe.corpora("transfer.bias.corpus"), PROBE_TEXTS, recipe.recipe.seed)
    aligned = None
    if section is not None:
        source = source_tokenizer(recipe, inputs)
        aligned = Aligned(source, pair_of(source, target, section.overlap).overlap, section.bridged)
    gates = vocabulary_gates(recipe.gates, target, texts, aligned, made.trimmed)
    return checked(gates)


def _wired(recipe: Recipe, chain: Chain) -> Iterator[Wired]:
    if recipe.source.scratch is None:
        yield Wired(CHECK_VOCABULARY, chain.vocabulary)


CHECK_VOCABULARY = Stage(
    "check:vocabulary",
    version=4,
    reads=(
        *("source.model", "casing.output", "transfer.overlap"),
        *("transfer.method", "transfer.parallel.files", "transfer.sembridge.embedder"),  # whether there is a bridge
        *("gates.overlap", "gates.trimmed", "gates.unicode"),
    ),
    corpora={"transfer.bias.corpus": bias_corpus},
    function=check_vocabulary,
    wire=_wired,
)
