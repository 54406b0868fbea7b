"""The documents in Elasticsearch, at the address of ELASTICSEARCH (http://localhost:9200).

pip install onnxruntime tokenizers numpy

python index.py load [--replace], python index.py search "a query", python index.py replay
python index.py hybrid "a query" adds BM25.
"""

from __future__ import annotations

from typing import Any

from encode import HERE, Results, Vector, index_main, opened
from rest import DEEP, Server, filtered, grouped, hits, index_name, load_bulk

SERVER = Server("ELASTICSEARCH", "http://localhost:9200", "ELASTICSEARCH_API_KEY")


def load() -> None:
    """Create the index and send bulk/, file by file; a load that was broken off goes on."""
    load_bulk(SERVER, index_name(), opened(HERE / "mapping.json"))


def clause_of(vector: Vector) -> dict[str, Any]:
    """The query of a vector."""
    called = opened(HERE / "dimensions.json")
    tokens = {called[number]: weight for number, weight in vector.items()}
    return {"sparse_vector": {"field": "weights", "query_vector": tokens, "prune": False}}


def query(vector: Vector, top: int) -> dict[str, Any]:
    """The body of a search."""
    body: dict[str, Any] = grouped({"query": filtered(clause_of(vector)), "size": top, "_source": ["id"]})
    return body


def search(vector: Vector, top: int) -> Results:
    """The first documents of a query."""
    return hits(SERVER, index_name(), query(vector, top))


def hybrid_query(text: str, vector: Vector, top: int) -> dict[str, Any]:
    """The body that adds the encoder's score and BM25's, each scaled to 0 to 1 within the query."""
    clauses = {"encoder": clause_of(vector), "bm25": {"match": {"contents": text}}}
    retrievers = [
        {"retriever": {"standard": {"query": filtered(clauses[name])}}, "weight": weight, "normalizer": "minmax"}
        for name, weight in opened(HERE / "hybrid.json").items()
    ]
    linear = {"retrievers": retrievers, "rank_window_size": DEEP}
    body: dict[str, Any] = grouped({"retriever": {"linear": linear}, "size": top, "_source": ["id"]})
    return body


def hybrid(text: str, vector: Vector, top: int) -> Results:
    """The first documents by that sum."""
    return hits(SERVER, index_name(), hybrid_query(text, vector, top))


if __name__ == "__main__":
    beside = hybrid if (HERE / "hybrid.json").is_file() else None
    index_main(load, search, 5e-3, beside)  # weights have 9 significant bits there
