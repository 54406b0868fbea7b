"""The gates of two vocabularies before the transfer: their overlap, and whether the target reads its own texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from vtkit.encoder.truncation import shortened
from vtkit.evaluation.gates.result import PROBE_LENGTH, Gate, GateResult, Seen, gate_results
from vtkit.settings.gates import GatesSection
from vtkit.vocabulary.existing import roles_by_id
from vtkit.vocabulary.forms import Vocabulary, whole_encodings
from vtkit.vocabulary.normalization import normalizer_losses
from vtkit.vocabulary.overlap import Overlap
from vtkit.vocabulary.statistics import TrimStats
from vtkit.vocabulary.words import script_of, script_of_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

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
"""[UNK] share of the tokens of target texts: a warning above the first, a failure above the second."""

LOST = 0.02
"""Share of the tokens of held-out texts that a trimmed vocabulary does not have, above which it is worth a warning."""

BYTE_PIECES = 0.5  # share of tokens that are no whole character, above which a text is read byte by byte


def vocabulary_gates(
    section: GatesSection,
    target: PreTrainedTokenizerFast,
    texts: Sequence[str],
    overlap: Callable[[], Seen] | None,
    trimmed: TrimStats | None = None,
) -> list[GateResult]:
    """Run the gates overlap, trimmed and unicode, except those that are off, before the transfer.

    Args:
        texts: probe texts of the target corpus; without any, the gate unicode is passed over.
        overlap: :func:`overlap_gate` on both vocabularies; None where the target is the source's own vocabulary.
        trimmed: what trimming found; None where nothing was.
    """
    gates: dict[Gate, Callable[[], Seen]] = {}
    if overlap is not None:
        gates["overlap"] = overlap
    if trimmed is not None:
        gates["trimmed"] = partial(trimmed_gate, trimmed, len(target))
    if probes := [text for text in texts if text.strip()]:
        gates["unicode"] = partial(unicode_gate, target, probes, PROBE_LENGTH)
    return gate_results(section, "vocabulary", gates.items())


def overlap_gate(
    source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast, overlap: Overlap, bridged: bool
) -> Seen:
    """The overlap share against that of vocabularies of such scripts, the special roles, and the bridge it needs.

    Args:
        bridged: whether the transfer knows which tokens of two languages mean the same.
    """
    shared = shared_scripts(source, target)
    _, pair, lowest, highest = next(row for row in EXPECTED_OVERLAP if shared < row[0])
    roles = roles_by_id(target)
    missing = sorted({role for number, role in roles.items() if overlap.target_to_source[number] < 0})
    seen = (
        f"{overlap.share:.1%} of the target vocabulary overlaps (expected between vocabularies of {pair}: "
        f"{lowest:.1%} to {highest:.0%})"
    )
    one_language = pair == "one script" and overlap.share >= ONE_LANGUAGE
    if pair == "one script":
        seen += ", as in one language" if one_language else ", as between two languages"
    if roles and len(missing) == len(set(roles.values())):
        return "fail", f"{seen}; no special token has its counterpart", _OVERLAP_ADVICE
    if overlap.share < LEAST_OVERLAP:
        return "fail", seen, _OVERLAP_ADVICE
    if not bridged and not one_language:
        seen += (
            f"; without a bridge between the languages, {1 - overlap.share:.0%} of the tokens start without a meaning"
        )
        return "warn", seen, _BRIDGE_ADVICE
    if missing:
        seen += f"; the source has no token for the roles {', '.join(missing)}"
        advice = "Their embeddings are made like those of any new token. A source or target that has them is better."
        return "warn", seen, advice
    if not lowest <= overlap.share <= highest:
        return "warn", seen, _OVERLAP_ADVICE
    return "pass", seen, ""


def trimmed_gate(trimmed: TrimStats, size: int) -> Seen:
    """Check how many tokens of uncounted texts are gone, as they will be of future texts and queries."""
    if trimmed.lost <= LOST:
        return "pass", trimmed.words(size), ""
    advice = "Name more text of the language in vocabulary.corpus, or raise vocabulary.size."
    return "warn", trimmed.words(size), advice


_OVERLAP_ADVICE = (
    "Check transfer.overlap, and that vocabulary.tokenizer and the source's tokenizer are complete and the right ones "
    "(vtkit overlap SOURCE TARGET shows examples)."
)


_BRIDGE_ADVICE = (
    "Give sentence pairs or a dictionary (transfer.parallel.files) or an embedder that knows both languages "
    "(transfer.sembridge.embedder). Without either, the encoder learns the texts from adaptation alone."
)


def shared_scripts(source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast) -> float:
    """How much of two vocabularies is in the same scripts: Σ_s min(p_s, q_s) over scripts' shares of their tokens."""
    shares = []
    for tokenizer in (source, target):
        surfaces = [surface for surface, _ in Vocabulary(tokenizer).surfaces]
        counts = Counter(script_of_text(surface) for surface in surfaces if any(map(str.isalpha, surface)))
        shares.append({script: count / counts.total() for script, count in counts.items()})
    return sum(min(share, shares[1].get(script, 0.0)) for script, share in shares[0].items())


def unicode_gate(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], max_length: int) -> Seen:
    """[UNK] share of the first ``max_length`` tokens of each of ``texts``, the scripts behind it, pieces of bytes, and
    what the normalizer loses."""
    beginnings = shortened(tokenizer, texts, max_length)
    encodings = whole_encodings(tokenizer, beginnings, offsets=True)
    texts = [
        text[: encoding.offsets[max_length - 1][1]] if len(encoding.ids) > max_length else text
        for text, encoding in zip(beginnings, encodings, strict=True)
    ]
    occurrences = Counter("".join(texts))
    characters: Counter[str] = Counter()
    for character, count in sorted(occurrences.items()):
        if character.isalnum():
            characters[script_of(character)] += count
    forms = Vocabulary(tokenizer).forms
    fragments = {number for number, form in enumerate(forms) if form is not None and form.is_bytes}
    read = [
        (number, text[start:stop])
        for encoding, text in zip(encodings, texts, strict=True)
        for number, (start, stop) in zip(encoding.ids[:max_length], encoding.offsets[:max_length], strict=True)
    ]
    total, pieces = len(read), sum(number in fragments for number, _ in read)
    unknown = [piece for number, piece in read if number == tokenizer.unk_token_id and not piece.isspace()]
    unread = Counter(script_of(character) for piece in unknown for character in piece if character.isalnum())
    letters = max(characters.total(), 1)
    altered = {}
    for loss in normalizer_losses(tokenizer.backend_tokenizer, occurrences):
        unread[loss.script] += loss.counts.get("dropped", 0)
        share = sum(loss.counts.get(kind, 0) / loss.characters for kind in ("dropped", "decomposed", "stripped"))
        if share > 0.2 and characters[loss.script] >= 0.01 * letters:
            altered[loss.script] = share
    lost = {
        script: unread[script] / count
        for script, count in characters.most_common()
        if count >= 0.01 * letters and unread[script] > 0.5 * count
    }
    rate, byte_share = len(unknown) / max(total, 1), pieces / max(total, 1)
    seen = f"{rate:.1%} of {total} tokens of {len(texts)} target texts are unknown"
    if lost:
        seen += "; unread " + ", ".join(f"{share:.0%} of {script}" for script, share in lost.items())
    if altered:
        seen += "; the normalizer takes apart " + ", ".join(f"{share:.0%} of {name}" for name, share in altered.items())
    if byte_share > BYTE_PIECES:
        seen += f"; {byte_share:.0%} of the tokens are pieces of characters"
    if not total or rate > UNKNOWN[1]:
        encodings = whole_encodings(tokenizer, [text.lower() for text in texts])
        lowered = [number for encoding in encodings for number in encoding.ids[:max_length]]
        known = next((name for name in (*lost, *characters) if name not in ("Common", "Inherited")), "these texts")
        advice = (
            f"Name a tokenizer that knows {known} (vocabulary.tokenizer), or train one on this corpus "
            '(vocabulary.kind = "trained").'
        )
        if lowered.count(tokenizer.unk_token_id) < 0.5 * rate * len(lowered):
            advice = (
                "Its tokens are in lower case, and texts are not lower-cased. Name it as vocabulary.tokenizer with "
                'casing.input = "lowercase".'
            )
        return "fail", seen, advice
    if rate > UNKNOWN[0] or lost or altered or byte_share > BYTE_PIECES:
        advice = "vtkit fragmentation CORPUS -t TOKENIZER shows the characters that cause it."
        return "warn", seen, advice
    return "pass", seen, ""
