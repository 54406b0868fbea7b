"""Stage ``vocabulary``: the target tokenizer, existing, trained or expanded, with the casing policy inside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_never

from vtkit.recipe.sections import ExistingVocabulary, ExpandedVocabulary, TrainedVocabulary
from vtkit.stages.stage import Stage, View


def build_vocabulary(recipe: View, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Fill ``out/tokenizer`` with a folder that ``AutoTokenizer`` loads without vtkit."""
    from vtkit.vocabulary.existing import load_tokenizer, with_casing
    from vtkit.vocabulary.forms import token_family
    from vtkit.vocabulary.specification import build

    facts: dict[str, Any] = {}
    match recipe.vocabulary:
        case ExistingVocabulary(tokenizer=name):
            tokenizer = with_casing(load_tokenizer(name), recipe.casing.input)
        case TrainedVocabulary() | ExpandedVocabulary() as section:
            built = build(section, recipe.casing)
            tokenizer, facts = built.tokenizer, built.facts
        case _:
            assert_never(recipe.vocabulary)
    tokenizer.save_pretrained(str(out / "tokenizer"))
    return {"size": len(tokenizer), "family": str(token_family(tokenizer)), **facts}


VOCABULARY = Stage("vocabulary", version=1, reads=("vocabulary", "casing.input"), function=build_vocabulary)
