"""``vtkit runs`` and ``vtkit clean``: the runs of a folder, and the stage outputs that no run needs."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from vtkit.commands.options import option
from vtkit.system import console

RunsArgument = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Where runs and their shared stage outputs are kept.")
]


def runs(folder: RunsArgument = Path("runs")) -> None:
    """List runs: state, key figures, size on disk and time.

    Runs share stage outputs; `alone` is the size of those that no other run uses.
    """
    from vtkit.pipeline.listing import list_runs
    from vtkit.report.wording import duration

    listed = list_runs(folder)
    if console.answered(listed):
        return
    if not listed:
        console.write(f"no run in {folder}")
        return
    console.write_table(
        ["run", "measure", "value", "BM25", "size", "alone", "time", "last step"],
        [
            [
                run.name,
                run.measure or "",
                "" if run.value is None else f"{run.value:.4f}",
                "" if run.bm25 is None else f"{run.bm25:.4f}",
                console.size(run.bytes),
                console.size(run.own_bytes),
                duration(run.seconds),
                run.changed[:16].replace("T", " "),
            ]
            for run in listed
        ],
    )
    for run in listed:
        console.write(f"{run.name}: {run.state}" + (f"; {run.verdict}" if run.verdict else ""))


def clean(
    folder: RunsArgument = Path("runs"),
    yes: Annotated[
        bool, option("Remove the outputs; without this option, only list them.", None, "--yes", "-y")
    ] = False,
    unfinished: Annotated[
        bool, option("Also interrupted work, whose checkpoints its recipe could continue from.", None, "--unfinished")
    ] = False,
) -> None:
    """Show stage outputs that no run uses; --yes removes them.

    Outputs of earlier settings are made again if those settings return. To free a run's own outputs, remove its folder
    first.
    """
    from vtkit.pipeline.listing import remove, unused

    outputs = remove(folder, unfinished=unfinished) if yes else unused(folder)
    if console.answered([{**asdict(each), "folder": str(each.folder)} for each in outputs]):
        return
    shown = [each for each in outputs if unfinished or not each.unfinished]
    kept = [each for each in outputs if each not in shown]
    for each in shown:
        console.write(f"{console.size(each.bytes):>9}  {each.folder}{'  (unfinished)' if each.unfinished else ''}")
    total = console.size(sum(each.bytes for each in shown))
    if kept:
        console.say(f"--unfinished adds {len(kept)} folders, {console.size(sum(each.bytes for each in kept))}")
    if not shown:
        console.write("nothing to remove: runs use every finished output")
    elif yes:
        console.write(f"removed {len(shown)} folders, {total}")
    else:
        console.write(f"{len(shown)} folders, {total}. Add --yes to remove them")
