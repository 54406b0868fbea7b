"""Counts of the words of a corpus, with the white space before them, in bounded memory: beyond some million different
words, the rarest are no longer counted."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from vtkit.system import console

MOST = 2**20  # different strings that are kept if there are more than twice as many; 2 million take about 400 MB
LONGEST_PIECE = 2**20  # characters of a text that are cut into words at a time

_CHUNK = re.compile(r"\s*\S+|\s+")
_BORDER = re.compile(r"(?<=\S)\s")
_REPEATS_AT_ONCE = 10_000
_CHECKED_EVERY = 2**20  # characters between two checks of the counters' size


class Tally:
    """Counts of strings in bounded memory. Iterating gives the strings in code-point order."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._all_counted = True

    def add(self, items: Iterable[str]) -> None:
        """Count each of ``items`` once more."""
        self._counts.update(items)

    def add_many(self, item: str, count: int) -> None:
        """Count ``item`` ``count`` times more."""
        self._counts[item] += count

    def make_room(self, most: int = MOST) -> None:
        """Keep the ``most`` frequent strings if there are more than twice as many; equally frequent ones in code-point
        order."""
        if len(self._counts) <= 2 * most:
            return
        kept = sorted(self._counts.items(), key=lambda entry: (-entry[1], entry[0]))[:most]
        self._counts = Counter(dict(kept))
        if self._all_counted:
            console.say(f"  more than {2 * most:,} different words: counts of the rarest are dropped")
            self._all_counted = False

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((item, self._counts[item]) for item in sorted(self._counts))


class ChunkCounts(Tally):
    """Chunks of a corpus with their counts, in code-point order; can be iterated several times.

    A chunk is a run of characters that are not white space, with the white space before it, exactly as written; white
    space at the end of a text is a separate chunk. The chunks of a text, joined, are the text.
    """

    def __init__(self, texts: Iterable[str], most: int) -> None:
        super().__init__()
        self.texts = 0  # texts read
        self.chunks = 0  # chunks read, that is: words, and white space at the ends of texts
        self.characters = 0  # characters read
        checked = 0
        for text in texts:
            self.texts += 1
            for piece in pieces(text):
                chunks = _CHUNK.findall(piece)
                self.add(chunks)
                self.chunks += len(chunks)
                self.characters += len(piece)
                if self.characters - checked >= _CHECKED_EVERY:
                    checked = self.characters
                    self.make_room(most)

    def words(self) -> Tally:
        """The words without the white space before them, with their counts."""
        words = Tally()
        for chunk, count in self:
            if word := chunk.lstrip():
                words.add_many(word, count)
        return words


def count_chunks(texts: Iterable[str], *, most: int = MOST) -> ChunkCounts:
    """The chunks of ``texts`` (see :class:`ChunkCounts`), counted in one pass, up to about twice ``most`` of them (see
    :meth:`Tally.make_room`)."""
    return ChunkCounts(texts, most)


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


def repeated(words: Iterable[tuple[str, int]], separator: str) -> Iterator[str]:
    """Texts with every word as often as it occurs, for trainers that take no counts."""
    for word, count in words:
        while count > 0:
            repeats = min(count, _REPEATS_AT_ONCE)
            yield separator.join([word] * repeats)
            count -= repeats
