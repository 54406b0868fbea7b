"""A server of OpenSearch beside vtkit's indexes in process, over the same vectors.

    python tests/benchmarks/opensearch.py URL [--documents N] [--only NAME ...]

Vectors are those of ``engines.py``: 112 weights a document, 29 a query, 30,000 terms. ``neural_sparse`` is the engine
as vtkit sends and asks it; ``rank_feature`` asks the same index by a clause for each term; ``sparse_vector`` is SEISMIC
above its threshold, asked as an export asks; ``match`` is BM25 over the terms as words, five a query. On the server,
one shard and no replica, merged into one segment.

A line a form: seconds to index, and with the merge, milliseconds of 500 queries asked one by one (p50, p99) and of one
in a call with all, the time that the server itself counts (``took``), overlap of the first ten with exact search, MiB
on disk. The last lines are the server's memory and one object of JSON.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import opensearchpy
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engines import overlap, zipf_vectors
from measuring import options

from vtkit.search import opensearch
from vtkit.search.engine import build_index
from vtkit.search.exact import ExactIndex
from vtkit.settings.index import IndexSection
from vtkit.system.runtime import want_threads

DEPTH = 10


def rank_feature(query: sp.csr_matrix) -> dict[str, Any]:
    clauses = [
        {"rank_feature": {"field": f"weights.{name}", "boost": weight, "linear": {}}}
        for name, weight in opensearch._features(query, 0).items()
    ]
    return {"query": {"bool": {"should": clauses}}, "sort": opensearch._ORDER}


def sparse_vector(query: sp.csr_matrix) -> dict[str, Any]:
    tokens = {str(term): weight for term, weight in zip(query.indices.tolist(), query.data.tolist(), strict=True)}
    method = {"k": DEPTH, "top_n": len(tokens), "heap_factor": 2}
    return {"query": {"neural_sparse": {"weights": {"query_tokens": tokens, "method_parameters": method}}}}


def match(query: sp.csr_matrix) -> dict[str, Any]:
    largest = query.indices[np.argsort(-query.data, kind="stable")[:5]]
    return {"query": {"match": {"text": " ".join(f"t{term}" for term in largest)}}}


def documents_for(form: str, documents: sp.csr_matrix) -> Iterator[dict[str, Any]]:
    for row in range(documents.shape[0]):
        features = opensearch._features(documents, row)
        if form == "match":
            yield {"_id": row, "text": " ".join(features)}
        else:
            yield {"_id": row, "weights": {name[1:]: weight for name, weight in features.items()}}


def send(client: Any, form: str, documents: sp.csr_matrix) -> str:
    """An index for ``form``."""
    name = f"benchmark-{form.replace('_', '-')}"
    limits = {"quantization_ceiling_ingest": float(documents.data.max()), "quantization_ceiling_search": 8.0}
    field: dict[str, Any] = {"weights": {"type": "sparse_vector", "method": {"name": "seismic", "parameters": limits}}}
    limits["approximate_threshold"] = documents.shape[0] // 2  # so that clusters are made by the merge alone
    settings = {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "-1"}
    if form == "match":
        field = {"text": {"type": "text"}}
    else:
        settings["sparse"] = True
    body = {"settings": {"index": settings}, "mappings": {"_source": {"enabled": False}, "properties": field}}
    client.indices.delete(index=name, ignore_unavailable=True)
    client.indices.create(index=name, body=body)
    opensearchpy.helpers.bulk(client, documents_for(form, documents), index=name, max_chunk_bytes=4_000_000)
    client.indices.refresh(index=name)
    return name


def timed(ask: Callable[[int], Any], count: int) -> tuple[float, float]:
    """Median and 99th percentile of milliseconds."""
    for number in range(0, count, 5):
        ask(number)
    times = []
    for number in range(count):
        start = time.perf_counter()
        ask(number)
        times.append((time.perf_counter() - start) * 1e3)
    return float(np.percentile(times, 50)), float(np.percentile(times, 99))


def main() -> None:
    parser = options(__doc__, documents=40_000)
    parser.add_argument("url")
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    want_threads(1)
    documents, queries = zipf_vectors(arguments.documents, 112, 1), zipf_vectors(500, 29, 2)
    client = opensearchpy.OpenSearch(arguments.url, timeout=600)
    exact = ExactIndex.build(documents).search(queries, DEPTH)[0]
    rows: list[dict[str, Any]] = []
    name = ""
    with tempfile.TemporaryDirectory() as folder:
        for form in ("exact", "seismic", "neural_sparse", "rank_feature", "sparse_vector", "match"):
            if arguments.only and form not in arguments.only:
                continue
            row: dict[str, Any] = {"form": form}
            start = time.perf_counter()
            if form in ("exact", "seismic", "neural_sparse"):
                engine = "opensearch" if form == "neural_sparse" else form
                settings = {"url": arguments.url, "replicas": 0} if engine == "opensearch" else {}
                index = build_index(IndexSection(engine=engine, **settings), documents, Path(folder) / form)
                row["indexing_s"] = time.perf_counter() - start
                if engine == "opensearch":
                    record = Path(folder) / form / "opensearch" / "opensearch.json"
                    name = json.loads(record.read_text("utf-8"))["index"]
                    client.indices.forcemerge(index=name, max_num_segments=1)
                found = index.search(queries, DEPTH)[0]
                start = time.perf_counter()
                index.search(queries, DEPTH)
                row["batch_ms"] = (time.perf_counter() - start) * 1e3 / 500
                row["p50_ms"], row["p99_ms"] = timed(lambda n, of=index: of.search(queries[n], DEPTH), 500)
                files = [path for path in (Path(folder) / form).rglob("*") if path.is_file()]
                row["mib"] = sum(path.stat().st_size for path in files) / 2**20
            else:
                make = {"rank_feature": rank_feature, "sparse_vector": sparse_vector, "match": match}[form]
                if form != "rank_feature":
                    name = send(client, form, documents)
                    row["indexing_s"] = time.perf_counter() - start
                    client.indices.forcemerge(index=name, max_num_segments=1)
                    row["with_merge_s"] = time.perf_counter() - start
                bodies = [
                    make(queries[n]) | {"size": DEPTH, "_source": False, "track_total_hits": False} for n in range(500)
                ]
                answers = [client.search(index=name, body=body) for body in bodies]
                found = np.asarray([
                    [int(hit["_id"]) for hit in answer["hits"]["hits"]] + [-1] * (DEPTH - len(answer["hits"]["hits"]))
                    for answer in answers
                ])  # fmt: skip
                row["p50_ms"], row["p99_ms"] = timed(
                    lambda n, of=bodies, at=name: client.search(index=at, body=of[n]), 500
                )
            if form not in ("exact", "seismic"):
                queries_sent = [
                    opensearch._query(opensearch._features(queries, n), DEPTH) if form == "neural_sparse" else bodies[n]
                    for n in range(500)
                ]
                row["took_ms"] = float(np.mean([client.search(index=name, body=q)["took"] for q in queries_sent]))
                row["mib"] = client.indices.stats(index=name)["_all"]["total"]["store"]["size_in_bytes"] / 2**20
            if form != "match":
                row["overlap"] = overlap(found, exact)
            rows.append(row)
            print(
                "  ".join(
                    f"{key} {value:.4g}" if isinstance(value, float) else str(value) for key, value in row.items()
                )
            )
    (node,) = client.nodes.info(node_id="_local")["nodes"].values()
    status = Path(f"/proc/{node['process']['id']}/status")
    memory = next(int(line.split()[1]) / 2**10 for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    print(f"the server's memory: {memory:.0f} MiB resident")
    print(
        json.dumps({"documents": arguments.documents, "version": node["version"], "resident_mib": memory, "rows": rows})
    )


if __name__ == "__main__":
    main()
