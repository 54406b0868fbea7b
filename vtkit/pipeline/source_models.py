"""The folders of models that a recipe names, looked through before its first stage: a teacher, or the model of the
bias, would otherwise be found damaged by the stage that opens it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vtkit.encoder.model_folder import check_model
from vtkit.recipe.load import required_things
from vtkit.recipe.problems import plain
from vtkit.settings.named import local_path
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import DataError

CHECKED_ELSEWHERE = ("source.model", "transfer.semantic.target_embeddings")
"""The source is the first that a run opens; target embeddings may be a table without a model around it."""


def check_models(recipe: Recipe, *, path: Path, places: Mapping[str, str] | None = None) -> None:
    """Refuse folders of models that are damaged, hold pickles, or would run code.

    Args:
        path: the recipe's file, for the message.
        places: where each setting was written, for the message.

    Raises:
        DataError: everything that is wrong with any of them.
    """
    lines = []
    for thing in required_things(recipe):
        folder = local_path(thing.value)
        if thing.what != "model" or thing.setting in CHECKED_ELSEWHERE or folder is None:
            continue
        try:
            check_model(Path(folder), f"{thing.setting}: {folder}")
        except DataError as error:
            place = (places or {}).get(thing.setting, "")
            lines.append(f"  {f'{place}  ' if place else ''}{error}")
    if lines:
        raise DataError("\n".join([f"{plain(str(path))} names models that cannot be used:", *dict.fromkeys(lines)]))
