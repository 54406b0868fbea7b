"""Stages ``evaluate:…``: models, BM25, the deployed index, dense embedders and their sums with BM25, each judged on
every evaluation set. Every stage fills ``out/SET`` with ``run.trec.gz`` and ``per_query.json``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.trec import read_trec
from vtkit.evaluation.collection import Collection
from vtkit.evaluation.fusion import FusionWeight
from vtkit.evaluation.judging import RUN_FILE, Evaluated, EvaluateResult, Role, judge
from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.deploy_index import DEPLOYED
from vtkit.pipeline.steps.encode_corpus import SETS, model_name
from vtkit.pipeline.steps.encode_queries import judged_of, stored
from vtkit.pipeline.steps.fusion import WEIGHED, FusionResult, fusion_queries_of
from vtkit.pipeline.steps.texts import collection_of, distinct, queries_beside
from vtkit.pipeline.store import CHECKPOINTS, result_of
from vtkit.settings.engines import ENGINE
from vtkit.settings.evaluate import DEPTH
from vtkit.settings.index import IndexSection
from vtkit.settings.recipe import Recipe
from vtkit.system import console

if TYPE_CHECKING:
    from vtkit.evaluation.systems import RunSystem, SumSystem, System

MEASURED = ("evaluate.measures", "evaluate.max_queries", "evaluate.ignore_identical_ids")
PEERS = "evaluate.peers"
LONGEST_NAME = 60  # characters of a peer's name in file names
_OF_PEERS = "training queries of evaluate.sets, peers"  # of the fine-tuning too, for no peer is trained on them


def evaluate_each(recipe: View, out: Path, tag: str, system_over: Callable[[Collection], System]) -> EvaluateResult:
    """Judge the system that ``system_over`` makes of each set."""
    sets: dict[str, Evaluated] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        place = collection_of(corpus)
        judged = judged_of(recipe, place.whole)
        ranking = system_over(place).rank(judged, DEPTH)
        if ranking.facts.agreement is not None:
            console.say(f"  {ranking.facts.agreement.words()}")
        sets[place.folder] = judge(judged, ranking, recipe.evaluate.measures).write(out / place.folder, tag)
    return EvaluateResult(sets)


def evaluate_model(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """Search ``inputs["index"]`` exactly with the encoder of ``inputs["model"]``, or the source.

    Query vectors are those of ``inputs["queries"]``, an output of the stage ``encode:queries``, where it is there.
    """
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.query_tables import query_encoder_of
    from vtkit.evaluation.systems import SparseSystem, query_vectors
    from vtkit.search.engine import POSTINGS, open_index
    from vtkit.search.segments import generation_of
    from vtkit.system.runtime import fastest_device

    encoder = load_encoder(model_name(recipe, inputs), fastest_device())
    tag = inputs["index"].name.removeprefix("index-").rsplit("-", 1)[0]  # ``finetune`` of index-finetune-0123…

    def system_over(place: Collection) -> SparseSystem:
        encode = query_vectors(encoder, recipe.index, f"encoding the queries of {place.folder}")
        if "queries" in inputs:
            encode = stored(inputs["queries"] / place.folder)
        index = open_index(IndexSection(), generation_of(inputs["index"] / place.folder) / POSTINGS)
        return SparseSystem(index, encode, query_encoder=query_encoder_of(encoder))

    return evaluate_each(recipe, out, tag, system_over)


EVALUATE = Stage(  # of one model. Which others are judged changes nothing
    "evaluate",
    version=7,
    reads=(*MEASURED, "index.query_length", "index.query_top_dimensions", "index.precision"),
    corpora=SETS,
    function=evaluate_model,
)


def evaluate_bm25(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """BM25 over the same documents or passages and queries, with the analyser that the recipe names."""
    return evaluate_each(recipe, out, "bm25", lambda place: place.bm25(recipe.recipe.language, recipe.index))


EVALUATE_BM25 = Stage(
    "evaluate:bm25",
    version=7,
    reads=(*MEASURED, "recipe.language", "index.bm25_analyser", "index.passages"),
    corpora=SETS,
    function=evaluate_bm25,
)


def evaluate_bm25_words(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """BM25 over plain words, as Lucene has it where no analysis of words is configured."""
    language, index = recipe.recipe.language, recipe.index
    return evaluate_each(recipe, out, "bm25-words", lambda place: place.bm25(language, index, words=True))


EVALUATE_BM25_WORDS = Stage(
    "evaluate:bm25-words",
    version=5,
    reads=(*MEASURED, "recipe.language", "index.passages"),
    corpora=SETS,
    function=evaluate_bm25_words,
)


def summed_runs(inputs: Mapping[str, Path], place: Collection, role: Role = "run") -> tuple[RunSystem, RunSystem]:
    """The runs of ``inputs["model"]``, which has this ``role``, and of ``inputs["bm25"]``, outputs of evaluations."""
    from vtkit.evaluation.systems import RunSystem

    model, bm25 = (read_trec(inputs[each] / place.folder / RUN_FILE) for each in ("model", "bm25"))
    return RunSystem(model, role), RunSystem(bm25)


def evaluate_hybrid(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """The sum of the final model and BM25 with the weight that ``inputs["fusion"]`` has chosen."""
    from vtkit.evaluation.systems import SumSystem

    weights = result_of(inputs["fusion"], FusionResult).with_bm25

    def system_over(place: Collection) -> SumSystem:
        return SumSystem(*summed_runs(inputs, place), weights[place.folder])

    return evaluate_each(recipe, out, "hybrid", system_over)


EVALUATE_HYBRID = Stage("evaluate:hybrid", version=17, reads=MEASURED, corpora=SETS, function=evaluate_hybrid)


def evaluate_deployed(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """Search the index to be used, ``inputs["index"]``, in its engine and with its lexical part, for the vectors of
    ``inputs["queries"]``. Approximate engines are compared with exact search."""
    from vtkit.evaluation.systems import SparseSystem
    from vtkit.search.engine import POSTINGS, open_index
    from vtkit.search.lexical import LexicalPart
    from vtkit.search.segments import Manifest, generation_of

    measure, engine = recipe.evaluate.measures[0], recipe.index.engine
    weights = result_of(inputs["fusion"], FusionResult).with_bm25 if "fusion" in inputs else {}

    def system_over(place: Collection) -> SparseSystem:
        manifest, lexical = Manifest.load(inputs["index"] / place.folder), None
        folder = generation_of(inputs["index"] / place.folder)
        if manifest.lexical is not None:
            lexical = LexicalPart.load(folder, manifest.lexical, manifest.vocabulary)
        return SparseSystem(
            open_index(recipe.index, folder / POSTINGS),
            stored(inputs["queries"] / place.folder),
            role="deployed",
            lexical=lexical,
            fusion=weights.get(place.folder),
            exact=None if engine == "exact" else (open_index(IndexSection(), folder / POSTINGS), engine, measure),
        )

    return evaluate_each(recipe, out, DEPLOYED, system_over)


EVALUATE_DEPLOYED = Stage(
    f"evaluate:{DEPLOYED}", version=10, reads=(*MEASURED, *ENGINE), corpora=SETS, function=evaluate_deployed
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


@dataclass(frozen=True)
class PeerResult(EvaluateResult):
    """A dense embedder judged on each evaluation set."""

    with_bm25: Mapping[str, FusionWeight]  # evaluation set -> weight of the embedder beside BM25


def evaluate_peer(recipe: View, inputs: Mapping[str, Path], out: Path) -> PeerResult:
    """Search every set with a dense embedder that could be used instead, exactly and by its own similarity; and choose
    the weight of its sum with BM25, as for the recipe's own model. Queries that the recipe is fine-tuned on choose it,
    too, for the peer is not trained on them."""
    from vtkit.encoder.dense import load_dense
    from vtkit.evaluation.fusion_queries import fusion_weight
    from vtkit.evaluation.systems import DenseSystem
    from vtkit.system.runtime import fastest_device

    index, (model,), measures = recipe.index, recipe.evaluate.peers, recipe.evaluate.measures
    embedder = load_dense(model, PEERS, multi_vector=True).to(fastest_device())
    over = partial(DenseSystem.over, embedder, name=f"{PEERS} = {model}", precision=index.precision, cut=index.passages)
    sets, weights = dict[str, Evaluated](), dict[str, FusionWeight]()
    for corpus in recipe.corpora("evaluate.sets"):
        place = collection_of(corpus)
        judged, system, folder = judged_of(recipe, place.whole), over(place.whole, kept=out / CHECKPOINTS), place.folder
        ranking = system.rank(judged, DEPTH)
        ranking = replace(ranking, facts=replace(ranking.facts, search_cost=system.cost(judged)))
        sets[folder] = judge(judged, ranking, measures).write(out / folder, tag="peer")
        queries, bm25 = fusion_queries_of(recipe, place, _OF_PEERS), place.bm25(recipe.recipe.language, index)
        weights[folder] = fusion_weight(queries, system, over, bm25, measures[0])
    return PeerResult(sets, weights)


EVALUATE_PEER = Stage(
    "evaluate:peer",
    version=11,
    reads=(*MEASURED, *WEIGHED, PEERS, "index.precision"),
    corpora=SETS | {_OF_PEERS: queries_beside},
    function=evaluate_peer,
)


def evaluate_hybrid_peer(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """The sum with BM25 of a peer, whose evaluation is ``inputs["model"]``."""
    from vtkit.evaluation.systems import SumSystem

    weights = result_of(inputs["model"], PeerResult).with_bm25

    def system_over(place: Collection) -> SumSystem:
        return SumSystem(*summed_runs(inputs, place, "peer"), weights[place.folder], role="peer-sum")

    return evaluate_each(recipe, out, "hybrid-peer", system_over)


EVALUATE_HYBRID_PEER = Stage(
    "evaluate:hybrid-peer", version=13, reads=MEASURED, corpora=SETS, function=evaluate_hybrid_peer
)
