"""The documents in Vespa, at the address of VESPA (http://localhost:8080), fed with `vespa feed`.

pip install onnxruntime tokenizers numpy

python index.py search "a query", python index.py replay
"""

from __future__ import annotations

import os
import sys
from typing import Any

from encode import HERE, Results, Vector, index_main, opened
from rest import Server

PASSAGES: bool = opened(HERE / "settings.json")["passages"]


def load() -> None:
    """Say how; the feed goes through Vespa's own client."""
    sys.exit("vespa deploy application && for part in feed/*.jsonl; do vespa feed $part; done")


def query(vector: Vector, top: int) -> dict[str, Any]:
    """The body of a search."""
    called = opened(HERE / "dimensions.json")
    yql = f"select id from doc where {os.environ.get('FILTER', 'true')}"
    if PASSAGES:
        best = "each(max(1) each(output(summary(ids))))"
        yql += f" | all(group(document_number) max({top}) precision({100 * top}) order(-max(relevance())) {best})"
    return {
        "yql": yql,
        "ranking": "sparse",
        "hits": 0 if PASSAGES else top,
        "presentation.summary": "ids",
        "input.query(q)": {called[number]: weight for number, weight in vector.items()},
    }


def search(vector: Vector, top: int) -> Results:
    """The first documents of a query."""
    answer = Server("VESPA", "http://localhost:8080")("POST", "search/", query(vector, top))
    hits = answer["root"].get("children", [])
    while hits and "fields" not in hits[0]:  # groups, and lists of them
        hits = [each for group in hits for each in group.get("children", [])]
    return [(hit["fields"]["id"], float(hit["relevance"])) for hit in hits if hit["relevance"] > 0]


if __name__ == "__main__":
    index_main(load, search)
