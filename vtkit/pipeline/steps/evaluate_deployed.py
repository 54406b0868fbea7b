"""Stages ``evaluate:deployed`` and ``evaluate:variant``: the final model's index as it is to be used, and other ways to
weight and to extend the same vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.retrieval import RetrievalSet
from vtkit.evaluation.judging import Evaluated, EvaluateResult, judge
from vtkit.pipeline.sizes import searched
from vtkit.pipeline.stage import Chain, Rows, Stage, View, Wired
from vtkit.pipeline.steps.deploy_index import DEPLOY, DEPLOYED, DeployResult, assembled, searched_vectors
from vtkit.pipeline.steps.encode_corpus import model_name
from vtkit.pipeline.steps.encode_queries import ENCODE_QUERIES, JUDGED, SETS, judged_sets
from vtkit.pipeline.steps.evaluate_runs import MEASURED, evaluate_systems, stored
from vtkit.pipeline.store import result_of
from vtkit.settings.engines import ENGINE
from vtkit.settings.evaluate import DEPTH
from vtkit.settings.index import IndexSection
from vtkit.settings.recipe import Recipe
from vtkit.system import console

if TYPE_CHECKING:
    from vtkit.evaluation.systems import System


def variants_of(recipe: Recipe) -> dict[str, Recipe]:
    """What each variant of ``evaluate.weightings`` is called -> the recipe whose ``[index]`` it is. The recipe's own is
    not among them."""
    index = recipe.index
    return {
        weighting if index.lexical == "none" else f"{weighting}+{index.lexical}": recipe.model_copy(
            update={"index": index.model_copy(update={"document_weighting": weighting})}
        )
        for weighting in (() if recipe.evaluate is None else recipe.evaluate.weightings)
        if weighting != index.document_weighting
    }


def evaluate_deployed(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """Search every set in the index to be used, ``inputs["index"]``, in its engine and with its lexical part, for the
    vectors of ``inputs["queries"]``.

    Writes ``out/SET/run.trec`` and ``out/SET/per_query.json``.
    """
    from vtkit.evaluation.systems import SparseSystem
    from vtkit.search.engine import POSTINGS, open_index
    from vtkit.search.index_record import IndexRecord
    from vtkit.search.lexical import LexicalPart

    assert recipe.evaluate is not None
    measures, engine = recipe.evaluate.measures, recipe.index.engine
    built = result_of(inputs["index"], DeployResult).sets
    sets: dict[str, Evaluated] = {}
    for folder, collection in judged_sets(recipe).items():
        place = inputs["index"] / folder
        record = IndexRecord.load(place)
        lexical = None
        if record.lexical is not None:
            lexical = LexicalPart.load(place, record.lexical, record.vocabulary)
        system = SparseSystem(
            open_index(recipe.index, place / POSTINGS),
            stored(inputs["queries"] / folder / JUDGED),
            role="deployed",
            lexical=lexical,
            balance=built[folder].balance,
        )
        if engine == "exact":
            ranking = system.rank(collection, DEPTH)
        else:
            exact = open_index(IndexSection(), place / POSTINGS)
            ranking = system.rank_beside(exact, engine, collection, DEPTH, measures[0])
            assert ranking.facts.agreement is not None
            console.say(f"  {ranking.facts.agreement.words()}")
        sets[folder] = judge(collection, ranking, measures).write(out / folder, tag=DEPLOYED)
    return EvaluateResult(sets)


def evaluate_variant(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """Search every set exactly, with the weighting and the lexical part of ``[index]``, in the vectors of
    ``inputs["vectors"]`` for those of ``inputs["queries"]``; no index is kept."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.evaluation.systems import SparseSystem
    from vtkit.search.engine import index_in_memory

    encoder = load_encoder(model_name(recipe, inputs), "cpu")
    judged = judged_sets(recipe)

    def systems() -> Iterator[tuple[str, RetrievalSet, System]]:
        for corpus in recipe.corpora("evaluate.sets"):
            folder = str(corpus.folder)
            made = assembled(recipe, inputs, corpus, encoder)
            index, encode = index_in_memory(made.documents), stored(inputs["queries"] / folder / JUDGED)
            system = SparseSystem(index, encode, role="variant", lexical=made.lexical, balance=made.balance)
            yield folder, judged[folder], system

    return evaluate_systems(recipe, systems(), out, "variant")


LEXICAL = {"none": "", "bm25": "with BM25 in one index"}  # `index.lexical` -> words


def _row(recipe: Recipe, models: Mapping[str, str]) -> Rows:
    engine = "" if recipe.index.engine == "exact" else f" ({recipe.index.engine})"
    return {DEPLOYED: (DEPLOYED, (LEXICAL[recipe.index.lexical] or "in the deployed index") + engine)}


def _variant_rows(recipe: Recipe, models: Mapping[str, str]) -> Rows:
    """How the documents of each variant are weighted, and what is indexed beside."""
    rows = {}
    for name, variant in variants_of(recipe).items():
        weighting = variant.index.document_weighting
        ways = ("no weighting" if weighting == "none" else f"{weighting} weighting", LEXICAL[variant.index.lexical])
        rows[f"variant:{name}"] = (f"variant:{name}", ", ".join(filter(None, ways)))
    return rows


def _wired(recipe: Recipe, chain: Chain) -> Iterator[Wired]:
    if DEPLOY.name in chain.steps:
        inputs = {"index": chain.steps[DEPLOY.name], "queries": chain.steps[ENCODE_QUERIES.name]}
        yield Wired(EVALUATE_DEPLOYED, inputs)


def _wired_variants(recipe: Recipe, chain: Chain) -> Iterator[Wired]:
    if inputs := searched_vectors(recipe, chain):
        yield from (Wired(EVALUATE_VARIANT, inputs, name, of) for name, of in variants_of(recipe).items())


EVALUATE_DEPLOYED = Stage(
    f"evaluate:{DEPLOYED}",
    version=7,
    reads=(*MEASURED, *ENGINE),
    corpora=SETS,
    function=evaluate_deployed,
    costs=searched,
    wire=_wired,
    rows=_row,
)
EVALUATE_VARIANT = Stage(
    "evaluate:variant",
    version=8,
    reads=tuple(sorted({*DEPLOY.reads, *MEASURED} - set(ENGINE))),
    corpora=DEPLOY.corpora,
    function=evaluate_variant,
    costs=searched,
    wire=_wired_variants,
    rows=_variant_rows,
)
