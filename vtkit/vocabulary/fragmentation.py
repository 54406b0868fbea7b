"""Fragmentation of a corpus by tokenizers: tokens a word, words split, unknown and lost characters.

A corpus of up to :data:`SAMPLE_CHARACTERS` characters is tokenized text by text. Of a larger one a sample is, drawn
with a seed while it is read, so that memory and time stay bounded; the result says how much of the corpus was read.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from functools import cache, partial
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vtkit.data.text import batches
from vtkit.data.word_counts import text_pieces
from vtkit.system.errors import DataError
from vtkit.vocabulary.composition import LANGUAGES, LANGUAGES_OF_SCRIPT
from vtkit.vocabulary.existing import special_roles
from vtkit.vocabulary.forms import Vocabulary, whole_encodings
from vtkit.vocabulary.normalization import ScriptLoss, normalizer_losses
from vtkit.vocabulary.words import Punctuation, script_of_text, word_spans

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Span = tuple[int, int]  # where a word begins and ends, in characters

SAMPLE_CHARACTERS = 10_000_000
"""Characters that are tokenized of a corpus. The share of split words is then known to about 0.1 %."""

PIECE_CHARACTERS = 100_000  # a longer text is cut in front of white space into pieces of about this length
LONGEST_WORD = 1_000_000  # characters without white space; what is longer is no text of words
LANGUAGE_CHARACTERS = 200  # characters of a text that its language is read from


def ratio(part: str, whole: str) -> property:
    """The quotient of two counts, 0.0 if the second is 0."""
    return property(lambda counts: getattr(counts, part) / getattr(counts, whole) if getattr(counts, whole) else 0.0)


@dataclass(frozen=True)
class Counts:
    """Counts of the tokens that one tokenizer makes of some texts."""

    texts: int = 0
    words: int = 0
    tokens: int = 0  # tokens, without the special tokens around a text
    word_tokens: int = 0  # tokens that hold a part of a word: not punctuation on its own, not a bare word-start mark
    split_words: int = 0  # words of more than one token
    unknown_words: int = 0  # words with the unknown token in them
    lost_words: int = 0  # words of no token at all
    unknown_tokens: int = 0

    tokens_per_word = ratio("word_tokens", "words")  # below 1 if tokens hold several words
    split_share = ratio("split_words", "words")
    tokens_per_text = ratio("tokens", "texts")
    unknown_rate = ratio("unknown_tokens", "tokens")
    unknown_word_share = ratio("unknown_words", "words")

    def as_dict(self) -> dict[str, int | float]:
        """Every count and every ratio by its name."""
        members = {name: own for kind in reversed(type(self).__mro__) for name, own in vars(kind).items()}
        return asdict(self) | {name: getattr(self, name) for name, own in members.items() if isinstance(own, property)}


@dataclass(frozen=True)
class QueryCounts(Counts):
    """Counts of queries, which also say how many queries have a split word."""

    split_texts: int = 0  # texts with a split word
    unknown_texts: int = 0  # texts with the unknown token

    split_text_share = ratio("split_texts", "texts")
    unknown_text_share = ratio("unknown_texts", "texts")


def summed(rows: Iterable[Iterable[int]]) -> list[int]:
    """The sum of each column; no columns if there are no rows."""
    return [sum(column) for column in zip(*rows, strict=True)]


class FragmentedWord(NamedTuple):
    """A word that costs many tokens."""

    word: str
    occurrences: int
    extra_tokens: int  # tokens beyond the first of each occurrence, over all occurrences
    pieces: list[str]
    """Its tokens behind a space. Byte-level tokens are read as text, with bytes that are no whole character as
    ``<E0>``; other tokens are as the vocabulary writes them."""


@dataclass(frozen=True)
class Fragmentation:
    """Fragmentation of a corpus, or of a sample of it, by one tokenizer."""

    name: str
    characters_read: int
    characters: int  # of the whole corpus; more than `characters_read` if it was sampled
    total: Counts
    groups: dict[str, Counts]  # by language or script of the text, most words first
    entropy_bits: float  # unigram entropy of the tokens, `-sum_t p(t) log2 p(t)`
    distinct_tokens: int  # tokens of the vocabulary that occur
    words: list[FragmentedWord]  # the words with most extra tokens
    unknown_characters: list[tuple[str, int]]
    """Characters behind unknown tokens, and how many of these tokens have each; an empty one where no single character
    is to blame: the word is longer than the tokenizer takes, or a character is known at the beginning of a word only.
    """

    losses: list[ScriptLoss]
    queries: QueryCounts | None


def measure_fragmentation(
    texts: Iterable[str],
    tokenizers: Mapping[str, PreTrainedTokenizerFast],
    *,
    queries: Iterable[str] | None = None,
    punctuation: Punctuation = "keep",
    group_of: Callable[[str], str] = script_of_text,
    top: int = 20,
    most_characters: int = SAMPLE_CHARACTERS,
    seed: int = 0,
) -> list[Fragmentation]:
    """Measure each of ``tokenizers`` on ``texts``, read once.

    White space around a text does not count, nor does a text of nothing else. Up to ``most_characters`` the numbers
    are those of tokenizing every text; a text of more than :data:`PIECE_CHARACTERS` is tokenized in pieces,
    which may make a token of difference at a cut with tokenizers that look across white space.

    Args:
        tokenizers: by the name to report them under.
        queries: texts that are also told apart by whether one of their words is split.
        punctuation: whether punctuation inside a white-space word ends it (:mod:`vtkit.vocabulary.words`).
        group_of: the group, a language or a script, under which a text is counted.
        top: entries in the lists of words and of unknown characters.
        most_characters: of a larger corpus, a sample of about this size is tokenized.
        seed: of the sample.
    """
    sample, characters = _sample(texts, most_characters, seed)
    if not sample:
        raise DataError("There is no text in the corpus.")
    meters = {name: _Meter(tokenizer) for name, tokenizer in tokenizers.items()}
    texts_read, begins = zip(*sample, strict=True)
    occurrences, character_counts = _read(texts_read, begins, meters.values(), punctuation, group_of)
    query_meters = {name: _Meter(tokenizer) for name, tokenizer in tokenizers.items()}
    _read(filter(None, map(str.strip, queries or ())), repeat(True), query_meters.values(), punctuation)
    results = []
    for name, meter in meters.items():
        groups = {group: Counts(*summed(rows)[:-2]) for group, rows in meter.rows.items()}
        total = Counts(*summed(map(astuple, groups.values())))
        shares = np.array(list(meter.token_counts.values())) / max(1, total.tokens)
        query_rows = query_meters[name].rows
        results.append(
            Fragmentation(
                name=name,
                characters_read=sum(map(len, texts_read)),
                characters=characters,
                total=total,
                groups=dict(sorted(groups.items(), key=lambda item: (-item[1].words, item[0]))),
                entropy_bits=abs(float(shares @ np.log2(shares))),
                distinct_tokens=len(shares),
                words=[
                    FragmentedWord(word, occurrences[word], extra, meter.pieces(word))
                    for word, extra in _most(meter.extra_tokens, top)
                ],
                unknown_characters=_most(meter.unknown_characters, top),
                losses=normalizer_losses(tokenizers[name].backend_tokenizer, character_counts),
                queries=QueryCounts(*summed(query_rows[""])) if query_rows else None,
            )
        )
    return results


def language_groups() -> Callable[[str], str]:
    """Groups texts by language: that of their script where it has only one, else what lingua says of their opening."""
    from lingua import LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_all_languages().build()

    def group(text: str) -> str:
        script = script_of_text(text)
        languages = LANGUAGES_OF_SCRIPT.get(script, ()) if script != "Han" else ("zh",)
        if len(languages) == 1:
            return LANGUAGES[languages[0]]
        detected = detector.detect_language_of(text[:LANGUAGE_CHARACTERS]) if languages else None
        return str(detected.name).capitalize() if detected is not None else f"{script} script"

    return group


def _sample(texts: Iterable[str], most_characters: int, seed: int) -> tuple[list[tuple[str, bool]], int]:
    """The pieces of a corpus in their order, each with whether a text begins with it, and the characters of the whole
    corpus; of a corpus with more than ``most_characters`` characters, about that many by chance."""
    generator = random.Random(seed)
    kept: list[tuple[float, int, str, bool]] = []  # a random priority, of which the sample keeps the largest, first
    characters = kept_characters = 0
    for text in filter(None, map(str.strip, texts)):
        for place, piece in enumerate(text_pieces(text, PIECE_CHARACTERS)):
            if len(piece) > LONGEST_WORD:
                raise DataError(
                    f"The corpus has about {len(piece):,} characters without white space, beginning {piece[:40]!r}: "
                    "this does not look like text. Is it the right file? If it is text, break it into lines."
                )
            heapq.heappush(kept, (generator.random(), characters, piece, place == 0))
            characters += len(piece)
            kept_characters += len(piece)
            while kept_characters > most_characters and len(kept) > 1:
                kept_characters -= len(heapq.heappop(kept)[2])
    return [(piece, begins) for _, _, piece, begins in sorted(kept, key=itemgetter(1))], characters


def _read(
    texts: Iterable[str],
    begins: Iterable[bool],
    meters: Iterable[_Meter],
    punctuation: Punctuation,
    group_of: Callable[[str], str] = lambda text: "",
) -> tuple[Counter[str], Counter[str]]:
    """Measure ``texts`` with every meter, and count their words and their characters."""
    occurrences: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    begins = iter(begins)
    for batch in batches(texts):
        words = [list(word_spans(text, punctuation)) for text in batch]
        for text, spans in zip(batch, words, strict=True):
            characters.update(text)
            occurrences.update(text[start:end] for start, end in spans)
        groups = [(group_of(text), next(begins)) for text in batch]
        for meter in meters:
            meter.measure(batch, words, groups)
    return occurrences, characters


class _Meter:
    """Counts of one tokenizer, text by text."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.encodings = partial(whole_encodings, tokenizer, offsets=True)
        vocabulary = Vocabulary(tokenizer)
        self.marks = {
            number
            for number, token in enumerate(vocabulary.tokens)
            if token and not vocabulary.notation.read(token).surface.strip(" ")
        }
        self.unknown = special_roles(tokenizer).get("unk", -1)
        self.rows: dict[str, list[tuple[int, ...]]] = {}  # counts of each text of a group, as QueryCounts lists them
        self.token_counts: Counter[int] = Counter()
        self.extra_tokens: Counter[str] = Counter()
        self.unknown_characters: Counter[str] = Counter()
        self.legible = vocabulary.legible
        self.is_unknown = cache(lambda text: self.unknown in self.encodings([text])[0].ids)

    def measure(self, texts: list[str], words: list[list[Span]], groups: list[tuple[str, bool]]) -> None:
        """Add texts: each, its words, its group and whether it is the beginning of one."""
        for text, spans, (group, begins), encoding in zip(texts, words, groups, self.encodings(texts), strict=True):
            starts, ends = [start for start, _ in spans], [end for _, end in spans]
            pieces, word_tokens = [0] * len(spans), 0
            unknown_words: set[int] = set()
            for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
                if number == self.unknown:
                    to_blame = [character for character in set(text[start:end]) if self.is_unknown(character)]
                    self.unknown_characters.update(to_blame or [""])
                held = range(bisect_right(ends, start), bisect_left(starts, end))
                if not held or end <= start or number in self.marks:
                    continue
                word_tokens += 1
                for word in held:
                    pieces[word] += 1
                if number == self.unknown:
                    unknown_words.update(held)
            split, unknown = sum(count > 1 for count in pieces), encoding.ids.count(self.unknown)
            counts = (len(spans), len(encoding.ids), word_tokens, split, len(unknown_words), pieces.count(0), unknown)
            self.rows.setdefault(group, []).append((begins, *counts, split > 0, unknown > 0))
            self.token_counts.update(encoding.ids)
            for (start, end), count in zip(spans, pieces, strict=True):
                if count > 1:
                    self.extra_tokens[text[start:end]] += count - 1

    def pieces(self, word: str) -> list[str]:
        """The tokens of ``word`` behind a space, as a person reads them."""
        (encoding,) = self.encodings([f"a {word}"])
        tokens = zip(encoding.ids, encoding.offsets, strict=True)
        return [self.legible[number] for number, (_, end) in tokens if end > 2 and number not in self.marks]


def _most(counts: Counter[str], top: int) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:top]
