"""A server on localhost that answers a handful of requests as OpenSearch does, for tests of the engine of that name.

No OpenSearch can be installed from pip. What is answered follows its REST API: index creation with a strict mapping,
bulk, refresh, count, msearch of ``neural_sparse`` and ``rank_feature`` queries, and errors in OpenSearch's form.
Features keep 9 significant bits, cut off, as Lucene's FeatureField stores them; names without a mapping, weights of
zero or below and queries of more than 1024 clauses are refused.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

MOST_CLAUSES = 1024


class Refused(Exception):
    def __init__(self, status: int, kind: str, reason: str) -> None:
        self.status, self.kind, self.reason = status, kind, reason


def nine_bits(weight: float) -> float:
    return float((np.float32(weight).view(np.int32) >> 15 << 15).view(np.float32))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_HEAD = do_DELETE = do_GET

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        server: Any = self.server
        path = self.path.partition("?")[0].strip("/")
        server.requests.append((self.command, path, self.headers.get("Authorization")))
        try:
            status, found = server.answer or (200, server_answer(server.indices, self.command, path, body))
        except Refused as error:
            reason = {"type": error.kind, "reason": error.reason}
            status, found = error.status, {"error": {"root_cause": [reason], **reason}, "status": error.status}
        content = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def server_answer(indices: dict[str, Any], method: str, path: str, body: bytes) -> Any:
    match method, path.split("/"):
        case "GET", [""]:
            return {"name": "test", "version": {"distribution": "opensearch", "number": "3.1.0"}, "tagline": ""}
        case "HEAD", [name]:
            if name not in indices:
                raise Refused(404, "index_not_found_exception", f"no such index [{name}]")
            return {}
        case "PUT", [name]:
            if name in indices:
                raise Refused(400, "resource_already_exists_exception", f"index [{name}] already exists")
            mappings = json.loads(body)["mappings"]
            assert mappings["properties"] == {"weights": {"type": "rank_features"}}
            indices[name] = {"documents": {}, "visible": {}}
            return {"acknowledged": True, "shards_acknowledged": True, "index": name}
        case "DELETE", [name]:
            indices.pop(name, None)
            return {"acknowledged": True}
        case "POST" | "PUT", [name, "_bulk"]:
            return bulk(indices[name]["documents"], body)
        case "POST" | "GET", [name, "_refresh"]:
            indices[name]["visible"] = dict(indices[name]["documents"])
            return {"_shards": {"total": 1, "successful": 1, "failed": 0}}
        case "POST" | "GET", [name, "_count"]:
            return {"count": len(indices[name]["visible"]), "_shards": {"total": 1, "successful": 1, "failed": 0}}
        case "POST" | "GET", [name, "_msearch"]:
            lines = [json.loads(line) for line in body.splitlines()]
            return {"took": 1, "responses": [one(indices[name]["visible"], query) for query in lines[1::2]]}
    raise Refused(400, "illegal_argument_exception", f"no handler for [{method}] {path}")


def bulk(documents: dict[str, dict[str, float]], body: bytes) -> Any:
    assert body.endswith(b"\n")
    lines, items = [json.loads(line) for line in body.splitlines()], []
    for action, source in zip(lines[::2], lines[1::2], strict=True):
        identity = action["index"]["_id"]
        if set(source) != {"weights"} or any(weight <= 0 for weight in source["weights"].values()):
            error = {"type": "mapper_parsing_exception", "reason": "strictly positive values only"}
            items.append({"index": {"_id": identity, "status": 400, "error": error}})
            continue
        documents[identity] = {name: nine_bits(weight) for name, weight in source["weights"].items()}
        items.append({"index": {"_id": identity, "status": 201, "result": "created"}})
    return {"took": 1, "errors": any("error" in item["index"] for item in items), "items": items}


def one(documents: dict[str, dict[str, float]], request: Any) -> Any:
    query = request["query"]
    if "neural_sparse" in query:
        asked = query["neural_sparse"]["weights"]["query_tokens"]
    else:
        asked = {
            clause["rank_feature"]["field"].removeprefix("weights."): clause["rank_feature"]["boost"]
            for clause in query["bool"]["should"]
            if clause["rank_feature"]["linear"] == {}
        }
    if len(asked) > MOST_CLAUSES:
        reason = {"type": "too_many_clauses", "reason": f"maxClauseCount is set to {MOST_CLAUSES}"}
        return {"error": {"root_cause": [reason], **reason}, "status": 400}
    scores = {
        identity: np.float32(sum(weight * features[name] for name, weight in asked.items() if name in features))
        for identity, features in documents.items()
    }
    best = sorted(((-score, int(identity)) for identity, score in scores.items() if score > 0))[: request["size"]]
    hits = [{"_index": "i", "_id": str(number), "_score": float(-score)} for score, number in best]
    return {
        "took": 1, "timed_out": False, "status": 200, "_shards": {"total": 1, "successful": 1, "failed": 0},
        "hits": {"max_score": hits[0]["_score"] if hits else None, "hits": hits},
    }  # fmt: skip


@contextmanager
def opensearch_server(answer: tuple[int, Any] | None = None) -> Iterator[Any]:
    """The address of a server; with ``answer``, a status and a body, of one that says nothing else."""
    with running(answer) as server:
        yield server.url


@contextmanager
def running(answer: tuple[int, Any] | None = None) -> Iterator[Any]:
    """The server itself: ``url``, ``requests`` (method, path, authorization) and ``indices``."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.indices, server.requests, server.answer = {}, [], answer
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
