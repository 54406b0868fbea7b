"""Stage ``evaluate:peer``: a dense embedder that could be used instead, alone and summed with BM25, on every set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.retrieval import RetrievalSet
from vtkit.evaluation.judging import RUN_FILE, Evaluated, EvaluateResult, judge
from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.encode_corpus import opened
from vtkit.pipeline.steps.encode_queries import SETS, balancing_of, judged_of
from vtkit.pipeline.steps.evaluate_runs import MEASURED, SUMMED, balanced, evaluate_systems
from vtkit.pipeline.steps.texts import distinct, peer_training_queries
from vtkit.pipeline.store import result_of
from vtkit.settings.evaluate import DEPTH
from vtkit.settings.recipe import Recipe

if TYPE_CHECKING:
    from vtkit.evaluation.systems import System

BALANCING_RUN = "balancing.trec.gz"  # the peer's results for the queries that balance its sum with BM25

SETTING = "evaluate.peers"

LONGEST_NAME = 60  # characters of a peer's name in file names
_TRAINING = "training queries of evaluate.sets, peers"


def peers_of(recipe: Recipe) -> dict[str, str]:
    """Name of each peer in steps and files -> its folder or hub id. The name is the last part of the id, plain and
    distinct. A dense source is a peer of the models made from it."""
    peers: dict[str, str] = {}
    listed = recipe.evaluate.peers if recipe.evaluate is not None else ()
    dense = [str(recipe.source.model)] if recipe.evaluate is not None and recipe.source.fitted else []
    for model in dict.fromkeys([*dense, *listed]):
        plain = re.sub(r"[^\w.-]+", "-", Path(model).name, flags=re.ASCII)[:LONGEST_NAME].strip("-.")
        peers[distinct(plain or "embedder", peers)] = model
    return peers


def with_each_peer(recipe: Recipe) -> dict[str, Recipe]:
    """Every peer, and ``recipe`` with it as the only one, so that another changes nothing of what this one found."""
    section = recipe.evaluate
    assert section is not None
    return {
        name: recipe.model_copy(update={"evaluate": section.model_copy(update={"peers": (model,)})})
        for name, model in peers_of(recipe).items()
    }


def evaluate_peer(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """Search every set with the embedder, exactly and by its own similarity.

    Writes ``out/SET/run.trec.gz`` and ``out/SET/per_query.json``; and ``out/SET/balancing.trec.gz``, its results for
    the queries that balance its sum with BM25.
    """
    from vtkit.data.trec import write_trec
    from vtkit.encoder.dense import load_dense
    from vtkit.evaluation.probe import probed_by_spans
    from vtkit.evaluation.systems import AboveLast, DenseSystem
    from vtkit.system.runtime import fastest_device

    assert recipe.evaluate is not None
    index, (model,) = recipe.index, recipe.evaluate.peers
    embedder = load_dense(model, SETTING).to(fastest_device())
    over = partial(DenseSystem.over, embedder, name=f"{SETTING} = {model}", precision=index.precision)
    sets: dict[str, Evaluated] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        folder, whole = str(corpus.folder), opened(corpus)
        collection, system = judged_of(recipe, whole), over(whole)
        probed = probed_by_spans(
            whole, lambda spans: AboveLast(over(spans)), recipe.recipe.seed, recipe.recipe.language, index.bm25_analyser
        )
        ranking = system.rank(collection, DEPTH)
        ranking = replace(ranking, facts=replace(ranking.facts, search_cost=system.cost(collection)))
        judged = judge(collection, ranking, recipe.evaluate.measures, probed)
        sets[folder] = judged.write(out / folder, tag="peer")
        asked = balancing_of(recipe, corpus, whole, _TRAINING).asked
        write_trec(system.rank(asked, DEPTH).run, out / folder / BALANCING_RUN, "vtkit-peer")
    return EvaluateResult(sets)


def evaluate_hybrid_peer(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """The weighted sum of the scores of ``inputs["model"]``, a peer's evaluation, and ``inputs["bm25"]``.

    The weight is chosen as for the recipe's own model; also on a set that the recipe fine-tunes on, for the peer is not
    trained on these queries.
    """
    from vtkit.evaluation.systems import AboveLast, RunSystem, SumSystem

    peer = result_of(inputs["model"], EvaluateResult).sets

    def systems() -> Iterator[tuple[str, RetrievalSet, System]]:
        for corpus in recipe.corpora("evaluate.sets"):
            folder, collection = str(corpus.folder), opened(corpus)
            alone, balancing = (
                AboveLast(RunSystem.load(inputs["model"] / folder / file)) for file in (RUN_FILE, BALANCING_RUN)
            )
            bm25 = RunSystem.load(inputs["bm25"] / folder / RUN_FILE)
            balance = balanced(recipe, corpus, collection, balancing, peer[folder].probed, _TRAINING)
            yield folder, judged_of(recipe, collection), SumSystem(alone, bm25, balance, role="peer-sum")

    return evaluate_systems(recipe, systems(), out, "hybrid-peer")


_READS = (*MEASURED, *SUMMED, SETTING, "index.precision")

EVALUATE_PEER = Stage(
    "evaluate:peer",
    version=8,
    reads=_READS,
    corpora=SETS | {_TRAINING: peer_training_queries},
    function=evaluate_peer,
)
EVALUATE_HYBRID_PEER = Stage(
    "evaluate:hybrid-peer",
    version=11,
    reads=(*MEASURED, *SUMMED),
    corpora=SETS | {_TRAINING: peer_training_queries},
    function=evaluate_hybrid_peer,
)
