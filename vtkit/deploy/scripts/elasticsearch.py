"""The documents in Elasticsearch, at the address of ELASTICSEARCH (http://localhost:9200).

pip install onnxruntime tokenizers numpy

python index.py load [--replace], python index.py search "a query", python index.py replay
"""

from __future__ import annotations

from typing import Any

from encode import HERE, Results, Vector, index_main, opened
from rest import Server, filtered, grouped, hits, index_name, load_bulk

SERVER = Server("ELASTICSEARCH", "http://localhost:9200", "ELASTICSEARCH_API_KEY")


def load() -> None:
    """Create the index and send bulk/, file by file; a load that was broken off goes on."""
    load_bulk(SERVER, index_name(), opened(HERE / "mapping.json"))


def query(vector: Vector, top: int) -> dict[str, Any]:
    """The body of a search."""
    called = opened(HERE / "dimensions.json")
    tokens = {called[number]: weight for number, weight in vector.items()}
    clause = {"sparse_vector": {"field": "weights", "query_vector": tokens, "prune": False}}
    body: dict[str, Any] = grouped({"query": filtered(clause), "size": top, "_source": ["id"]})
    return body


def search(vector: Vector, top: int) -> Results:
    """The first documents of a query."""
    return hits(SERVER, index_name(), query(vector, top))


if __name__ == "__main__":
    index_main(load, search, close=5e-3)  # weights have 9 significant bits there
