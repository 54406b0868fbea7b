"""Target ``qdrant``: a collection of sparse vectors, files of points that are requests, and FastEmbed's folder layout.
Weights are complete, so Qdrant's own IDF (``modifier: idf``) stays off."""

import json
from pathlib import Path
from typing import Any

from vtkit.deploy.documents import Collection, Entry, json_line
from vtkit.deploy.portable import Source
from vtkit.deploy.readme import Facts

VECTOR = "text"  # name of the sparse vector


def write(source: Source, collection: Collection | None, folder: Path) -> Facts:
    """Write ``collection.json`` and ``points/part-00000.json`` and so on, each a request body."""
    if collection is not None:
        body: dict[str, Any] = {"sparse_vectors": {VECTOR: {}}}
        (folder / "collection.json").write_text(json.dumps(body, indent=1), encoding="utf-8")
        collection.write(folder / "points", "part-{}.json", _point, ('{"points":[\n', ",", "]}\n"))
    return {}


def _point(entry: Entry) -> str:
    point = {
        "id": entry.number,
        "vector": {VECTOR: {"indices": entry.dimensions.tolist(), "values": entry.weights.tolist()}},
        "payload": entry.document,
    }
    return json_line(point)
