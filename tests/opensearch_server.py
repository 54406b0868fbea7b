"""A server on localhost that answers a handful of requests as OpenSearch does, for tests of the engine of that name.

A real one is in ``tests/servers``, where there is one; this one is there for every developer. What is answered follows
its REST API: index creation with a strict mapping, bulk, refresh, count, a document by itself, and msearch of
``neural_sparse`` queries, and errors in OpenSearch's form. Features keep 9
significant bits, cut off, as Lucene's FeatureField stores them; names without a mapping, weights of zero or below,
query weights outside ]0, 64] and queries of more than 1024 clauses are refused.
"""

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
    wbufsize = -1  # head and body in one packet: the second would wait for the first to be acknowledged

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
            asked = (self.command, path, body)
            status, found = server.answer or (200, server_answer(server.indices, *asked))
        except Refused as error:
            reason = {"type": error.kind, "reason": error.reason}
            told = {"root_cause": [reason], **reason} if error.kind else error.reason
            status, found = error.status, {"error": told, "status": error.status}
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
        case "GET", ["_cluster", "health", *_]:
            return {"number_of_data_nodes": 2, "timed_out": False}
        case "HEAD", [name]:
            if name not in indices:
                raise Refused(404, "index_not_found_exception", f"no such index [{name}]")
            return {}
        case "PUT", [name]:
            if name in indices:
                raise Refused(400, "resource_already_exists_exception", f"index [{name}] already exists")
            made = json.loads(body)
            assert made["mappings"]["properties"]["weights"] == {"type": "rank_features"}
            assert set(made["settings"]["index"]) <= {"number_of_shards", "number_of_replicas", "refresh_interval"}
            indices[name] = {"documents": {}, "visible": {}, "builder": None}
            return {"acknowledged": True, "shards_acknowledged": True, "index": name}
        case "PUT", [name, "_settings"]:
            return {"acknowledged": True}
        case "PUT" | "POST" | "GET" | "DELETE", [name, "_create" | "_doc" as kind, _]:
            before = indices[name]["builder"]
            if kind == "_create" and before is not None:
                raise Refused(409, "version_conflict_engine_exception", "document already exists")
            if method == "GET" and before is None:
                raise Refused(404, "", "not found")
            if method != "GET":
                made = {"found": True, "_source": json.loads(body)} if body else None
                indices[name]["builder"] = made and {**made, "_version": 1, "_seq_no": 1, "_primary_term": 1}
            return indices[name]["builder"] or {"result": "deleted"}
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
            return {"took": 1, "responses": [msearched(indices[name]["visible"], query) for query in lines[1::2]]}
    raise Refused(400, "", f"no handler found for uri [/{path}] and method [{method}]")


# indexes


def bulk(documents: dict[str, dict[str, float]], body: bytes) -> Any:
    assert body.endswith(b"\n")
    lines, items = [json.loads(line) for line in body.splitlines()], []
    for action, source in zip(lines[::2], lines[1::2], strict=True):
        identity = action["index"]["_id"]
        if set(source) - {"document"} != {"number", "weights"} or any(
            weight <= 0 for weight in source["weights"].values()
        ):
            error = {"type": "mapper_parsing_exception", "reason": "strictly positive values only"}
            items.append({"index": {"_id": identity, "status": 400, "error": error}})
            continue
        documents[identity] = {name: nine_bits(weight) for name, weight in source["weights"].items()}
        documents[identity]["document"] = source.get("document", identity)  # by which a search may group
        items.append({"index": {"_id": identity, "status": 201, "result": "created"}})
    return {"took": 1, "errors": any("error" in item["index"] for item in items), "items": items}


def msearched(documents: dict[str, dict[str, float]], request: Any) -> Any:
    try:
        return one(documents, request)
    except Refused as error:
        reason = {"type": error.kind, "reason": error.reason}
        return {"error": {"root_cause": [reason], **reason}, "status": error.status}


def one(documents: dict[str, dict[str, float]], request: Any) -> Any:
    (asking,) = request["query"]["neural_sparse"].values()
    asked = asking["query_tokens"]
    for weight in asked.values():
        if not 0 < weight <= 64:
            raise Refused(400, "illegal_argument_exception", f"weight must be in (0, 64.0], got: {weight}")
    if len(asked) > MOST_CLAUSES:
        raise Refused(400, "too_many_clauses", f"maxClauseCount is set to {MOST_CLAUSES}")
    scores = scored(documents, asked)
    best = sorted(scores, key=lambda identity: (-scores[identity], int(identity)))
    if "collapse" in request:
        assert request["collapse"] == {"field": "document"}
        groups = [documents[identity]["document"] for identity in best]
        best = [identity for place, identity in enumerate(best) if groups.index(groups[place]) == place]
    best = best[: request["size"]]
    assert request["sort"] == [{"_score": "desc"}, {"number": "asc"}]
    if request["size"] > 10_000:
        raise Refused(400, "illegal_argument_exception", "Result window is too large")
    hits = [
        {"_index": "i", "_score": float(scores[identity]), "sort": [float(scores[identity]), int(identity)]}
        for identity in best
    ]
    return {
        "took": 1, "timed_out": False, "status": 200, "_shards": {"total": 1, "successful": 1, "failed": 0},
        "hits": {"max_score": hits[0]["_score"] if hits else None, "hits": hits},
    }  # fmt: skip


def scored(documents: dict[str, dict[str, float]], asked: dict[str, float]) -> dict[str, np.float32]:
    found = {
        identity: np.float32(sum(weight * features[name] for name, weight in asked.items() if name in features))
        for identity, features in documents.items()
    }
    return {identity: score for identity, score in found.items() if score > 0}


@contextmanager
def opensearch_server(answer: tuple[int, Any] | None = None) -> Iterator[Any]:
    """The address of a server; with ``answer``, a status and a body, of one that says nothing else."""
    with running(answer) as server:
        yield server.url


@contextmanager
def running(answer: tuple[int, Any] | None = None) -> Iterator[Any]:
    """The server itself: ``url``, ``requests`` (method, path, authorization) and ``indices``."""
    with serving(Handler) as server:
        server.indices, server.requests, server.answer = {}, [], answer
        yield server


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[Any]:
    """A server on loopback that answers as ``handler`` does while the block runs, and its ``url``."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
