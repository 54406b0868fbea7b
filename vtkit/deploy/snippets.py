"""The part of a document's text that shows why it was found."""

import re
from itertools import islice, pairwise, takewhile

from vtkit.search.results import Places
from vtkit.search.words import READ

WIDTH = 300  # characters of a snippet


def snippet(text: str, words: Places) -> list[str]:
    """The passage of ``text``, about :data:`WIDTH` characters, whose different ``words`` have the largest parts of the
    score; its beginning if there are none. It is cut so that every second part is one of the words. White space becomes
    single spaces."""
    text = text[:READ]

    def part_from(first: int) -> float:
        """The parts of the words that begin within a snippet's length of a word."""
        near = takewhile(lambda word: word[0] - words[first][0] <= WIDTH - 60, islice(words, first, None))
        return sum({text[start:stop].casefold(): part for start, stop, part in near}.values())

    best = max(range(len(words)), key=part_from, default=None)
    start = 0 if best is None else max(0, words[best][0] - 40)
    if start:
        space = text.find(" ", start, start + 20)
        start = space + 1 if space >= 0 else start
    end = min(start + WIDTH, len(text))
    if end < len(text):
        space = text.rfind(" ", end - 20, end)
        end = space if space >= 0 else end
    edges = [edge for word in words if start <= word[0] and word[1] <= end for edge in word[:2]]
    parts = [re.sub(r"\s+", " ", text[first:stop]) for first, stop in pairwise([start, *edges, end])]
    parts[0] = f"{'… ' if start else ''}{parts[0].lstrip()}"
    parts[-1] = f"{parts[-1].rstrip()}{' …' if end < len(text) else ''}"
    return parts
