"""All that can be said of a vocabulary without a model: its tokenizer, its make-up, what is wasted, what it shares.

What ``vtkit inspect-vocab --json`` prints are these classes, field by field; every number is a count of tokens unless
its name says otherwise.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from vtkit.data.sampling import spread
from vtkit.data.text import batches
from vtkit.vocabulary.casing import is_cased
from vtkit.vocabulary.composition import Composition, Han, compose, kind_without_letters
from vtkit.vocabulary.existing import special_roles
from vtkit.vocabulary.forms import Vocabulary, tokens, whole_encodings
from vtkit.vocabulary.notation import Notation, steps_of
from vtkit.vocabulary.overlap import find_overlap
from vtkit.vocabulary.reachability import duplicates, unreachable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EXAMPLES = 8  # tokens shown of a group
LONGEST_SHOWN = 40  # characters of a pattern that are shown


@dataclass(frozen=True)
class InspectedVocabulary:
    """Vocabulary statistics that need no model: algorithm, composition, wasted tokens, overlap."""

    name: str
    size: int
    algorithm: str
    normalizer: list[str]  # its steps, in words
    special: dict[str, dict[str, Any]]  # role -> the ``token`` that has it, such as [MASK], and its ``id``
    other_special: list[str]
    composition: Composition
    casing: dict[str, int]
    """Tokens with letters by case: ``cased`` (with an upper-case letter), ``lower_case``, ``script_without_case``."""

    continuations: dict[str, Any]
    """The ``count`` of tokens that continue a word, ``of`` all with letters, and their ``share``."""

    characters: dict[str, Any]
    """``mean``, ``median``, ``longest`` and ``histogram`` of the lengths of tokens without their word-start marks."""

    digits: int
    punctuation: int
    unused: int
    duplicates: dict[str, Any]
    """The ``count`` of tokens whose text an earlier one has too once it is normalised, and ``examples`` of both."""

    unreachable: dict[str, Any]
    """The ``count`` of tokens that the tokenizer never makes, not even of their own text, and ``examples``."""


@dataclass(frozen=True)
class Inspection:
    """Several vocabularies, what they share, and how much of each a corpus uses."""

    vocabularies: list[InspectedVocabulary]
    overlap: dict[str, Any] | None = None
    """The overlap rule's ``mode``, and the ``matrix`` of every vocabulary (row, the source) with every other (column,
    the target): how many tokens they share, ``count``, and the ``share`` of the target that these are."""

    corpus: list[dict[str, Any]] | None = None
    """How much of each vocabulary the ``texts`` of a corpus need: ``occurrences`` of tokens in them, tokens that are
    ``used``, their ``share`` of the vocabulary, and the most frequent ones that make up ``nine_tenths`` of all."""


def inspect_vocabulary(
    tokenizer: PreTrainedTokenizerFast, name: str, languages: Sequence[str], han: Han = "zh"
) -> InspectedVocabulary:
    """Statistics of the vocabulary of ``tokenizer``.

    Args:
        languages: codes of the languages to tell apart (:func:`vtkit.vocabulary.composition.parse_languages`).
        han: what Han characters that Chinese, Japanese and Korean share count as.
    """
    vocabulary = Vocabulary(tokenizer)
    listed, forms, roles = vocabulary.legible, vocabulary.forms, special_roles(tokenizer)
    composition = compose(tokenizer, languages, han)
    again, never = duplicates(tokenizer, forms), unreachable(tokenizer, forms)
    texts = [form.surface for form in forms if form is not None]
    lengths = [len(text) for text in texts if text] or [0]
    lettered = [form for form in forms if form is not None and kind_without_letters(form) is None]
    continuing = sum(not form.starts_word for form in lettered)
    cased = sum(is_cased(form) for form in lettered)
    caseless = sum(form.surface.lower() == form.surface.upper() for form in lettered)
    added = sorted(tokenizer.added_tokens_decoder.items())
    return InspectedVocabulary(
        name=name,
        size=len(listed),
        algorithm=algorithm(tokenizer),
        normalizer=normalizer_steps(tokenizer),
        special={role: {"token": listed[number], "id": number} for role, number in roles.items()},
        other_special=[token.content for number, token in added if token.special and number not in roles.values()],
        composition=composition,
        casing={"cased": cased, "lower_case": len(lettered) - cased - caseless, "script_without_case": caseless},
        continuations={"count": continuing, "of": len(lettered), "share": continuing / max(1, len(lettered))},
        characters={
            "mean": round(statistics.fmean(lengths), 3),
            "median": statistics.median_low(lengths),
            "longest": max(lengths),
            "histogram": {str(length): count for length, count in sorted(Counter(lengths).items()) if length},
        },
        digits=sum(any(map(str.isdigit, text)) for text in texts),
        punctuation=composition.etc.get("punctuation", 0),
        unused=composition.etc.get("unused", 0),
        duplicates={
            "count": len(again),
            "examples": [[listed[n], listed[first]] for n, first in spread(again, EXAMPLES)],
        },
        unreachable={"count": len(never), "examples": [listed[number] for number in spread(never, EXAMPLES)]},
    )


def corpus_use(tokenizers: Sequence[PreTrainedTokenizerFast], texts: Iterable[str]) -> list[dict[str, Any]]:
    """How much of each vocabulary the texts need."""
    counts = [np.zeros(len(tokens(tokenizer)), dtype=np.int64) for tokenizer in tokenizers]
    read = 0
    for batch in batches(texts):
        read += len(batch)
        for tokenizer, count in zip(tokenizers, counts, strict=True):
            for encoding in whole_encodings(tokenizer, batch):
                count += np.bincount(encoding.ids, minlength=len(count))
    return [
        {
            "texts": read,
            "occurrences": int(count.sum()),
            "used": int((count > 0).sum()),
            "share": float((count > 0).mean()),
            "nine_tenths": int(np.searchsorted(np.cumsum(np.sort(count)[::-1]), 0.9 * count.sum())) + bool(count.any()),
        }
        for count in counts
    ]


def overlap_matrix(tokenizers: Sequence[PreTrainedTokenizerFast]) -> dict[str, Any]:
    """Overlap of every vocabulary with every other, by the overlap rule (:attr:`Inspection.overlap`)."""
    vocabularies = [Vocabulary(tokenizer) for tokenizer in tokenizers]
    overlaps = [[find_overlap(source, target) for target in vocabularies] for source in vocabularies]
    matrix = [[{"count": len(cell.overlap_ids), "share": cell.share} for cell in row] for row in overlaps]
    return {"mode": "exact+symbols", "matrix": matrix}


def algorithm(tokenizer: PreTrainedTokenizerFast) -> str:
    """How the tokenizer cuts words into tokens, in words."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    notation = Notation.of(tokenizer.backend_tokenizer)
    of_characters = f"BPE with {notation.prefix} continuations" if notation.prefix else "BPE"
    names = {"WordLevel": "whole words", "BPE": "byte-level BPE" if notation.byte_level else of_characters}
    name = names.get(model["type"], model["type"])
    return f"{name}, byte fallback" if model.get("byte_fallback") else name


def normalizer_steps(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """The steps of the tokenizer's normalizer in words, in their order; empty for a tokenizer without one."""
    return [words for step in steps_of(tokenizer.backend_tokenizer.normalizer) for words in _words(step)]


STEPS = {  # kind of normalizer -> what it does
    **{form: f"Unicode {form}" for form in ("NFC", "NFD", "NFKC", "NFKD")},
    "Lowercase": "lower case",
    "StripAccents": "accents stripped",
    "Strip": "white space at the ends stripped",
    "Precompiled": "SentencePiece character map (compatibility forms)",
    "Nmt": "control characters removed (NMT)",
    "ByteLevel": "bytes spelled as characters",
}


BERT_STEPS = ("BERT cleaning", "Chinese characters spaced", "accents stripped", "lower case")


def _words(step: Mapping[str, Any]) -> Iterator[str]:
    match step["type"]:
        case "Sequence":  # whose own steps follow
            return
        case "BertNormalizer":
            # Left open, accents go with lower-casing.
            lower, strips = step["lowercase"], step["strip_accents"]
            done = step["clean_text"], step["handle_chinese_chars"], lower if strips is None else strips, lower
            yield from compress(BERT_STEPS, done)
        case "Prepend":
            yield f"{_shown(step['prepend'])} put in front"
        case "Replace":
            pattern = step["pattern"].get("Regex") or step["pattern"].get("String")
            content = step["content"]
            yield f"{_shown(pattern)} {f'replaced by {_shown(content)}' if content else 'removed'}"
        case other:
            yield STEPS.get(other, str(other))


def _shown(text: str) -> str:
    shortened = f"{text[:LONGEST_SHOWN]}…" if len(text) > LONGEST_SHOWN else text
    return "a space" if text == " " else f"“{shortened}”"
