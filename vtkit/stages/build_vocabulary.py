"""Stage ``vocabulary``: the source's own tokenizer, or an existing, trained or expanded one with the casing policy in
it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from vtkit import console
from vtkit.recipe.sections import ExistingVocabulary, ExpandedVocabulary, SourceVocabulary, TrainedVocabulary
from vtkit.results import Result
from vtkit.stages.source import source_tokenizer
from vtkit.stages.stage import Stage, View
from vtkit.vocabulary.statistics import CorpusCounts, ExpansionStats


@dataclass(frozen=True)
class VocabularyResult(Result):
    """A vocabulary, and how it was made where it was not there already."""

    size: int
    family: str
    """How its tokens mark words: :func:`vtkit.vocabulary.forms.token_family`."""

    corpus: CorpusCounts | None = None
    expansion: ExpansionStats | None = None


def build_vocabulary(recipe: View, inputs: Mapping[str, Path], out: Path) -> VocabularyResult:
    """Fill ``out/tokenizer`` with a folder that ``AutoTokenizer`` loads without vtkit."""
    from vtkit.vocabulary.existing import load_tokenizer, with_casing
    from vtkit.vocabulary.forms import token_family
    from vtkit.vocabulary.saved import save_tokenizer
    from vtkit.vocabulary.specification import build

    corpus = expansion = None
    match recipe.vocabulary:
        case SourceVocabulary():
            tokenizer = source_tokenizer(recipe, inputs)
        case ExistingVocabulary(tokenizer=name):
            tokenizer = with_casing(load_tokenizer(name), recipe.casing.input)
        case TrainedVocabulary() | ExpandedVocabulary() as section:
            built = build(section, recipe.casing)
            tokenizer, corpus, expansion = built.tokenizer, built.corpus, built.expansion
            console.say(f"  a vocabulary of {len(tokenizer):,} tokens")
        case _:
            assert_never(recipe.vocabulary)
    save_tokenizer(tokenizer, out / "tokenizer")
    return VocabularyResult(len(tokenizer), str(token_family(tokenizer)), corpus, expansion)


VOCABULARY = Stage("vocabulary", version=3, reads=("vocabulary", "casing.input"), function=build_vocabulary)
"""Where the vocabulary is the source's own, the plan adds the source."""
