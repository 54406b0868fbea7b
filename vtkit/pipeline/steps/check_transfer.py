"""Check ``check:transfer``: whether the moved encoder can work, and finds what the source finds, before anything is
trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.evaluation.gates.result import PROBE_LENGTH, PROBE_TEXTS, Checked, CheckResult, checked, results
from vtkit.pipeline.stage import Chain, Stage, View, Wired
from vtkit.pipeline.steps.probe import retrieval_probe
from vtkit.pipeline.steps.source import source_encoder
from vtkit.pipeline.steps.texts import bias_corpus, head_corpus, probe_texts
from vtkit.pipeline.steps.transfer_embeddings import target_tokenizer
from vtkit.pipeline.store import result_of
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import DataError
from vtkit.system.runtime import fastest_device
from vtkit.transfer.result import TransferResult

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder


def check_transfer(recipe: View, inputs: Mapping[str, Path], out: Path) -> Checked:
    """The gates identity, neighbours, activation, dimensions, ties and retrieval, and unicode after a head-only
    transfer; read_back, activation, dimensions, ties and retrieval of a dense source with a fitted head.

    Raises:
        CollapseError: a failure, under a gate that may stop the run.
    """
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.families import mlm_head
    from vtkit.evaluation.gates.encoder import encoder_gates
    from vtkit.evaluation.gates.rows import Moved
    from vtkit.transfer.provenance import PROVENANCE, read_mixture
    from vtkit.vocabulary.pair import pair_of

    section = recipe.transfer
    transfer = result_of(inputs["transfer"], TransferResult)
    if section is None:
        return _check_head(recipe, inputs, transfer)
    assert transfer.moved is not None
    source, moved = source_encoder(recipe, inputs), load_encoder(str(inputs["transfer"] / "model"))
    rows = mlm_head(source[0].auto_model).decoder.out_features
    mixture = read_mixture(inputs["transfer"] / PROVENANCE, rows)
    pair = pair_of(source.tokenizer, target_tokenizer(recipe, inputs), section.overlap, rows)
    gates = encoder_gates(
        recipe.gates,
        "transfer",
        moved,
        probe_texts(recipe.corpora("transfer.bias.corpus"), PROBE_TEXTS, recipe.recipe.seed),
        Moved(source, pair.overlap, mixture, section.bias.method),
        more_follows=recipe.adapt is not None or recipe.calibrate is not None,
    )
    gates += _against_source(recipe, source, moved)
    return checked(gates)


def _check_head(recipe: View, inputs: Mapping[str, Path], transfer: TransferResult) -> Checked:
    """The gates read_back, activation, dimensions, ties and retrieval of a dense source with a fitted head."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.evaluation.gates.encoder import encoder_gates

    encoder = load_encoder(str(inputs["transfer"] / "model"))
    gates = encoder_gates(
        recipe.gates,
        "transfer",
        encoder,
        probe_texts(recipe.corpora("source.head.corpus"), PROBE_TEXTS, recipe.recipe.seed),
        fitted=transfer.head,
        more_follows=True,
    )
    gates += _in_this_language(recipe, encoder)
    return checked(gates)


def _against_source(recipe: View, source: SparseEncoder, moved: SparseEncoder) -> list[CheckResult]:
    """The gate retrieval, where there is something to look at."""
    from vtkit.evaluation.probe import reciprocal_ranks, source_gate

    probe = retrieval_probe(recipe, "transfer.bias.corpus", "transfer")
    if probe is None:
        return []
    device = fastest_device()
    ranks = [reciprocal_ranks(encoder.to(device), probe, PROBE_LENGTH) for encoder in (source, moved)]
    return results(recipe.gates, "transfer", [("retrieval", source_gate(*ranks))])


def _in_this_language(recipe: View, encoder: SparseEncoder) -> list[CheckResult]:
    """The gate retrieval of a dense source, beside BM25, and beside the masked-language-model head of a source that has
    one; nothing where there are too few texts."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.evaluation.probe import bm25_reciprocal_ranks, language_gate, own_head_gate, reciprocal_ranks

    probe = retrieval_probe(recipe, "source.head.corpus", "transfer")
    if probe is None:
        return []
    by_encoder = reciprocal_ranks(encoder.to(fastest_device()), probe, PROBE_LENGTH)
    by_bm25 = bm25_reciprocal_ranks(probe, recipe.recipe.language, recipe.index.bm25_analyser)
    found = [language_gate(by_bm25, by_encoder)]
    with suppress(DataError):  # it has none
        own = load_encoder(str(recipe.source.model), fastest_device())
        found.append(own_head_gate(reciprocal_ranks(own, probe, PROBE_LENGTH), by_encoder))
    return results(recipe.gates, "transfer", [("retrieval", seen) for seen in found])


def _wired(recipe: Recipe, chain: Chain) -> Iterator[Wired]:
    if recipe.transfer is not None or recipe.source.fitted is not None:
        yield Wired(CHECK_TRANSFER, chain.vocabulary | {"transfer": chain.steps["transfer"]})


CHECK_TRANSFER = Stage(
    "check:transfer",
    version=7,
    reads=(
        "recipe.language",
        "index.bm25_analyser",
        "source",
        "casing.output",
        "transfer.overlap",
        "transfer.bias.method",
        "adapt?",
        "calibrate?",
        *(f"gates.{name}" for name in ("identity", "neighbours", "unicode", "activation", "dimensions", "ties")),
        "gates.read_back",
        "gates.retrieval",
    ),
    corpora={"transfer.bias.corpus": bias_corpus, "source.head.corpus": head_corpus},
    function=check_transfer,
    wire=_wired,
)
