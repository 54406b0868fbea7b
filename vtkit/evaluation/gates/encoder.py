"""The gates of an encoder that a transfer or a calibration made."""

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
from scipy import sparse
from sentence_transformers import SparseEncoder

from vtkit.encoder.asymmetric import own_output
from vtkit.encoder.calibrated import QUERY_TOKENS, ActivationRates
from vtkit.encoder.calibration import activation_rates, score_spread
from vtkit.encoder.families import not_finite
from vtkit.encoder.fitted import HeadFit
from vtkit.encoder.kinds import can_weigh
from vtkit.encoder.masked import masked_dimensions
from vtkit.encoder.sides import encode_side
from vtkit.encoder.token_units import has_token_units
from vtkit.encoder.unicoil import is_unicoil
from vtkit.evaluation.gates.result import (
    PROBE_LENGTH,
    PROBE_TEXTS,
    Finding,
    Gate,
    GateResult,
    Seen,
    Stage,
    gate_results,
)
from vtkit.evaluation.gates.rows import Moved, identity_gate, neighbours_gate
from vtkit.evaluation.gates.vocabularies import unicode_gate
from vtkit.settings.gates import GatesSection

DEAD, DENSE = 1.0, 0.9
"""Mean active dimensions below which vectors are dead; share of the vocabulary above which they are dense."""

EMPTY_TEXTS = 0.05

TIED = (0.5, 0.999)


def vector_gates(
    section: GatesSection, encoder: SparseEncoder, texts: list[str], more_follows: bool
) -> dict[Gate, Callable[[], Seen]]:
    """Activation rate (of encoders with logits), active dimensions and ties on ``texts``, whose openings stand for
    queries."""
    broken: Finding = "warn" if more_follows else "fail"
    no_logits = is_unicoil(encoder) or has_token_units(encoder)
    usable = can_weigh(encoder) if no_logits else ~masked_dimensions(encoder[0].auto_model).cpu().numpy()

    @cache
    def encoded() -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
        opening = min(QUERY_TOKENS, PROBE_LENGTH)
        documents = encode_side(encoder, texts, "document", PROBE_LENGTH, description="encoding probe texts")
        return encode_side(encoder, texts, "query", opening, description="encoding probe queries"), documents

    # an untrained uniCOIL encoder counts shared terms, and many texts share as many
    ties: Finding = "warn" if is_unicoil(encoder) else broken
    gates: dict[Gate, Callable[[], Seen]] = {
        "activation": lambda: activation_gate(activation_rates(encoder, texts, PROBE_LENGTH), broken),
        "dimensions": lambda: dimensions_gate(*encoded(), int(usable.sum()), broken),
        "ties": lambda: ties_gate(*encoded(), ties),
    }
    if no_logits:
        del gates["activation"]
    if len(texts) < 3:
        del gates["ties"]
    wanted = [gate for gate in gates if gate not in section.off]
    if wanted and not_finite(encoder):
        advice = "Check the source, and the vectors behind transfer.method, for NaN, and lower adapt.learning_rate."
        return {wanted[0]: lambda: ("fail", "weights are not finite (NaN or infinite)", advice)}
    return gates


def activation_gate(rates: ActivationRates, broken: Finding) -> Seen:
    """Check that some logits are positive, and not nearly all; ``broken`` is the finding otherwise."""
    seen = f"{rates['token']:.2%} of (position, token) logits and {rates['pooled']:.2%} of dimensions are positive"
    if rates["pooled"] == 0.0 or rates["token"] > DENSE:
        advice = "Add [calibrate], or change calibrate.target_activation or transfer.bias.method."
        return broken, seen, advice
    return "pass", seen, ""


def dimensions_gate(queries: sparse.csr_matrix, documents: sparse.csr_matrix, vocabulary: int, broken: Finding) -> Seen:
    """Check that vectors have active dimensions, and not nearly all of them.

    Args:
        queries, documents: (n, dimensions).
        vocabulary: dimensions that are not masked.
        broken: the finding for dead vectors; dense ones are a warning if this is ``fail``, and else a pass.
    """
    counts = {"document": np.diff(documents.indptr), "query": np.diff(queries.indptr)}
    means = {side: float(active.mean()) for side, active in counts.items()}
    empty = float((counts["document"] == 0).mean())
    seen = (
        f"{means['document']:.0f} active dimensions a text and {means['query']:.0f} a query of {vocabulary}, "
        f"{empty:.0%} of the texts empty"
    )
    if min(means.values()) < DEAD:
        advice = "The vectors are dead: add [calibrate], raise its target_activation, or change transfer.bias."
        return broken, seen, advice
    if means["document"] > DENSE * vocabulary:
        advice = (
            "The vectors are dense, so search is slow: add [finetune], which trains them to be sparse, or lower "
            "calibrate.target_activation."
        )
        return "warn" if broken == "fail" else "pass", seen, advice
    if empty > EMPTY_TEXTS:
        advice = "Texts without active dimensions are never found: raise calibrate.target_activation, or add [adapt]."
        return "warn", seen, advice
    return "pass", seen, ""


def ties_gate(queries: sparse.csr_matrix, documents: sparse.csr_matrix, broken: Finding) -> Seen:
    """Whether scores tell texts apart: ``score_spread`` of the i-th query over all documents but the i-th."""
    spread, tied = score_spread(queries, documents)
    seen = f"{tied:.1%} of the best scores of probe queries are tied, spread {spread:.2f} of the mean"
    if tied >= TIED[1]:
        return broken, seen, "All texts get the same score; the gates dimensions and neighbours show why."
    if tied > TIED[0]:
        advice = "Many texts share no dimension with a query, or share all: adapt or calibrate the encoder."
        return "warn", seen, advice
    return "pass", seen, ""


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
) -> list[GateResult]:
    """Run the gates that examine an encoder, except those that are off.

    Args:
        stage: which stage made the encoder.
        texts: probe texts of the target corpus; without any, the gates of the vectors are passed over, and unicode,
            which looks at the input vocabulary of an encoder that has another one for its output.
        moved: what the transfer worked with; without it, identity and neighbours are passed over.
        fitted: how its head was fitted; without it, read_back is passed over.
        more_follows: whether a later stage (adaptation, calibration) can still repair dead or dense vectors: they are
            worth a warning then, and no failure.
    """
    gates: dict[Gate, Callable[[], Seen]] = {}
    if fitted is not None:
        gates["read_back"] = partial(read_back_gate, fitted)
    if moved is not None:
        gates["identity"] = partial(identity_gate, moved, encoder)
        gates["neighbours"] = partial(neighbours_gate, moved, encoder)
    probes = [text for text in texts if text.strip()]
    if probes and stage == "transfer" and own_output(encoder) is not None:
        gates["unicode"] = partial(unicode_gate, encoder.tokenizer, probes, PROBE_LENGTH)
    if probes:
        gates |= vector_gates(section, encoder, list(dict.fromkeys(probes))[:PROBE_TEXTS], more_follows)
    return gate_results(section, stage, gates.items())


def read_back_gate(fitted: HeadFit) -> Seen:
    """Check that the head recovers tokens of held-out texts from their states; otherwise dimensions mean nothing."""
    seen = f"the head reads back {fitted.read_back:.1%} of the tokens of held-out texts"
    fails, warns = READ_BACK
    if fitted.read_back >= warns:
        return "pass", seen, ""
    advice = (
        "The embedder's states carry little about the tokens of these texts. Check that it knows their language, fit "
        "the head on more text (source.corpus, texts, steps), use a lower layer (source.layers), or name "
        "another source."
    )
    return "fail" if fitted.read_back < fails else "warn", seen, advice
