"""Target ``milvus``: files of rows for Milvus' import, for Milvus Lite, a server or a cluster."""

from collections.abc import Sequence
from pathlib import Path

from vtkit.deploy.documents import Collection, Entry, json_line
from vtkit.deploy.portable import Source
from vtkit.deploy.readme import Facts

OWN_NAMES = ("number", "id", "title", "text", "weights")  # fields that every collection has


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
