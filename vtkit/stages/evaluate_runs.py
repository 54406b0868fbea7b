"""Stage ``evaluate``: one model, BM25, or the sum of both, judged on every evaluation set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vtkit.data.collections import load_retrieval
from vtkit.data.retrieval import RetrievalSet
from vtkit.encoder.checkpoint import fastest_device, load_encoder
from vtkit.encoder.sides import encode_side
from vtkit.measures.cost import activation_shares, active_dimensions, flops
from vtkit.measures.effectiveness import evaluate, per_query
from vtkit.recipe.sections import Recipe
from vtkit.search.bm25 import Bm25
from vtkit.search.exact import ExactIndex
from vtkit.search.hybrid import sum_runs
from vtkit.search.trec import Run, read_trec, to_run, write_trec
from vtkit.stages.index_corpus import model_name
from vtkit.stages.texts import evaluation_split, set_folders


def evaluate_model(recipe: Recipe, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Search every set with the encoder of ``inputs["model"]`` (or the source) over ``inputs["index"]``.

    Writes ``out/SET/run.trec`` and ``out/SET/per_query.json``; returns measures, dimensions and FLOPS by set.
    """
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
        index = ExactIndex.load(inputs["index"] / folder / "postings")
        ids, scores = index.search(queries, recipe.evaluate.depth)
        run = to_run(
            [query.id for query in collection.queries], [document.id for document in collection.documents], ids, scores
        )
        document_shares = np.diff(index.starts) / max(index.document_count, 1)
        facts[folder] = _judge(recipe, collection, run, out / folder, tag=_tag(inputs)) | {
            "query_dimensions": active_dimensions(queries),
            "document_dimensions": len(index.documents) / max(index.document_count, 1),
            "flops": flops(activation_shares(queries), document_shares),
            "tied_scores": _tied(scores),
        }
    return facts


def evaluate_bm25(recipe: Recipe, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """BM25 (k1 0.9, b 0.4) over the same documents and queries."""
    assert recipe.evaluate is not None
    facts = {}
    for folder, collection in _judged(recipe).items():
        index = Bm25.build((document.contents for document in collection.documents), recipe.recipe.language)
        ids, scores = index.search([query.text for query in collection.queries], recipe.evaluate.depth)
        run = to_run(
            [query.id for query in collection.queries], [document.id for document in collection.documents], ids, scores
        )
        facts[folder] = _judge(recipe, collection, run, out / folder, tag="bm25")
    return facts


def evaluate_hybrid(recipe: Recipe, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """The sum of the scores of ``inputs["bm25"]`` and ``inputs["model"]`` (both evaluate outputs)."""
    assert recipe.evaluate is not None
    facts = {}
    for folder, collection in _judged(recipe).items():
        model, bm25 = (read_trec(inputs[role] / folder / "run.trec") for role in ("model", "bm25"))
        run = sum_runs(model, bm25, recipe.evaluate.depth)
        facts[folder] = _judge(recipe, collection, run, out / folder, tag="hybrid")
    return facts


def _judged(recipe: Recipe) -> dict[str, RetrievalSet]:
    """Folder name -> collection with the queries that are judged."""
    assert recipe.evaluate is not None
    return {
        folder: load_retrieval(name, evaluation_split(recipe, name)).sample(
            recipe.evaluate.max_queries, recipe.recipe.seed
        )
        for name, folder in set_folders(recipe).items()
    }


def _judge(recipe: Recipe, collection: RetrievalSet, run: Run, folder: Path, tag: str) -> dict[str, Any]:
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
