"""Fields of documents in the words of each engine: their names, an example of a condition, and how it is given."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from datetime import UTC
from typing import Any

from vtkit.deploy.result import Target
from vtkit.search.fields import moment
from vtkit.search.index_info import Kind

NO_NAME = re.compile(r"^(?=\d)|\W", re.ASCII)  # what a name in a program cannot have, a digit in front included
LONGEST = 60  # bytes of a name

ORDERED: tuple[Kind, ...] = ("integer", "number", "date", "datetime")
_EXAMPLES: tuple[Kind, ...] = ("integer", "number", "text", "words", "boolean", "date", "datetime")


def engine_names(fields: Mapping[str, Kind], refused: re.Pattern[str], taken: set[str]) -> dict[str, str]:
    """An engine's name of each field: ``_`` for every ``refused`` character, and a number behind names that are
    ``taken``, whatever their case."""
    names: dict[str, str] = {}
    used = {name.lower() for name in taken}
    for field in fields:
        name = base = refused.sub("_", field).encode()[:LONGEST].decode(errors="ignore") or "_"
        count = 1
        while name.lower() in used:
            count += 1
            name = f"{base}_{count}"
        used.add(name.lower())
        names[field] = name
    return names


def example_of(target: Target, columns: Mapping[str, Kind], document: Mapping[str, Any]) -> str | None:
    """The environment variable FILTER of ``index.py``, as a shell reads it, with a condition that ``document``, some
    document's fields by the engine's names, meets; None if it has none."""
    if not document:
        return None
    name = min(document, key=lambda name: _EXAMPLES.index(columns[name]))
    kind, value = columns[name], document[name]
    form = "ordered" if kind in ORDERED else kind
    value = value[0] if kind == "words" and value else value
    shown, quoted = json.dumps(value, ensure_ascii=False), "'" + str(value).replace("'", "''") + "'"
    condition: Any = None
    match target, form:
        case "elasticsearch" | "opensearch", _:
            test, wanted = ("range", {"gte": value}) if form == "ordered" else ("term", value)
            condition = {test: {f"fields.{name}": wanted}}
        case "qdrant", _:
            test, wanted = ("range", {"gte": value}) if form == "ordered" else ("match", {"value": value})
            condition = {"must": [{"key": qdrant_path(name), test: wanted}]}
        case "postgres", "ordered":
            condition = f'"{name}" >= {quoted}'
        case "postgres", "words":
            condition = f'{quoted} = ANY("{name}")'
        case "postgres", _:
            condition = f'"{name}" = {quoted}'
        case "vespa", "ordered" if kind in ("date", "datetime"):  # which are seconds since 1970 there
            condition = f"{name} >= {int(moment(value).replace(tzinfo=UTC).timestamp())}"
        case "vespa" | "milvus", "ordered":
            condition = f"{name} >= {shown}"
        case "milvus", "words":
            condition = f"array_contains({name}, {shown})"
        case "milvus", _:
            condition = f"{name} == {shown}"
        case "vespa", _:
            condition = f"{name} {'=' if kind == 'boolean' else 'contains'} {shown}"
    written = condition if isinstance(condition, str) else json.dumps(condition, ensure_ascii=False)
    return None if condition is None else f"FILTER={shlex.quote(written)}"


def qdrant_path(name: str) -> str:
    """The path of a field in Qdrant's payloads; names with other than ASCII letters and digits stand in quotes."""
    return f"fields.{name}" if re.fullmatch(r"[\w-]+", name, re.ASCII) else f'fields."{name}"'
