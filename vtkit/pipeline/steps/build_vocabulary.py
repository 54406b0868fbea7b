"""Stage ``vocabulary``: the source's own tokenizer, whole or trimmed, or an existing, trained or expanded one with the
casing policy in it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.source import source_tokenizer
from vtkit.pipeline.steps.texts import read_texts, trimming_corpus
from vtkit.settings.recipe import Recipe
from vtkit.settings.vocabulary import ExistingVocabulary, SourceVocabulary, TrimmedVocabulary
from vtkit.system import console
from vtkit.system.results import Result
from vtkit.vocabulary.statistics import CorpusCounts, ExpansionStats, TrimStats


@dataclass(frozen=True)
class VocabularyResult(Result):
    """A vocabulary, and how it was made where it was not there already."""

    size: int
    family: str  # how its tokens mark words: vtkit.vocabulary.notation.Family
    corpus: CorpusCounts | None = None
    expansion: ExpansionStats | None = None
    trimmed: TrimStats | None = None


def build_vocabulary(recipe: View, inputs: Mapping[str, Path], out: Path) -> VocabularyResult:
    """Fill ``out/tokenizer`` with a folder that ``AutoTokenizer`` loads without vtkit."""
    from vtkit.vocabulary.existing import load_tokenizer, with_casing
    from vtkit.vocabulary.notation import Notation
    from vtkit.vocabulary.saved import save_tokenizer
    from vtkit.vocabulary.specification import build

    corpus = expansion = trimmed = None
    match recipe.vocabulary:
        case SourceVocabulary():
            tokenizer = source_tokenizer(recipe, inputs)
        case TrimmedVocabulary(size=size):
            from vtkit.vocabulary.trimmed import trim_vocabulary

            texts = read_texts(recipe.corpora("vocabulary.corpus"))
            tokenizer, trimmed = trim_vocabulary(source_tokenizer(recipe, inputs), texts, size)
            console.say(f"  {len(tokenizer):,} of {trimmed.base_size:,} tokens are kept")
        case ExistingVocabulary(tokenizer=name):
            tokenizer = with_casing(load_tokenizer(name, require_roles=True), recipe.input_casing)
        case section:
            built = build(section, recipe.input_casing)
            tokenizer, corpus, expansion = built.tokenizer, built.corpus, built.expansion
            console.say(f"  a vocabulary of {len(tokenizer):,} tokens")
    save_tokenizer(tokenizer, out / "tokenizer")
    family = Notation.of(tokenizer.backend_tokenizer).family
    return VocabularyResult(len(tokenizer), family, corpus, expansion, trimmed)


VOCABULARY = Stage("vocabulary", version=8, reads=("vocabulary", "casing.input"), function=build_vocabulary)


def vocabulary_stage(recipe: Recipe) -> Stage[VocabularyResult]:
    """The stage as the vocabulary of ``recipe`` needs it."""
    match recipe.vocabulary:
        case SourceVocabulary():
            return VOCABULARY.reading("source.model")
        case TrimmedVocabulary():  # to texts, whatever sections these come from
            return replace(VOCABULARY.reading("source.model"), corpora={"vocabulary.corpus": trimming_corpus})
        case _ if recipe.casing.input == "keep":
            return VOCABULARY
        case _:
            return VOCABULARY.reading("casing.language", "recipe.language")
