"""Everything outside a recipe that its settings name: files, folders, models, collections."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from vtkit.settings.types import Names


@dataclass(frozen=True)
class Named:
    """One thing outside the recipe that a setting names."""

    setting: str  # dotted path of the setting, such as `transfer.parallel.files`
    what: str  # kind, as in Names
    value: str  # an absolute path, a hub id, or the name of a public collection


def named_things(section: BaseModel, prefix: str = "") -> Iterator[Named]:
    """Everything outside the recipe that ``section`` names, in the order of the settings."""
    for name, field in type(section).model_fields.items():
        value: Any = getattr(section, name)
        path = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from named_things(value, f"{path}.")
            continue
        mark = None if value is None else find_mark(field.metadata, field.annotation)
        if mark is None:
            continue
        for entry in value if isinstance(value, tuple) else (value,):
            if entry not in mark.words:
                yield Named(path, mark.what, str(entry))


def find_mark(metadata: list[Any], annotation: Any) -> Names | None:
    """The :class:`Names` mark on a field, wherever in ``tuple[Annotated[str, mark], ...] | None`` it stands."""
    for entry in (*metadata, *getattr(annotation, "__metadata__", ())):
        if isinstance(entry, Names):
            return entry
    return next(filter(None, (find_mark([], inner) for inner in getattr(annotation, "__args__", ()))), None)


def local_path(value: str) -> str | None:
    """The path that a named thing lies at (the loader makes every path absolute); None for a name of the hub."""
    path = value.removeprefix("datasets:").partition(":")[0] if value.startswith("datasets:") else value
    folder = path.rpartition(":")[0]
    if folder and not os.path.exists(path) and os.path.isdir(folder):
        path = folder  # FOLDER:CONFIGURATION
    return path if Path(path).is_absolute() else None


def is_local(value: str) -> bool:
    """Whether a named thing is a path rather than a hub name."""
    return local_path(value) is not None
