"""``vtkit doctor``: versions, devices and extras of this machine, and what is missing."""

from pathlib import Path

import typer

from vtkit.commands.options import RunsOption
from vtkit.system import console


def doctor(runs: RunsOption = Path("runs")) -> None:
    """Examine this machine, and what is installed on it.

    Shows versions, accelerators, bf16, the hub's cache, disk and extras. The exit code is 1 if something
    essential is missing.
    """
    from vtkit.pipeline.doctor import examine

    findings = list(examine(runs))
    if not console.answered(findings):
        width = max(len(each.about) for each in findings)
        for each in findings:
            said = f"{each.state:<5}  {each.about:<{width}}  {console.one_line(each.found)}"
            console.write(said + (f"  ({each.remedy})" if each.remedy else ""))
    if any(each.state == "amiss" for each in findings):
        raise typer.Exit(1)
