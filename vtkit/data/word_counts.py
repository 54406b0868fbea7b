"""Exact counts of the words of a corpus, with the white space before them, in bounded memory: what does not fit is
written to sorted runs in a temporary folder and merged."""

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
    """Counts of strings, which may exceed memory: they can be moved to disk as sorted runs."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._runs: list[Path] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._weighed = self._bytes = 0
        self._sorted: list[str] | None = None
        self._length: int | None = None

    def add(self, items: Iterable[str]) -> None:
        """Count each of ``items`` once more."""
        self._counts.update(items)

    def add_many(self, item: str, count: int) -> None:
        """Count ``item`` ``count`` times more."""
        self._counts[item] += count

    def make_room(self, memory: int = DEFAULT_MEMORY) -> None:
        """Move the counts to disk if they take more than about ``memory`` bytes."""
        new = len(self._counts) - self._weighed
        self._weighed = len(self._counts)
        self._bytes += sum(map(sys.getsizeof, islice(reversed(self._counts), new))) + new * _ENTRY_BYTES
        if self._bytes > memory:
            self._spill()

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="vtkit-counts-")
        path = Path(self._folder.name, f"run-{len(self._runs)}")
        _write(path, ((item, self._counts[item]) for item in sorted(self._counts)))
        self._runs.append(path)
        self._counts = Counter()
        self._weighed = self._bytes = 0

    def finish(self) -> None:
        """Merge the runs; nothing can be added afterwards."""
        if self._runs:
            self._spill()
            assert self._folder is not None
            merged = Path(self._folder.name, "merged")
            self._length = _write(merged, _summed(*map(_read, self._runs)))
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

    def __init__(self, texts: Iterable[str], memory: int) -> None:
        self.texts = 0  # texts read
        self.chunks = 0  # chunks read, that is: words, and white space at the ends of texts
        self.characters = 0  # characters read
        self._tally = Tally()
        checked = 0
        for text in texts:
            self.texts += 1
            for piece in pieces(text):
                chunks = _CHUNK.findall(piece)
                self._tally.add(chunks)
                self.chunks += len(chunks)
                self.characters += len(piece)
                if self.characters - checked >= _CHECKED_EVERY:
                    checked = self.characters
                    self._tally.make_room(memory)
        self._tally.finish()

    def __len__(self) -> int:
        return len(self._tally)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._tally)

    def words(self) -> Iterator[tuple[str, int]]:
        """Every word without the white space before it, with its count, in code-point order."""
        rest = Tally()
        for chunk, count in self:
            if (word := chunk.lstrip()) and chunk not in (word, f" {word}"):
                rest.add_many(word, count)
                rest.make_room()
        rest.finish()
        return _summed(self._behind(""), self._behind(" "), rest)

    def _behind(self, space: str) -> Iterator[tuple[str, int]]:
        for chunk, count in self:
            if (word := chunk.lstrip()) and chunk == space + word:
                yield word, count


def count_chunks(texts: Iterable[str], *, memory: int = DEFAULT_MEMORY) -> ChunkCounts:
    """The chunks of ``texts`` (see :class:`ChunkCounts`), counted in one pass, with about ``memory`` bytes for the
    counters; beyond it, they are sorted and written to a temporary folder, which is removed with the result."""
    return ChunkCounts(texts, memory)


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


def _summed(*sorted_counts: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    for item, same in groupby(heapq.merge(*sorted_counts, key=itemgetter(0)), key=itemgetter(0)):
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
