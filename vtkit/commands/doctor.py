"""``vtkit doctor``: versions, devices and extras of this machine, and what is missing."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from vtkit.commands.options import JsonOption, RunsOption, option
from vtkit.system import console


def doctor(
    runs: RunsOption = Path("runs"),
    download: Annotated[
        bool, option("Also check whether the Hugging Face hub answers. Nothing is fetched.", None, "--download")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Examine this machine, and what is installed on it.

    Shows versions, accelerators, bf16, the hub's cache, disk and extras. The exit code is 1 if something
    essential is missing.
    """
    from vtkit.pipeline.doctor import examine

    findings = examine(runs, ask_hub=download)
    if as_json:
        console.write_json([asdict(each) for each in findings])
    else:
        width = max(len(each.about) for each in findings)
        for each in findings:
            said = f"{each.state:<5}  {each.about:<{width}}  {console.one_line(each.found)}"
            console.write(said + (f"  ({each.remedy})" if each.remedy else ""))
    if any(each.state == "amiss" for each in findings):
        raise typer.Exit(1)
