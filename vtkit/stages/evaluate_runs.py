"""Stage ``evaluate``: one model, BM25, or the sum of both, judged on every evaluation set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vtkit.data.retrieval import RetrievalSet
from vtkit.stages.index_corpus import model_name, opened
from vtkit.stages.stage import Stage, View
from vtkit.stages.texts import evaluation_sets

if TYPE_CHECKING:
    from vtkit.search.analysers import Analysis
    from vtkit.search.trec import Run


def evaluate_model(recipe: View, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Search every set with the encoder of ``inputs["model"]`` (or the source) over ``inputs["index"]``.

    Writes ``out/SET/run.trec`` and ``out/SET/per_query.json``; returns measures, dimensions and FLOPS by set.
    """
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.sides import encode_side
    from vtkit.measures.cost import activation_shares, active_dimensions, flops
    from vtkit.runtime import fastest_device
    from vtkit.search.engine import POSTINGS, open_index
    from vtkit.search.trec import to_run

    assert recipe.evaluate is not None
    encoder = load_encoder(model_name(recipe, inputs), fastest_device())
    facts: dict[str, Any] = {}
    for folder, collection in _judged(recipe).items():
        queries = encode_side(
            encoder,
            [query.text for query in collection.queries],
            "query",
            recipe.index.query_length,
            precision=recipe.index.precision,
            description=f"encoding the queries of {folder}",
        )
        index = open_index(recipe.index.engine, inputs["index"] / folder / POSTINGS)
        ids, scores = index.search(queries, recipe.evaluate.depth)
        run = to_run(
            [query.id for query in collection.queries], [document.id for document in collection.documents], ids, scores
        )
        facts[folder] = _judge(recipe, collection, run, out / folder, tag=_tag(inputs)) | {
            "query_dimensions": active_dimensions(queries),
            "document_dimensions": index.info.mean_size,
            "flops": flops(activation_shares(queries), index.info.activation_shares),
            "tied_scores": _tied(scores),
        }
    return facts


def evaluate_bm25(recipe: View, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """BM25 over the same documents and queries, with the best analyser that is known for the language."""
    return _evaluate_bm25(recipe, out, "full")


def evaluate_bm25_words(recipe: View, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """BM25 over plain words, as Lucene has it where no analysis of words is configured."""
    return _evaluate_bm25(recipe, out, "words")


def _evaluate_bm25(recipe: View, out: Path, analysis: Analysis) -> dict[str, Any]:
    from vtkit.search.analysers import K1
    from vtkit.search.bm25 import Bm25
    from vtkit.search.trec import to_run

    assert recipe.evaluate is not None
    facts = {}
    for folder, collection in _judged(recipe).items():
        index = Bm25.build((document.contents for document in collection.documents), recipe.recipe.language, analysis)
        ids, scores = index.search([query.text for query in collection.queries], recipe.evaluate.depth)
        run = to_run(
            [query.id for query in collection.queries], [document.id for document in collection.documents], ids, scores
        )
        judged = _judge(recipe, collection, run, out / folder, tag="bm25" if analysis == "full" else "bm25-words")
        facts[folder] = judged | {"analyser": index.analyser.description, "k1": K1, "b": index.analyser.b}
    return facts


def evaluate_hybrid(recipe: View, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """The weighted sum of the scores of ``inputs["model"]`` and ``inputs["bm25"]`` (both evaluate outputs)."""
    from vtkit.search.hybrid import ENCODER_WEIGHT, weighted_sum
    from vtkit.search.trec import read_trec

    assert recipe.evaluate is not None
    facts = {}
    for folder, collection in _judged(recipe).items():
        model, bm25 = (read_trec(inputs[role] / folder / "run.trec") for role in ("model", "bm25"))
        run = weighted_sum(model, bm25, recipe.evaluate.depth)
        facts[folder] = _judge(recipe, collection, run, out / folder, tag="hybrid") | {"weight": ENCODER_WEIGHT}
    return facts


def _judged(recipe: View) -> dict[str, RetrievalSet]:
    """Folder name -> collection with the queries that are judged."""
    assert recipe.evaluate is not None
    most, seed = recipe.evaluate.max_queries, recipe.recipe.seed
    return {str(corpus.folder): opened(corpus).sample(most, seed) for corpus in recipe.corpora("evaluate.sets")}


def _judge(recipe: View, collection: RetrievalSet, run: Run, folder: Path, tag: str) -> dict[str, Any]:
    from vtkit.measures.effectiveness import evaluate, per_query
    from vtkit.search.trec import write_trec

    assert recipe.evaluate is not None
    folder.mkdir(parents=True)
    write_trec(run, folder / "run.trec", f"vtkit-{tag}")
    judged = {query.id for query in collection.queries}
    qrels = {query: documents for query, documents in collection.qrels.items() if query in judged}
    details = per_query(run, qrels, recipe.evaluate.measures)
    (folder / "per_query.json").write_text(json.dumps(details, ensure_ascii=False), encoding="utf-8")
    return {
        "queries": len(collection.queries),
        "documents": len(collection.documents),
        "measures": evaluate(run, qrels, recipe.evaluate.measures),
    }


def _tied(scores: np.ndarray, depth: int = 10) -> float:
    """Share of queries with two equal scores among the first ``depth`` results."""
    top = scores[:, :depth]
    found = (top[:, 1:] > 0) & (top[:, 1:] == top[:, :-1])
    return float(found.any(axis=1).mean()) if len(top) else 0.0


def _tag(inputs: Mapping[str, Path]) -> str:
    """``finetune`` for the index output ``index-finetune-0123…``."""
    return inputs["index"].name.removeprefix("index-").rsplit("-", 1)[0]


_MEASURED = ("evaluate.measures", "evaluate.depth", "evaluate.max_queries")
_SETS = {"evaluate.sets": evaluation_sets}

EVALUATE = Stage(
    "evaluate",
    version=3,
    reads=(*_MEASURED, "index.engine", "index.query_length", "index.precision"),
    corpora=_SETS,
    function=evaluate_model,
)
"""Of one model; where that is the source itself, its name is read too. Which others are judged changes nothing."""

EVALUATE_BM25 = Stage(
    "evaluate:bm25", version=3, reads=(*_MEASURED, "recipe.language"), corpora=_SETS, function=evaluate_bm25
)
EVALUATE_BM25_WORDS = Stage(
    "evaluate:bm25-words", version=1, reads=(*_MEASURED, "recipe.language"), corpora=_SETS, function=evaluate_bm25_words
)
EVALUATE_HYBRID = Stage("evaluate:hybrid", version=3, reads=_MEASURED, corpora=_SETS, function=evaluate_hybrid)
