"""How tokenizers cut up a corpus: tokens a word, words split, unknown and lost characters, several side by side.

A corpus of up to :data:`SAMPLE_CHARACTERS` characters is tokenized text by text. Of a larger one a sample is, drawn
with a seed while it is read, so that memory and time stay bounded; what was read of how much is part of the result.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vtkit.data.word_counts import pieces
from vtkit.inspect.composition import LANGUAGES, LANGUAGES_OF_SCRIPT
from vtkit.inspect.normalization import ScriptLoss, normalizer_losses
from vtkit.inspect.words import Punctuation, script_of_text, word_spans
from vtkit.system.errors import DataError
from vtkit.vocabulary.existing import special_roles
from vtkit.vocabulary.forms import legible
from vtkit.vocabulary.forms import tokens as tokens_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Integers = NDArray[np.int64]

SAMPLE_CHARACTERS = 10_000_000
"""Characters that are tokenized of a corpus. The share of split words is then known to about 0.1 %."""

PIECE_CHARACTERS = 100_000
"""A longer text is cut in front of white space into pieces of about this length."""

PAGE_CHARACTERS = 500_000
"""Characters that are tokenized at a time."""

LONGEST_WORD = 1_000_000
"""Characters without white space; what is longer is no text of words."""

LANGUAGE_CHARACTERS = 200
"""Characters of a text that its language is read from."""


@dataclass
class Counts:
    """What one tokenizer makes of some texts. Counts of several sets of texts add up."""

    RATIOS: ClassVar[tuple[str, ...]] = (
        *("tokens_per_word", "split_share", "tokens_per_text", "unknown_rate", "unknown_word_share"),
    )

    texts: int = 0
    words: int = 0

    tokens: int = 0
    """Tokens, without the special tokens around a text."""

    word_tokens: int = 0
    """Tokens that hold a part of a word: not punctuation on its own, not a bare word-start mark."""

    split_words: int = 0
    """Words of more than one token."""

    unknown_words: int = 0
    """Words with the unknown token in them."""

    lost_words: int = 0
    """Words of no token at all."""

    unknown_tokens: int = 0

    def add(self, other: Counts) -> None:
        """Add ``other``, field by field."""
        for each in fields(other):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def as_dict(self) -> dict[str, int | float]:
        """Every count and every ratio, by name."""
        return {name: getattr(self, name) for name in (*(each.name for each in fields(self)), *self.RATIOS)}

    @property
    def tokens_per_word(self) -> float:
        """Tokens that hold a part of a word, over words. Below 1 where tokens hold several words."""
        return _ratio(self.word_tokens, self.words)

    @property
    def split_share(self) -> float:
        """Share of words that are more than one token."""
        return _ratio(self.split_words, self.words)

    @property
    def tokens_per_text(self) -> float:
        """Tokens over texts."""
        return _ratio(self.tokens, self.texts)

    @property
    def unknown_rate(self) -> float:
        """Share of tokens that are the unknown token."""
        return _ratio(self.unknown_tokens, self.tokens)

    @property
    def unknown_word_share(self) -> float:
        """Share of words with the unknown token in them."""
        return _ratio(self.unknown_words, self.words)


@dataclass
class QueryCounts(Counts):
    """Counts of texts that were also told apart."""

    RATIOS: ClassVar[tuple[str, ...]] = (*Counts.RATIOS, "split_text_share", "unknown_text_share")

    split_texts: int = 0
    """Texts with a split word."""

    unknown_texts: int = 0
    """Texts with the unknown token."""

    @property
    def split_text_share(self) -> float:
        """Share of texts with a split word."""
        return _ratio(self.split_texts, self.texts)

    @property
    def unknown_text_share(self) -> float:
        """Share of texts with the unknown token."""
        return _ratio(self.unknown_texts, self.texts)


class FragmentedWord(NamedTuple):
    """A word that costs many tokens."""

    word: str
    occurrences: int

    extra_tokens: int
    """Tokens beyond the first of each occurrence, over all occurrences."""

    pieces: list[str]
    """Its tokens behind a space. Byte-level tokens are read as text, with bytes that are no whole character as
    ``<E0>``; other tokens are as the vocabulary writes them."""


class UnknownCharacter(NamedTuple):
    """A character behind unknown tokens."""

    character: str
    """Empty where no single character is to blame: the word is longer than the tokenizer takes, or a character is
    known at the beginning of a word only."""

    tokens: int
    """Unknown tokens with this character in them."""


@dataclass(frozen=True)
class Fragmentation:
    """What one tokenizer makes of a corpus, or of a sample of it."""

    name: str
    characters_read: int
    characters: int
    """Of the whole corpus; more than ``characters_read`` if it was sampled."""

    total: Counts
    groups: dict[str, Counts]
    """By language or script of the text, most words first."""

    entropy_bits: float
    """Unigram entropy of the tokens, ``-sum_t p(t) log2 p(t)``."""

    distinct_tokens: int
    """Tokens of the vocabulary that occur."""

    words: list[FragmentedWord]
    """The words with most extra tokens."""

    unknown_characters: list[UnknownCharacter]
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
        texts: the corpus, one document each.
        tokenizers: by the name to report them under.
        queries: texts that are also told apart by whether one of their words is split.
        punctuation: whether punctuation inside a white-space word ends it (:mod:`vtkit.inspect.words`).
        group_of: the group, a language or a script, under which a text is counted.
        top: entries in the lists of words and of unknown characters.
        most_characters: of a larger corpus, a sample of about this size is tokenized.
        seed: of the sample.

    Raises:
        DataError: there is no text, or one too long without white space.
    """
    sample = _Sample(texts, most_characters, seed)
    if not sample.pieces:
        raise DataError("There is no text in the corpus.")
    words: dict[str, int] = {}
    meters = [_Meter(name, tokenizer) for name, tokenizer in tokenizers.items()]
    characters = np.zeros(0x110000, dtype=np.int64)
    occurrences: Counter[int] = Counter()
    for batch in _batches(sample.pieces):
        page = _Page.of([piece.text for piece in batch], words, punctuation)
        characters += np.bincount(_codes(page.text), minlength=len(characters))
        occurrences.update(page.word_ids.tolist())
        groups = [group_of(piece.text) for piece in batch]
        begins = np.array([piece.begins for piece in batch], dtype=np.int64)
        for meter in meters:
            meter.measure(page, groups, begins)
    asked = (_Piece(0.0, number, query, True) for number, query in enumerate(_stripped(queries or ())))
    for batch in _batches(asked):
        page = _Page.of([piece.text for piece in batch], words, punctuation)
        for meter in meters:
            meter.measure_queries(page)
    listed = list(words)
    return [meter.report(listed, occurrences, characters, sample, top) for meter in meters]


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


class _Piece(NamedTuple):
    """A text, or a part of a long one."""

    priority: float
    """Random; the sample keeps the largest."""

    number: int
    text: str

    begins: bool
    """Whether a text begins with it."""


class _Sample:
    """Pieces of a corpus in their order: all, or so many characters of them by chance."""

    def __init__(self, texts: Iterable[str], most_characters: int, seed: int) -> None:
        self.characters = self.characters_read = 0
        generator = random.Random(seed)
        kept: list[_Piece] = []
        for number, (text, begins) in enumerate(_pieces(texts)):
            heapq.heappush(kept, _Piece(generator.random(), number, text, begins))
            self.characters += len(text)
            self.characters_read += len(text)
            while self.characters_read > most_characters and len(kept) > 1:
                self.characters_read -= len(heapq.heappop(kept).text)
        self.pieces = sorted(kept, key=lambda piece: piece.number)


def _stripped(texts: Iterable[str]) -> Iterator[str]:
    return (text for text in map(str.strip, texts) if text)


def _pieces(texts: Iterable[str]) -> Iterator[tuple[str, bool]]:
    for text in _stripped(texts):
        for position, piece in enumerate(pieces(text, PIECE_CHARACTERS)):
            if len(piece) > LONGEST_WORD:
                raise DataError(
                    f"The corpus has about {len(piece):,} characters without white space, beginning {piece[:40]!r}: "
                    "no text of words. Is it the right file? If it is text, break it into lines."
                )
            yield piece, position == 0


def _batches(texts: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """:data:`PAGE_CHARACTERS` or a little more at a time."""
    batch: list[_Piece] = []
    characters = 0
    for piece in texts:
        batch.append(piece)
        characters += len(piece.text)
        if characters >= PAGE_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


@dataclass(frozen=True)
class _Page:
    """Texts that are tokenized together. Positions are characters of all of them, one after the other."""

    texts: list[str]
    text_starts: Integers
    word_ids: Integers
    word_texts: Integers
    """The text that each word is in, (words,)."""

    words_begun: Integers
    """Words that begin before each position, (characters + 1,)."""

    words_ended: Integers
    """Words that end at or before each position, (characters + 1,)."""

    @classmethod
    def of(cls, texts: list[str], word_ids: dict[str, int], punctuation: Punctuation) -> _Page:
        """A page of ``texts``; new words are added to ``word_ids``."""
        starts = np.cumsum([0, *map(len, texts)])
        spans: list[tuple[int, int]] = []
        ids: list[int] = []
        inside: list[int] = []
        for number, text in enumerate(texts):
            for begin, end in word_spans(text, punctuation):
                spans.append((int(starts[number]) + begin, int(starts[number]) + end))
                ids.append(word_ids.setdefault(text[begin:end], len(word_ids)))
                inside.append(number)
        bounds = np.array(spans, dtype=np.int64).reshape(-1, 2)
        size = int(starts[-1]) + 1
        begun = np.cumsum(np.bincount(bounds[:, 0] + 1, minlength=size))
        ended = np.cumsum(np.bincount(bounds[:, 1], minlength=size))
        return cls(texts, starts[:-1], np.array(ids, np.int64), np.array(inside, np.int64), begun, ended)

    @property
    def text(self) -> str:
        """All texts, one after the other."""
        return "".join(self.texts)


class _Meter:
    """One tokenizer with all that is counted of it."""

    def __init__(self, name: str, tokenizer: PreTrainedTokenizerFast) -> None:
        self.name = name
        self.backend: Tokenizer = tokenizer.backend_tokenizer
        vocabulary = tokens_of(tokenizer)
        mark = "Ġ" if '"ByteLevel"' in _state(self.backend) else "▁"
        self.is_mark = np.array([token != "" and not token.strip(f"{mark} ") for token in vocabulary], dtype=bool)
        self.unknown = special_roles(tokenizer).get("unk", -1)
        self.groups: dict[str, Counts] = {}
        self.queries: QueryCounts | None = None
        self.token_counts = np.zeros(len(vocabulary), dtype=np.int64)
        self.extra_tokens: Counter[int] = Counter()
        self.unknown_characters: Counter[str] = Counter()
        self._legible = legible(tokenizer)
        self._is_unknown: dict[str, bool] = {}

    def measure(self, page: _Page, groups: list[str], begins: Integers) -> None:
        """Add a page of the corpus: the group of each text, and 1 for those with which one begins."""
        counts, tokens = self._count(page)
        for group in dict.fromkeys(groups):
            members = np.array([each == group for each in groups])
            totals = {name: int(values[members].sum()) for name, values in counts.items()}
            self.groups.setdefault(group, Counts()).add(Counts(texts=int(begins[members].sum()), **totals))
        self.token_counts += np.bincount(tokens.ids, minlength=len(self.token_counts))
        split = np.flatnonzero(tokens.pieces > 1)
        for word, extra in zip(page.word_ids[split].tolist(), (tokens.pieces[split] - 1).tolist(), strict=True):
            self.extra_tokens[word] += extra
        unknown = np.flatnonzero(tokens.ids == self.unknown)
        text = page.text if len(unknown) else ""
        for number in unknown:
            for character in self._to_blame(text[tokens.starts[number] : tokens.ends[number]]) or ("",):
                self.unknown_characters[character] += 1

    def measure_queries(self, page: _Page) -> None:
        """Add a page of queries."""
        counts, _ = self._count(page)
        totals = {name: int(values.sum()) for name, values in counts.items()}
        split, unknown = (int((counts[name] > 0).sum()) for name in ("split_words", "unknown_tokens"))
        self.queries = self.queries or QueryCounts()
        self.queries.add(QueryCounts(texts=len(page.texts), **totals, split_texts=split, unknown_texts=unknown))

    def _count(self, page: _Page) -> tuple[dict[str, Integers], _Tokens]:
        """The counts of each text, (texts,) each, and the tokens."""
        encodings = self.backend.encode_batch(page.texts, add_special_tokens=False)
        lengths = [len(encoding) for encoding in encodings]
        ids = np.fromiter(chain.from_iterable(e.ids for e in encodings), dtype=np.int64, count=sum(lengths))
        offsets = chain.from_iterable(chain.from_iterable(e.offsets) for e in encodings)
        spans = np.fromiter(offsets, dtype=np.int64, count=2 * len(ids)).reshape(-1, 2)
        spans += np.repeat(page.text_starts, lengths)[:, None]
        starts, ends = spans[:, 0], spans[:, 1]
        first, behind = page.words_ended[starts], page.words_begun[ends]
        in_word = (behind > first) & (ends > starts) & ~self.is_mark[ids]
        unknown = ids == self.unknown
        number = len(page.word_ids)
        held = _coverage(first[in_word], behind[in_word], number)
        spoiled = _coverage(first[in_word & unknown], behind[in_word & unknown], number)
        texts = np.repeat(np.arange(len(page.texts)), lengths)

        def a_text(inside: Integers) -> Integers:
            return np.bincount(inside, minlength=len(page.texts))

        counts = {
            "words": a_text(page.word_texts),
            "tokens": a_text(texts),
            "word_tokens": a_text(texts[in_word]),
            "split_words": a_text(page.word_texts[held > 1]),
            "unknown_words": a_text(page.word_texts[spoiled > 0]),
            "lost_words": a_text(page.word_texts[held == 0]),
            "unknown_tokens": a_text(texts[unknown]),
        }
        return counts, _Tokens(ids, starts, ends, held)

    def report(
        self, words: list[str], occurrences: Counter[int], characters: Integers, sample: _Sample, top: int
    ) -> Fragmentation:
        """All that was counted, lists cut at ``top`` entries.

        Args:
            words: the word of each id, (words,).
            occurrences: of each id.
            characters: occurrences of each code point, (0x110000,).
        """
        total = Counts()
        for counts in self.groups.values():
            total.add(counts)
        shares = self.token_counts[self.token_counts > 0] / max(1, total.tokens)
        most_extra = sorted(self.extra_tokens.items(), key=lambda item: (-item[1], words[item[0]]))[:top]
        unknown = sorted(self.unknown_characters.items(), key=lambda item: (-item[1], item[0]))[:top]
        return Fragmentation(
            name=self.name,
            characters_read=sample.characters_read,
            characters=sample.characters,
            total=total,
            groups=dict(sorted(self.groups.items(), key=lambda item: (-item[1].words, item[0]))),
            entropy_bits=abs(float(shares @ np.log2(shares))),
            distinct_tokens=len(shares),
            words=[
                FragmentedWord(words[number], occurrences[number], extra, self._pieces(words[number]))
                for number, extra in most_extra
            ],
            unknown_characters=[UnknownCharacter(*entry) for entry in unknown],
            losses=normalizer_losses(self.backend, characters),
            queries=self.queries,
        )

    def _pieces(self, word: str) -> list[str]:
        encoding = self.backend.encode(f"a {word}", add_special_tokens=False)
        tokens = zip(encoding.ids, encoding.offsets, strict=True)
        return [self._legible[number] for number, (_, end) in tokens if end > 2 and not self.is_mark[number]]

    def _to_blame(self, text: str) -> list[str]:
        """The characters of ``text`` that are unknown on their own."""
        characters = sorted(set(text))
        for character in characters:
            if character not in self._is_unknown:
                ids = self.backend.encode(character, add_special_tokens=False).ids
                self._is_unknown[character] = self.unknown in ids
        return [character for character in characters if self._is_unknown[character]]


class _Tokens(NamedTuple):
    """The tokens of a page."""

    ids: Integers
    starts: Integers
    ends: Integers
    pieces: Integers
    """Tokens of each word of the page, (words,)."""


def _state(backend: Tokenizer) -> str:
    return "null" if backend.pre_tokenizer is None else backend.pre_tokenizer.__getstate__().decode()


def _codes(text: str) -> Integers:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int64)


def _coverage(first: Integers, behind: Integers, number: int) -> Integers:
    """How many of the ranges ``first`` to ``behind`` (not included) each of ``number`` places lies in."""
    changes = np.bincount(first, minlength=number + 1) - np.bincount(behind, minlength=number + 1)
    return np.cumsum(changes)[:number]


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
