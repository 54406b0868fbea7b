"""Stage ``vocabulary``: the target tokenizer, existing or trained, with the casing policy inside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_never

from vtkit.data.text import read_corpora
from vtkit.recipe.sections import ExistingVocabulary, Recipe, TrainedVocabulary
from vtkit.vocabulary.alignment import token_family
from vtkit.vocabulary.existing import load_tokenizer, with_casing
from vtkit.vocabulary.trained import train_vocabulary


def build_vocabulary(recipe: Recipe, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Fill ``out/tokenizer`` with a folder that ``AutoTokenizer`` loads without vtkit."""
    match recipe.vocabulary:
        case ExistingVocabulary(tokenizer=name):
            tokenizer = with_casing(load_tokenizer(name), recipe.casing.input)
        case TrainedVocabulary() as section:
            tokenizer = train_vocabulary(read_corpora(section.corpus), section, recipe.casing)
        case _:
            assert_never(recipe.vocabulary)
    tokenizer.save_pretrained(str(out / "tokenizer"))
    return {"size": len(tokenizer), "family": str(token_family(tokenizer))}
