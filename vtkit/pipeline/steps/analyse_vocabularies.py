"""Stage ``analyse``: the languages of the old and the new vocabulary, and how they cut up the run's own texts."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from vtkit.data.sampling import draw
from vtkit.pipeline.stage import Corpus, Stage, View
from vtkit.pipeline.steps.encode_corpus import opened
from vtkit.pipeline.steps.source import source_tokenizer
from vtkit.pipeline.steps.texts import adaptation_corpus, evaluation_sets, read_texts
from vtkit.pipeline.steps.transfer_embeddings import target_tokenizer
from vtkit.settings.recipe import Recipe
from vtkit.vocabulary.profiles import Sample, VocabularyAnalysis

DOCUMENTS = 2_000  # sampled of all sets together: shares of words are then known to a percentage point
DOCUMENT_CHARACTERS = 4_000  # read of each of them
QUERIES = 5_000  # queries that are sampled, of all sets together


def analyse_vocabularies(recipe: View, inputs: Mapping[str, Path], out: Path) -> VocabularyAnalysis:
    """Profile ``inputs["vocabulary"]`` and the source's vocabulary on the documents and queries the recipe is judged
    on; without any, on the texts of adaptation."""
    from vtkit.vocabulary import vocabularies

    documents, queries = _Sampled(), _Sampled()
    for corpus in recipe.corpora("analyse.texts"):
        if corpus.folder is None:
            documents.add(read_texts([corpus]))
        else:
            collection = opened(corpus)
            documents.add(document.contents for document in collection.documents)
            queries.add(query.text for query in collection.queries)
    texts, asked = documents.sample(DOCUMENTS, recipe.recipe.seed), queries.sample(QUERIES, recipe.recipe.seed)
    from_nothing = "source" not in inputs and recipe.source.model is None
    source, target = vocabularies.analyse_vocabularies(
        None if from_nothing else source_tokenizer(recipe, inputs),
        target_tokenizer(recipe, inputs),
        [text[:DOCUMENT_CHARACTERS] for text in texts],
        asked,
        recipe.recipe.language,
    )
    shortened = sum(len(text) > DOCUMENT_CHARACTERS for text in texts)
    return VocabularyAnalysis(
        languages=vocabularies.languages_told_apart(recipe.recipe.language),
        documents=Sample(len(texts), documents.count, shortened),
        queries=Sample(len(asked), queries.count, 0),
        source=source,
        target=target,
    )


class _Sampled:
    """Texts of several collections, counted as they are sampled."""

    def __init__(self) -> None:
        self.parts: list[Iterable[str]] = []
        self.count = 0

    def add(self, texts: Iterable[str]) -> None:
        self.parts.append(texts)

    def sample(self, most: int, seed: int) -> list[str]:
        return draw(self._counted(), most, seed)

    def _counted(self) -> Iterator[str]:
        for texts in self.parts:
            for text in texts:
                self.count += 1
                yield text


def _texts(recipe: Recipe) -> tuple[Corpus, ...]:
    """The evaluation sets; what adaptation reads where there are none."""
    return evaluation_sets(recipe) or adaptation_corpus(recipe)


ANALYSE = Stage(
    "analyse",
    version=3,
    reads=("recipe.language", "source.model", "casing.output"),
    corpora={"analyse.texts": _texts},
    function=analyse_vocabularies,
)
