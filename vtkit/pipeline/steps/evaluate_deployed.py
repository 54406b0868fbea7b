"""Stage ``evaluate:deployed``: the final model's index as it is to be used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vtkit.evaluation.judging import Evaluated, EvaluateResult, judge
from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.deploy_index import DEPLOYED, DeployResult
from vtkit.pipeline.steps.encode_queries import JUDGED, SETS, judged_sets
from vtkit.pipeline.steps.evaluate_runs import MEASURED, stored
from vtkit.pipeline.store import result_of
from vtkit.settings.engines import ENGINE
from vtkit.settings.evaluate import DEPTH
from vtkit.settings.index import IndexSection
from vtkit.system import console


def evaluate_deployed(recipe: View, inputs: Mapping[str, Path], out: Path) -> EvaluateResult:
    """Search every set in the index to be used, ``inputs["index"]``, in its engine and with its lexical part, for the
    vectors of ``inputs["queries"]``.

    Writes ``out/SET/run.trec.gz`` and ``out/SET/per_query.json``.
    """
    from vtkit.evaluation.systems import SparseSystem
    from vtkit.search.engine import POSTINGS, open_index
    from vtkit.search.index_info import IndexRecord
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


EVALUATE_DEPLOYED = Stage(
    f"evaluate:{DEPLOYED}",
    version=8,
    reads=(*MEASURED, *ENGINE),
    corpora=SETS,
    function=evaluate_deployed,
)
