"""Running the cells of a sweep: each is a run of its own, over the store that all runs share, so that what several need
is made once; whatever is finished is not repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from vtkit.pipeline import cost
from vtkit.pipeline.disk import refuse_full_disk
from vtkit.pipeline.folder import finished_steps
from vtkit.pipeline.plan import Plan, Step
from vtkit.pipeline.run import LOG, SIDE_BY_SIDE, check_contents, check_settings, run, show_disk
from vtkit.pipeline.store import Dependencies, Store
from vtkit.recipe.preflight import NotFetched
from vtkit.recipe.sweep import Cell, Grid, for_every_cell
from vtkit.recipe.write import resolved_toml
from vtkit.settings.recipe import STORE
from vtkit.system import console
from vtkit.system.errors import VtkitError, machine_errors
from vtkit.system.outputs import write_atomically
from vtkit.system.results import Result
from vtkit.system.runtime import threads as all_threads

CELLS = "cells"  # in the folder of a sweep: the recipe of each cell


@dataclass(frozen=True)
class PlannedCell:
    """What a cell has and needs."""

    cell: Cell
    steps: Mapping[str, Step]  # by the name of their outputs
    missing: tuple[str, ...]  # outputs that are still to be made, or made again because they are damaged
    finished: bool  # whether they are all there and its run's folder says so


class _Store(Store):
    """A store that looks at an output once, however many cells share it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._seen: dict[Path, str | None] = {}

    def damage(self, dependencies: Dependencies, kind: type[Result]) -> str | None:
        folder = self.folder(dependencies)
        if folder not in self._seen:
            self._seen[folder] = super().damage(dependencies, kind)
        return self._seen[folder]


def plan_sweep(grid: Grid, runs: Path) -> list[PlannedCell]:
    """What every cell has and needs, without making anything."""
    store = _Store(runs.absolute() / STORE)
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


def check_cells(grid: Grid) -> None:
    """Nothing, if everything that the cells name is there.

    Raises:
        RecipeError: what is not, of all cells.
    """
    for_every_cell(grid.cells, lambda cell: check_settings(cell.loaded), lambda cell: cell.name)


def run_sweep(
    grid: Grid, *, runs: Path, jobs: int = 1, threads: int | None = None, dry_run: bool = False
) -> dict[str, str]:
    """Run every cell that is not finished; returns the cells that failed, by their names, with the reason.

    Args:
        runs: folder of all runs, those of the cells among them.
        jobs: cells that run at the same time, each in a process of its own; 1: one after the other in this one.
        threads: processor threads, of all jobs together; all cores by default.
        dry_run: say what would run, and stop.

    Raises:
        VtkitError: what is wrong with any cell; nothing was touched.
    """
    not_fetched = None
    try:
        check_cells(grid)
    except NotFetched as error:
        if not dry_run:
            raise
        not_fetched = error
    store = Store(runs.absolute() / STORE)
    if not dry_run:
        store.prepare()
    planned = plan_sweep(grid, runs)
    waiting = [each for each in planned if not each.finished]
    _show(planned)
    missing = _missing(waiting)
    needed, free = show_disk(missing.values(), runs.absolute())
    if dry_run:
        for line in cost.words(cost.by_stage(cost.estimated(missing).values())):
            console.say(line)
        if not_fetched is not None:
            console.warn(str(not_fetched))
        return {}
    refuse_full_disk(needed, free, runs.absolute())
    for_every_cell(waiting, lambda each: check_contents(each.cell.loaded, store), lambda each: each.cell.name)
    folder = runs / grid.name / CELLS
    with machine_errors(runs.absolute(), " Cells that are finished are kept."):
        folder.mkdir(parents=True, exist_ok=True)
        for cell in grid.cells:
            write_atomically(folder / f"{cell.name}.toml", resolved_toml(cell.loaded.recipe))
    cells = [each.cell for each in waiting]
    return _one_by_one(grid, cells, runs, threads) if jobs == 1 else _together(grid, cells, runs, jobs, threads)


def _recipe_file(grid: Grid, cell: Cell, runs: Path) -> Path:
    """Absolute: reports quote the command, and are the same whatever folder it is given in."""
    return runs.absolute() / grid.name / CELLS / f"{cell.name}.toml"


def _command(grid: Grid, cell: Cell, runs: Path) -> tuple[str, ...]:
    """The command line that runs a cell by itself."""
    return ("vtkit", "run", str(_recipe_file(grid, cell, runs)))


def _missing(planned: Sequence[PlannedCell]) -> dict[str, Step]:
    """Every output that is to be made, once."""
    return {name: each.steps[name] for each in planned for name in each.missing}


def _show(planned: Sequence[PlannedCell]) -> None:
    """Cells, and for each stage how many outputs they need in all and how many are to be made."""
    every = {name: step for each in planned for name, step in each.steps.items()}
    missing = _missing(planned)
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
    """Each cell in a process of its own, ``jobs`` of them at a time. What two of them need, one makes and the other
    waits for (:func:`vtkit.system.outputs.held`)."""
    share = str(max(1, (threads or all_threads()) // jobs))
    running: dict[str, subprocess.Popen[str]] = {}
    failed: dict[str, str] = {}

    def one(cell: Cell) -> None:
        process = running[cell.name] = subprocess.Popen(
            [sys.executable, "-m", *_command(grid, cell, runs), "--runs", str(runs), "--threads", share],
            env=os.environ | {"OMP_NUM_THREADS": share, SIDE_BY_SIDE: "1"},
            stdin=subprocess.PIPE,  # closes with this process, however it ends
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        console.say(f"{cell.name} started; log: {runs / cell.name / LOG}")
        assert process.stderr is not None
        said = process.stderr.read()
        if process.wait():
            failed[cell.name] = _error_in(said) or f"it ended with exit code {process.returncode}"
            console.warn(f"{cell.name} failed, the others go on: {failed[cell.name]}")
        else:
            console.say(f"{cell.name} is finished")

    with ThreadPoolExecutor(jobs) as pool:
        started = [pool.submit(one, cell) for cell in cells]
        try:
            for future in started:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running.values():
                process.terminate()
            raise
    return failed


def _error_in(said: str) -> str:
    """The last error of what a command printed."""
    return said.rpartition("error: ")[2].strip() if "error: " in said else ""
