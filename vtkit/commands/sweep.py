"""``vtkit sweep``: the grid of a recipe's [sweep]."""

from pathlib import Path
from typing import Annotated

from vtkit.commands.options import (
    DryRunOption,
    RecipeArgument,
    RunsOption,
    SetOption,
    ThreadsOption,
    VerboseOption,
    option,
)
from vtkit.system import console
from vtkit.system.errors import VtkitError
from vtkit.system.interrupt import same_command_continues


def sweep(
    recipe: RecipeArgument,
    settings: SetOption = None,
    runs: RunsOption = Path("runs"),
    dry_run: DryRunOption = False,
    tables: Annotated[
        bool, option("Run nothing; write page and tables of the cells that are finished.", None, "--tables")
    ] = False,
    jobs: Annotated[
        int, option("Cells that run at the same time, here or with run.executor=ray on a cluster.", min=1)
    ] = 1,
    threads: ThreadsOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Run every cell of a recipe's [sweep].

    Cells are its rows, columns, values and seeds. Each cell is a run of its own, named by its values; stages that cells
    share are made once. The same command continues a stopped sweep and repeats nothing that is finished. RUNS/NAME then
    has sweep.html with tables and plots, and the tables as sweep.md, sweep.csv and sweep.tex: means over seeds with
    their deviation, and tests over seeds and queries against the first row (sweep.baseline), corrected for all rows.
    """
    if not dry_run:
        same_command_continues()
    from vtkit.pipeline.sweep import run_sweep, write_sweep
    from vtkit.recipe.sweep import grid_of

    grid = grid_of(recipe, tuple(settings or ()))
    failed: dict[str, str] = {}
    if not tables:
        with console.details(verbose, results=dry_run):
            failed = run_sweep(grid, runs=runs, jobs=jobs, threads=threads, dry_run=dry_run)
        if dry_run:
            return
    if tables or len(failed) < len(grid.cells):
        page = write_sweep(grid, runs)
        console.write((page.with_suffix(".md")).read_text("utf-8"))
        console.say(f"page: {page}; the tables are beside it as sweep.md, sweep.csv and sweep.tex")
    if failed:
        named = "\n".join(f"  {name}: {reason}" for name, reason in failed.items())
        raise VtkitError(
            f"{len(failed)} of {len(grid.cells)} cells failed; the others are finished. Repeat the command to try "
            f"again:\n{named}"
        )
