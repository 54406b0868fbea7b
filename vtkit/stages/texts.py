"""Which texts a stage reads where the recipe leaves it open, and drawing some of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from vtkit.data.collections import default_split, load_retrieval
from vtkit.data.miracl import languages_in
from vtkit.data.text import read_corpora
from vtkit.recipe.sections import Recipe, is_local


def adaptation_corpus(recipe: Recipe) -> tuple[str, ...]:
    """adapt.corpus, else the fine-tuning documents, else the evaluation documents."""
    if recipe.adapt is not None and recipe.adapt.corpus:
        return recipe.adapt.corpus
    if recipe.finetune is not None:
        return (recipe.finetune.data,)
    return recipe.evaluate.sets if recipe.evaluate is not None else ()


def calibration_corpus(recipe: Recipe) -> tuple[str, ...]:
    """Probe texts: calibrate.corpus, else what adaptation reads."""
    if recipe.calibrate is not None and recipe.calibrate.corpus:
        return recipe.calibrate.corpus
    return adaptation_corpus(recipe)


def bias_corpus(recipe: Recipe) -> tuple[str, ...]:
    """Texts for the target prior: transfer.bias.corpus, else what adaptation reads."""
    if recipe.transfer is not None and recipe.transfer.bias.corpus:
        return recipe.transfer.bias.corpus
    return adaptation_corpus(recipe)


def focus_corpus(recipe: Recipe) -> tuple[str, ...]:
    """Texts for the vectors of ``focus``: transfer.corpus, else those of the target prior."""
    if recipe.transfer is not None and recipe.transfer.corpus:
        return recipe.transfer.corpus
    return bias_corpus(recipe)


def read_texts(names: Iterable[str], recipe: Recipe) -> Iterator[str]:
    """Texts of corpora (files and BEIR folders) and of the documents of MIRACL folders and public collections."""
    for name in names:
        if name.startswith("datasets:") or (is_local(name) and not languages_in(name)):
            yield from read_corpora([name])
        else:
            training = recipe.finetune is not None and name == recipe.finetune.data
            split = (
                recipe.finetune.split if training and recipe.finetune is not None else evaluation_split(recipe, name)
            )
            yield from (document.contents for document in load_retrieval(name, split).documents)


def evaluation_split(recipe: Recipe, name: str) -> str:
    """The judgements that a collection is judged on."""
    if recipe.evaluate is not None and recipe.evaluate.split is not None:
        return recipe.evaluate.split
    return default_split(name)


def set_folders(recipe: Recipe) -> dict[str, str]:
    """Evaluation set -> a folder name of its own: the last part of its path, or its name without colons."""
    folders: dict[str, str] = {}
    for name in recipe.evaluate.sets if recipe.evaluate is not None else ():
        plain = Path(name).name.replace(":", "-")
        number = 2
        folder = plain
        while folder in folders.values():
            folder = f"{plain}-{number}"
            number += 1
        folders[name] = folder
    return folders


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
