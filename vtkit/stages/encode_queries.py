"""Stage ``encode:queries``: the queries that the final model is judged on, and those that bring its ranking together
with BM25's, as sparse vectors on disk. However many ways to weight and to extend an index are compared, they are
encoded once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.retrieval import Query, RetrievalSet
from vtkit.evaluation.balance import ProbedWeight
from vtkit.results import Result
from vtkit.stages.encode_corpus import model_name, opened
from vtkit.stages.stage import Corpus, Stage, View
from vtkit.stages.texts import draw, evaluation_sets, trained_documents, training_queries, tuned_collections

if TYPE_CHECKING:
    import numpy as np
    import scipy.sparse as sp
    from sentence_transformers import SparseEncoder

    from vtkit.evaluation.probe import Probe

WEIGHT_QUERIES = 1000
"""So many training queries of a set choose the weight of the sum with BM25, sampled with the seed ..."""

FEWEST_WEIGHT_QUERIES = 50
"""... and fewer than these choose nothing: it would be chance."""

SPANS = 256
"""Spans of documents that stand for queries where there are no training queries."""

SPAN_WORDS = (4, 12)
"""Fewest and most words of such a span."""

JUDGED, BALANCING = "judged", "balancing"
"""Folders of the vectors of one set."""

SETS = {"evaluate.sets": evaluation_sets}
TRAINING = "training queries of evaluate.sets"
TUNED = "collections that were fine-tuned on"


@dataclass(frozen=True)
class EncodedQueries(Result):
    """The queries of one evaluation set as vectors."""

    judged: int
    balancing: int
    """Queries that bring two rankings together: training queries, or spans of documents."""

    probed: ProbedWeight | None = None
    """What spans of the documents say of the encoder's weight beside BM25; None where they are too few."""


@dataclass(frozen=True)
class EncodeQueriesResult(Result):
    """What one encoder made of the queries of each evaluation set."""

    sets: Mapping[str, EncodedQueries]


@dataclass(frozen=True)
class Balancing:
    """The queries on which the scores of two rankings are compared."""

    asked: RetrievalSet
    """The collection with these queries, and with their judgements where they are training queries."""

    judged: bool
    """Whether they are; otherwise they are spans of documents."""

    @property
    def texts(self) -> list[str]:
        """The queries alone."""
        return [query.text for query in self.asked.queries]


def encode_queries(recipe: View, inputs: Mapping[str, Path], out: Path) -> EncodeQueriesResult:
    """Fill ``out/SET/judged`` and ``out/SET/balancing`` with query vectors of ``inputs["model"]``."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.runtime import fastest_device
    from vtkit.search.stored_vectors import write_vectors

    encoder = load_encoder(model_name(recipe, inputs), fastest_device())
    assert recipe.evaluate is not None
    sets: dict[str, EncodedQueries] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        folder, collection = str(corpus.folder), opened(corpus)
        asked = [query.text for query in collection.sample(recipe.evaluate.max_queries, recipe.recipe.seed).queries]
        balancing = balancing_queries(recipe, corpus, collection)
        (out / folder).mkdir(parents=True)
        for name, texts, described in (
            (JUDGED, asked, "the queries"),
            (BALANCING, balancing.texts, "queries that balance"),
        ):
            encoded = encoded_queries(recipe, encoder, texts, f"encoding {described} of {folder}")
            write_vectors(encoded, out / folder / name)
        probed = probed_by_spans(recipe, collection, partial(_find_spans, recipe, encoder))
        sets[folder] = EncodedQueries(len(asked), len(balancing.texts), probed)
    return EncodeQueriesResult(sets)


def probed_by_spans(
    recipe: View, collection: RetrievalSet, search: Callable[[Probe], tuple[np.ndarray, np.ndarray]]
) -> ProbedWeight | None:
    """What spans of the documents of ``collection`` say of the weight of an encoder.

    Args:
        search: the probe -> numbers and scores of the documents that the encoder finds for each span.
    """
    from vtkit.data.trec import to_run
    from vtkit.evaluation.probe import probe_of
    from vtkit.evaluation.probed_weight import PAIRS, probed_weight

    contents = (document.contents for document in collection.documents)
    probe = probe_of(draw(contents, PAIRS, recipe.recipe.seed), PAIRS, recipe.recipe.seed)
    if not probe.queries:
        return None
    names = [str(number) for number in range(len(probe.queries))]
    encoder = to_run(names, names, *search(probe))
    return probed_weight(probe, encoder, recipe.recipe.language, recipe.index.bm25_analyser)


def _find_spans(recipe: View, encoder: SparseEncoder, probe: Probe) -> tuple[np.ndarray, np.ndarray]:
    from vtkit.encoder.sides import encode_side
    from vtkit.search.engine import search_exactly

    queries = encoded_queries(recipe, encoder, probe.queries, "encoding spans")
    length, precision = recipe.index.document_length, recipe.index.precision
    documents = encode_side(
        encoder, probe.documents, "document", length, precision=precision, description="encoding documents of spans"
    )
    return search_exactly(documents, queries, len(probe.documents))


def encoded_queries(recipe: View, encoder: SparseEncoder, texts: Sequence[str], description: str) -> sp.csr_matrix:
    """The query vectors of ``texts`` under ``[index]``, (queries, vocabulary)."""
    from vtkit.encoder.sides import encode_side

    return encode_side(
        encoder,
        texts,
        "query",
        recipe.index.query_length,
        top_dimensions=recipe.index.query_top_dimensions,
        precision=recipe.index.precision,
        description=description,
    )


def judged_sets(recipe: View) -> dict[str, RetrievalSet]:
    """Folder name -> collection with the queries that are judged."""
    assert recipe.evaluate is not None
    most, seed = recipe.evaluate.max_queries, recipe.recipe.seed
    return {str(corpus.folder): opened(corpus).sample(most, seed) for corpus in recipe.corpora("evaluate.sets")}


def balancing_queries(recipe: View, corpus: Corpus, collection: RetrievalSet, corpora: str = TRAINING) -> Balancing:
    """Training queries of ``collection`` where there are enough that the recipe does not train on; else spans of it.

    Args:
        corpora: under which the record names the collections that training queries are of.
    """
    training = next((one for one in recipe.corpora(corpora) if one.folder == corpus.folder), None)
    if training is not None:
        trained = trained_documents(recipe.corpora(TUNED), corpus.name) if corpora == TRAINING else frozenset()
        others = weight_queries(opened(training), collection, recipe.recipe.seed, trained)
        if others is not None:
            return Balancing(others, judged=True)
    spans = [Query(str(number), span) for number, span in enumerate(_spans(collection, recipe.recipe.seed))]
    return Balancing(replace(collection, queries=spans, qrels={}), judged=False)


def weight_queries(
    training: RetrievalSet, judged: RetrievalSet, seed: int, trained: Set[str] = frozenset()
) -> RetrievalSet | None:
    """The training queries that choose the weight of a sum; None where there are too few.

    Args:
        judged: the set with all its judged queries; these are left out of ``training``.
        trained: documents that the encoder was trained to find; queries to which one is relevant are left out too, for
            it finds them better than others, and would get too large a weight.
    """
    texts = {query.text for query in judged.queries}

    def unknown(query: Query) -> bool:
        grades = training.qrels[query.id].items()
        return query.text not in texts and not any(grade > 0 and document in trained for document, grade in grades)

    queries = [query for query in training.queries if unknown(query)]
    qrels = {query.id: training.qrels[query.id] for query in queries}
    others = replace(training, queries=queries, qrels=qrels).sample(WEIGHT_QUERIES, seed)
    return others if len(others.queries) >= FEWEST_WEIGHT_QUERIES else None


def _spans(collection: RetrievalSet, seed: int) -> list[str]:
    """Random spans of random documents."""
    import numpy as np

    from vtkit.training.crops import SHORTEST_TEXT, joined, query_span, units

    draw = np.random.default_rng(seed)
    spans = []
    for number in draw.permutation(len(collection.documents)):
        text = collection.documents[int(number)].contents
        words = units(text)
        if len(words) >= SHORTEST_TEXT:
            spans.append(joined(words[query_span(words, *SPAN_WORDS, draw)], text))
        if len(spans) == SPANS:
            break
    return spans


ENCODE_QUERIES = Stage(
    "encode:queries",
    version=6,
    reads=(
        "index.query_length",
        "index.query_top_dimensions",
        "index.document_length",
        "index.precision",
        "index.bm25_analyser",
        "recipe.language",
        "evaluate.max_queries",
    ),
    corpora=SETS | {TRAINING: training_queries, TUNED: tuned_collections},
    function=encode_queries,
)
"""Of the final model."""
