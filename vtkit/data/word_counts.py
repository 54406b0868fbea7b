"""Exact counts of the words of a corpus, with the white space before them, in bounded memory.

Tokenizers work word by word, so a corpus of a billion words can be tokenized by its *distinct* words. Texts are read
once. Counts that do not fit into memory are written to sorted runs in a temporary folder and merged, so only the disk
limits the size of a corpus.
"""

import heapq
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path

DEFAULT_MEMORY = 512 * 2**20  # bytes of counters in memory before they are written to disk
LONGEST_PIECE = 2**20  # characters of a text that are cut into words at a time

_CHUNK = re.compile(r"\s*\S+|\s+")
_BORDER = re.compile(r"(?<=\S)\s")
_ENTRY_BYTES = 130  # bytes of a dictionary's entry without its key: the entry, its share of the table, the number
_REPEATS_AT_ONCE = 10_000
_CHECKED_EVERY = 2**20  # characters between two checks of the counters' memory


class Tally:
    """Counts of strings, which may exceed memory: they can be spilled to disk as sorted runs."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._runs: list[Path] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._weighed = 0
        self._sorted: list[str] | None = None
        self._length: int | None = None
        self.held = 0
        """Approximate bytes of the counter at the last :meth:`weigh`."""

    def add(self, items: Iterable[str]) -> None:
        """Count each of ``items`` once more."""
        self._counts.update(items)

    def add_many(self, item: str, count: int) -> None:
        """Count ``item`` ``count`` times more."""
        self._counts[item] += count

    def weigh(self) -> int:
        """Add the entries since the last call to :attr:`held`, and return it."""
        new = len(self._counts) - self._weighed
        self._weighed = len(self._counts)
        self.held += sum(map(sys.getsizeof, islice(reversed(self._counts), new))) + new * _ENTRY_BYTES
        return self.held

    def spill(self) -> None:
        """Move the counts in memory to disk."""
        if not self._counts:
            return
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="vtkit-counts-")
        path = Path(self._folder.name, f"run-{len(self._runs)}")
        _write(path, ((item, self._counts[item]) for item in sorted(self._counts)))
        self._runs.append(path)
        self._counts = Counter()
        self._weighed = self.held = 0

    def finish(self) -> None:
        """Merge the runs; nothing can be added afterwards."""
        if self._runs:
            self.spill()
            assert self._folder is not None
            merged = Path(self._folder.name, "merged")
            self._length = _write(merged, _summed(heapq.merge(*map(_read, self._runs), key=itemgetter(0))))
            for run in self._runs:
                run.unlink()
            self._runs = [merged]
        else:
            self._sorted = sorted(self._counts)
            self._length = len(self._sorted)

    def __len__(self) -> int:
        assert self._length is not None, "finish() comes first"
        return self._length

    def __iter__(self) -> Iterator[tuple[str, int]]:
        if self._sorted is None:
            return _read(self._runs[0])
        return ((item, self._counts[item]) for item in self._sorted)


class ChunkCounts:
    """Every chunk of a corpus with its count, in code-point order; can be iterated several times.

    A chunk is a run of characters that are not white space, with the white space before it, exactly as written; white
    space at the end of a text is a separate chunk. The chunks of a text, joined, are the text.
    """

    def __init__(self, memory: int) -> None:
        self.texts = 0
        """Texts read."""

        self.chunks = 0
        """Chunks read, that is: words, and white space at the ends of texts."""

        self.characters = 0
        """Characters read."""

        self._memory = memory
        self._bare, self._spaced, self._other = Tally(), Tally(), Tally()  # "word", " word", anything else

    def __len__(self) -> int:
        return len(self._bare) + len(self._spaced) + len(self._other)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        spaced = ((f" {word}", count) for word, count in self._spaced)
        return heapq.merge(self._bare, spaced, self._other, key=itemgetter(0))

    def words(self) -> Iterator[tuple[str, int]]:
        """Every word without the white space before it, with its count, in code-point order."""
        stripped = Tally()
        for number, (chunk, count) in enumerate(self._other, 1):
            if word := chunk.lstrip():
                stripped.add_many(word, count)
            if number % 100_000 == 0 and stripped.weigh() > self._memory:
                stripped.spill()
        stripped.finish()
        return _summed(heapq.merge(self._bare, self._spaced, stripped, key=itemgetter(0)))

    def _add(self, piece: str) -> None:
        words = piece.split()
        self.chunks += len(words)
        joined = " ".join(words)
        if joined == piece:  # the usual text: one space between words
            self._bare.add(words[:1])
            del words[0]
            self._spaced.add(words)
        elif piece[0] == " " and joined == piece[1:] and words:
            self._spaced.add(words)
        else:
            self._add_irregular(_CHUNK.findall(piece))
            self.chunks += piece[-1].isspace()

    def _add_irregular(self, chunks: list[str]) -> None:
        self._bare.add(chunk for chunk in chunks if not chunk[0].isspace())
        self._spaced.add(chunk[1:] for chunk in chunks if chunk[0] == " " and not chunk[1:2].isspace() and chunk != " ")
        self._other.add(
            chunk
            for chunk in chunks
            if chunk[0].isspace() and (chunk[0] != " " or chunk[1:2].isspace() or chunk == " ")
        )

    def _make_room(self) -> None:
        tallies = (self._bare, self._spaced, self._other)
        if sum(tally.weigh() for tally in tallies) > self._memory:
            for tally in tallies:
                tally.spill()

    def _read(self, texts: Iterable[str]) -> None:
        seen = 0
        for text in texts:
            self.texts += 1
            for piece in pieces(text) if text else ():
                self._add(piece)
                self.characters += len(piece)
                if self.characters - seen >= _CHECKED_EVERY:
                    seen = self.characters
                    self._make_room()
        for tally in (self._bare, self._spaced, self._other):
            tally.finish()


def count_chunks(texts: Iterable[str], *, memory: int = DEFAULT_MEMORY) -> ChunkCounts:
    """The chunks of ``texts`` (see :class:`ChunkCounts`), counted in one pass.

    Args:
        memory: approximate bytes for the counters; beyond it, they are sorted and written to a temporary folder, which
            is removed with the result. Reading the counts back needs almost no memory.
    """
    counts = ChunkCounts(memory)
    counts._read(texts)
    return counts


def pieces(text: str, longest: int = LONGEST_PIECE) -> Iterator[str]:
    """``text`` in pieces of about ``longest`` characters, cut before white space only."""
    start = 0
    while len(text) - start > longest:
        border = _BORDER.search(text, start + longest)
        if border is None:
            break
        yield text[start : border.start()]
        start = border.start()
    yield text[start:] if start else text


def _summed(sorted_counts: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Sum equal neighbours."""
    for item, same in groupby(sorted_counts, key=itemgetter(0)):
        yield item, sum(count for _, count in same)


def _write(path: Path, counts: Iterable[tuple[str, int]]) -> int:
    """One line per string: its count, and the string as JSON. Returns the number of lines."""
    number = 0
    with path.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        for number, (item, count) in enumerate(counts, 1):  # noqa: B007
            file.write(f"{count} {json.dumps(item, ensure_ascii=False)}\n")
    return number


def _read(path: Path) -> Iterator[tuple[str, int]]:
    with path.open(encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        for line in file:
            count, _, item = line.partition(" ")
            yield json.loads(item), int(count)


def repeated(words: Iterable[tuple[str, int]], separator: str) -> Iterator[str]:
    """Texts with every word as often as it occurs, for trainers that take no counts."""
    for word, count in words:
        while count > 0:
            repeats = min(count, _REPEATS_AT_ONCE)
            yield separator.join([word] * repeats)
            count -= repeats
