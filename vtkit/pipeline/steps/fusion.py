"""Stage ``fusion``: the weight of the final model in the sum of its scores and BM25's, chosen once for each evaluation
set on queries that are not evaluated. The index to be used and the sum of two rankings both read it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.collections import load_retrieval
from vtkit.data.document_files import read_corpora
from vtkit.data.overlap import query_keys
from vtkit.evaluation.collection import Collection
from vtkit.evaluation.fusion import FusionWeight
from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.encode_corpus import SETS, model_name
from vtkit.pipeline.steps.encode_queries import with_own_documents
from vtkit.pipeline.steps.index_corpus import WEIGHTING
from vtkit.pipeline.steps.texts import collection_of, trained_documents, training_queries, tuned_collections
from vtkit.system import console

if TYPE_CHECKING:
    from vtkit.evaluation.fusion_queries import FusionQueries

TRAINING = "training queries of evaluate.sets"
TUNED = "collections that were fine-tuned on"
# Settings that a stage reads to choose a fusion weight.
WEIGHED = (
    *("recipe.language", "index.bm25_analyser", "index.query_log", "index.passages"),
    *("evaluate.measures", "evaluate.ignore_identical_ids"),
)


def choose_weights(recipe: View, inputs: Mapping[str, Path], out: Path) -> dict[str, FusionWeight]:
    """Choose the weight of ``inputs["model"]`` on each set; its vectors of the documents are ``inputs["vectors"]``."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.documents import as_indexed
    from vtkit.evaluation.fusion_queries import FEWEST_WEIGHT_QUERIES, fusion_weight
    from vtkit.evaluation.systems import SparseSystem, query_vectors
    from vtkit.search.engine import index_in_memory
    from vtkit.search.passages import Passages, row_contents
    from vtkit.search.stored_vectors import VECTORS, read_vectors
    from vtkit.system.runtime import fastest_device

    encoder, index = load_encoder(model_name(recipe, inputs), fastest_device()), recipe.index
    measure = "nDCG@10" if recipe.evaluate is None else recipe.evaluate.measures[0]
    weights: dict[str, FusionWeight] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        place = collection_of(corpus)
        queries = fusion_queries_of(recipe, place)
        if index.query_log and queries.kind == "snippets":
            console.warn(
                f"  index.query_log has fewer than {FEWEST_WEIGHT_QUERIES} different queries that {place.folder} does "
                "not evaluate, so snippets of documents are used instead"
            )
        encoded = read_vectors(inputs["vectors"] / place.folder / VECTORS)
        passages = Passages.load(inputs["vectors"] / place.folder, encoded.shape[0])
        vectors = as_indexed(encoder, encoded, row_contents(place.whole.documents, passages), index)
        encode = query_vectors(encoder, index, f"encoding the fusion queries of {place.folder}")
        system = SparseSystem(index_in_memory(vectors, passages), encode)
        over, bm25 = partial(SparseSystem.over, encoder, settings=index), place.bm25(recipe.recipe.language, index)
        weight = weights[place.folder] = fusion_weight(queries, system, over, bm25, measure)
        (console.warn if weight.contradicted else console.say)(
            f"  {place.folder}: compared with BM25 on {weight.queries:,} {weight.kind}, the encoder weighs "
            f"{weight.weight:g}: {weight.words}"
        )
    return weights


def fusion_queries_of(recipe: View, place: Collection, corpora: str = TRAINING) -> FusionQueries:
    """The fusion queries of a collection; the record of the stage names the collections that training queries are of
    under ``corpora``."""
    from vtkit.evaluation.fusion_queries import fusion_queries, weight_queries

    seed, training = recipe.recipe.seed, None
    other = next((other for other in recipe.corpora(corpora) if other.folder == place.folder), None)
    if other is not None:
        tuned = recipe.corpora(TUNED) if corpora == TRAINING else ()
        trained = trained_documents(tuned, place.name, place.whole)
        asked = frozenset[str]().union(*(query_keys(each.name, str(each.split)) for each in tuned))
        others = with_own_documents(recipe, load_retrieval(other.name, str(other.split)))
        training = weight_queries(others, place.whole, seed, trained, asked)
    return fusion_queries(place.whole, training, seed, recipe.index.passages, read_corpora(recipe.index.query_log))


FUSION = Stage(  # of the final model
    "fusion",
    version=2,
    reads=(
        *("index.query_length", "index.query_top_dimensions", "index.document_length", "index.precision"),
        *WEIGHTING,
        *WEIGHED,
    ),
    corpora=SETS | {TRAINING: training_queries, TUNED: tuned_collections},
    function=choose_weights,
)
