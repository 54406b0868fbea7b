"""The tables, settings and values that a recipe may hold, read off the types of its settings."""

import inspect
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from vtkit.settings.recipe import Recipe


def tables_in(annotation: Any) -> list[type[BaseModel]]:
    """The tables that ``annotation`` allows: none for a plain setting, several for a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [table for inner in getattr(annotation, "__args__", ()) for table in tables_in(inner)]


def field_called(name: str, tables: Sequence[type[BaseModel]]) -> FieldInfo | None:
    """The setting ``name`` of the first of ``tables`` that has it."""
    return next((table.model_fields[name] for table in tables if name in table.model_fields), None)


def tags_of(table: type[BaseModel]) -> tuple[Any, ...]:
    """The values of ``kind`` that mean ``table``."""
    return get_args(table.model_fields["kind"].annotation)


def takes_text(annotation: Any) -> bool:
    """Whether ``annotation`` allows free text (not: a list of texts)."""
    if annotation is str:
        return True
    return get_origin(annotation) is not tuple and any(map(takes_text, getattr(annotation, "__args__", ())))


def takes_several(field: FieldInfo) -> bool:
    """Whether a setting is a list."""
    return get_origin(field.annotation) is tuple


def choices(annotation: Any) -> list[str]:
    """The words among which ``annotation`` chooses; none if it is no such choice."""
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    return list(dict.fromkeys(value for inner in getattr(annotation, "__args__", ()) for value in choices(inner)))


def meaning(of: FieldInfo | type[BaseModel]) -> str:
    """The docstring of a setting or a table, without the marks of code."""
    if isinstance(of, FieldInfo):
        tables = tables_in(of.annotation)
        text = of.description or (meaning(tables[0]) if tables else "")
    else:
        text = of.__doc__ or ""
    return inspect.cleandoc(text).replace("``", "`")


def purpose(of: FieldInfo | type[BaseModel]) -> str:
    """The first paragraph of the docstring in one line, without the name of the table in front of it."""
    paragraph = " ".join(meaning(of).split("\n\n")[0].split())
    return re.sub(r"^\[[\w.]+\][^:]*: ", "", paragraph)


@cache
def all_settings(tables: tuple[type[BaseModel], ...] = (Recipe,), above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all settings and inner tables, in the order of the pipeline; the sections themselves are left out."""
    paths = []
    for table in tables:
        for name, field in table.model_fields.items():
            path = (*above, name)
            paths += [path] if above else []
            paths += all_settings(tuple(tables_in(field.annotation)), path)
    return list(dict.fromkeys(paths))
