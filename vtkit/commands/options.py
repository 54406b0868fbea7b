"""Arguments and options that several commands take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from vtkit.errors import RecipeError
from vtkit.recipe.lines import one_value

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


def section_settings(section: str, given: Sequence[str], example: str) -> dict[str, Any]:
    """What ``--set KEY=VALUE`` gave for one section of a recipe, values read as TOML where they are TOML.

    ``milvus.uri=a`` is ``{"milvus": {"uri": "a"}}``; ``index.milvus.uri=a`` is the same for the section ``index``.

    Raises:
        RecipeError: a setting has no key or no ``=``, or is a value and a table at once.
    """
    found: dict[str, Any] = {}
    for setting in given:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise RecipeError(f"--set {setting}: a setting is written KEY=VALUE, such as {example}.")
        value, is_toml = one_value(text)
        *tables, last = name.removeprefix(f"{section}.").split(".")
        table = found
        for part in tables:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                raise RecipeError(f"--set {setting}: {part} is set to a value before.")
            table = inner
        table[last] = value if is_toml else text
    return found
