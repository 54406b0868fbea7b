"""Gates after transfer and calibration: figures that tell a run which cannot work from one that can.

A gate finds its figures *hopeless* (NaN, vectors without a dimension, scores all equal, a text of unknown tokens, rows
that should be copies and are not), *suspicious* (outside what working runs show) or in *order*. What follows is the
recipe's choice: ``fail`` stops the run at hopeless figures, ``warn`` says so and goes on, ``off`` does not look.
Suspicious figures are a warning in either case; the baselines of the literature have some (docs/gates.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sentence_transformers import SparseEncoder

from vtkit import console
from vtkit.analysis.normalization import normalizer_losses
from vtkit.analysis.words import script_of, script_of_text
from vtkit.encoder.asymmetric import WholeEncoder, output_tokenizer
from vtkit.encoder.calibration import QUERY_TOKENS, ActivationRates, activation_rates, score_spread
from vtkit.encoder.families import as_array, mlm_head
from vtkit.encoder.masked import is_masked, masked_dimensions
from vtkit.encoder.sides import encode_side
from vtkit.errors import CollapseError
from vtkit.recipe.sections import GatesSection
from vtkit.transfer.mixture import Mixture
from vtkit.transfer.surgery.bias import has_text
from vtkit.vocabulary.existing import roles_by_id
from vtkit.vocabulary.forms import Vocabulary, canonical_forms, legible, surface_and_start, tokens
from vtkit.vocabulary.overlap import Overlap

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Gate = Literal["overlap", "identity", "neighbours", "activation", "dimensions", "ties", "unicode"]
Finding = Literal["in order", "suspicious", "hopeless"]
Stage = Literal["transfer", "calibrate"]
Seen = tuple[Finding, str, str, dict[str, Any]]
"""What a gate found, the figures in words, what to change (empty where all is in order), and the figures."""

EXPECTED_OVERLAP = (
    (0.1, "other scripts", 0.015, 0.10),
    (0.5, "partly shared scripts", 0.03, 0.25),
    (1.1, "one script", 0.06, 0.98),
)
"""Expected share of the target vocabulary that overlaps, by how much of both vocabularies is written in the same
scripts (below so much; what it is called; from; to). Read off the 132 pairs of twelve published vocabularies."""

ONE_LANGUAGE = 0.30
"""Within one script: vocabularies of one language share 32 to 77 %, those of two languages 7 to 23 %."""

LEAST_OVERLAP = 0.001
UNKNOWN = (0.02, 0.20)
"""[UNK] share of the tokens of target texts: suspicious above the first, hopeless above the second."""

BYTE_PIECES = 0.5
"""Share of tokens that are no whole character, above which a text is read byte by byte."""

DEAD, DENSE = 1.0, 0.9
"""Mean active dimensions below which vectors are dead; share of the vocabulary above which they are dense."""

EMPTY_TEXTS = 0.05
TIED = (0.5, 0.999)
ROWS = 512
"""Rows drawn where all would take long."""

WITHOUT_EVIDENCE = 0.5
"""Share of the new tokens of text without evidence (a reassigned row, the mean, noise) above which a transfer is
suspicious. In docs/log.md 30 % of them had none in Japanese and 40 % in Korean, 70 % in Arabic; after calibration these
had 0.60, 0.77 and 0.37 nDCG@10."""

COLLAPSED_COSINE = 0.999
NORMS = (1 / 3, 3.0)
"""Median length of made rows, in median lengths of source rows, between which it is in order."""


@dataclass(frozen=True)
class Moved:
    """What a transfer worked with."""

    source: SparseEncoder
    alignment: Overlap
    mixture: Mixture
    bias: str
    """``transfer.bias.method``: with ``mixture`` and ``copy-overlap`` shared tokens keep their bias."""


@dataclass(frozen=True)
class GateResult:
    """What one gate found."""

    gate: Gate
    stage: Stage
    finding: Finding
    level: Literal["fail", "warn"]
    seen: str
    """The figures in words."""

    advice: str
    """What to change; empty where all is in order."""

    figures: dict[str, Any]

    @property
    def stops(self) -> bool:
        """Whether the run ends here."""
        return self.finding == "hopeless" and self.level == "fail"

    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        return asdict(self)


def vocabulary_gates(
    section: GatesSection,
    source: PreTrainedTokenizerFast,
    target: PreTrainedTokenizerFast,
    alignment: Overlap,
    texts: Sequence[str],
) -> list[GateResult]:
    """The gates overlap and unicode, as far as they are not off: what can be said before any bridge is built.

    Args:
        section: settings.
        texts: probe texts of the target corpus; without any, the gate unicode is passed over.
    """
    found: list[tuple[Gate, Seen]] = []
    if section.overlap != "off":
        found.append(("overlap", overlap_gate(source, target, alignment)))
    probes = [text for text in texts if text.strip()]
    if probes and section.unicode != "off":
        found.append(("unicode", unicode_gate(target, probes)))
    return _results(section, "transfer", found)


def encoder_gates(
    section: GatesSection,
    stage: Stage,
    encoder: SparseEncoder,
    texts: Sequence[str],
    moved: Moved | None = None,
    *,
    more_follows: bool = False,
) -> list[GateResult]:
    """The gates that look at an encoder, as far as they are not off.

    Args:
        section: settings.
        stage: which stage made the encoder.
        encoder: not changed.
        texts: probe texts of the target corpus; without any, the gates of the vectors are passed over, and unicode,
            which looks at the input vocabulary of an encoder that has another one for its output.
        moved: what the transfer worked with; without it, identity and neighbours are passed over.
        more_follows: whether a later stage (adaptation, calibration) can still repair dead or dense vectors: they are
            suspicious then, not hopeless.
    """
    found: list[tuple[Gate, Seen]] = []
    if moved is not None and section.identity != "off":
        found.append(("identity", identity_gate(moved, encoder)))
    if moved is not None and section.neighbours != "off":
        found.append(("neighbours", neighbours_gate(moved, encoder)))
    probes = [text for text in texts if text.strip()]
    if probes and stage == "transfer" and section.unicode != "off" and _head_only(encoder):
        found.append(("unicode", unicode_gate(encoder.tokenizer, probes)))
    if probes:
        found += _vector_gates(section, encoder, list(dict.fromkeys(probes))[: section.texts], more_follows)
    return _results(section, stage, found)


def show_gates(results: Sequence[GateResult]) -> None:
    """One line for each gate, a warning where something is not in order; what stops the run is left to its error."""
    for result in results:
        place, seen = f"gate {result.gate} after {result.stage}", console.one_line(result.seen, 400)
        if result.finding == "in order":
            console.say(f"{place}: in order; {seen}")
        elif not result.stops:
            console.warn(f"{place}: {result.finding}; {seen}. {result.advice}")


def stop_at_hopeless(results: Sequence[GateResult]) -> None:
    """End the run where a gate that may has found something hopeless.

    Raises:
        CollapseError: all such findings, each with what to change and how to go on in spite of it.
    """
    stopping = [result for result in results if result.stops]
    if not stopping:
        return
    lines = [
        f"gate {result.gate} after {result.stage}: {console.one_line(result.seen, 400)}. {result.advice} "
        f'To go on in spite of it, set gates.{result.gate} to "warn".'
        for result in stopping
    ]
    raise CollapseError("\n".join(lines))


def overlap_gate(source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast, alignment: Overlap) -> Seen:
    """The overlap share against what pairs of vocabularies with the same scripts have, and the special roles."""
    shared = shared_scripts(source, target)
    _, pair, lowest, highest = next(row for row in EXPECTED_OVERLAP if shared < row[0])
    roles = roles_by_id(target)
    missing = sorted({role for number, role in roles.items() if alignment.target_to_source[number] < 0})
    figures = {
        "share": alignment.share,
        "shared_scripts": shared,
        "pair": pair,
        "expected": [lowest, highest],
        "roles_without_source": missing,
    }
    seen = (
        f"{alignment.share:.1%} of the target vocabulary overlaps (expected between vocabularies of {pair}: "
        f"{lowest:.1%} to {highest:.0%})"
    )
    if pair == "one script":
        seen += ", as in one language" if alignment.share >= ONE_LANGUAGE else ", as between two languages"
    if roles and len(missing) == len(set(roles.values())):
        return "hopeless", f"{seen}; no special token has its counterpart", _OVERLAP_ADVICE, figures
    if alignment.share < LEAST_OVERLAP:
        return "hopeless", seen, _OVERLAP_ADVICE, figures
    if missing:
        seen += f"; no counterpart for the roles {', '.join(missing)}"
        advice = "Their embeddings are made like any new token's: name a source or a target that has these tokens."
        return "suspicious", seen, advice, figures
    if alignment.mode == "raw":
        advice = 'transfer.overlap "raw" compares spellings of different families; use "exact+symbols".'
        return "suspicious", seen, advice, figures
    if not lowest <= alignment.share <= highest:
        return "suspicious", seen, _OVERLAP_ADVICE, figures
    return "in order", seen, "", figures


_OVERLAP_ADVICE = (
    "Check that vocabulary.tokenizer and the source's tokenizer are complete and the ones you mean "
    "(vtkit overlap SOURCE TARGET shows examples), and transfer.overlap."
)


def shared_scripts(source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast) -> float:
    """How much of two vocabularies is in the same scripts: Σ_s min(p_s, q_s) over scripts' shares of their tokens."""
    first, second = _scripts(source), _scripts(target)
    return sum(min(share, second.get(script, 0.0)) for script, share in first.items())


def identity_gate(moved: Moved, encoder: SparseEncoder) -> Seen:
    """Whether shared tokens have their source rows bit for bit, and their bias where the method keeps it.

    Mean and deviation of the biases are shown beside the source's, masked dimensions left out: ``zscore`` keeps both.
    """
    old, new = (mlm_head(model[0].auto_model) for model in (moved.source, encoder))
    mixture = moved.mixture
    kept = np.flatnonzero(mixture.methods == "overlap")
    origins = moved.alignment.target_to_source[kept]
    active = ~masked_dimensions(encoder[0].auto_model).cpu().numpy()[: moved.alignment.target_size]
    biases, old_biases = (as_array(head.decoder.bias) for head in (new, old))
    figures: dict[str, Any] = {"shared_tokens": len(kept)}
    problems = []
    pairs = [] if _head_only(encoder) else [("embedding rows", new.embeddings.weight, old.embeddings.weight)]
    if not new.tied:
        pairs.append(("decoder rows", new.decoder.weight, old.decoder.weight))
    for what, ours, theirs in pairs:
        if not np.isfinite(as_array(ours)).all():
            problems.append(f"{what} are not finite")
        differing = 0 if mixture.rank is not None else _differing(as_array(ours)[kept], as_array(theirs)[origins])
        figures[f"differing_{what.replace(' ', '_')}"] = differing
        if differing:
            problems.append(f"{differing} of {len(kept)} shared tokens have other {what} than in the source")
    if not np.isfinite(biases).all():
        problems.append("biases are not finite")
    if moved.bias in ("mixture", "copy-overlap"):
        usual = active[kept]
        differing = _differing(biases[kept][usual], old_biases[origins][usual])
        figures["differing_biases"] = differing
        if differing:
            problems.append(f"{differing} of {len(kept)} shared tokens have another bias than in the source")
    words = []
    for name, values in (
        ("bias", biases[: len(active)][active]),
        ("source_bias", old_biases[~is_masked(old_biases)]),
    ):
        figures[name] = {"mean": float(values.mean()), "deviation": float(values.std())}
        words.append(f"{values.mean():.2f} ± {values.std():.2f}")
    bias_words = f"bias {words[0]} (source {words[1]})"
    if problems:
        advice = "The grafted model is not what the transfer made: this is a defect, or the source changed meanwhile."
        return "hopeless", f"{', '.join(problems)}; {bias_words}", advice, figures
    if not len(kept):
        return "in order", f"no token keeps its row (a method that makes all rows anew); {bias_words}", "", figures
    rows = "rows equal bit for bit" if mixture.rank is None else "rows of lower rank, not compared"
    return "in order", f"{len(kept)} shared tokens: {rows}; {bias_words}", "", figures


def neighbours_gate(moved: Moved, encoder: SparseEncoder) -> Seen:
    """Where made rows lie among source rows: cosine to the nearest one, to their own mean, and their lengths.

    Rows without a source token behind them (the mean, masked, noise) are counted and left out. The others are hopeless
    where nearly all of them point one way: the bridge told no token from another. New tokens that no method had
    evidence for are counted too, whether or not they were given the row of an unused source word: where they are most
    of the new tokens that stand for text, the transfer is suspicious.
    """
    mixture = moved.mixture
    old, new = (mlm_head(model[0].auto_model).decoder.weight for model in (moved.source, encoder))
    made = np.flatnonzero(mixture.methods != "overlap")
    own = made[np.diff(mixture.weights.indptr)[made] > 0]
    text = has_text(Vocabulary(output_tokenizer(encoder)), len(mixture.methods))[made]
    reassigned = mixture.methods[made] == "reassigned"
    evident = (np.diff(mixture.weights.indptr)[made] > 0) & ~reassigned
    without, wanting = int((text & ~evident).sum()), int(text.sum())
    share = without / max(wanting, 1)
    generator = np.random.default_rng(0)
    drawn = np.sort(generator.choice(own, min(ROWS, len(own)), replace=False)) if len(own) else own
    names, target = legible(moved.source.tokenizer), legible(output_tokenizer(encoder))
    figures: dict[str, Any] = {
        "made": len(made),
        "of_text": wanting,
        "without_evidence": without,
        "reassigned": int((text & reassigned).sum()),
    }
    if not len(own):
        what = (
            f"none of {len(made)} new tokens has a source token behind it (all are the mean of the source's, or noise)"
        )
        if not len(made):
            return "in order", "no new tokens", "", figures
        advice = "A baseline to compare with: new tokens mean nothing before adaptation."
        return "suspicious", what, advice, figures
    source_rows, rows = as_array(old), as_array(new)[drawn]
    source_lengths, lengths = np.linalg.norm(source_rows, axis=1), np.linalg.norm(rows, axis=1)
    directions = rows / np.maximum(lengths, 1e-12)[:, None]
    nearest = (directions @ (source_rows / np.maximum(source_lengths, 1e-12)[:, None]).T).max(axis=1)
    middle = directions.mean(axis=0)
    to_middle = directions @ (middle / max(float(np.linalg.norm(middle)), 1e-12))
    ratio = float(np.median(lengths) / max(float(np.median(source_lengths)), 1e-12))
    collapsed = float((to_middle > COLLAPSED_COSINE).mean())
    low, median, high = (float(value) for value in np.quantile(nearest, [0.05, 0.5, 0.95]))
    sample = generator.choice(own, min(8, len(own)), replace=False)
    figures |= {
        "nearest_source_cosine": {"p5": low, "median": median, "p95": high},
        "length_ratio": ratio,
        "collapsed_share": collapsed,
        "sample": [
            {
                "token": target[number],
                "method": str(mixture.methods[number]),
                "sources": [[names[origin], round(weight, 3)] for origin, weight in mixture.sources(number)[:3]],
            }
            for number in sample.tolist()
        ],
    }
    seen = (
        f"{len(made)} made rows: cosine to the nearest source row {median:.2f} "
        f"(5 % below {low:.2f}, 5 % above {high:.2f}), length {ratio:.2f} of the source's; {without} of {wanting} new "
        f"tokens of text ({share:.0%}) without evidence, {figures['reassigned']} of them with a reassigned row"
    )
    if len(drawn) > 1 and collapsed > 0.9:
        advice = (
            "The bridge tells no new token from another. Look at the texts or vectors behind transfer.method "
            "(vtkit provenance shows what each token was made of), or take another method."
        )
        return "hopeless", f"{seen}; {collapsed:.0%} of them point the same way", advice, figures
    remedies = []
    if share > WITHOUT_EVIDENCE:
        remedies.append(
            "Most new tokens are kept apart at best, and mean nothing yet: add a dictionary or more sentence pairs "
            "(transfer.parallel), or an embedder that knows both languages (transfer.embedder)."
        )
    if not NORMS[0] <= ratio <= NORMS[1]:
        remedies.append("Short rows are seldom active and long ones always: expect to need [adapt], or another method.")
    return "suspicious" if remedies else "in order", seen, " ".join(remedies), figures


def unicode_gate(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> Seen:
    """[UNK] share of the tokens of ``texts``, the scripts behind it, pieces of bytes, and what the normalizer loses."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int64)
    code_points = np.bincount(codes, minlength=0x110000)
    characters: Counter[str] = Counter()
    for code in np.flatnonzero(code_points).tolist():
        if chr(code).isalnum():
            characters[script_of(chr(code))] += int(code_points[code])
    fragments = _byte_fragments(tokenizer)
    total = unknown = pieces = 0
    unread: Counter[str] = Counter()
    encodings = tokenizer.backend_tokenizer.encode_batch(list(texts), add_special_tokens=False)
    for encoding, text in zip(encodings, texts, strict=True):
        total += len(encoding.ids)
        for number, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
            pieces += number in fragments
            if number == tokenizer.unk_token_id:
                unknown += 1
                unread.update(script_of(character) for character in text[start:stop] if character.isalnum())
    losses = {}
    for loss in normalizer_losses(tokenizer.backend_tokenizer, code_points):
        losses[loss.script] = {kind: count / loss.characters for kind, count in loss.counts.items()}
        unread[loss.script] += loss.counts.get("dropped", 0)
    letters = max(characters.total(), 1)
    lost = {
        script: unread[script] / count
        for script, count in characters.most_common()
        if count >= 0.01 * letters and unread[script] > 0.5 * count
    }
    rate, byte_share = unknown / max(total, 1), pieces / max(total, 1)
    figures = {
        "unknown_rate": rate,
        "byte_piece_rate": byte_share,
        "scripts": {script: count / letters for script, count in characters.most_common(8)},
        "scripts_lost": lost,
        "normalizer": losses,
        "texts": len(texts),
    }
    seen = f"{rate:.1%} of {total} tokens of {len(texts)} target texts are unknown"
    if lost:
        seen += "; unread " + ", ".join(f"{share:.0%} of {script}" for script, share in lost.items())
    altered = {
        script: sum(kinds.get(kind, 0.0) for kind in ("dropped", "decomposed", "stripped"))
        for script, kinds in losses.items()
        if script in characters and characters[script] >= 0.01 * letters
    }
    altered = {script: share for script, share in altered.items() if share > 0.2}
    if altered:
        seen += "; the normalizer takes apart " + ", ".join(f"{share:.0%} of {name}" for name, share in altered.items())
    if byte_share > BYTE_PIECES:
        seen += f"; {byte_share:.0%} of the tokens are pieces of characters"
    if not total or rate > UNKNOWN[1]:
        known = next(iter(lost), next(iter(characters), "these texts' script"))
        advice = (
            f"Name a tokenizer that knows {known} (vocabulary.tokenizer), or train one on this corpus "
            '(vocabulary.kind = "trained").'
        )
        return "hopeless", seen, advice, figures
    if rate > UNKNOWN[0] or lost or altered or byte_share > BYTE_PIECES:
        advice = "vtkit fragmentation CORPUS -t TOKENIZER shows the characters behind it."
        return "suspicious", seen, advice, figures
    return "in order", seen, "", figures


def _vector_gates(
    section: GatesSection, encoder: SparseEncoder, texts: list[str], more_follows: bool
) -> list[tuple[Gate, Seen]]:
    """Activation rate, active dimensions and ties on ``texts``, whose openings stand in for queries."""
    wanted: list[Gate] = [gate for gate in _OF_VECTORS if getattr(section, gate) != "off"]
    if not wanted:
        return []
    if not all(bool(torch.isfinite(parameter).all()) for parameter in encoder.parameters()):
        advice = "Check the source and the bridge for NaN, and lower adapt.learning_rate."
        return [(wanted[0], ("hopeless", "weights are not finite (NaN or infinite)", advice, {"finite": False}))]
    found: list[tuple[Gate, Seen]] = []
    broken: Finding = "suspicious" if more_follows else "hopeless"
    if "activation" in wanted:
        found.append(("activation", activation_gate(activation_rates(encoder, texts, section.max_length), broken)))
    if wanted == ["activation"]:
        return found
    opening = min(QUERY_TOKENS, section.max_length)
    documents = encode_side(encoder, texts, "document", section.max_length, description="encoding probe texts")
    queries = encode_side(encoder, texts, "query", opening, description="encoding probe queries")
    if "dimensions" in wanted:
        vocabulary = int((~masked_dimensions(encoder[0].auto_model)).sum())
        found.append(("dimensions", dimensions_gate(queries, documents, vocabulary, broken)))
    if "ties" in wanted and len(texts) > 2:
        found.append(("ties", ties_gate(queries, documents, broken)))
    return found


_OF_VECTORS: tuple[Gate, ...] = ("activation", "dimensions", "ties")


def activation_gate(rates: ActivationRates, broken: Finding) -> Seen:
    """Whether any logit is positive, and whether not nearly all are; ``broken`` is what it is called otherwise."""
    seen = f"{rates.token:.2%} of (position, token) logits and {rates.pooled:.2%} of dimensions are positive"
    figures = {"token": rates.token, "pooled": rates.pooled, "finite": True}
    if rates.pooled == 0.0 or rates.token > DENSE:
        advice = "Add [calibrate], or change calibrate.target_activation or transfer.bias.method."
        return broken, seen, advice, figures
    return "in order", seen, "", figures


def dimensions_gate(queries: sparse.csr_matrix, documents: sparse.csr_matrix, vocabulary: int, broken: Finding) -> Seen:
    """Whether vectors have dimensions at all, and not nearly all of them.

    Args:
        queries: (n, dimensions).
        documents: (n, dimensions).
        vocabulary: dimensions that are not masked.
        broken: what dead vectors are called. Dense ones are slow but not wrong: suspicious where ``broken`` is
            hopeless, and else in order.
    """
    counts = {"document": np.diff(documents.indptr), "query": np.diff(queries.indptr)}
    means = {side: float(active.mean()) for side, active in counts.items()}
    empty = float((counts["document"] == 0).mean())
    figures = {"mean": means, "empty_documents": empty, "vocabulary": vocabulary, "texts": documents.shape[0]}
    seen = (
        f"{means['document']:.0f} active dimensions a text and {means['query']:.0f} a query of {vocabulary}, "
        f"{empty:.0%} of the texts empty"
    )
    if min(means.values()) < DEAD:
        advice = "The vectors are dead: add [calibrate], raise its target_activation, or change transfer.bias."
        return broken, seen, advice, figures
    if means["document"] > DENSE * vocabulary:
        advice = (
            "The vectors are dense, and cost as much until they are trained to be sparse: add [finetune], or lower "
            "calibrate.target_activation."
        )
        return "suspicious" if broken == "hopeless" else "in order", seen, advice, figures
    if empty > EMPTY_TEXTS:
        advice = "Texts without a dimension are never found: raise calibrate.target_activation, or add [adapt]."
        return "suspicious", seen, advice, figures
    return "in order", seen, "", figures


def ties_gate(queries: sparse.csr_matrix, documents: sparse.csr_matrix, broken: Finding) -> Seen:
    """Whether scores tell texts apart: :func:`vtkit.encoder.calibration.score_spread` of the i-th query over all
    documents but the i-th."""
    spread, tied = score_spread(queries, documents)
    seen = f"{tied:.1%} of the best scores of probe queries are tied, spread {spread:.2f} of the mean"
    figures = {"tied": tied, "spread": spread}
    if tied >= TIED[1]:
        return broken, seen, "All texts get the same score: the gates dimensions and neighbours say why.", figures
    if tied > TIED[0]:
        advice = "Many texts share no dimension with a query, or all of them: adapt or calibrate the encoder."
        return "suspicious", seen, advice, figures
    return "in order", seen, "", figures


def _results(section: GatesSection, stage: Stage, found: Sequence[tuple[Gate, Seen]]) -> list[GateResult]:
    return [
        GateResult(gate, stage, finding, getattr(section, gate), seen, advice, figures)
        for gate, (finding, seen, advice, figures) in found
    ]


def _head_only(encoder: SparseEncoder) -> bool:
    return isinstance(encoder, WholeEncoder) and encoder.output_tokenizer is not None


def _scripts(tokenizer: PreTrainedTokenizerFast) -> dict[str, float]:
    surfaces = [surface for surface, _ in surface_and_start(tokenizer)]
    counts = Counter(script_of_text(surface) for surface in surfaces if any(map(str.isalpha, surface)))
    return {script: count / counts.total() for script, count in counts.items()}


def _byte_fragments(tokenizer: PreTrainedTokenizerFast) -> set[int]:
    """Ids that stand for bytes which are no whole character."""
    written = {number for number, token in enumerate(tokens(tokenizer)) if re.fullmatch("<0x[0-9A-F]{2}>", token)}
    decoded = (form.surface if form is not None else "" for form in canonical_forms(tokenizer))
    return written | {number for number, surface in enumerate(decoded) if re.search("[\ud800-\udfff]", surface)}


def _differing(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> int:
    """How many rows (or numbers) differ."""
    return int((ours != theirs).reshape(len(ours), -1).any(axis=1).sum())
