"""One tokenizer and everything that is counted of the tokens it makes of a corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from vtkit.inspect.normalization import ScriptLoss, normalizer_losses
from vtkit.inspect.text_pages import Integers, Page, padded, starts_of, sums
from vtkit.inspect.white_space import cuts_at_white_space, parts_of_chunks, state
from vtkit.vocabulary.existing import special_roles
from vtkit.vocabulary.forms import legible
from vtkit.vocabulary.forms import tokens as tokens_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass
class Counts:
    """What one tokenizer makes of some texts. Counts of several sets of texts add up."""

    RATIOS: ClassVar[tuple[str, ...]] = (
        "tokens_per_word",
        "split_share",
        "tokens_per_text",
        "unknown_rate",
        "unknown_word_share",
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
    """What one tokenizer makes of a corpus."""

    name: str
    by_chunks: bool
    """Whether distinct chunks were tokenized; otherwise whole texts were."""

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


class Meter:
    """One tokenizer with all that is counted of it."""

    def __init__(self, name: str, tokenizer: PreTrainedTokenizerFast) -> None:
        self.name = name
        self.backend: Tokenizer = tokenizer.backend_tokenizer
        self.by_chunks = cuts_at_white_space(self.backend)
        vocabulary = tokens_of(tokenizer)
        self.is_byte_level = '"ByteLevel"' in state(self.backend.pre_tokenizer)
        self.part = parts_of_chunks(self.backend)
        """The pattern of the parts of chunks that it cuts up one by one; None where it is not known to do so."""

        mark = "Ġ" if self.is_byte_level else "▁"
        self.is_mark = np.array([token != "" and not token.strip(f"{mark} ") for token in vocabulary], dtype=bool)
        self.unknown = special_roles(tokenizer).get("unk", -1)
        self.groups: dict[str, Counts] = {}
        self.queries: QueryCounts | None = None
        self.token_counts = np.zeros(len(vocabulary), dtype=np.int64)
        self.extra_tokens = np.zeros(0, dtype=np.int64)
        self.unknown_characters: Counter[str] = Counter()
        self._legible = legible(tokenizer)
        self._is_unknown: dict[str, bool] = {}
        self._lock = Lock()

    def count(self, page: Page) -> tuple[Counts, Tokens]:
        """Tokenize a page. Its texts are not counted."""
        ids, starts, ends = self._tokenize(page)
        # By its last character: the first may be white space that a normalizer joined to what was before it.
        weights = page.weights[page.units[np.maximum(starts, ends - 1)]]
        first, behind = page.words_ended[starts], page.words_begun[ends]
        in_word = (behind > first) & (ends > starts) & ~self.is_mark[ids]
        unknown = ids == self.unknown
        pieces = _coverage(first[in_word], behind[in_word], len(page.word_starts))
        spoiled = _coverage(first[in_word & unknown], behind[in_word & unknown], len(page.word_starts))
        counts = Counts(
            words=int(page.word_weights.sum()),
            tokens=int(weights.sum()),
            word_tokens=int(weights[in_word].sum()),
            split_words=int(page.word_weights[pieces > 1].sum()),
            unknown_words=int(page.word_weights[spoiled > 0].sum()),
            lost_words=int(page.word_weights[pieces == 0].sum()),
            unknown_tokens=int(weights[unknown].sum()),
        )
        return counts, Tokens(ids, starts, ends, weights, pieces)

    def measure(self, page: Page, group: str) -> None:
        """Add a page of the corpus to ``group``; pages may be added from several threads."""
        with self._lock:
            self._measure(page, group)

    def _measure(self, page: Page, group: str) -> None:
        counts, tokens = self.count(page)
        self.groups.setdefault(group, Counts()).add(counts)
        self.token_counts += sums(tokens.ids, tokens.weights, len(self.token_counts))
        if len(page.word_ids):
            self.extra_tokens = padded(self.extra_tokens, int(page.word_ids.max()) + 1)
            extra = np.maximum(tokens.pieces - 1, 0) * page.word_weights
            self.extra_tokens += sums(page.word_ids, extra, len(self.extra_tokens))
        unknown = np.flatnonzero((tokens.ids == self.unknown) & (tokens.weights > 0))
        text = "".join(page.texts) if len(unknown) else ""
        for number in unknown:
            for character in self._to_blame(text[tokens.starts[number] : tokens.ends[number]]) or ("",):
                self.unknown_characters[character] += int(tokens.weights[number])

    def measure_queries(self, page: Page) -> None:
        """Add a page of queries, each a unit of its own."""
        counts, tokens = self.count(page)
        split = page.units[page.word_starts[tokens.pieces > 1]]
        unknown = page.units[tokens.starts[tokens.ids == self.unknown]]
        self.queries = self.queries or QueryCounts()
        self.queries.add(counts)
        self.queries.texts += int(page.weights.sum())
        self.queries.split_texts += int(page.weights[np.unique(split)].sum())
        self.queries.unknown_texts += int(page.weights[np.unique(unknown)].sum())

    def report(
        self, words: list[str], word_counts: Integers, character_counts: Integers, texts: Mapping[str, int], top: int
    ) -> Fragmentation:
        """All that was counted, lists cut at ``top`` entries.

        Args:
            words: the word of each id, (words,).
            word_counts: occurrences of each, (words,).
            character_counts: occurrences of each code point, (0x110000,).
            texts: texts of each group.
        """
        total = Counts()
        for group, number in texts.items():
            self.groups.setdefault(group, Counts()).texts = number
            total.add(self.groups[group])
        shares = self.token_counts[self.token_counts > 0] / max(1, total.tokens)
        return Fragmentation(
            name=self.name,
            by_chunks=self.by_chunks,
            total=total,
            groups=dict(sorted(self.groups.items(), key=lambda item: (-item[1].words, item[0]))),
            entropy_bits=abs(float(shares @ np.log2(shares))),
            distinct_tokens=len(shares),
            words=[
                FragmentedWord(words[number], int(word_counts[number]), extra, self._pieces(words[number]))
                for number, extra in self._most_extra(words, top)
            ],
            unknown_characters=[
                UnknownCharacter(*entry)
                for entry in sorted(self.unknown_characters.items(), key=lambda item: (-item[1], item[0]))[:top]
            ],
            losses=normalizer_losses(self.backend, character_counts),
            queries=self.queries,
        )

    def _tokenize(self, page: Page) -> tuple[Integers, Integers, Integers]:
        """Ids of the page's tokens, and where each begins and ends; (tokens,) each."""
        parts = page.cuts.get(self.part) if self.part is not None else None
        if parts is None:
            return self._encode(page.texts)
        part_starts, part_ends = parts.starts, parts.ends
        ids, starts, ends = self._encode(parts.texts)
        held_by = np.searchsorted(part_ends[:-1], np.maximum(starts, ends - 1), "right")
        kept = starts >= part_starts[held_by]  # others are of the white space in front of a part
        ids, starts, ends, held_by = ids[kept], starts[kept], ends[kept], held_by[kept]
        starts, ends = starts - part_starts[held_by], ends - part_starts[held_by]
        numbers = np.bincount(held_by, minlength=len(part_ends))  # tokens of each distinct part
        first = np.cumsum(numbers) - numbers
        lengths, repeats = (part_ends - part_starts)[parts.numbers], numbers[parts.numbers]
        shift = np.repeat(np.cumsum(lengths) - lengths, repeats)
        taken = np.repeat(first[parts.numbers] - np.cumsum(repeats) + repeats, repeats) + np.arange(len(shift))
        return ids[taken], starts[taken] + shift, ends[taken] + shift

    def _encode(self, texts: list[str]) -> tuple[Integers, Integers, Integers]:
        """Ids of the tokens of ``texts``, and where each begins and ends in all of them; (tokens,) each."""
        encodings = self.backend.encode_batch(texts, add_special_tokens=False)
        lengths = [len(encoding) for encoding in encodings]
        ids = np.fromiter(chain.from_iterable(e.ids for e in encodings), dtype=np.int64, count=sum(lengths))
        offsets = chain.from_iterable(chain.from_iterable(e.offsets) for e in encodings)
        spans = np.fromiter(offsets, dtype=np.int64, count=2 * sum(lengths)).reshape(-1, 2)
        spans += np.repeat(starts_of(map(len, texts)), lengths)[:, None]
        return ids, np.ascontiguousarray(spans[:, 0]), np.ascontiguousarray(spans[:, 1])

    def _most_extra(self, words: list[str], top: int) -> list[tuple[int, int]]:
        """Numbers of the words with most extra tokens, and these; equals in the order of the words."""
        extra = self.extra_tokens
        least = max(1, int(np.partition(extra, -top)[-top])) if 0 < top < len(extra) else 1
        found = sorted((-int(extra[number]), words[number], int(number)) for number in np.flatnonzero(extra >= least))
        return [(number, -negative) for negative, _, number in found[:top]]

    def _pieces(self, word: str) -> list[str]:
        encoding = self.backend.encode(f"a {word}", add_special_tokens=False)
        found = zip(encoding.ids, encoding.offsets, strict=True)
        return [self._legible[number] for number, (_, end) in found if end > 2 and not self.is_mark[number]]

    def _to_blame(self, text: str) -> list[str]:
        """The characters of ``text`` that are unknown on their own."""
        characters = sorted(set(text))
        for character in characters:
            if character not in self._is_unknown:
                ids = self.backend.encode(character, add_special_tokens=False).ids
                self._is_unknown[character] = self.unknown in ids
        return [character for character in characters if self._is_unknown[character]]


class Tokens(NamedTuple):
    """The tokens of a page."""

    ids: Integers
    starts: Integers
    ends: Integers
    weights: Integers
    pieces: Integers
    """Tokens of each word of the page, (words,)."""


def _coverage(first: Integers, behind: Integers, number: int) -> Integers:
    """How many of the ranges ``first`` to ``behind`` (not included) each of ``number`` places lies in."""
    changes = np.bincount(first, minlength=number + 1) - np.bincount(behind, minlength=number + 1)
    return np.cumsum(changes)[:number]


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
