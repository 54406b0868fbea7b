"""The part of a document's text that shows why it was found."""

import re
from collections.abc import Iterable
from itertools import takewhile

WIDTH = 300  # characters of a snippet
READ = 100_000  # characters of a document that are searched for a snippet


def snippet(text: str, words_found: Iterable[tuple[str, float]]) -> str:
    """The passage of ``text``, about :data:`WIDTH` characters, with the largest total weight of words; its beginning
    if it has none. White space becomes single spaces."""
    text = text[:READ]
    weights: dict[str, float] = {}
    for found, weight in words_found:
        word = found.casefold()
        if word.strip():
            weights[word] = max(weight, weights.get(word, 0.0))
    words = sorted(weights, key=len, reverse=True)
    places: list[tuple[int, str]] = []
    if words:
        pattern = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
        places = [(match.start(), match[0].casefold()) for match in pattern.finditer(text)]

    def weight_from(first: int) -> float:
        """The weight of the different words that begin within a snippet's length of a place."""
        behind = (places[number] for number in range(first, len(places)))
        near = {word for _, word in takewhile(lambda place: place[0] - places[first][0] <= WIDTH - 60, behind)}
        return sum(weights.get(word, 0.0) for word in sorted(near))

    best = max(range(len(places)), key=weight_from, default=None)
    start = 0 if best is None else max(0, places[best][0] - 40)
    if start:
        space = text.find(" ", start, start + 20)
        start = space + 1 if space >= 0 else start
    end = start + WIDTH
    if end < len(text):
        space = text.rfind(" ", end - 20, end)
        end = space if space >= 0 else end
    shown = " ".join(text[start:end].split())
    return f"{'… ' if start else ''}{shown}{' …' if end < len(text) else ''}"
