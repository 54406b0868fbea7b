"""Stage ``profile``: the languages of the old and the new vocabulary, and how they cut up the run's own texts."""

from collections.abc import Iterable, Mapping
from itertools import chain, count
from pathlib import Path

from vtkit.data.sampling import draw
from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.source import source_tokenizer
from vtkit.pipeline.steps.texts import adaptation_corpus, collection_of, evaluation_sets, read_texts
from vtkit.pipeline.steps.transfer_embeddings import target_tokenizer
from vtkit.vocabulary.profiles import Sample, VocabularyAnalysis

DOCUMENTS = 2_000  # sampled of all sets together: shares of words are then known to a percentage point
DOCUMENT_CHARACTERS = 4_000  # read of each document
QUERIES = 5_000  # queries that are sampled, of all sets together


def profile_vocabularies(recipe: View, inputs: Mapping[str, Path], out: Path) -> VocabularyAnalysis:
    """Profile ``inputs["vocabulary"]`` and the source's vocabulary on the documents and queries the recipe is judged
    on; without any, on the texts of adaptation."""
    from vtkit.vocabulary import vocabularies

    documents, queries = list[Iterable[str]](), list[Iterable[str]]()
    for corpus in recipe.corpora("profile.texts"):
        if corpus.folder is None:
            documents.append(read_texts([corpus]))
        else:
            collection = collection_of(corpus).whole
            documents.append(collection.contents)
            queries.append([query.text for query in collection.queries])
    texts, of_texts = _sampled(documents, DOCUMENTS, recipe.recipe.seed)
    asked, of_queries = _sampled(queries, QUERIES, recipe.recipe.seed)
    from_nothing = "source" not in inputs and recipe.source.model is None
    before = None if from_nothing else source_tokenizer(recipe, inputs)
    beginnings, language = [text[:DOCUMENT_CHARACTERS] for text in texts], recipe.recipe.language
    profiles = vocabularies.analyse_vocabularies(before, target_tokenizer(recipe, inputs), beginnings, asked, language)
    shortened = sum(len(text) > DOCUMENT_CHARACTERS for text in texts)
    samples = Sample(len(texts), of_texts, shortened), Sample(len(asked), of_queries, 0)
    return VocabularyAnalysis(vocabularies.languages_told_apart(language), *samples, *profiles)


def _sampled(parts: Iterable[Iterable[str]], most: int, seed: int) -> tuple[list[str], int]:
    """Up to ``most`` of the texts of several collections, and how many there are."""
    counted = count()
    texts = draw((text for text, _ in zip(chain.from_iterable(parts), counted, strict=False)), most, seed)
    return texts, next(counted)


PROFILE = Stage(
    "profile",
    version=3,
    reads=("recipe.language", "source.model", "casing.output"),
    corpora={"profile.texts": lambda recipe: evaluation_sets(recipe) or adaptation_corpus(recipe)},
    function=profile_vocabularies,
)
