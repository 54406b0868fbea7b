"""Stage ``evaluate:peer``: a dense embedder that could be used instead, alone and summed with BM25, on every set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtkit.artifacts import result_of
from vtkit.data.retrieval import RetrievalSet
from vtkit.errors import DataError
from vtkit.evaluation.balance import ProbedWeight
from vtkit.settings.recipe import Recipe
from vtkit.stages.encode_corpus import opened
from vtkit.stages.encode_queries import SETS, balancing_queries, probed_by_spans
from vtkit.stages.evaluate_runs import (
    BM25,
    MEASURED,
    EvaluatedSet,
    EvaluateResult,
    judge,
    sum_with_bm25,
    to_sets_run,
)
from vtkit.stages.stage import Stage, View
from vtkit.stages.texts import peer_training_queries

if TYPE_CHECKING:
    import numpy as np

    from vtkit.data.trec import Run
    from vtkit.evaluation.probe import Probe

BALANCING_RUN = "balancing.trec"
"""What the peer finds for the queries that balance its sum with BM25: training queries, or spans of documents."""

SETTING = "evaluate.peers"

LONGEST_NAME = 60
"""Characters of a peer's name in file names."""

_TRAINING = "training queries of evaluate.sets, peers"


def peers_of(recipe: Recipe) -> dict[str, str]:
    """What each peer is called in steps and files -> its folder or hub id: the last part, plain, and no two alike.
    A dense source is a peer of what is made of it."""
    found: dict[str, str] = {}
    given = recipe.evaluate.peers if recipe.evaluate is not None else ()
    dense = [str(recipe.source.model)] if recipe.evaluate is not None and recipe.source.fitted is not None else []
    for model in dict.fromkeys([*dense, *given]):
        plain = name = (
            re.sub(r"[^\w.-]+", "-", Path(model).name, flags=re.ASCII)[:LONGEST_NAME].strip("-.") or "embedder"
        )
        number = 2
        while name in found:
            name = f"{plain}-{number}"
            number += 1
        found[name] = model
    return found


def of_peer(recipe: Recipe, model: str) -> Recipe:
    """``recipe`` with ``model`` as its only peer, so that another peer changes nothing of what this one found."""
    assert recipe.evaluate is not None
    return recipe.model_copy(update={"evaluate": recipe.evaluate.model_copy(update={"peers": (model,)})})


def evaluate_peer(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """Search every set with the embedder, exactly and by its own similarity.

    Writes ``out/SET/run.trec`` and ``out/SET/per_query.json``; and ``out/SET/balancing.trec``, its results for the
    queries that balance its sum with BM25.
    """
    from vtkit.data.trec import write_trec
    from vtkit.encoder.dense import load_dense
    from vtkit.runtime import fastest_device

    assert recipe.evaluate is not None
    (model,) = recipe.evaluate.peers
    embedder = load_dense(model, SETTING).to(fastest_device())
    sets: dict[str, EvaluatedSet] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        folder, whole = str(corpus.folder), opened(corpus)
        collection = whole.sample(recipe.evaluate.max_queries, recipe.recipe.seed)
        texts = [document.contents for document in collection.documents]
        documents = _encoded(recipe, embedder, texts, "document", f"encoding the documents of {folder}")
        run = _run(recipe, embedder, collection, documents, f"encoding the queries of {folder}")
        probed = probed_by_spans(recipe, whole, partial(_find_spans, recipe, embedder))
        sets[folder] = replace(judge(recipe, collection, run, out / folder, tag="peer"), probed=probed)
        asked = balancing_queries(recipe, corpus, whole, _TRAINING).asked
        found = _run(recipe, embedder, asked, documents, f"encoding queries that balance, of {folder}")
        write_trec(found, out / folder / BALANCING_RUN, "vtkit-peer")
    return EvaluateResult(sets)


def evaluate_hybrid_peer(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """The weighted sum of the scores of ``inputs["model"]``, a peer's evaluation, and ``inputs["bm25"]``.

    The weight is chosen as for the recipe's own model; also on a set that the recipe fine-tunes on, for the peer is not
    trained on these queries.
    """
    from vtkit.data.trec import read_trec
    from vtkit.evaluation.balance import above_last

    made = result_of(inputs["model"], EvaluateResult).sets

    def find(folder: str, asked: RetrievalSet) -> tuple[Run, ProbedWeight | None]:
        return above_last(read_trec(inputs["model"] / folder / BALANCING_RUN)), made[folder].probed

    return sum_with_bm25(recipe, inputs, out, _TRAINING, find, above_last, tag="hybrid-peer")


def _find_spans(recipe: View, embedder: Any, probe: Probe) -> tuple[np.ndarray, np.ndarray]:
    from vtkit.search.dense import nearest_documents

    queries = _encoded(recipe, embedder, probe.queries, "query", "encoding spans")
    documents = _encoded(recipe, embedder, probe.documents, "document", "encoding documents of spans")
    ids, scores = nearest_documents(
        queries, documents, len(documents), lambda some, all_: embedder.similarity(some, all_).cpu().numpy()
    )
    return ids, scores - scores[:, -1:]  # as above_last has it


def _run(recipe: View, embedder: Any, collection: RetrievalSet, documents: Any, description: str) -> Run:
    from vtkit.search.dense import nearest_documents

    assert recipe.evaluate is not None
    queries = _encoded(recipe, embedder, [query.text for query in collection.queries], "query", description)
    ids, scores = nearest_documents(
        queries, documents, recipe.evaluate.depth, lambda some, all_: embedder.similarity(some, all_).cpu().numpy()
    )
    return to_sets_run(collection, ids, scores)


def _encoded(recipe: View, embedder: Any, texts: list[str], side: Any, description: str) -> Any:
    from vtkit.encoder.dense import encode_dense

    assert recipe.evaluate is not None
    try:
        return encode_dense(embedder, texts, side, recipe.index.precision, description)
    except DataError as error:
        raise DataError(f"{SETTING} = {recipe.evaluate.peers[0]}: {error}") from error


_READS = (*MEASURED, *BM25, SETTING, "index.precision")

EVALUATE_PEER = Stage(
    "evaluate:peer",
    version=4,
    reads=_READS,
    corpora=SETS | {_TRAINING: peer_training_queries},
    function=evaluate_peer,
)
EVALUATE_HYBRID_PEER = Stage(
    "evaluate:hybrid-peer",
    version=6,
    reads=(*MEASURED, *BM25),
    corpora=SETS | {_TRAINING: peer_training_queries},
    function=evaluate_hybrid_peer,
)
