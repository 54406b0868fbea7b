"""Stage ``evaluate``: one model, BM25, or the sum of both, judged on every evaluation set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.retrieval import RetrievalSet
from vtkit.evaluation.judging import RUN_FILE, Evaluated, EvaluateResult, judge
from vtkit.pipeline.stage import Corpus, Stage, View
from vtkit.pipeline.steps.encode_corpus import model_name, opened
from vtkit.pipeline.steps.encode_queries import (
    BALANCING,
    JUDGED,
    SETS,
    TRAINING,
    TUNED,
    EncodeQueriesResult,
    balancing_of,
    judged_of,
    judged_sets,
)
from vtkit.pipeline.steps.texts import training_queries, tuned_collections
from vtkit.pipeline.store import result_of
from vtkit.settings.analysers import Analysis
from vtkit.settings.evaluate import DEPTH
from vtkit.settings.index import IndexSection

if TYPE_CHECKING:
    from vtkit.evaluation.balance import Balance, ProbedWeight
    from vtkit.evaluation.systems import EncodeQueries, System


def evaluate_model(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """Search every set with the encoder of ``inputs["model"]`` (or the source) over ``inputs["index"]``.

    Query vectors are those of ``inputs["queries"]``, an output of the stage ``encode:queries``, where it is there.
    Writes ``out/SET/run.trec.gz`` and ``out/SET/per_query.json``; returns measures, dimensions and FLOPS by set.
    """
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.query_tables import query_encoder_of
    from vtkit.evaluation.systems import SparseSystem, query_vectors
    from vtkit.search.engine import POSTINGS, open_index
    from vtkit.system.runtime import fastest_device

    encoder = load_encoder(model_name(recipe, inputs), fastest_device())
    tag = inputs["index"].name.removeprefix("index-").rsplit("-", 1)[0]  # ``finetune`` of index-finetune-0123…

    def systems() -> Iterator[tuple[str, RetrievalSet, System]]:
        for folder, collection in judged_sets(recipe).items():
            encode = query_vectors(encoder, recipe.index, f"encoding the queries of {folder}")
            if "queries" in inputs:
                encode = stored(inputs["queries"] / folder / JUDGED)
            index = open_index(IndexSection(), inputs["index"] / folder / POSTINGS)
            yield folder, collection, SparseSystem(index, encode, query_encoder=query_encoder_of(encoder))

    return evaluate_systems(recipe, systems(), out, tag)


def evaluate_bm25(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """BM25 over the same documents and queries, with the analyser that the recipe names."""
    return _evaluate_bm25(recipe, out, recipe.index.bm25_analyser, "bm25")


def evaluate_bm25_words(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """BM25 over plain words, as Lucene has it where no analysis of words is configured."""
    return _evaluate_bm25(recipe, out, "words", "bm25-words")


def _evaluate_bm25(recipe: View, out: Path, analysis: Analysis, tag: str) -> EvaluateResult:
    from vtkit.evaluation.systems import Bm25System

    judged = judged_sets(recipe).items()
    over = partial(Bm25System.over, language=recipe.recipe.language, analysis=analysis)
    return evaluate_systems(recipe, ((folder, collection, over(collection)) for folder, collection in judged), out, tag)


def evaluate_hybrid(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """The weighted sum of the scores of ``inputs["model"]`` and ``inputs["bm25"]`` (both evaluate outputs).

    Weight and deviations are measured on ``inputs["queries"]``, training queries or spans, over ``inputs["index"]``.
    """
    from vtkit.evaluation.systems import RunSystem, SparseSystem, SumSystem
    from vtkit.search.engine import POSTINGS, open_index

    encoded = result_of(inputs["queries"], EncodeQueriesResult).sets

    def systems() -> Iterator[tuple[str, RetrievalSet, System]]:
        for corpus in recipe.corpora("evaluate.sets"):
            folder, collection = str(corpus.folder), opened(corpus)
            index = open_index(IndexSection(), inputs["index"] / folder / POSTINGS)
            system = SparseSystem(index, stored(inputs["queries"] / folder / BALANCING))
            balance = balanced(recipe, corpus, collection, system, encoded[folder].probed)
            model, bm25 = (RunSystem.load(inputs[role] / folder / RUN_FILE) for role in ("model", "bm25"))
            yield folder, judged_of(recipe, collection), SumSystem(model, bm25, balance)

    return evaluate_systems(recipe, systems(), out, "hybrid")


def balanced(
    recipe: View,
    corpus: Corpus,
    collection: RetrievalSet,
    system: System,
    probed: ProbedWeight | None,
    corpora: str = TRAINING,
) -> Balance:
    """The balance of a system, which ranks the queries that balance, and BM25 in a sum; ``probed`` is the weight that
    spans suggest, ``corpora`` as of :func:`balancing_of`."""
    from vtkit.evaluation.balancing import balance_of
    from vtkit.evaluation.systems import Bm25System

    assert recipe.evaluate is not None
    balancing = balancing_of(recipe, corpus, collection, corpora)
    bm25 = Bm25System.over(collection, recipe.recipe.language, recipe.index.bm25_analyser)
    return balance_of(system, bm25, balancing, DEPTH, recipe.evaluate.measures[0], probed)


def evaluate_systems(
    recipe: View, systems: Iterator[tuple[str, RetrievalSet, System]], out: Path, tag: str
) -> EvaluateResult:
    """Judge one system a set, each with its folder and its judged queries, and write its run into ``out/SET``."""
    assert recipe.evaluate is not None
    measures = recipe.evaluate.measures
    sets: dict[str, Evaluated] = {}
    for folder, collection, system in systems:
        sets[folder] = judge(collection, system.rank(collection, DEPTH), measures).write(out / folder, tag)
    return EvaluateResult(sets)


def stored(folder: Path) -> EncodeQueries:
    """Queries that were encoded before, whatever their texts are said to be."""
    from vtkit.search.stored_vectors import read_vectors

    return lambda _: read_vectors(folder)


MEASURED = ("evaluate.measures", "evaluate.max_queries", "evaluate.ignore_identical_ids")
BM25 = ("recipe.language", "index.bm25_analyser")
SUMMED = (*BM25, "index.query_log")

EVALUATE = Stage(  # of one model. Which others are judged changes nothing
    "evaluate",
    version=6,
    reads=(*MEASURED, "index.query_length", "index.query_top_dimensions", "index.precision"),
    corpora=SETS,
    function=evaluate_model,
)

EVALUATE_BM25 = Stage(
    "evaluate:bm25",
    version=6,
    reads=(*MEASURED, *BM25),
    corpora=SETS,
    function=evaluate_bm25,
)
EVALUATE_BM25_WORDS = Stage(
    "evaluate:bm25-words",
    version=4,
    reads=(*MEASURED, "recipe.language"),
    corpora=SETS,
    function=evaluate_bm25_words,
)
EVALUATE_HYBRID = Stage(
    "evaluate:hybrid",
    version=15,
    reads=(*MEASURED, *SUMMED),
    corpora=SETS | {TRAINING: training_queries, TUNED: tuned_collections},
    function=evaluate_hybrid,
)
