"""Texts that are tokenized together, as arrays: where they, their units of counting and their words begin and end.

A page holds a million characters or so. Everything that is counted of a tokenizer's tokens comes from the positions of
a page by look-up, without a loop over tokens.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vtkit.errors import DataError
from vtkit.inspect.words import Punctuation, word_spans

Integers = NDArray[np.int64]
"""Whole numbers, one row."""

PAGE_CHARACTERS = 1_000_000
"""Characters that are tokenized at a time."""

CHUNKS_A_TEXT = 64
"""Chunks, or parts of chunks, that are joined to one text before it is tokenized."""

LONGEST_CHUNK = 1_000_000
"""Characters without white space; what is longer is no text of words."""


class Page(NamedTuple):
    """Texts that are tokenized together. Positions are characters of all of them, one after the other."""

    texts: list[str]
    cuts: Mapping[re.Pattern[str], Parts]
    """The page cut into the matches of a pattern, for tokenizers that take chunks apart; empty where the units of
    counting are whole texts."""

    weights: Integers
    """Occurrences of each unit; 0 for one that only stands before others."""

    word_starts: Integers
    word_ids: Integers
    word_weights: Integers

    units: Integers
    """The unit that each position lies in, and the last one behind them all; (characters + 1,)."""

    words_begun: Integers
    """Words that begin before each position, (characters + 1,)."""

    words_ended: Integers
    """Words that end at or before each position, (characters + 1,)."""

    def characters(self) -> tuple[Integers, Integers]:
        """Every code point of the page, and its occurrences."""
        codes = np.frombuffer("".join(self.texts).encode("utf-32-le"), dtype="<u4").astype(np.int64)
        return codes, self.weights[self.units[:-1]]


class Parts(NamedTuple):
    """A page as a row of parts that occur more than once."""

    numbers: Integers
    """Which of the distinct parts each part of the page is, in its order."""

    texts: list[str]
    """Every distinct part once, each behind white space."""

    starts: Integers
    """Where each distinct part begins in all of these texts."""

    ends: Integers


def _parts(page: list[str], pattern: re.Pattern[str]) -> Parts:
    """``page`` cut into the matches of ``pattern``, of which every text must be made up."""
    found = list(chain.from_iterable(map(pattern.findall, page)))
    distinct = {part: number for number, part in enumerate(dict.fromkeys(found))}
    numbers = np.fromiter(map(distinct.__getitem__, found), dtype=np.int64, count=len(found))
    behind = [part if part[0].isspace() else f"\n{part}" for part in distinct]
    rows = range(0, len(behind), CHUNKS_A_TEXT)
    lengths = np.fromiter(map(len, behind), dtype=np.int64, count=len(behind))
    lengths[::CHUNKS_A_TEXT] += 1  # the letter that each text begins with
    ends = np.cumsum(lengths)
    starts = ends - np.fromiter(map(len, distinct), dtype=np.int64, count=len(behind))
    return Parts(numbers, ["a" + "".join(behind[row : row + CHUNKS_A_TEXT]) for row in rows], starts, ends)


def pages_of_chunks(
    counts: Iterable[tuple[str, int]],
    word_ids: dict[str, int],
    punctuation: Punctuation,
    patterns: Collection[re.Pattern[str]] = (),
) -> Iterator[Page]:
    """Chunks in texts as a tokenizer would meet them: behind other text where white space comes first.

    Args:
        word_ids: number of each word; new words are added.
        punctuation: whether punctuation inside a white-space word ends it.
        patterns: of parts of chunks, for :attr:`Page.cuts`.
    """
    texts: list[list[str]] = []
    weights: list[int] = []
    characters = 0
    for chunk, count in counts:
        if len(chunk) > LONGEST_CHUNK:
            raise DataError(
                f"The corpus has {len(chunk)} characters without white space, beginning {chunk.strip()[:40]!r}: no "
                "text of words. Is it the right file? If it is text, break it into lines."
            )
        if not chunk[0].isspace():
            texts.append([])
        elif not texts or len(texts[-1]) > CHUNKS_A_TEXT:
            texts.append(["a"])
            weights.append(0)
        texts[-1].append(chunk)
        weights.append(count)
        characters += len(chunk)
        if characters >= PAGE_CHARACTERS:
            yield _page(texts, weights, word_ids, punctuation, patterns)
            texts, weights, characters = [], [], 0
    if texts:
        yield _page(texts, weights, word_ids, punctuation, patterns)


def page_of_texts(texts: list[tuple[str, int]], word_ids: dict[str, int], punctuation: Punctuation) -> Page:
    """Whole texts with their occurrences, each a unit of its own.

    Args:
        word_ids: number of each word; new words are added.
        punctuation: whether punctuation inside a white-space word ends it.
    """
    return _page([[text] for text, _ in texts], [count for _, count in texts], word_ids, punctuation)


def _page(
    texts: list[list[str]],
    weights: list[int],
    word_ids: dict[str, int],
    punctuation: Punctuation,
    patterns: Collection[re.Pattern[str]] = (),
) -> Page:
    """A page of ``texts``, each a list of units; ``weights`` of all units."""
    joined = ["".join(units) for units in texts]
    characters = sum(map(len, joined))
    spans: list[tuple[int, int]] = []
    ids: list[int] = []
    for text, start in zip(joined, starts_of(map(len, joined)).tolist(), strict=True):
        for begin, end in word_spans(text, punctuation):
            spans.append((start + begin, start + end))
            ids.append(word_ids.setdefault(text[begin:end], len(word_ids)))
    bounds = np.array(spans, dtype=np.int64).reshape(-1, 2)
    counts = np.array(weights, dtype=np.int64)
    unit_starts = starts_of(map(len, chain.from_iterable(texts)))
    units = np.repeat(np.arange(len(counts)), np.diff(unit_starts, append=characters + 1))
    return Page(
        texts=joined,
        cuts={pattern: _parts(joined, pattern) for pattern in patterns},
        weights=counts,
        word_starts=np.ascontiguousarray(bounds[:, 0]),
        word_ids=np.array(ids, dtype=np.int64),
        word_weights=counts[units[bounds[:, 0]]],
        units=units,
        words_begun=np.cumsum(np.bincount(bounds[:, 0] + 1, minlength=characters + 1)),
        words_ended=np.cumsum(np.bincount(bounds[:, 1], minlength=characters + 1)),
    )


def batches(texts: Iterable[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    """Texts with their occurrences, :data:`PAGE_CHARACTERS` or a little more at a time."""
    batch: list[tuple[str, int]] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text[0])
        if characters >= PAGE_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def sums(numbers: Integers, weights: Integers, size: int) -> Integers:
    """The sum of the weights of each number below ``size``; exact up to 2^53."""
    return np.bincount(numbers, weights=weights, minlength=size).astype(np.int64)


def padded(values: Integers, size: int) -> Integers:
    """``values`` with zeros behind them, up to ``size``."""
    return np.pad(values, (0, max(0, size - len(values))))


def starts_of(lengths: Iterable[int]) -> Integers:
    """Where each of a row of stretches begins."""
    ends = np.cumsum(np.fromiter(lengths, dtype=np.int64))
    return np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
