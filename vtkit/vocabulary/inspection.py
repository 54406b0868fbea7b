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
from vtkit.vocabulary.forms import Vocabulary, tokens
from vtkit.vocabulary.notation import Notation, steps_of
from vtkit.vocabulary.overlap import find_overlap
from vtkit.vocabulary.reachability import duplicates, unreachable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EXAMPLES = 8  # tokens shown of a group
LONGEST_SHOWN = 40  # characters of a pattern that are shown


@dataclass(frozen=True)
class SpecialToken:
    """A token with a role, such as ``[MASK]``."""

    token: str
    id: int


@dataclass(frozen=True)
class Casing:
    """Tokens with letters by case."""

    cased: int  # with an upper-case letter
    lower_case: int
    script_without_case: int


@dataclass(frozen=True)
class Continuations:
    """Tokens with letters that continue a word."""

    count: int
    of: int
    share: float


@dataclass(frozen=True)
class Characters:
    """Length of the tokens' text without their word-start marks, in characters."""

    mean: float
    median: int
    longest: int
    histogram: dict[str, int]


@dataclass(frozen=True)
class Wasted:
    """Tokens that take up a row for nothing."""

    count: int
    examples: list[Any]


@dataclass(frozen=True)
class InspectedVocabulary:
    """Vocabulary statistics that need no model: algorithm, composition, wasted tokens, overlap."""

    name: str
    size: int
    algorithm: str
    normalizer: list[str]  # its steps, in words
    special: dict[str, SpecialToken]  # by role
    other_special: list[str]
    composition: Composition
    casing: Casing
    continuations: Continuations
    characters: Characters
    digits: int
    punctuation: int
    unused: int
    duplicates: Wasted  # whose text another token has too once it is normalised; examples with the one before
    unreachable: Wasted  # that the tokenizer never makes, not even of their own text


@dataclass(frozen=True)
class CorpusUse:
    """How much of a vocabulary texts need."""

    texts: int
    occurrences: int  # tokens that the texts are cut into
    used: int
    share: float  # of the vocabulary, that occurs
    nine_tenths: int  # the most frequent tokens that make up 90 % of the occurrences


@dataclass(frozen=True)
class Inspection:
    """Several vocabularies, what they share, and how much of each a corpus uses."""

    vocabularies: list[InspectedVocabulary]
    overlap: dict[str, Any] | None = None
    """The overlap rule's ``mode``, and the ``matrix`` of every vocabulary (row, the source) with every other (column,
    the target): how many tokens they share, ``count``, and the ``share`` of the target that these are."""

    corpus: list[CorpusUse] | None = None


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
    mean = round(statistics.fmean(lengths), 3)
    counted = {str(length): count for length, count in sorted(Counter(lengths).items()) if length}
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
        special={role: SpecialToken(listed[number], number) for role, number in roles.items()},
        other_special=[token.content for number, token in added if token.special and number not in roles.values()],
        composition=composition,
        casing=Casing(cased, len(lettered) - cased - caseless, caseless),
        continuations=Continuations(continuing, len(lettered), continuing / max(1, len(lettered))),
        characters=Characters(mean, statistics.median_low(lengths), max(lengths), counted),
        digits=sum(any(map(str.isdigit, text)) for text in texts),
        punctuation=composition.etc.get("punctuation", 0),
        unused=composition.etc.get("unused", 0),
        duplicates=Wasted(len(again), [[listed[number], listed[first]] for number, first in spread(again, EXAMPLES)]),
        unreachable=Wasted(len(never), [listed[number] for number in spread(never, EXAMPLES)]),
    )


def corpus_use(tokenizers: Sequence[PreTrainedTokenizerFast], texts: Iterable[str]) -> list[CorpusUse]:
    """How much of each vocabulary the texts need."""
    backends = [tokenizer.backend_tokenizer for tokenizer in tokenizers]
    counts = [np.zeros(len(tokens(tokenizer)), dtype=np.int64) for tokenizer in tokenizers]
    read = 0
    for batch in batches(texts):
        read += len(batch)
        for backend, count in zip(backends, counts, strict=True):
            for encoding in backend.encode_batch_fast(batch, add_special_tokens=False):
                count += np.bincount(encoding.ids, minlength=len(count))
    return [
        CorpusUse(
            texts=read,
            occurrences=int(count.sum()),
            used=int((count > 0).sum()),
            share=float((count > 0).mean()),
            nine_tenths=int(np.searchsorted(np.cumsum(np.sort(count)[::-1]), 0.9 * count.sum())) + bool(count.any()),
        )
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
    name = {"WordLevel": "whole words"}.get(model["type"], model["type"])
    if model["type"] == "BPE" and notation.byte_level:
        name = "byte-level BPE"
    elif model["type"] == "BPE" and notation.prefix:
        name = f"BPE with {notation.prefix} continuations"
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
            stripped = step["lowercase"] if step["strip_accents"] is None else step["strip_accents"]
            yield from compress(
                BERT_STEPS, (step["clean_text"], step["handle_chinese_chars"], stripped, step["lowercase"])
            )
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
