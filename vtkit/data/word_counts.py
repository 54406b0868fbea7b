"""Counts of the words of a corpus, with the white space before them, in bounded memory: beyond some million different
words, the rarest are no longer counted."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from vtkit.data.executors import in_order
from vtkit.data.text import batches
from vtkit.system import console

MOST = 2**20  # different strings that are kept if there are more than twice as many; 2 million take about 400 MB
LONGEST_PIECE = 2**20  # characters of a text that are cut into words at a time

_SPACE, _OTHER = r"[^\S\x0b\x0c\x1c-\x1f\x85]", r"[\S\x0b\x0c\x1c-\x1f\x85]"
"""White space and all other characters. The control characters among these are white space to Python, but some
normalizers drop them, so that the words around them become one."""

CHUNK = re.compile(f"{_SPACE}*{_OTHER}+|{_SPACE}+")
SPACES = re.compile(f"{_SPACE}+")
_BORDER = re.compile(f"(?<={_OTHER}){_SPACE}")
_REPEATS_AT_ONCE = 10_000
CHARACTERS_A_BLOCK = 2**20  # of texts that are counted by themselves
FEW_BLOCKS = 64  # below which other processes are not worth starting


def make_room(counts: Counter[str], most: int = MOST) -> None:
    """Keep the ``most`` frequent strings if there are more than twice as many; equally frequent ones in code-point
    order."""
    if len(counts) > 2 * most:
        kept = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:most]
        counts.clear()
        counts.update(dict(kept))
        console.once(console.say, f"  more than {2 * most:,} different words: counts of the rarest are dropped")


@dataclass
class ChunkCounts:
    """Chunks of a corpus with their counts.

    A chunk is a run of characters that are not white space, with the white space before it, exactly as written; white
    space at the end of a text is a separate chunk. The chunks of a text, joined, are the text.
    """

    counts: Counter[str] = field(default_factory=Counter)
    texts: int = 0  # texts read
    characters: int = 0  # characters read

    def words(self) -> Counter[str]:
        """The words without the white space before them, with their counts."""
        words: Counter[str] = Counter()
        for chunk, count in self.counts.items():
            if word := SPACES.sub("", chunk, 1):
                words[word] += count
        return words


def count_chunks(texts: Iterable[str]) -> ChunkCounts:
    """The chunks of ``texts``, counted in one pass, up to about twice :data:`MOST` of them (:func:`make_room`); the
    same by every executor."""
    chunks = ChunkCounts()
    with console.progress("texts read for their words") as bar:
        for counted in in_order(_counted, batches(texts, sys.maxsize, CHARACTERS_A_BLOCK), bar, FEW_BLOCKS):
            chunks.counts.update(counted.counts)
            chunks.texts += counted.texts
            chunks.characters += counted.characters
            make_room(chunks.counts)
            bar.reach(chunks.texts)
    return chunks


def _counted(texts: Sequence[str], bar: console.Bar | None) -> ChunkCounts:
    """The chunks of a block of texts."""
    chunks = ChunkCounts(texts=len(texts))
    for piece in chain.from_iterable(map(text_pieces, texts)):
        chunks.counts.update(CHUNK.findall(piece))
        chunks.characters += len(piece)
        make_room(chunks.counts)
    return chunks


def text_pieces(text: str, longest: int = LONGEST_PIECE) -> Iterator[str]:
    """``text`` in pieces of about ``longest`` characters, cut before white space only."""
    start = 0
    while len(text) - start > longest and (border := _BORDER.search(text, start + longest)):
        yield text[start : border.start()]
        start = border.start()
    yield text[start:] if start else text


def repeated(words: Iterable[tuple[str, int]], separator: str) -> Iterator[str]:
    """Texts with every word as often as it occurs, for trainers that take no counts."""
    for word, count in words:
        for done in range(0, count, _REPEATS_AT_ONCE):
            yield separator.join([word] * min(count - done, _REPEATS_AT_ONCE))
