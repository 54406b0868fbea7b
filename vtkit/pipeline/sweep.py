"""Running the cells of a sweep, each a run of its own, and gathering their figures into tables. All runs share a store,
so shared outputs are made once, and finished ones are not repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.executors import as_finished, executed_by
from vtkit.evaluation.results import PER_QUERY, SetResults, read_per_query
from vtkit.pipeline.disk import show_disk, show_earlier_times
from vtkit.pipeline.folder import finished_steps, open_run, report_of
from vtkit.pipeline.plan import Plan, Step
from vtkit.pipeline.run import LOG, SIDE_BY_SIDE, check_contents, check_settings, run
from vtkit.pipeline.store import Store, result_of
from vtkit.recipe.checks import NotFetched
from vtkit.recipe.sweep import Cell, Grid, for_every_cell
from vtkit.recipe.write import resolved_toml
from vtkit.report.data import ReportData
from vtkit.report.sweep_tables import COSTS, PLACE, SweepResults, csv_table, latex_tables
from vtkit.search.measures.significance import Difference, Values, difference, holm
from vtkit.settings.recipe import STORE
from vtkit.settings.run import RunSection
from vtkit.system import console
from vtkit.system.errors import VtkitError, machine_errors
from vtkit.system.outputs import write_atomically
from vtkit.system.runtime import threads as all_threads

if TYPE_CHECKING:
    from pandas import DataFrame

CELLS = "cells"  # in the folder of a sweep: the recipe of each cell


@dataclass(frozen=True)
class PlannedCell:
    """A cell with its steps and the missing outputs."""

    cell: Cell
    steps: Mapping[str, Step]  # by the name of their outputs
    missing: tuple[str, ...]  # outputs that are still to be made, or made again because they are damaged
    finished: bool  # whether they are all there and its run's folder says so


def plan_sweep(grid: Grid, runs: Path) -> list[PlannedCell]:
    """The steps of every cell and its missing outputs; nothing is made."""
    store = Store(runs.absolute() / STORE, look_once=True)
    planned = []
    for cell in grid.cells:
        recipe = cell.loaded.recipe
        recipe.run_by(*_command(grid, cell, runs))  # the report quotes it
        decisions = Plan(recipe, store).decide({})
        steps = {store.folder(each.step.dependencies).name: each.step for each in decisions}
        missing = tuple(name for name, each in zip(steps, decisions, strict=True) if each.runs)
        recorded = finished_steps(runs / cell.name)
        finished = not missing and all(recorded.get(step.name) == name for name, step in steps.items())
        planned.append(PlannedCell(cell, steps, missing, finished))
    return planned


def run_sweep(
    grid: Grid, *, runs: Path, jobs: int = 1, threads: int | None = None, dry_run: bool = False
) -> dict[str, str]:
    """Run every cell that is not finished, ``jobs`` at the same time, each in a process of its own (1: one after the
    other in this one), with so many processor ``threads`` together; returns the cells that failed, by their names, with
    the reason."""
    try:
        for_every_cell(grid.cells, lambda cell: check_settings(cell.loaded), lambda cell: cell.name)
    except NotFetched as error:
        if not dry_run:
            raise
        console.warn(str(error))
    store = Store(runs.absolute() / STORE)
    if not dry_run:
        store.prepare()
    planned = plan_sweep(grid, runs)
    waiting = [each for each in planned if not each.finished]
    missing = _show(planned)
    show_disk(missing.values(), runs.absolute(), refuse=not dry_run)
    if dry_run:
        previous = {step: made for cell in grid.cells for step, made in finished_steps(runs / cell.name).items()}
        show_earlier_times(missing.values(), store, previous)
        return {}
    for_every_cell(waiting, lambda each: check_contents(each.cell.loaded, store), lambda each: each.cell.name)
    folder = runs / grid.name / CELLS
    with machine_errors(runs.absolute(), " Cells that are finished are kept."):
        folder.mkdir(parents=True, exist_ok=True)
        for cell in grid.cells:
            write_atomically(folder / f"{cell.name}.toml", resolved_toml(cell.loaded.recipe))
    cells = [each.cell for each in waiting]
    return _one_by_one(grid, cells, runs, threads) if jobs == 1 else _together(grid, cells, runs, jobs, threads)


def _recipe_file(grid: Grid, cell: Cell, runs: Path) -> Path:
    """The absolute path of a cell's recipe, so that the command that reports quote works in every folder."""
    return runs.absolute() / grid.name / CELLS / f"{cell.name}.toml"


def _command(grid: Grid, cell: Cell, runs: Path) -> tuple[str, ...]:
    """The command line that runs a cell by itself."""
    return ("vtkit", "run", str(_recipe_file(grid, cell, runs)))


def _show(planned: Sequence[PlannedCell]) -> dict[str, Step]:
    """Show the cells, and for each stage how many outputs they need in all and how many are to be made; returns the
    outputs to make, without duplicates."""
    every = {name: step for each in planned for name, step in each.steps.items()}
    missing = {name: each.steps[name] for each in planned for name in each.missing}
    asked = sum(len(each.steps) for each in planned)
    console.say(
        f"sweep: {sum(each.finished for each in planned)} of {len(planned)} cells are finished; their {asked} steps "
        f"share {len(every)} outputs, of which {len(missing)} are missing"
    )
    kinds = Counter(step.name.partition(":")[0] for step in every.values())
    left = Counter(step.name.partition(":")[0] for step in missing.values())
    console.say(f"  to make: {', '.join(f'{stage} {left[stage]} of {kinds[stage]}' for stage in kinds if left[stage])}"
                if left else "  nothing is missing")  # fmt: skip
    for each in planned:
        state = "finished" if each.finished else f"{len(each.missing)} of {len(each.steps)} steps"
        console.say(f"  {each.cell.name}: {state}", short="")
    return missing


def _one_by_one(grid: Grid, cells: Sequence[Cell], runs: Path, threads: int | None) -> dict[str, str]:
    failed = {}
    for number, cell in enumerate(cells, 1):
        console.say(f"cell {number} of {len(cells)}: {cell.name}")
        try:
            run(_recipe_file(grid, cell, runs), runs=runs, threads=threads)
        except VtkitError as error:
            failed[cell.name] = str(error)
            console.warn(f"{cell.name} failed, the others go on: {error}")
    return failed


def _together(grid: Grid, cells: Sequence[Cell], runs: Path, jobs: int, threads: int | None) -> dict[str, str]:
    """Each cell in a process of its own, ``jobs`` of them at a time, on the machines of the recipe's Ray cluster if it
    has one. If two cells need the same output, one makes it and the other waits (:func:`vtkit.system.outputs.held`)."""
    own = cells[0].loaded.recipe.run if cells else RunSection()
    executor = "ray" if own.executor == "ray" else "processes"
    share = max(1, (threads or all_threads()) // jobs)
    failed: dict[str, str] = {}

    def started() -> Iterator[tuple[str, ...]]:
        for cell in cells:
            console.say(f"{cell.name} started; log: {runs / cell.name / LOG}")
            yield (*_command(grid, cell, runs), "--runs", str(runs.absolute()))

    run = own.model_copy(update={"executor": executor, "workers": jobs, "cpus": share})
    with executed_by(run), console.progress("cells", total=len(cells)) as bar:
        for number, reason in as_finished(_failure, started(), bar, few=1):
            name = cells[number].name
            if reason is None:
                console.say(f"{name} is finished")
            else:
                failed[name] = reason
                console.warn(f"{name} failed, the others go on: {reason}")
            bar.advance(1)
    return failed


def _failure(command: Sequence[str], bar: console.Bar | None) -> str | None:
    """Run a cell by its ``command``, with the threads of this process; why it failed."""
    process = subprocess.Popen(
        # its shards are computed where it is
        [sys.executable, "-m", *command, "--threads", str(all_threads()), "--set", "run=none"],
        env=os.environ | {SIDE_BY_SIDE: "1"},
        stdin=subprocess.PIPE,  # closes with this process, however it ends
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stderr is not None
    said = process.stderr.read()
    if not process.wait():
        return None
    error = said.rpartition("error: ")[2].strip() if "error: " in said else ""  # the last that it printed
    return error or f"it ended with exit code {process.returncode}"


def write_sweep(grid: Grid, runs: Path) -> Path:
    """Write ``sweep.html``, ``sweep.md``, ``sweep.csv`` and ``sweep.tex`` from the cells that are finished (VtkitError
    where none is); returns the page."""
    from vtkit.report.pages import html_page, markdown_page
    from vtkit.report.sweep_page import sweep_page

    results, reports = gather(grid, runs)
    page = sweep_page(results, reports)
    folder = runs / grid.name
    files = {
        "sweep.html": html_page(page),
        "sweep.md": markdown_page(page),
        "sweep.csv": csv_table(results),
        "sweep.tex": latex_tables(results),
    }
    with machine_errors(runs.absolute()):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_atomically(folder / name, text)
    return folder / "sweep.html"


SYSTEMS = {  # system -> the step that judges it
    "encoder": "",  # of the final model
    "deployed": "evaluate:deployed",
    "hybrid": "evaluate:hybrid",
    "BM25": "evaluate:bm25",
    "source": "evaluate:source",
}


def gather(grid: Grid, runs: Path) -> tuple[SweepResults, dict[str, ReportData]]:
    """The figures of all finished cells, and their reports by the names of the cells; VtkitError where none is
    finished, or none was judged."""
    from pandas import DataFrame

    planned = plan_sweep(grid, runs)
    finished = [each.cell for each in planned if each.finished]
    if not finished:
        raise VtkitError(f"no cell of {grid.name} is finished in {runs}. Run them: vtkit sweep RECIPE.")
    figures: list[dict[str, object]] = []
    for cell in finished:
        run, row = open_run(runs / cell.name), grid.label(cell.row)
        for system, step in (SYSTEMS | {"encoder": f"evaluate:{run.final_model}"}).items():
            if step not in run.steps:
                continue
            for name, on_set in result_of(run.steps[step], dict[str, SetResults]).items():
                (of,) = on_set.rows
                folder = run.steps[step] / name
                queries = read_per_query(folder) if (folder / PER_QUERY).is_file() else {}
                known = {"row": row, "column": cell.column, "seed": cell.seed, "run": cell.name, "set": name}
                costs = zip(COSTS, (of.flops, of.query_dimensions, of.document_dimensions), strict=True)
                figures += [
                    {**known, "system": system, "measure": measure, "value": value, "queries": queries.get(measure)}
                    for measure, value in [*of.measures.items(), *costs]
                    if value is not None
                ]
    if not figures:
        raise VtkitError(f"no run of {grid.name} was evaluated, because its recipe has no [evaluate].")
    frame = DataFrame(figures)
    rows = {grid.label(row): row or ("the recipe",) for row in grid.rows}
    baseline = grid.baseline or next(iter(rows))
    unfinished = tuple(each.cell.name for each in planned if not each.finished)
    tested = _differences(frame, baseline)
    results = SweepResults(grid.name, grid.heads or ("row",), rows, frame, tested, baseline, unfinished)
    reports = {cell.name: report_of(runs / cell.name) for cell in finished}
    return results, {name: report for name, report in reports.items() if report is not None}


def _differences(frame: DataFrame, baseline: str) -> dict[tuple[str, ...], Difference]:
    """The differences from the baseline, p corrected for all rows (Holm), by system, column, set, measure and row. A
    row that lacks seeds or queries of the baseline is not tested."""
    places: dict[tuple[str, ...], dict[str, list[Values]]] = {}  # row -> the queries of each seed
    for row, queries, *place in frame[["row", "queries", *PLACE]].itertuples(index=False):
        if queries is not None:
            places.setdefault(tuple(place), {}).setdefault(row, []).append(queries)
    tested: dict[tuple[str, ...], Difference] = {}
    for place, rows in places.items():
        bm25 = [seeds[:1] for seeds in places.get(("BM25", *place[1:]), {}).values()]
        base = bm25[0] if baseline == "BM25" and bm25 else rows.get(baseline, [])
        asked = base[0].keys() if base else None
        differences = {
            row: difference(seeds, base)
            for row, seeds in rows.items()
            if row != baseline
            and (baseline == "BM25" or len(seeds) == len(base))
            and all(each.keys() == asked for each in (*seeds, *base))
        }
        corrected = holm({row: of.p for row, of in differences.items()})
        tested |= {(*place, row): replace(of, p=corrected[row]) for row, of in differences.items()}
    return tested
