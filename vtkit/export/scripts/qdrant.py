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

from encode import HERE, Results, Vector, index_main
from qdrant_client import QdrantClient, models

NAME = "text"
AT_ONCE = 256


def connected() -> QdrantClient:
    """The server, or the folder."""
    if not _clients:
        where = os.environ.get("QDRANT", "http://localhost:6333")
        if "://" in where:
            _clients.append(QdrantClient(url=where, api_key=os.environ.get("QDRANT_API_KEY"), timeout=120))
        else:
            _clients.append(QdrantClient(path=where))
    return _clients[0]


def collection() -> str:
    """The collection's name."""
    name = json.loads((HERE / "settings.json").read_text("utf-8"))["name"]
    return os.environ.get("QDRANT_COLLECTION") or re.sub(r"[^0-9A-Za-z_-]+", "_", name)


def load() -> None:
    """Create the collection and send points/, file by file."""
    client, name, sent = connected(), collection(), 0
    if client.collection_exists(name):
        sys.exit(f"there is a collection {name} already: drop it, or name another with QDRANT_COLLECTION")
    client.create_collection(name, vectors_config={}, sparse_vectors_config={NAME: models.SparseVectorParams()})
    for path in sorted((HERE / "points").glob("part-*.json")):
        points = json.loads(path.read_text("utf-8"))["points"]
        for start in range(0, len(points), AT_ONCE):
            client.upsert(name, [models.PointStruct(**point) for point in points[start : start + AT_ONCE]], wait=True)
        sent += len(points)
    print(f"{sent:,} documents")


def search(vector: Vector, top: int) -> Results:
    """The first documents of a query."""
    if not vector:
        return []
    query = models.SparseVector(indices=list(vector), values=list(vector.values()))
    found = connected().query_points(collection(), query=query, using=NAME, limit=top, with_payload=["id"])
    return [(point.payload["id"], point.score) for point in found.points if point.payload]


_clients: list[QdrantClient] = []
atexit.register(lambda: [client.close() for client in _clients])

if __name__ == "__main__":
    index_main(load, search)
