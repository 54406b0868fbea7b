"""The documents in OpenSearch, at the address of OPENSEARCH (http://localhost:9200).

pip install onnxruntime tokenizers numpy

python index.py load [--replace], python index.py search "a query", python index.py replay
SEISMIC=1 before it: approximately. python index.py hybrid "a query" adds BM25.
python index.py models registers and deploys the models, and makes the pipelines.
"""

from __future__ import annotations

import os
import sys
import time
from functools import cache
from typing import Any

from encode import HERE, Results, Vector, index_main, largest, opened
from rest import DEEP, Server, filtered, grouped, hits, index_name, load_bulk

CHUNK = 10_000_000
LARGEST, MOST = 64.0, 1024
WIDENED, MOST_ROWS = 4, 10_000  # SEISMIC collects so many times as many passages while they are of too few documents
SEISMIC = bool(os.environ.get("SEISMIC"))
SERVER = Server("OPENSEARCH", "http://localhost:9200")
INDEX: str = index_name("-seismic" if SEISMIC else "")
MAPPING = "mapping-seismic.json" if SEISMIC else "mapping.json"


def load() -> None:
    """Create the index and send bulk/, file by file; a load that was broken off goes on."""
    load_bulk(SERVER, INDEX, opened(HERE / MAPPING), renumbered if SEISMIC else None)


@cache
def places() -> dict[str, str]:
    """SEISMIC's name of each dimension that is used."""
    numbers = opened(HERE / "seismic.json")
    return {name: str(numbers[str(n)]) for n, name in enumerate(opened(HERE / "dimensions.json")) if str(n) in numbers}


def renumbered(document: dict[str, Any]) -> dict[str, Any]:
    """A document whose dimensions are called as seismic.json says."""
    return {**document, "weights": {places()[name]: weight for name, weight in document["weights"].items()}}


def query(vector: Vector, top: int, rows: int | None = None) -> tuple[dict[str, Any], float]:
    """The body of a search, and what its scores are to be multiplied by; SEISMIC collects ``rows`` of the index."""
    called = opened(HERE / "dimensions.json")
    most = LARGEST
    if SEISMIC:
        vector = {number: weight for number, weight in vector.items() if called[number] in places()}
        limits = opened(HERE / MAPPING)["mappings"]["properties"]["weights"]["method"]["parameters"]
        most = min(LARGEST, limits["quantization_ceiling_search"])
    vector = largest(vector, MOST)
    scale = max(vector.values(), default=0.0) / most
    if not SEISMIC:  # which rounds weights to steps of its ceiling: the largest one uses them all
        scale = max(scale, 1.0)
    tokens = {called[number]: weight / scale for number, weight in vector.items()}
    field: dict[str, Any] = {"query_tokens": tokens}
    if SEISMIC:
        field["query_tokens"] = {places()[name]: weight for name, weight in tokens.items()}
        field["method_parameters"] = {"k": rows or top, "top_n": max(len(tokens), 1), "heap_factor": 2}
    return grouped({"query": {"neural_sparse": {"weights": field}}, "size": top, "_source": ["id"]}), scale


def search(vector: Vector, top: int) -> Results:
    """The first documents of a query."""
    body, scale = query(vector, top)
    if not body["query"]["neural_sparse"]["weights"]["query_tokens"]:
        return []
    body["query"] = filtered(body["query"])
    found, rows = hits(SERVER, INDEX, body), top
    while SEISMIC and opened(HERE / "settings.json")["passages"] and len(found) < top and rows < MOST_ROWS:
        rows = min(WIDENED * rows, MOST_ROWS)
        body["query"] = filtered(query(vector, top, rows)[0]["query"])
        found = hits(SERVER, INDEX, body)
    return [(identity, score * scale) for identity, score in found]


def hybrid(text: str, vector: Vector, top: int) -> Results:
    """The first documents by the sum of the encoder's score and BM25's, each scaled to 0 to 1 within the query."""
    body, _ = query(vector, top)
    queries = [filtered(clause) for clause in (body["query"], {"match": {"contents": text}})]
    body["query"] = {"hybrid": {"queries": queries, "pagination_depth": DEEP}}
    return hits(SERVER, INDEX, {**body, "search_pipeline": opened(HERE / "hybrid.json")})


def models() -> None:
    """Register and deploy encoder.zip and queries.zip, and make the pipelines called as the index."""
    document = registered("encoder")
    asked = registered("queries") if (HERE / "queries.zip").is_file() else document
    pipelines(document, asked)
    print(f"documents: {document}, queries: {asked}; pipelines {INDEX}")


def pipelines(document: str, asked: str) -> None:
    """Make the pipelines by the ids of the models: documents are encoded as here, title and text in one."""
    join = "ctx.contents = ((ctx.title ?: '') + ' ' + (ctx.text ?: '')).trim()"
    processors = [
        {"script": {"source": join}},
        {"sparse_encoding": {"model_id": document, "field_map": {"contents": "weights"}}},
        {"remove": {"field": "contents"}},
    ]
    SERVER("PUT", f"_ingest/pipeline/{INDEX}", {"processors": processors})
    enricher = {"neural_query_enricher": {"default_model_id": asked}}
    SERVER("PUT", f"_search/pipeline/{INDEX}", {"request_processors": [enricher]})


def registered(name: str) -> str:
    """The id of a model, deployed."""
    meta = opened(HERE / f"{name}.json")
    content = (HERE / f"{name}.zip").read_bytes()
    model = str(SERVER("POST", "_plugins/_ml/models/_register_meta", meta)["model_id"])
    for number, start in enumerate(range(0, len(content), CHUNK)):
        SERVER("POST", f"_plugins/_ml/models/{model}/upload_chunk/{number}", content[start : start + CHUNK])
    task = SERVER("POST", f"_plugins/_ml/models/{model}/_deploy")["task_id"]
    while (state := SERVER("GET", f"_plugins/_ml/tasks/{task}"))["state"] in ("CREATED", "RUNNING"):
        time.sleep(1)
    if state["state"] != "COMPLETED":
        sys.exit(f"{name}: {state['state']} {state.get('error', '')}")
    return model


if __name__ == "__main__":
    if sys.argv[1:] == ["models"]:
        models()
    else:
        beside = hybrid if (HERE / "hybrid.json").is_file() else None
        index_main(load, search, 2e-2 if SEISMIC else 5e-3, beside)  # weights have 9 significant bits, or 256 steps
