"""The gates, each group right after the stage that it examines: whether what was made can work, before hours go into
the next stage. Each raises CollapseError on a failure under a gate that may stop the run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.evaluation.gates.result import PROBE_LENGTH, PROBE_TEXTS, SNIPPETS, GateResult, gate_results, passed
from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.build_vocabulary import VocabularyResult
from vtkit.pipeline.steps.source import source_encoder, source_tokenizer, starts_untrained
from vtkit.pipeline.steps.texts import adaptation_corpus, bias_corpus, calibration_corpus, head_corpus, probe_texts
from vtkit.pipeline.steps.transfer_embeddings import target_tokenizer
from vtkit.pipeline.store import result_of
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.runtime import fastest_device
from vtkit.transfer.result import TransferResult

if TYPE_CHECKING:
    import numpy as np

    from vtkit.data.synthetic_queries import SnippetPairs


def check_vocabulary(recipe: View, inputs: Mapping[str, Path], out: Path) -> list[GateResult]:
    """:func:`look_at_vocabulary` on the output of the vocabulary stage."""
    return look_at_vocabulary(recipe, inputs, result_of(inputs["vocabulary"], VocabularyResult))


def look_at_vocabulary(recipe: View, inputs: Mapping[str, Path], made: VocabularyResult) -> list[GateResult]:
    """The gates overlap and unicode, before any bridge is built; on the source's own vocabulary unicode alone, and
    trimmed where that was trimmed."""
    from vtkit.evaluation.gates.vocabularies import overlap_gate, vocabulary_gates
    from vtkit.vocabulary.pair import pair_of

    target, section = target_tokenizer(recipe, inputs), recipe.transfer
    texts = probe_texts(recipe.corpora("transfer.bias.corpus"), PROBE_TEXTS, recipe.recipe.seed)
    overlap = None
    if section is not None:
        source = source_tokenizer(recipe, inputs)
        found = pair_of(source, target, section.overlap).overlap
        overlap = partial(overlap_gate, source, target, found, section.bridged)
    return passed(vocabulary_gates(recipe.gates, target, texts, overlap, made.trimmed))


CHECK_VOCABULARY = Stage(
    "check:vocabulary",
    version=8,
    reads=(
        *("source.model", "casing.output", "transfer.overlap"),
        *("transfer.method", "transfer.parallel.files", "transfer.sembridge.embedder"),  # whether there is a bridge
        "gates",
    ),
    corpora={"transfer.bias.corpus": bias_corpus},
    function=check_vocabulary,
)


def check_transfer(recipe: View, inputs: Mapping[str, Path], out: Path) -> list[GateResult]:
    """The gates identity, neighbours, activation, dimensions, ties and retrieval, and unicode after a head-only
    transfer; read_back, activation, dimensions, ties and retrieval of a dense source with a fitted head."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.families import mlm_head
    from vtkit.evaluation.fusion_queries import bm25_run
    from vtkit.evaluation.gates.encoder import encoder_gates
    from vtkit.evaluation.gates.retrieval import reciprocal_ranks, retrieval_gate
    from vtkit.evaluation.gates.rows import Moved
    from vtkit.transfer.provenance import PROVENANCE, read_mixture
    from vtkit.vocabulary.pair import pair_of

    section, seed = recipe.transfer, recipe.recipe.seed
    encoder = load_encoder(str(inputs["transfer"] / "model"))
    moved, corpus, more_follows = None, "source.corpus", True
    if section is not None:
        source, corpus = source_encoder(recipe, inputs), "transfer.bias.corpus"
        rows = mlm_head(source[0].auto_model).decoder.out_features
        pair = pair_of(source.tokenizer, target_tokenizer(recipe, inputs), section.overlap, rows)
        mixture = read_mixture(inputs["transfer"] / PROVENANCE, rows)
        moved = Moved(source, pair.overlap, mixture, section.bias.method)
        more_follows = recipe.adapt is not None or recipe.calibrate is not None
    texts = probe_texts(recipe.corpora(corpus), PROBE_TEXTS, seed)
    head = result_of(inputs["transfer"], TransferResult).head
    gates = encoder_gates(recipe.gates, "transfer", encoder, texts, moved, head, more_follows=more_follows)
    pairs = retrieval_snippets(recipe, corpus, "transfer")
    if pairs is not None:
        ranks = partial(reciprocal_ranks, pairs=pairs, max_length=PROBE_LENGTH)
        against: dict[str, np.ndarray] = {}
        if moved is not None:
            against["by the source"] = ranks(moved.source.to(fastest_device()))
        else:
            by_bm25 = bm25_run(pairs, recipe.recipe.language, recipe.index.bm25_analyser)
            against["by BM25"] = pairs.reciprocal_ranks(by_bm25)
            with suppress(DataError):  # the source has no masked-language-model head
                own = load_encoder(str(recipe.source.model), fastest_device())
                against["by the source's own masked-language-model head"] = ranks(own)
        by_encoder = ranks(encoder.to(fastest_device()))
        compared = [partial(retrieval_gate, name, others, by_encoder) for name, others in against.items()]
        gates += gate_results(recipe.gates, "transfer", [("retrieval", gate) for gate in compared])
    return passed(gates)


CHECK_TRANSFER = Stage(
    "check:transfer",
    version=14,
    reads=(
        *("recipe.language", "index.bm25_analyser", "source", "casing.output", "transfer.overlap"),
        *("transfer.bias.method", "adapt?", "calibrate?", "gates"),
    ),
    corpora={"transfer.bias.corpus": bias_corpus, "source.corpus": head_corpus},
    function=check_transfer,
)


def check_adaptation(recipe: View, inputs: Mapping[str, Path], out: Path) -> list[GateResult]:
    """The gate retrieval on ``inputs["adapt"]/model`` and on ``inputs["model"]/model``, which it was trained from."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.evaluation.gates.retrieval import reciprocal_ranks, retrieval_gate

    pairs = retrieval_snippets(recipe, "adapt.corpus", "adapt")
    if pairs is None:
        return []
    before, after = (
        reciprocal_ranks(load_encoder(str(inputs[role] / "model"), fastest_device()), pairs, PROBE_LENGTH)
        for role in ("model", "adapt")
    )
    return passed(
        gate_results(recipe.gates, "adapt", [("retrieval", partial(retrieval_gate, "before", before, after))])
    )


CHECK_ADAPTATION = Stage(
    "check:adapt",
    version=3,
    reads=("source", "gates"),
    corpora={"adapt.corpus": adaptation_corpus},
    function=check_adaptation,
)


def check_calibration(recipe: View, inputs: Mapping[str, Path], out: Path) -> list[GateResult]:
    """The gates activation, dimensions and ties on ``inputs["calibrate"]/model``."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.evaluation.gates.encoder import encoder_gates

    encoder = load_encoder(str(inputs["calibrate"] / "model"), fastest_device())
    texts = probe_texts(recipe.corpora("calibrate.corpus"), PROBE_TEXTS, recipe.recipe.seed)
    return passed(encoder_gates(recipe.gates, "calibrate", encoder, texts, more_follows=recipe.finetune is not None))


CHECK_CALIBRATION = Stage(
    "check:calibrate",
    version=2,
    reads=("finetune?", "gates"),
    corpora={"calibrate.corpus": calibration_corpus},
    function=check_calibration,
)


def retrieval_snippets(recipe: View, corpus: str, stage: str) -> SnippetPairs | None:
    """Snippets of the texts of ``corpus``, such as ``adapt.corpus``, for the gate after ``stage``; None where the gate
    is off, where the source never learned to retrieve, or where there are too few to say anything."""
    from vtkit.data.synthetic_queries import FEWEST_PAIRS, snippet_pairs

    if "retrieval" in recipe.gates.off or (starts_untrained(recipe) and not recipe.source.fitted):
        return None
    texts = probe_texts(recipe.corpora(corpus), SNIPPETS, recipe.recipe.seed)
    pairs = snippet_pairs(texts, SNIPPETS, recipe.recipe.seed)
    if len(pairs) < FEWEST_PAIRS:
        console.say(f"gate retrieval after {stage}: skipped, because the corpus gives only {len(pairs)} snippets")
        return None
    return pairs
