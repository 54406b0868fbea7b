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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def allow_downloads(allowed: bool) -> None:
    """Let this process fetch from the hub, where the user said so."""
    from vtkit.data.hub import DOWNLOAD_VARIABLE

    if allowed:
        os.environ[DOWNLOAD_VARIABLE] = "1"
