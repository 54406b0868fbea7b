"""Arguments and options that several commands take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a run, as `vtkit run` printed it.", show_default=False)
]
DownloadOption = Annotated[
    bool, typer.Option("--download", help="Allow models and collections to be fetched from the Hugging Face hub.")
]
SearchedArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="Folder of a run, or of an index that `vtkit index` made.", show_default=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RecipeArgument = Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe, a TOML file.", show_default=False)]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Give a setting another value, e.g. adapt.steps=4000 or 'transfer.parallel.files=[\"a.tsv\"]'; "
        "none drops a setting or a whole section. May be repeated.",
        show_default=False,
    ),
]


def allow_downloads(allowed: bool) -> None:
    """Let this process fetch from the hub, where the user said so."""
    from vtkit.data.hub import DOWNLOAD_VARIABLE

    if allowed:
        os.environ[DOWNLOAD_VARIABLE] = "1"
