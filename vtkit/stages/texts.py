"""Which texts a stage reads where the recipe leaves it open, and drawing some of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from vtkit.data.collections import load_retrieval
from vtkit.data.text import read_corpora
from vtkit.recipe.sections import Recipe, is_local


def calibration_corpus(recipe: Recipe) -> tuple[str, ...]:
    """Probe texts: calibrate.corpus, else the adaptation corpus, else the fine-tuning documents."""
    if recipe.calibrate is not None and recipe.calibrate.corpus:
        return recipe.calibrate.corpus
    if recipe.adapt is not None:
        return recipe.adapt.corpus
    return (recipe.finetune.data,) if recipe.finetune is not None else ()


def bias_corpus(recipe: Recipe) -> tuple[str, ...]:
    """Texts for the target prior: transfer.bias.corpus, else adaptation, else fine-tuning, else evaluation documents."""
    if recipe.transfer is not None and recipe.transfer.bias.corpus:
        return recipe.transfer.bias.corpus
    if recipe.adapt is not None:
        return recipe.adapt.corpus
    if recipe.finetune is not None:
        return (recipe.finetune.data,)
    return recipe.evaluate.sets if recipe.evaluate is not None else ()


def read_texts(names: Iterable[str], split: str) -> Iterator[str]:
    """Texts of corpora (paths) and of the documents of public collections (names); ``split`` is for the latter."""
    for name in names:
        if is_local(name):
            yield from read_corpora([name])
        else:
            yield from (document.contents for document in load_retrieval(name, split).documents)


def draw(texts: Iterable[str], most: int, seed: int) -> list[str]:
    """Up to ``most`` of ``texts``, each equally likely, in the order they came (reservoir sampling)."""
    generator = random.Random(seed)
    kept: list[tuple[int, str]] = []
    for number, text in enumerate(texts):
        if number < most:
            kept.append((number, text))
        else:
            place = generator.randrange(number + 1)
            if place < most:
                kept[place] = (number, text)
    return [text for _, text in sorted(kept)]
