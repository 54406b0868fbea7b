"""Stage ``evaluate``: one model, BM25, or the sum of both, judged on every evaluation set."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vtkit.artifacts import result_of
from vtkit.data.retrieval import RetrievalSet
from vtkit.evaluation.balance import Balance, ProbedWeight
from vtkit.evaluation.measures.agreement import Agreement
from vtkit.results import Result
from vtkit.settings.index import IndexSection
from vtkit.stages.encode_corpus import model_name, opened
from vtkit.stages.encode_queries import (
    BALANCING,
    JUDGED,
    SETS,
    TRAINING,
    TUNED,
    Balancing,
    EncodeQueriesResult,
    balancing_queries,
    encoded_queries,
    judged_sets,
)
from vtkit.stages.stage import Stage, View
from vtkit.stages.texts import training_queries, tuned_collections

if TYPE_CHECKING:
    from vtkit.data.trec import Run
    from vtkit.search.bm25 import Bm25
    from vtkit.settings.analysers import Analysis


@dataclass(frozen=True)
class EvaluatedSet(Result):
    """What was found on one evaluation set."""

    queries: int
    documents: int
    measures: Mapping[str, float]
    not_comparable: tuple[str, ...] = ()
    """Why the measures cannot stand beside published ones (:attr:`RetrievalSet.not_comparable`)."""

    query_dimensions: float | None = None
    """Mean number of weights above zero; this and the next three are of encoders only."""

    document_dimensions: float | None = None
    flops: float | None = None
    """:func:`vtkit.evaluation.measures.cost.flops`."""

    tied_scores: float | None = None
    """Share of the queries with equal scores among their first 10 results."""

    query_encoder: str | None = None
    """What encodes queries, in words; None where the encoder of documents does."""

    analyser: str | None = None
    """What BM25's terms are; so ``k1`` and ``b``, only of BM25."""

    k1: float | None = None
    b: float | None = None
    balance: Balance | None = None
    """Of a sum with BM25."""

    probed: ProbedWeight | None = None
    """Of peers: what spans of the documents say of the weight in such a sum."""

    agreement: Agreement | None = None
    """With exact search, of engines that are not exact."""


@dataclass(frozen=True)
class EvaluateResult(Result):
    """What one ranking reached on each evaluation set."""

    sets: Mapping[str, EvaluatedSet]


def evaluate_model(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """Search every set with the encoder of ``inputs["model"]`` (or the source) over ``inputs["index"]``.

    Query vectors are those of ``inputs["queries"]``, an output of the stage ``encode:queries``, where it is there.
    Writes ``out/SET/run.trec`` and ``out/SET/per_query.json``; returns measures, dimensions and FLOPS by set.
    """
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.query_tables import query_encoder_of
    from vtkit.evaluation.measures.cost import activation_shares, active_dimensions, flops
    from vtkit.runtime import fastest_device
    from vtkit.search.engine import POSTINGS, open_index
    from vtkit.search.stored_vectors import read_vectors

    assert recipe.evaluate is not None
    encoder = load_encoder(model_name(recipe, inputs), fastest_device())
    sets: dict[str, EvaluatedSet] = {}
    for folder, collection in judged_sets(recipe).items():
        index = open_index(IndexSection(), inputs["index"] / folder / POSTINGS)
        if "queries" in inputs:
            queries = read_vectors(inputs["queries"] / folder / JUDGED)
        else:
            texts = [query.text for query in collection.queries]
            queries = encoded_queries(recipe, encoder, texts, f"encoding the queries of {folder}")
        ids, scores = index.search(queries, recipe.evaluate.depth)
        sets[folder] = replace(
            judge(recipe, collection, to_sets_run(collection, ids, scores), out / folder, tag=_tag(inputs)),
            query_dimensions=active_dimensions(queries),
            document_dimensions=index.info.mean_size,
            flops=flops(activation_shares(queries), index.info.activation_shares),
            tied_scores=_tied(scores),
            query_encoder=query_encoder_of(encoder),
        )
    return EvaluateResult(sets)


def evaluate_bm25(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """BM25 over the same documents and queries, with the analyser that the recipe names."""
    return _evaluate_bm25(recipe, out, recipe.index.bm25_analyser, "bm25")


def evaluate_bm25_words(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """BM25 over plain words, as Lucene has it where no analysis of words is configured."""
    return _evaluate_bm25(recipe, out, "words", "bm25-words")


def _evaluate_bm25(recipe: View, out: Path, analysis: Analysis, tag: str) -> EvaluateResult:
    from vtkit.search.analysers import K1

    sets: dict[str, EvaluatedSet] = {}
    for folder, collection in judged_sets(recipe).items():
        run, index = _search_bm25(recipe, collection, analysis)
        judged = judge(recipe, collection, run, out / folder, tag=tag)
        sets[folder] = replace(judged, analyser=index.analyser.description, k1=K1, b=index.analyser.b)
    return EvaluateResult(sets)


def evaluate_hybrid(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """The weighted sum of the scores of ``inputs["model"]`` and ``inputs["bm25"]`` (both evaluate outputs).

    Weight and deviations are measured on ``inputs["queries"]``, training queries or spans, over ``inputs["index"]``.
    """
    from vtkit.search.engine import POSTINGS, open_index
    from vtkit.search.stored_vectors import read_vectors

    made = result_of(inputs["queries"], EncodeQueriesResult).sets

    def find(folder: str, asked: RetrievalSet) -> tuple[Run, ProbedWeight | None]:
        assert recipe.evaluate is not None
        index = open_index(IndexSection(), inputs["index"] / folder / POSTINGS)
        queries = read_vectors(inputs["queries"] / folder / BALANCING)
        return to_sets_run(asked, *index.search(queries, recipe.evaluate.depth)), made[folder].probed

    return sum_with_bm25(recipe, inputs, out, TRAINING, find)


def sum_with_bm25(
    recipe: View,
    inputs: Mapping[str, Path],
    out: Path,
    training_corpora: str,
    find: Callable[[str, RetrievalSet], tuple[Run, ProbedWeight | None]],
    prepared: Callable[[Run], Run] = lambda run: run,
    tag: str = "hybrid",
) -> EvaluateResult:
    """The weighted sum of two evaluate outputs, ``inputs["model"]`` and ``inputs["bm25"]``.

    Args:
        training_corpora: under which the record names the collections whose training queries choose the weight.
        find: set folder and the queries that balance -> what the model finds for these, and what spans say of its
            weight.
        prepared: what is done to the model's run before it is summed.
    """
    from vtkit.data.trec import read_trec
    from vtkit.evaluation.balance import weighted_sum

    assert recipe.evaluate is not None
    depth, seed = recipe.evaluate.depth, recipe.recipe.seed
    sets: dict[str, EvaluatedSet] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        folder, collection = str(corpus.folder), opened(corpus)
        balancing = balancing_queries(recipe, corpus, collection, training_corpora)
        found, probed = find(folder, balancing.asked)
        bm25_found, _ = _search_bm25(recipe, balancing.asked, recipe.index.bm25_analyser)
        balance = balance_of(recipe, balancing, found, bm25_found, probed)
        model, bm25 = (read_trec(inputs[role] / folder / "run.trec") for role in ("model", "bm25"))
        run = weighted_sum(prepared(model), bm25, depth, balance.weight, balance.deviations)
        judged = collection.sample(recipe.evaluate.max_queries, seed)
        sets[folder] = replace(judge(recipe, judged, run, out / folder, tag=tag), balance=balance)
    return EvaluateResult(sets)


def balance_of(recipe: View, balancing: Balancing, encoder: Run, bm25: Run, probed: ProbedWeight | None) -> Balance:
    """What brings two rankings together, by what both find for the queries of ``balancing``."""
    from vtkit.evaluation.balance import balance
    from vtkit.evaluation.measures.effectiveness import evaluate

    assert recipe.evaluate is not None
    first, qrels = recipe.evaluate.measures[0], balancing.asked.qrels

    def judged(run: Run) -> float:
        return evaluate(run, qrels, [first])[first]

    return balance(encoder, bm25, recipe.evaluate.depth, probed, judged if balancing.judged else None)


def _search_bm25(recipe: View, collection: RetrievalSet, analysis: Analysis) -> tuple[Run, Bm25]:
    from vtkit.search.bm25 import Bm25

    assert recipe.evaluate is not None
    index = Bm25.build((document.contents for document in collection.documents), recipe.recipe.language, analysis)
    return to_sets_run(
        collection, *index.search([query.text for query in collection.queries], recipe.evaluate.depth)
    ), index


def to_sets_run(collection: RetrievalSet, ids: np.ndarray, scores: np.ndarray) -> Run:
    """The run of a search over ``collection``."""
    from vtkit.data.trec import to_run

    return to_run(
        [query.id for query in collection.queries], [document.id for document in collection.documents], ids, scores
    )


def judge(recipe: View, collection: RetrievalSet, run: Run, folder: Path, tag: str) -> EvaluatedSet:
    """The measures of ``run``; writes it, and what each query reached, into ``folder``."""
    from vtkit.data.trec import write_trec
    from vtkit.evaluation.measures.effectiveness import evaluate, per_query

    assert recipe.evaluate is not None
    folder.mkdir(parents=True)
    write_trec(run, folder / "run.trec", f"vtkit-{tag}")
    judged = {query.id for query in collection.queries}
    qrels = {query: documents for query, documents in collection.qrels.items() if query in judged}
    details = per_query(run, qrels, recipe.evaluate.measures)
    (folder / "per_query.json").write_text(json.dumps(details, ensure_ascii=False), encoding="utf-8")
    return EvaluatedSet(
        len(collection.queries),
        len(collection.documents),
        evaluate(run, qrels, recipe.evaluate.measures),
        collection.not_comparable,
    )


def _tied(scores: np.ndarray, depth: int = 10) -> float:
    """Share of queries with two equal scores among the first ``depth`` results."""
    top = scores[:, :depth]
    found = (top[:, 1:] > 0) & (top[:, 1:] == top[:, :-1])
    return float(found.any(axis=1).mean()) if len(top) else 0.0


def _tag(inputs: Mapping[str, Path]) -> str:
    """``finetune`` for the index output ``index-finetune-0123…``."""
    return inputs["index"].name.removeprefix("index-").rsplit("-", 1)[0]


MEASURED = ("evaluate.measures", "evaluate.depth", "evaluate.max_queries")
BM25 = ("recipe.language", "index.bm25_analyser")

EVALUATE = Stage(
    "evaluate",
    version=4,
    reads=(*MEASURED, "index.query_length", "index.query_top_dimensions", "index.precision"),
    corpora=SETS,
    function=evaluate_model,
)
"""Of one model; where that is the source itself, its name is read too. Which others are judged changes nothing."""

EVALUATE_BM25 = Stage("evaluate:bm25", version=4, reads=(*MEASURED, *BM25), corpora=SETS, function=evaluate_bm25)
EVALUATE_BM25_WORDS = Stage(
    "evaluate:bm25-words", version=2, reads=(*MEASURED, "recipe.language"), corpora=SETS, function=evaluate_bm25_words
)
EVALUATE_HYBRID = Stage(
    "evaluate:hybrid",
    version=10,
    reads=(*MEASURED, *BM25),
    corpora=SETS | {TRAINING: training_queries, TUNED: tuned_collections},
    function=evaluate_hybrid,
)
