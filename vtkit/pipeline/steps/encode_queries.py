"""Stage ``encode:queries``: the queries that the final model is judged on, as sparse vectors on disk. However many ways
to weight and to extend an index are compared, they are encoded once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.retrieval import RetrievalSet
from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.encode_corpus import SETS, model_name
from vtkit.pipeline.steps.texts import collection_of

if TYPE_CHECKING:
    from vtkit.evaluation.systems import EncodeQueries


def encode_queries(recipe: View, inputs: Mapping[str, Path], out: Path) -> dict[str, int]:
    """Fill ``out/SET`` with the query vectors of ``inputs["model"]``; returns how many each set has."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.evaluation.systems import query_vectors
    from vtkit.search.stored_vectors import write_vectors
    from vtkit.system.runtime import fastest_device

    encoder = load_encoder(model_name(recipe, inputs), fastest_device())
    encoded: dict[str, int] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        place = collection_of(corpus)
        asked = [query.text for query in judged_of(recipe, place.whole).queries]
        encode = query_vectors(encoder, recipe.index, f"encoding the queries of {place.folder}")
        write_vectors(encode(asked), out / place.folder)
        encoded[place.folder] = len(asked)
    return encoded


def judged_of(recipe: View, collection: RetrievalSet) -> RetrievalSet:
    """``collection`` with the queries that are judged."""
    return with_own_documents(recipe, collection).sample(recipe.evaluate.max_queries, recipe.recipe.seed)


def with_own_documents(recipe: View, collection: RetrievalSet) -> RetrievalSet:
    """``collection``, whose queries are documents if the recipe says so or its record does."""
    own = recipe.evaluate is not None and recipe.evaluate.ignore_identical_ids
    return replace(collection, own_documents=own or collection.own_documents)


def stored(folder: Path) -> EncodeQueries:
    """An encode function that ignores its texts and returns the vectors saved in ``folder``."""
    from vtkit.search.stored_vectors import read_vectors

    return lambda _: read_vectors(folder)


ENCODE_QUERIES = Stage(  # of the final model
    "encode:queries",
    version=15,
    reads=(
        *("index.query_length", "index.query_top_dimensions", "index.precision"),
        *("evaluate.max_queries", "evaluate.ignore_identical_ids"),
    ),
    corpora=SETS,
    function=encode_queries,
)
