"""Queries made of documents: two random spans of one text (Contriever, Izacard et al. 2022, arXiv:2112.09118), or its
opening and what follows. Lengths are in words; where a script writes no spaces, in pairs of characters."""

import re
from collections.abc import Sequence

import numpy as np

from vtkit.system.errors import DataError

QUERY_WORDS = 16  # words of the longest query
SHORTEST_QUERY = 5  # words of the shortest query, where the text has twice as many
DOCUMENT_WORDS = 80  # words of the longest document span
SHORTEST_TEXT = 4  # texts of fewer words leave nothing to make a query of
LONGEST_WORD = 15  # mean characters a word above which a text is taken for one without spaces between words

_SENTENCE_END = re.compile(r"[.!?。！？؟।]['\"”’»」』)]*\s+|[。！？।]|\n+")


def units(text: str) -> list[str]:
    """The words of ``text``; pairs of its characters where its script writes no spaces."""
    words = text.split()
    if _spaced(words):
        return words
    line = " ".join(words)
    return [line[start : start + 2] for start in range(0, len(line), 2)]


def joined(part: Sequence[str], text: str) -> str:
    """Some of the units of ``text`` as text again."""
    return (" " if _spaced(text.split()) else "").join(part)


def _spaced(words: Sequence[str]) -> bool:
    return sum(map(len, words)) <= LONGEST_WORD * len(words)


def query_span(words: Sequence[str], shortest: int, longest: int, draw: np.random.Generator) -> slice:
    """The slice of a random span of ``shortest`` to ``longest`` of a text's units, at most half of them."""
    longest = max(1, min(longest, len(words) // 2))
    length = int(draw.integers(min(shortest, longest), longest, endpoint=True))
    start = int(draw.integers(len(words) - length, endpoint=True))
    return slice(start, start + length)


def crop_pair(text: str, draw: np.random.Generator) -> tuple[str, str]:
    """A query of :data:`SHORTEST_QUERY` to :data:`QUERY_WORDS` words (at most half of the text), and a span of up to
    :data:`DOCUMENT_WORDS`."""
    words = units(text)
    query = query_span(words, SHORTEST_QUERY, QUERY_WORDS, draw)
    document = min(DOCUMENT_WORDS, len(words))
    start = int(draw.integers(len(words) - document, endpoint=True))
    return joined(words[query], text), joined(words[start : start + document], text)


def opening_pair(text: str, most: int) -> tuple[str, str]:
    """The first sentence (a title is one too) of at most ``most`` words, and the rest; a half, where there is one
    sentence only."""
    end = _SENTENCE_END.search(text)
    first, rest = (text[: end.end()], text[end.end() :]) if end is not None else ("", "")
    if not first.strip() or not rest.strip():
        words = units(text)
        first, rest = (joined(half, text) for half in (words[: len(words) // 2], words[len(words) // 2 :]))
    return joined(units(first)[:most], first), rest.strip()


def usable_texts(texts: Sequence[str]) -> list[str]:
    """The ``texts`` that a query can be made from."""
    usable = list(dict.fromkeys(text for text in texts if len(units(text)) >= SHORTEST_TEXT))
    if len(usable) < 2:
        raise DataError(
            f"corpus: {len(usable)} of its {len(texts)} texts are different and have {SHORTEST_TEXT} words or "
            "more. Training compares each text with others. Name a larger corpus."
        )
    return usable


def batches_of(items: int, steps: int, batch_size: int, seed: int) -> np.ndarray:
    """The items of each step, (steps, batch): shuffled passes, none twice in a batch; what is left of a pass waits for
    none. The batch is smaller where there are fewer items."""
    size = min(batch_size, items)
    whole = items // size  # batches of a pass
    orders = (np.random.default_rng([seed, epoch]).permutation(items) for epoch in range(-(-steps // whole)))
    return np.concatenate([order[: whole * size].reshape(whole, size) for order in orders])[:steps]
