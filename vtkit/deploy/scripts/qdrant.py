"""The documents in Qdrant: the server of QDRANT (http://localhost:6333), or a folder of that name.

pip install qdrant-client onnxruntime tokenizers numpy

python index.py load, python index.py search "a query", python index.py replay
"""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
from functools import cache
from typing import Any

from encode import HERE, Results, Vector, index_main, opened
from qdrant_client import QdrantClient, models

NAME = "text"
SETTINGS = opened(HERE / "settings.json")
COLLECTION: str = os.environ.get("QDRANT_COLLECTION") or re.sub(r"[^0-9A-Za-z_-]+", "_", SETTINGS["name"])
AT_ONCE = 256


@cache
def connected() -> QdrantClient:
    """The server, or the folder."""
    where = os.environ.get("QDRANT", "http://localhost:6333")
    server = {"url": where, "api_key": os.environ.get("QDRANT_API_KEY"), "timeout": 120}
    client = QdrantClient(**(server if "://" in where else {"path": where}))
    atexit.register(client.close)
    return client


def load() -> None:
    """Create the collection and send points/, file by file."""
    client, name, sent = connected(), COLLECTION, 0
    if client.collection_exists(name):
        sys.exit(f"there is a collection {name} already: drop it, or name another with QDRANT_COLLECTION")
    client.create_collection(name, vectors_config={}, sparse_vectors_config={NAME: models.SparseVectorParams()})
    for path in sorted((HERE / "points").glob("part-*.json")):
        points = json.loads(path.read_text("utf-8"))["points"]
        for start in range(0, len(points), AT_ONCE):
            client.upsert(name, [models.PointStruct(**point) for point in points[start : start + AT_ONCE]], wait=True)
        sent += len(points)
    if (HERE / "indexes.json").is_file() and "://" in os.environ.get("QDRANT", "://"):  # a folder has no such indexes
        for field, kind in opened(HERE / "indexes.json").items():
            client.create_payload_index(name, field, models.PayloadSchemaType(kind), wait=True)
    print(f"{sent:,} documents")


def search(vector: Vector, top: int) -> Results:
    """The first documents of a query."""
    query = models.SparseVector(indices=list(vector), values=list(vector.values()))
    condition, client = os.environ.get("FILTER"), connected()
    asked: dict[str, Any] = {"query": query, "using": NAME, "limit": top, "with_payload": ["id"]}
    asked["query_filter"] = models.Filter(**json.loads(condition)) if condition else None
    if SETTINGS["passages"]:
        groups = client.query_points_groups(COLLECTION, group_by="fields.document_number", group_size=1, **asked).groups
        points = [group.hits[0] for group in groups]
    else:
        points = client.query_points(COLLECTION, **asked).points
    return [(point.payload["id"], point.score) for point in points if point.payload]


if __name__ == "__main__":
    index_main(load, search)
