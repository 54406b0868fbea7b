"""Stages ``evaluate:deployed`` and ``evaluate:variant``: the final model's index as it is to be used, and other ways to
weight and to extend the same vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit import console
from vtkit.evaluation.measures.agreement import Agreement, agreement
from vtkit.settings.engines import BUILT_FROM, SEARCHED_BY
from vtkit.settings.index import IndexSection
from vtkit.settings.recipe import Recipe
from vtkit.stages.deploy_index import DEPLOY, DEPLOYED, DeployResult, assembled
from vtkit.stages.encode_corpus import model_name
from vtkit.stages.encode_queries import JUDGED, SETS, judged_sets
from vtkit.stages.evaluate_runs import MEASURED, EvaluatedSet, EvaluateResult, judge, to_sets_run
from vtkit.stages.stage import Stage, View

if TYPE_CHECKING:
    import numpy as np
    import scipy.sparse as sp

    from vtkit.data.retrieval import RetrievalSet


def variants_of(recipe: Recipe) -> dict[str, Recipe]:
    """What each variant of ``[evaluate] weightings`` and ``lexical`` is called -> the recipe whose ``[index]`` it is.

    Every weighting with every lexical part; what is not listed is as ``[index]`` has it. The recipe's own is not among
    them.
    """
    if recipe.evaluate is None:
        return {}
    own = recipe.index.document_weighting, recipe.index.lexical
    weightings, parts = recipe.evaluate.weightings or own[:1], recipe.evaluate.lexical or own[1:]
    found: dict[str, Recipe] = {}
    for weighting, lexical in product(weightings, parts):
        if (weighting, lexical) != own:
            changes = {"document_weighting": weighting, "lexical": lexical}
            name = weighting if lexical == "none" else f"{weighting}+{lexical}"
            found[name] = recipe.model_copy(update={"index": recipe.index.model_copy(update=changes)})
    return found


def evaluate_deployed(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """Search every set in the index to be used, ``inputs["index"]``, in its engine and with its lexical part, for the
    vectors of ``inputs["queries"]``.

    Writes ``out/SET/run.trec`` and ``out/SET/per_query.json``.
    """
    from vtkit.artifacts import result_of
    from vtkit.search.engine import POSTINGS, open_index
    from vtkit.search.index_record import IndexRecord
    from vtkit.search.lexical import LexicalPart
    from vtkit.search.stored_vectors import read_vectors

    assert recipe.evaluate is not None
    made = result_of(inputs["index"], DeployResult)
    sets: dict[str, EvaluatedSet] = {}
    for folder, collection in judged_sets(recipe).items():
        index = open_index(recipe.index, inputs["index"] / folder / POSTINGS)
        record = IndexRecord.load(inputs["index"] / folder)
        texts = [query.text for query in collection.queries]
        queries = read_vectors(inputs["queries"] / folder / JUDGED)
        if record.lexical is not None:
            part = LexicalPart.load(inputs["index"] / folder, record.lexical, record.vocabulary)
            queries = part.queries(queries, texts)
        ids, scores = index.search(queries, recipe.evaluate.depth)
        run = to_sets_run(collection, ids, scores)
        found = judge(recipe, collection, run, out / folder, tag=DEPLOYED)
        compared = _agreement(recipe, collection, inputs["index"] / folder / POSTINGS, ids, queries, scores)
        sets[folder] = replace(found, balance=made.sets[folder].balance, agreement=compared)
    return EvaluateResult(sets)


def evaluate_variant(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """Search every set exactly, with the weighting and the lexical part of ``[index]``, in the vectors of
    ``inputs["vectors"]`` for those of ``inputs["queries"]``; no index is kept."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.search.engine import search_exactly
    from vtkit.search.stored_vectors import read_vectors

    assert recipe.evaluate is not None
    encoder = load_encoder(model_name(recipe, inputs), "cpu")
    judged = judged_sets(recipe)
    sets: dict[str, EvaluatedSet] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        folder = str(corpus.folder)
        made, collection = assembled(recipe, inputs, corpus, encoder), judged[folder]
        texts = [query.text for query in collection.queries]
        queries = read_vectors(inputs["queries"] / folder / JUDGED)
        if made.lexical is not None:
            queries = made.lexical.queries(queries, texts)
        run = to_sets_run(collection, *search_exactly(made.documents, queries, recipe.evaluate.depth))
        sets[folder] = replace(judge(recipe, collection, run, out / folder, tag="variant"), balance=made.balance)
    return EvaluateResult(sets)


def _agreement(
    recipe: View, collection: RetrievalSet, postings: Path, ids: np.ndarray, queries: sp.csr_matrix, scores: np.ndarray
) -> Agreement | None:
    """What the engine's results lose against exact ones; None where they are exact."""
    from vtkit.evaluation.measures.effectiveness import evaluate
    from vtkit.search.engine import open_index

    assert recipe.evaluate is not None
    if recipe.index.engine == "exact":
        return None
    exact = open_index(IndexSection(engine="exact"), postings).search(queries, recipe.evaluate.depth)
    first, judged = recipe.evaluate.measures[0], {query.id for query in collection.queries}
    qrels = {query: documents for query, documents in collection.qrels.items() if query in judged}
    exactly, found = (
        evaluate(to_sets_run(collection, *results), qrels, [first])[first] for results in (exact, (ids, scores))
    )
    compared = agreement(recipe.index.engine, ids, scores, *exact)
    compared = replace(compared, measure=first, measure_loss=exactly - found)
    console.say(f"  {compared.words()}")
    return compared


EVALUATE_DEPLOYED = Stage(
    f"evaluate:{DEPLOYED}",
    version=6,
    reads=(*MEASURED, *SEARCHED_BY),
    corpora=SETS,
    function=evaluate_deployed,
)
EVALUATE_VARIANT = Stage(
    "evaluate:variant",
    version=7,
    reads=tuple(sorted({*DEPLOY.reads, *MEASURED} - set(BUILT_FROM))),
    corpora=DEPLOY.corpora,
    function=evaluate_variant,
)
