"""Target ``milvus``: files of rows for Milvus' import, for Milvus Lite, a server or a cluster."""

from pathlib import Path

from vtkit.deploy.documents import Collection, Entry, json_line
from vtkit.deploy.portable import Source
from vtkit.deploy.readme import Facts


def write(source: Source, collection: Collection | None, folder: Path) -> Facts:
    """Write ``rows/part-00000.json`` and so on, each a list of rows."""
    if collection is not None:
        collection.write(folder / "rows", "part-{}.json", _row, ("[\n", ",", "]\n"))
    return {}


def _row(entry: Entry) -> str:
    return json_line({"number": entry.number, **entry.document, "weights": entry.vector()})
