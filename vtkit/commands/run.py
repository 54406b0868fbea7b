"""``vtkit run``: a recipe from its vocabulary to its report."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from vtkit.commands.options import (
    DryRunOption,
    RecipeArgument,
    RunsOption,
    SetOption,
    ThreadsOption,
    VerboseOption,
    option,
)
from vtkit.commands.search import shown_tokens
from vtkit.system import console
from vtkit.system.interrupt import same_command_continues

if TYPE_CHECKING:
    from vtkit.report.data import ReportData


def run(
    recipe: RecipeArgument,
    settings: SetOption = None,
    runs: RunsOption = Path("runs"),
    dry_run: DryRunOption = False,
    until: Annotated[str | None, option("Stop after this stage.", "STAGE")] = None,
    start: Annotated[str | None, option("Repeat this stage and all later ones.", "STAGE", "--from")] = None,
    force: Annotated[list[str] | None, option("Repeat this stage. May be given several times.", "STAGE")] = None,
    threads: ThreadsOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Run a recipe, from the vocabulary to the report.

    The stages are vocabulary, transfer, adapt, calibrate, finetune, index, evaluate and report. Finished stages are
    skipped, interrupted ones continue, and the plan says why each stage runs. Checks after vocabulary, transfer,
    adaptation and calibration stop a run that cannot work. RUNS/NAME contains the results: model, index, TREC runs and
    report.html. The tables of results and the verdict are printed on standard output, progress on standard error; with
    --dry-run, the plan is the output.
    """
    if not dry_run:
        same_command_continues()
    from vtkit.pipeline.folder import report_of
    from vtkit.pipeline.run import run as run_recipe
    from vtkit.report.verdict import recommendation
    from vtkit.system import distributed

    with console.details(verbose, results=dry_run):
        folder = run_recipe(
            recipe,
            tuple(settings or ()),
            runs=runs,
            dry_run=dry_run,
            until=until,
            start=start,
            force=tuple(force or ()),
            threads=threads,
        )
    if dry_run or not distributed.is_main():
        return
    if until is not None and until != "report":
        console.say(f"stopped after {until}. Repeat the command without --until to go on.")
        return
    report = report_of(folder)
    if report is not None:
        _show_results(report)
    for page in sorted(folder.glob("report.*"), key=lambda path: path.suffix != ".html")[:1]:
        console.say(f"report: {page}")
    if (folder / "index").is_dir():
        console.say(f"search it: {shlex.join(['vtkit', 'search', str(folder), 'your query'])}")
    elif (model := folder / "model").is_dir():  # nothing is evaluated
        encode = shlex.join(["vtkit", "encode", str(model), "TEXTS", "--out", "VECTORS"])
        console.say(f"make an index: {encode}, then vtkit index VECTORS --out INDEX")
    if report is not None and (advice := recommendation(report)):
        console.write(advice.text)


def _show_results(report: ReportData) -> None:
    """The results of a run as tables, and its example search."""
    from vtkit.report.blocks import Section
    from vtkit.report.pages import write_sections
    from vtkit.report.results import set_table

    write_sections([Section("results", "Results", [set_table(results) for results in report.results])])
    for example in report.examples[:1]:
        console.write(f"\nexample search: {console.one_line(example.query)}")
        for found in example.results[:3]:
            console.write(f"  {found.rank}. {console.one_line(found.id)}  {console.one_line(found.text, 90)}")
            console.write(f"     {shown_tokens(found.tokens[:6])}")
    if report.demonstration:
        console.write("This run is a demonstration on a small collection, not a result to quote.")
