"""What came of a sweep: the finished cells gathered into tables, and the files that show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from vtkit.evaluation.comparison import Tested, compared
from vtkit.evaluation.judging import Evaluated, EvaluateResult, Judged
from vtkit.pipeline.compare import per_query
from vtkit.pipeline.folder import RunFolder, open_run, report_of
from vtkit.pipeline.store import result_of
from vtkit.pipeline.sweep import plan_sweep
from vtkit.recipe.sweep import Grid
from vtkit.report.data import ReportData
from vtkit.report.sweep_tables import Place, SweepResults, SweepTable, Swept, csv_table, latex_tables, markdown_tables
from vtkit.system.errors import VtkitError, machine_errors
from vtkit.system.outputs import write_atomically

TITLES = {  # system -> title of its table
    "encoder": "The encoder alone",
    "deployed": "The deployed index",
    "hybrid": "The encoder and BM25 together",
}

REFERENCES = ("BM25", "source")

Queries = Mapping[str, Mapping[str, float]]  # measure -> query -> value


def write_sweep(grid: Grid, runs: Path) -> Path:
    """Write ``sweep.html``, ``sweep.md``, ``sweep.csv`` and ``sweep.tex`` from the cells that are finished; returns the
    page.

    Raises:
        VtkitError: none is.
    """
    from vtkit.report.sweep_page import sweep_page

    results, reports = gather(grid, runs)
    folder = runs / grid.name
    files = {
        "sweep.html": sweep_page(results, reports),
        "sweep.md": markdown_tables(results),
        "sweep.csv": csv_table(results),
        "sweep.tex": latex_tables(results),
    }
    with machine_errors(runs.absolute()):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_atomically(folder / name, text)
    return folder / "sweep.html"


def gather(grid: Grid, runs: Path) -> tuple[SweepResults, dict[str, ReportData]]:
    """The figures of all finished cells, and their reports by the names of the cells.

    Raises:
        VtkitError: no cell is finished, or none was judged.
    """
    planned = plan_sweep(grid, runs)
    finished = [each.cell for each in planned if each.finished]
    if not finished:
        raise VtkitError(f"no cell of {grid.name} is finished in {runs}. Run them: vtkit sweep RECIPE.")
    swept: list[Swept] = []
    queries: dict[tuple[str, str, str], Queries] = {}
    for cell in finished:
        run = open_run(runs / cell.name)
        for system, step in _systems(run).items():
            for name, judged in result_of(run.steps[step], EvaluateResult).sets.items():
                swept.append(Swept(cell.name, grid.label(cell.row), cell.column, cell.seed, name, system, judged))
                queries[cell.name, name, system] = per_query(run, step.removeprefix("evaluate:"), name) or {}
    if not swept:
        raise VtkitError(f"no run of {grid.name} was evaluated, because its recipe has no [evaluate].")
    places = dict.fromkeys(
        Place(cell.column, each.set, tuple(each.evaluated.measures))
        for column in dict.fromkeys(cell.column for cell in finished)
        for each in swept
        if each.column == column
    )
    rows = {grid.label(row): row or ("the recipe",) for row in grid.rows}
    baseline = grid.baseline or next(iter(rows))
    tables = {
        system: _table(title, system, swept, places, queries, rows, baseline)
        for system, title in TITLES.items()
        if any(each.system == system for each in swept)
    }
    if _figures(tables.get("hybrid")) == _figures(tables.get("deployed")):  # the index to be used is that sum
        tables.pop("hybrid", None)
    values = next(iter(tables.values())).values if tables else {}
    results = SweepResults(
        grid.name,
        grid.heads or ("row",),
        rows,
        tuple(places),
        tuple(tables.values()),
        _references(swept, places),
        baseline,
        max(map(len, values.values()), default=0),
        tuple(each.cell.name for each in planned if not each.finished),
    )
    reports = {cell.name: report_of(runs / cell.name) for cell in finished}
    return results, {name: report for name, report in reports.items() if report is not None}


def _figures(table: SweepTable | None) -> dict[tuple[str, Place], list[Mapping[str, float]]]:
    return (
        {} if table is None else {at: [each.evaluated.measures for each in seeds] for at, seeds in table.values.items()}
    )


def _systems(run: RunFolder) -> dict[str, str]:
    """System -> the step that judged it."""
    wanted = {"encoder": f"evaluate:{run.final_model}", "deployed": "evaluate:deployed", "hybrid": "evaluate:hybrid"}
    wanted |= {"BM25": "evaluate:bm25", "source": "evaluate:source"}
    return {system: step for system, step in wanted.items() if step in run.steps}


def _at(found: Sequence[Swept], system: str, row: str | None, place: Place) -> list[Swept]:
    """What one system has in a row (None: in all) and place."""
    return [
        each
        for each in found
        if (each.system, each.column, each.set) == (system, place.column, place.set)
        and row in (None, each.row)
        and set(place.measures) <= each.evaluated.measures.keys()
    ]


def _table(
    title: str,
    system: str,
    found: Sequence[Swept],
    places: Mapping[Place, None],
    queries: Mapping[tuple[str, str, str], Queries],
    rows: Mapping[str, Sequence[str]],
    baseline: str,
) -> SweepTable:
    values = {(row, place): of for row in rows for place in places if (of := _at(found, system, row, place))}
    tested: dict[tuple[str, Place, str], Tested] = {}
    for place in places:
        judged = {row: _mean(values[row, place], queries) for row in rows if (row, place) in values}
        if baseline == "BM25" and (bm25 := _at(found, "BM25", None, place)):
            judged["BM25"] = _mean(bm25[:1], queries)
        against = judged.get(baseline)
        if against is None:
            continue
        asked = {measure: of.keys() for measure, of in against.per_query.items()}
        same = {
            row: of for row, of in judged.items() if {name: each.keys() for name, each in of.per_query.items()} == asked
        }
        for cell in compared(same, place.set, [m for m in place.measures if m in asked], baseline, "holm"):
            tested |= {(cell.system, place, measure): of for measure, of in cell.tested.items()}
    return SweepTable(title, system, values, tested)


def _mean(found: Sequence[Swept], queries: Mapping[tuple[str, str, str], Queries]) -> Judged:
    """The means over seeds, of each query too, where all seeds have it."""
    of_seeds = [queries[each.run, each.set, each.system] for each in found]
    per_measure = {}
    for measure in of_seeds[0]:
        kept = set.intersection(*(set(of.get(measure, {})) for of in of_seeds))
        per_measure[measure] = {
            query: sum(of[measure][query] for of in of_seeds) / len(of_seeds) for query in sorted(kept)
        }
    measures = [each.evaluated.measures for each in found]
    means = {name: sum(of[name] for of in measures) / len(measures) for name in measures[0]}
    count = max(map(len, per_measure.values()), default=0)
    return Judged(Evaluated(role="encoder", queries=count, documents=0, measures=means), {}, per_measure)


def _references(found: Sequence[Swept], places: Mapping[Place, None]) -> SweepTable:
    """BM25 and the source in the places where they are the same in all cells."""
    values = {}
    for system in REFERENCES:
        for place in places:
            of = _at(found, system, None, place)
            if of and all(each.evaluated.measures == of[0].evaluated.measures for each in of):
                values[system, place] = of[:1]
    return SweepTable("", "", values)
