"""Target ``milvus``: files of rows for Milvus' import, for Milvus Lite, a server or a cluster."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vtkit.deploy.documents import Collection, Entry, json_line
from vtkit.deploy.portable import Source
from vtkit.deploy.target import ORDERED, Facts, Target
from vtkit.search.index_info import Kind


def write(source: Source, collection: Collection | None, folder: Path) -> Facts:
    """Write ``rows/part-00000.json`` and so on, each a list of rows."""
    if collection is not None:
        columns = list(collection.columns)
        collection.write(folder / "rows", "part-{}.json", lambda entry: _row(entry, columns), ("[\n", ",", "]\n"))
    return {}


def _row(entry: Entry, columns: Sequence[str]) -> str:
    texts = {name: entry.document[name] for name in ("id", "title", "text")}
    fields = {name: entry.document["fields"].get(name) for name in columns}
    return json_line({"number": entry.number, **texts, "weights": entry.vector(), **fields})


def _expression(name: str, kind: Kind, value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    if kind == "words":
        return f"array_contains({name}, {shown})"
    return f"{name} {'>=' if kind in ORDERED else '=='} {shown}"


TARGET = Target(
    name="milvus", write=write, condition=_expression, own_names=("number", "id", "title", "text", "weights")
)
