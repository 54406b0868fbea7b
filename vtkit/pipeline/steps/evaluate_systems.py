"""Stages ``evaluate:…``: models, BM25, the deployed index, dense embedders and their sums with BM25, each evaluated on
every set. Every stage fills ``out/SET`` with ``run.trec.gz`` and ``per_query.json``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.trec import read_trec
from vtkit.evaluation.collection import Collection
from vtkit.evaluation.fusion import FusionWeight
from vtkit.evaluation.results import RUN_FILE, Role, SetResults
from vtkit.pipeline.stage import Stage, StageFunction, View
from vtkit.pipeline.steps.deploy_index import DEPLOYED
from vtkit.pipeline.steps.encode_corpus import SETS, model_name
from vtkit.pipeline.steps.encode_queries import judged_of, stored
from vtkit.pipeline.steps.fusion import WEIGHED, fusion_queries_of
from vtkit.pipeline.steps.texts import collection_of, distinct, queries_beside
from vtkit.pipeline.store import CHECKPOINTS, result_of
from vtkit.settings.engines import ENGINE
from vtkit.settings.evaluate import DEPTH
from vtkit.settings.index import IndexSection
from vtkit.settings.recipe import Recipe
from vtkit.system import console

if TYPE_CHECKING:
    from vtkit.evaluation.systems import DenseSystem, RunSystem, SparseSystem, System

MEASURED = ("evaluate.measures", "evaluate.max_queries", "evaluate.ignore_identical_ids")
PEERS = "evaluate.peers"
LONGEST_NAME = 60  # characters of a peer's name in file names
_OF_PEERS = "training queries of evaluate.sets, peers"  # of the fine-tuning too, for no peer is trained on them

SystemOf = Callable[[View, Mapping[str, Path], Path], Callable[[Collection], "System"]]
"""A system by the settings, inputs and output folder of its stage: over any collection."""


def evaluating(system_of: SystemOf) -> StageFunction[dict[str, SetResults]]:
    """The function of a stage that evaluates ``system_of`` on each set."""

    def evaluate_sets(recipe: View, inputs: Mapping[str, Path], out: Path) -> dict[str, SetResults]:
        from vtkit.evaluation.systems import DenseSystem

        system_over, sets = system_of(recipe, inputs, out), dict[str, SetResults]()
        for corpus in recipe.corpora("evaluate.sets"):
            place = collection_of(corpus)
            judged, system = judged_of(recipe, place.whole), system_over(place)
            ranking = system.rank(judged, DEPTH).evaluated(judged, recipe.evaluate.measures)
            result = ranking.result
            if result.agreement is not None:
                console.say(f"  {result.agreement.words()}")
            if isinstance(system, DenseSystem):
                result = replace(result, search_cost=system.cost(judged))
            # ``finetune`` of evaluate-finetune-0123…
            ranking.write(out / place.folder, out.name.removeprefix("evaluate-").rsplit("-", 1)[0])
            sets[place.folder] = SetResults.of(place.folder, judged, [result])
        return sets

    return evaluate_sets


def model_system(recipe: View, inputs: Mapping[str, Path], out: Path) -> Callable[[Collection], SparseSystem]:
    """Exact search of ``inputs["index"]`` with the encoder of ``inputs["model"]``, or the source.

    Query vectors are those of ``inputs["queries"]``, an output of the stage ``encode:queries``, where it is there.
    """
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.query_tables import query_encoder_of
    from vtkit.evaluation.systems import SparseSystem, query_vectors
    from vtkit.system.runtime import fastest_device

    encoder = load_encoder(model_name(recipe, inputs), fastest_device())

    def system_over(place: Collection) -> SparseSystem:
        encode = query_vectors(encoder, recipe.index, f"encoding the queries of {place.folder}")
        if "queries" in inputs:
            encode = stored(inputs["queries"] / place.folder)
        system = SparseSystem.of_index(inputs["index"] / place.folder, IndexSection(), encode)
        return replace(system, query_encoder=query_encoder_of(encoder))

    return system_over


EVALUATE = Stage(  # of one model. Which others are evaluated changes nothing
    "evaluate",
    version=8,
    reads=(*MEASURED, "index.query_length", "index.query_top_dimensions", "index.precision"),
    corpora=SETS,
    function=evaluating(model_system),
)

EVALUATE_BM25 = Stage(  # over the same documents or passages, with the analyser that the recipe names
    "evaluate:bm25",
    version=8,
    reads=(*MEASURED, "recipe.language", "index.bm25_analyser", "index.passages"),
    corpora=SETS,
    function=evaluating(lambda recipe, *_: lambda place: place.bm25(recipe.recipe.language, recipe.index)),
)

EVALUATE_BM25_WORDS = Stage(  # over plain words, as Lucene has it where no analysis of words is configured
    "evaluate:bm25-words",
    version=6,
    reads=(*MEASURED, "recipe.language", "index.passages"),
    corpora=SETS,
    function=evaluating(lambda recipe, *_: lambda place: place.bm25(recipe.recipe.language, recipe.index, words=True)),
)


def summed_runs(inputs: Mapping[str, Path], place: Collection, role: Role = "run") -> tuple[RunSystem, RunSystem]:
    """The runs of ``inputs["model"]``, which has this ``role``, and of ``inputs["bm25"]``, outputs of evaluations."""
    from vtkit.evaluation.systems import RunSystem

    model, bm25 = (read_trec(inputs[each] / place.folder / RUN_FILE) for each in ("model", "bm25"))
    return RunSystem(model, role), RunSystem(bm25)


def hybrid_system(recipe: View, inputs: Mapping[str, Path], out: Path) -> Callable[[Collection], System]:
    """The sum of the final model and BM25 with the weight that ``inputs["fusion"]`` has chosen."""
    from vtkit.evaluation.systems import SumSystem

    weights = result_of(inputs["fusion"], dict[str, FusionWeight])
    return lambda place: SumSystem(*summed_runs(inputs, place), weights[place.folder])


EVALUATE_HYBRID = Stage("evaluate:hybrid", version=18, reads=MEASURED, corpora=SETS, function=evaluating(hybrid_system))


def deployed_system(recipe: View, inputs: Mapping[str, Path], out: Path) -> Callable[[Collection], SparseSystem]:
    """The index to be used, ``inputs["index"]``, in its engine and with its lexical part, for the vectors of
    ``inputs["queries"]``. Approximate engines are compared with exact search."""
    from vtkit.evaluation.systems import SparseSystem

    weights = result_of(inputs["fusion"], dict[str, FusionWeight]) if "fusion" in inputs else {}

    def system_over(place: Collection) -> SparseSystem:
        encode, measure = stored(inputs["queries"] / place.folder), recipe.evaluate.measures[0]
        system = SparseSystem.of_index(inputs["index"] / place.folder, recipe.index, encode, measure)
        return replace(system, role="deployed", fusion=weights.get(place.folder))

    return system_over


EVALUATE_DEPLOYED = Stage(
    f"evaluate:{DEPLOYED}",
    version=11,
    reads=(*MEASURED, *ENGINE),
    corpora=SETS,
    function=evaluating(deployed_system),
)


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


def peer_system(recipe: View, inputs: Mapping[str, Path], out: Path) -> Callable[[Collection], DenseSystem]:
    """A dense embedder that could be used instead, searched exactly and by its own similarity. The weight of its sum
    with BM25 is chosen as for the recipe's own model, and written to ``out/SET.fusion.json``; queries that the recipe
    is fine-tuned on choose it, too, for the peer is not trained on them."""
    from vtkit.encoder.dense import load_dense
    from vtkit.evaluation.fusion_queries import fusion_weight
    from vtkit.evaluation.systems import DenseSystem
    from vtkit.system.runtime import fastest_device

    index, (model,) = recipe.index, recipe.evaluate.peers
    embedder = load_dense(model, PEERS, multi_vector=True).to(fastest_device())
    over = partial(DenseSystem.over, embedder, name=f"{PEERS} = {model}", precision=index.precision, cut=index.passages)

    def system_over(place: Collection) -> DenseSystem:
        system = over(place.whole, kept=out / CHECKPOINTS)
        queries, bm25 = fusion_queries_of(recipe, place, _OF_PEERS), place.bm25(recipe.recipe.language, index)
        weight = fusion_weight(queries, system, over, bm25, recipe.evaluate.measures[0])
        weight.to_file(out / f"{place.folder}.fusion.json")
        return system

    return system_over


EVALUATE_PEER = Stage(
    "evaluate:peer",
    version=12,
    reads=(*MEASURED, *WEIGHED, PEERS, "index.precision"),
    corpora=SETS | {_OF_PEERS: queries_beside},
    function=evaluating(peer_system),
)


def hybrid_peer_system(recipe: View, inputs: Mapping[str, Path], out: Path) -> Callable[[Collection], System]:
    """The sum with BM25 of a peer, whose evaluation is ``inputs["model"]``."""
    from vtkit.evaluation.systems import SumSystem

    def system_over(place: Collection) -> SumSystem:
        weight = FusionWeight.from_file(inputs["model"] / f"{place.folder}.fusion.json", "Run the recipe again.")
        return SumSystem(*summed_runs(inputs, place, "peer"), weight, role="peer-sum")

    return system_over


EVALUATE_HYBRID_PEER = Stage(
    "evaluate:hybrid-peer", version=14, reads=MEASURED, corpora=SETS, function=evaluating(hybrid_peer_system)
)
