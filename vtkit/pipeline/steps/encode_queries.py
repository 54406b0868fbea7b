"""Stage ``encode:queries``: the queries that the final model is judged on, and those that bring its ranking together
with BM25's, as sparse vectors on disk. However many ways to weight and to extend an index are compared, they are
encoded once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.collections import load_retrieval
from vtkit.data.corpora import read_corpora
from vtkit.data.overlap import query_keys
from vtkit.data.retrieval import RetrievalSet
from vtkit.evaluation.balance import FEWEST_WEIGHT_QUERIES, ProbedWeight
from vtkit.evaluation.collection import Collection
from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.encode_corpus import model_name
from vtkit.pipeline.steps.index_corpus import WEIGHTING
from vtkit.pipeline.steps.texts import (
    collection_of,
    indexed_sets,
    trained_documents,
    training_queries,
    tuned_collections,
)
from vtkit.system import console
from vtkit.system.results import Result

if TYPE_CHECKING:
    from vtkit.evaluation.balancing import Balancing
    from vtkit.evaluation.systems import EncodeQueries

JUDGED, BALANCING = "judged", "balancing"  # folders of the vectors of one set
SETS = {"evaluate.sets": indexed_sets}
TRAINING = "training queries of evaluate.sets"
TUNED = "collections that were fine-tuned on"
# Settings that a stage reads to balance a sum with BM25.
SUMMED = ("recipe.language", "index.bm25_analyser", "index.query_log", "index.passages")


@dataclass(frozen=True)
class EncodedQueries(Result):
    """The queries of one evaluation set as vectors."""

    probed: ProbedWeight | None = None  # the encoder's weight beside BM25 by spans; None if there are too few


@dataclass(frozen=True)
class EncodeQueriesResult(Result):
    """The encoded queries of each evaluation set."""

    sets: Mapping[str, EncodedQueries]


def encode_queries(recipe: View, inputs: Mapping[str, Path], out: Path) -> EncodeQueriesResult:
    """Fill ``out/SET/judged`` and ``out/SET/balancing`` with query vectors of ``inputs["model"]``."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.evaluation.probe import probed_by_spans
    from vtkit.evaluation.systems import SparseSystem, query_vectors
    from vtkit.search.stored_vectors import write_vectors
    from vtkit.system.runtime import fastest_device

    encoder = load_encoder(model_name(recipe, inputs), fastest_device())
    seed, index = recipe.recipe.seed, recipe.index
    sets: dict[str, EncodedQueries] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        place = collection_of(corpus)
        folder, collection = place.folder, place.whole
        asked = [] if recipe.evaluate is None else [query.text for query in judged_of(recipe, collection).queries]
        balancing = balancing_of(recipe, place)
        if index.query_log and not (balancing.logged or balancing.judged):
            console.warn(
                f"  index.query_log has fewer than {FEWEST_WEIGHT_QUERIES} different queries that {folder} does not "
                "evaluate, so spans of documents are used instead"
            )
        (out / folder).mkdir(parents=True)
        for name, texts, described in (
            *([(JUDGED, asked, "the queries")] if recipe.evaluate is not None else []),
            (BALANCING, balancing.texts, "queries that balance"),
        ):
            encoded = query_vectors(encoder, index, f"encoding {described} of {folder}")(texts)
            write_vectors(encoded, out / folder / name)
        over = partial(SparseSystem.over, encoder, settings=index)
        sets[folder] = EncodedQueries(probed_by_spans(collection, over, seed, recipe.recipe.language, index))
    return EncodeQueriesResult(sets)


def judged_of(recipe: View, collection: RetrievalSet) -> RetrievalSet:
    """``collection`` with the queries that are judged."""
    return with_own_documents(recipe, collection).sample(recipe.evaluate.max_queries, recipe.recipe.seed)


def with_own_documents(recipe: View, collection: RetrievalSet) -> RetrievalSet:
    """``collection``, whose queries are documents if the recipe says so or its record does."""
    own = recipe.evaluate is not None and recipe.evaluate.ignore_identical_ids
    return replace(collection, own_documents=own or collection.own_documents)


def balancing_of(recipe: View, place: Collection, corpora: str = TRAINING) -> Balancing:
    """The queries of a collection that bring two rankings together; the record names the collections that training
    queries are of under ``corpora``."""
    from vtkit.evaluation.balancing import balancing_queries

    log = read_corpora(recipe.index.query_log)
    training = next((other for other in recipe.corpora(corpora) if other.folder == place.folder), None)
    if training is None:
        return balancing_queries(place.whole, None, recipe.recipe.seed, log=log)
    tuned = recipe.corpora(TUNED) if corpora == TRAINING else ()
    trained = trained_documents(tuned, place.name, place.whole)
    asked = frozenset[str]().union(*(query_keys(each.name, str(each.split)) for each in tuned))
    others = with_own_documents(recipe, load_retrieval(training.name, str(training.split)))
    return balancing_queries(place.whole, others, recipe.recipe.seed, trained, log, asked)


def stored(folder: Path) -> EncodeQueries:
    """An encode function that ignores its texts and returns the vectors saved in ``folder``."""
    from vtkit.search.stored_vectors import read_vectors

    return lambda _: read_vectors(folder)


ENCODE_QUERIES = Stage(  # of the final model
    "encode:queries",
    version=13,
    reads=(
        *("index.query_length", "index.query_top_dimensions", "index.document_length", "index.precision"),
        *("evaluate.max_queries", "evaluate.ignore_identical_ids", *WEIGHTING, *SUMMED),
    ),
    corpora=SETS | {TRAINING: training_queries, TUNED: tuned_collections},
    function=encode_queries,
)
