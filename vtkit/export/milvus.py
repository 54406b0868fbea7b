"""Target ``milvus``: files of rows for Milvus' import, for Milvus Lite, a server or a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.export.documents import Collection, Entry, json_line
from vtkit.export.readme import Section

if TYPE_CHECKING:
    from vtkit.export.portable import Portable, Source


def write_for_milvus(source: Source, portable: Portable, collection: Collection | None, folder: Path) -> list[Section]:
    """Write ``rows/part-00000.json`` and so on, each a list of rows."""
    if collection is None:
        return []
    collection.write(folder / "rows", "part-{}.json", _rows)
    return [Section("First result", _FIRST)]


def _rows(entries: Iterable[Entry]) -> Iterator[str]:
    yield "[\n"
    separator = ""
    for entry in entries:
        row = {"number": entry.number, "id": entry.id, "title": entry.title, "text": entry.text}
        yield separator + json_line(row | {"weights": entry.vector()})
        separator = ","
    yield "]\n"


_FIRST = """
```bash
pip install pymilvus milvus-lite onnxruntime tokenizers numpy
python index.py load                     # into milvus.db here; MILVUS=http://localhost:19530 names a server
python index.py search "a query"
```

`MILVUS_TOKEN` is the server's token. The files of `rows/` are JSON for Milvus' bulk import. The index is
`SPARSE_INVERTED_INDEX` with the metric `IP`, and no weights are dropped (`drop_ratio_build`, `drop_ratio_search`), so
the results are exact. Titles and texts are cut at 65,535 bytes, the size of their fields; vectors are not.
"""
