"""Settings that an earlier version of vtkit wrote, as far as this one knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

S = TypeVar("S", bound=BaseModel)


def known_settings(
    kind: type[S], recorded: Mapping[str, Any], above: str = "", *, values: bool = False
) -> tuple[S, list[str]]:
    """The section, or the whole recipe, with every setting that this version knows, and the names of the others.

    Args:
        above: what stands before the names, such as ``index.``.
        values: whether settings whose values are refused are passed over too, and have their defaults.

    Raises:
        ValidationError: something that has no default is missing or refused.
    """
    kept = deepcopy(dict(recorded))
    passed_over: list[str] = []
    while True:
        try:
            return kind.model_validate(kept), passed_over
        except ValidationError as error:
            entries = [entry for entry in error.errors(include_url=False) if entry["type"] != "missing"]
            if not values:
                entries = [entry for entry in entries if entry["type"] == "extra_forbidden"]
            removed = [name for entry in entries if (name := _remove(kept, entry["loc"]))]
            if not removed:
                raise
            passed_over += [f"{above}{name}" for name in removed]


def _remove(table: dict[str, Any], location: Sequence[str | int]) -> str:
    """Take the innermost setting at ``location`` out; returns its dotted name, empty where there is none. Parts of the
    location that are no keys name variants of a table, or entries of a list."""
    inside: Any = table
    path: list[str] = []
    around = table
    for part in location:
        if isinstance(inside, dict) and part in inside:
            around, inside = inside, inside[part]
            path.append(str(part))
    if path:
        around.pop(path[-1], None)
    return ".".join(path)
