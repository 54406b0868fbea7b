"""All checks of an encoder that a transfer or a calibration made."""

from __future__ import annotations

from collections.abc import Sequence

from sentence_transformers import SparseEncoder

from vtkit.encoder.fitted import HeadFit
from vtkit.evaluation.gates.result import PROBE_LENGTH, PROBE_TEXTS, CheckResult, Gate, Seen, Stage, results
from vtkit.evaluation.gates.rows import Moved, head_only, identity_gate, neighbours_gate
from vtkit.evaluation.gates.vectors import vector_gates
from vtkit.evaluation.gates.vocabularies import unicode_gate
from vtkit.settings.gates import GatesSection

READ_BACK = (0.15, 0.4)
"""Share of tokens that a head reads back: a failure below the first, a warning below the second. Embedders that hold
their tokens have .6 to .9."""


def encoder_gates(
    section: GatesSection,
    stage: Stage,
    encoder: SparseEncoder,
    texts: Sequence[str],
    moved: Moved | None = None,
    fitted: HeadFit | None = None,
    *,
    more_follows: bool = False,
) -> list[CheckResult]:
    """The gates that look at an encoder, as far as they are not off.

    Args:
        stage: which stage made the encoder.
        texts: probe texts of the target corpus; without any, the gates of the vectors are passed over, and unicode,
            which looks at the input vocabulary of an encoder that has another one for its output.
        moved: what the transfer worked with; without it, identity and neighbours are passed over.
        fitted: how its head was fitted; without it, read_back is passed over.
        more_follows: whether a later stage (adaptation, calibration) can still repair dead or dense vectors: they are
            worth a warning then, and no failure.
    """
    found: list[tuple[Gate, Seen]] = []
    if fitted is not None and section.read_back != "off":
        found.append(("read_back", read_back_gate(fitted)))
    if moved is not None and section.identity != "off":
        found.append(("identity", identity_gate(moved, encoder)))
    if moved is not None and section.neighbours != "off":
        found.append(("neighbours", neighbours_gate(moved, encoder)))
    probes = [text for text in texts if text.strip()]
    if probes and stage == "transfer" and section.unicode != "off" and head_only(encoder):
        found.append(("unicode", unicode_gate(encoder.tokenizer, probes, PROBE_LENGTH)))
    if probes:
        found += vector_gates(section, encoder, list(dict.fromkeys(probes))[:PROBE_TEXTS], more_follows)
    return results(section, stage, found)


def read_back_gate(fitted: HeadFit) -> Seen:
    """How many tokens of held-out texts the fitted head finds at their own states: without them, no weight of a vector
    stands for what its dimension is called."""
    figures = {"read_back": fitted.read_back, "by_ridge": fitted.by_ridge, "tokens": fitted.tokens}
    seen = f"the head reads back {fitted.read_back:.1%} of the tokens of held-out texts"
    fails, warns = READ_BACK
    if fitted.read_back >= warns:
        return "pass", seen, "", figures
    advice = (
        "The embedder's states carry little about the tokens of these texts. Check that it knows their language, fit "
        "the head on more text (source.head.corpus, texts, steps), use a lower layer (source.head.layers), or name "
        "another source."
    )
    return "fail" if fitted.read_back < fails else "warn", seen, advice, figures
