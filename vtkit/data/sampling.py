"""Sampling texts from streams of any length."""

import random
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from vtkit.data.sequences import Lazy, SpooledTexts

T = TypeVar("T")


def spread(items: Sequence[T], most: int) -> list[T]:
    """Up to ``most`` of ``items``, evenly spread."""
    count = min(most, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def draw(texts: Iterable[str], most: int, seed: int) -> list[str]:
    """Up to ``most`` of ``texts``, each equally likely, in their order."""
    return list(drawn(texts, most, seed))


def drawn(texts: Iterable[str], most: int, seed: int, folder: Path | None = None) -> Sequence[str]:
    """:func:`draw` (reservoir sampling); many texts are held in a temporary file in ``folder``."""
    generator = random.Random(seed)
    kept, places = SpooledTexts(folder), array("q")
    for number, text in enumerate(texts):
        if number < most:
            places.append(number)
        elif (slot := generator.randrange(number + 1)) < most:
            places[slot] = len(kept)
        else:
            continue
        kept.append(text)
    order = sorted(places)
    return Lazy(len(order), lambda rank: kept[order[rank]])
