"""A server on localhost that answers a handful of requests as OpenSearch does, for tests of the engine of that name.

No OpenSearch can be installed from pip. What is answered follows its REST API: index creation with a strict mapping,
bulk, refresh, count, search and msearch of ``neural_sparse`` and ``rank_feature`` queries, and errors in OpenSearch's
form. Features keep 9 significant bits, cut off, as Lucene's FeatureField stores them; names without a mapping, weights
of zero or below, query weights outside ]0, 64] and queries of more than 1024 clauses are refused.

Of ML Commons it has tokenizer models: registered in chunks, deployed by a task, searched for by their hash. A deployed
one really tokenizes: as DJL does (special tokens added, cut at 512 tokens at most), each id decoded by itself without
special tokens, its weight looked up in ``idf.json`` and 1 where it is missing. Of neural-search it has the search
processors ``neural_query_enricher`` and ``neural_sparse_two_phase_processor``.
"""

import gzip
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from tokenizers import Tokenizer

MOST_CLAUSES = 1024
MOST_TOKENS = 512
LARGEST_CHUNK = 10_000_000


class Refused(Exception):
    def __init__(self, status: int, kind: str, reason: str) -> None:
        self.status, self.kind, self.reason = status, kind, reason


@dataclass
class Cluster:
    """What the server keeps, and what it can do."""

    indices: dict[str, Any] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    pipelines: dict[str, Any] = field(default_factory=dict)
    has_plugins: bool = True
    local_files: bool = True
    """plugins.ml_commons.allow_registering_model_via_local_file"""
    ml_nodes: bool = True
    two_phase: bool = True
    """Whether it is 2.15 or newer."""
    polls: int = 1
    """How often a task or a model is asked for before it gets on; -1: it never does."""
    deployment_error: str | None = None


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
        path, _, query = self.path.partition("?")
        path = path.strip("/")
        server.requests.append((self.command, path, self.headers.get("Authorization")))
        server.bodies.append((f"{self.command} /{path}" + (f"?{query}" if query else ""), body))
        try:
            asked = (self.command, path, dict(parse_qsl(query)), body)
            status, found = server.answer or (200, server_answer(server.cluster, *asked))
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


def server_answer(cluster: Cluster, method: str, path: str, parameters: dict[str, str], body: bytes) -> Any:
    indices = cluster.indices
    match method, path.split("/"):
        case "GET", [""]:
            return {"name": "test", "version": {"distribution": "opensearch", "number": "3.1.0"}, "tagline": ""}
        case _, ["_plugins", "_ml", *rest] if cluster.has_plugins:
            return ml_answer(cluster, method, rest, body)
        case "PUT", ["_search", "pipeline", name]:
            return put_pipeline(cluster, name, json.loads(body))
        case "HEAD", [name]:
            if name not in indices:
                raise Refused(404, "index_not_found_exception", f"no such index [{name}]")
            return {}
        case "PUT", [name]:
            if name in indices:
                raise Refused(400, "resource_already_exists_exception", f"index [{name}] already exists")
            made = json.loads(body)
            assert made["mappings"]["properties"] == {"weights": {"type": "rank_features"}}
            settings = made["settings"]["index"]
            assert set(settings) <= {"number_of_shards", "refresh_interval", "search.default_pipeline"}
            indices[name] = {"documents": {}, "visible": {}, "pipeline": settings.get("search.default_pipeline")}
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
            if indices[name]["pipeline"] and not body:  # neural_query_enricher visits the query that there is not
                raise Refused(500, "null_pointer_exception", "Cannot invoke QueryBuilder.visit")
            return {"count": len(indices[name]["visible"]), "_shards": {"total": 1, "successful": 1, "failed": 0}}
        case "POST" | "GET", [name, "_search"]:
            pipeline = parameters.get("search_pipeline", indices[name]["pipeline"])
            return one(cluster, indices[name]["visible"], json.loads(body), pipeline)
        case "POST" | "GET", [name, "_msearch"]:
            lines = [json.loads(line) for line in body.splitlines()]
            return {"took": 1, "responses": [msearched(cluster, indices[name], query) for query in lines[1::2]]}
        case "GET", ["_cluster", "settings"]:
            allowed = {"plugins.ml_commons.allow_registering_model_via_local_file": str(cluster.local_files).lower()}
            return {"persistent": {}, "transient": {}, "defaults": {"cluster.name": "test", **allowed}}
    raise Refused(400, "", f"no handler found for uri [/{path}] and method [{method}]")


# indexes


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


def msearched(cluster: Cluster, index: Any, request: Any) -> Any:
    try:
        return one(cluster, index["visible"], request, index["pipeline"])
    except Refused as error:
        reason = {"type": error.kind, "reason": error.reason}
        return {"error": {"root_cause": [reason], **reason}, "status": error.status}


def one(cluster: Cluster, documents: dict[str, dict[str, float]], request: Any, pipeline: str | None) -> Any:
    asked, ratio = wanted(cluster, request["query"], pipeline)
    if len(asked) > MOST_CLAUSES:
        raise Refused(400, "too_many_clauses", f"maxClauseCount is set to {MOST_CLAUSES}")
    limit = ratio * max(asked.values(), default=0.0)
    first = scored(documents, {name: weight for name, weight in asked.items() if weight >= limit})
    best = sorted(first, key=lambda identity: (-first[identity], int(identity)))
    window = best[: request["size"] * 5] if ratio else best
    second = scored(documents, {name: weight for name, weight in asked.items() if weight < limit})
    scores = {identity: np.float32(first[identity] + second.get(identity, 0)) for identity in window}
    best = sorted(scores, key=lambda identity: (-scores[identity], int(identity)))[: request["size"]]
    hits = [{"_index": "i", "_id": identity, "_score": float(scores[identity])} for identity in best]
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


def wanted(cluster: Cluster, query: Any, pipeline: str | None) -> tuple[dict[str, float], float]:
    """The weights of a query, and the share of the largest that splits it in two phases; 0 where it is not split."""
    if "neural_sparse" not in query:
        clauses = [clause["rank_feature"] for clause in query["bool"]["should"]]
        assert all(clause["linear"] == {} for clause in clauses)
        return {clause["field"].removeprefix("weights."): clause["boost"] for clause in clauses}, 0.0
    if not cluster.has_plugins:
        raise Refused(400, "parsing_exception", "unknown query [neural_sparse]")
    (asking,) = query["neural_sparse"].values()
    default, ratio = None, 0.0
    for processor in cluster.pipelines[pipeline]["request_processors"] if pipeline else []:
        default = processor.get("neural_query_enricher", {}).get("default_model_id", default)
        if "neural_sparse_two_phase_processor" in processor:
            ratio = processor["neural_sparse_two_phase_processor"]["two_phase_parameter"]["prune_ratio"]
    if "query_tokens" in asking:
        tokens = asking["query_tokens"]
    else:
        if not asking["query_text"].strip():
            raise Refused(400, "illegal_argument_exception", "query_text and model_id cannot be null")
        tokens = tokenized(cluster, asking.get("model_id", default), asking["query_text"])
    for weight in tokens.values():
        if not 0 < weight <= 64:
            raise Refused(400, "illegal_argument_exception", f"weight must be in (0, 64.0], got: {weight}")
    return tokens, ratio


# models


def ml_answer(cluster: Cluster, method: str, path: list[str], body: bytes) -> Any:
    match method, path:
        case "POST", ["models", "_register_meta"]:
            return register(cluster, json.loads(body))
        case "POST", ["models", identity, "upload_chunk", number]:
            return upload(cluster, cluster.models[identity], int(number), body)
        case "POST" | "GET", ["models", "_search"]:
            return found_models(cluster, json.loads(body))
        case "POST", ["models", identity, "_deploy"]:
            return deploy(cluster, identity)
        case "GET", ["models", identity]:
            model = cluster.models[identity]
            return {**without_content(model), "model_state": progressed(cluster, model, "model_state")}
        case "GET", ["tasks", identity]:
            task = cluster.tasks[identity]
            return {"task_type": "DEPLOY_MODEL", "is_async": True, **task, "state": progressed(cluster, task, "state")}
    raise Refused(400, "", f"no handler found for uri [/_plugins/_ml/{'/'.join(path)}] and method [{method}]")


NEXT = {"CREATED": "RUNNING", "RUNNING": "COMPLETED", "UPLOADED": "REGISTERED", "DEPLOYING": "DEPLOYED"}


def progressed(cluster: Cluster, thing: dict[str, Any], state: str) -> str:
    """The state of a task or a model as it is asked for; every ``cluster.polls`` times it gets on."""
    told: str = "REGISTERING" if thing[state] == "UPLOADED" else thing[state]
    if thing[state] in NEXT:
        thing["polls"] = thing.get("polls", 0) + 1
        if thing["polls"] == cluster.polls:
            thing["polls"] = 0
            thing[state] = NEXT[thing[state]]
            if thing[state] == "COMPLETED":
                finish(cluster, thing)
    return told


def without_content(model: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in model.items() if name not in ("chunks", "polls", "tokenizer", "idf")}


def register(cluster: Cluster, meta: dict[str, Any]) -> Any:
    if not cluster.local_files:
        reason = "To upload custom model from local file, user needs to enable allow_registering_model_via_local_file "
        raise Refused(400, "illegal_argument_exception", f"{reason}settings. Otherwise please use pre-trained models")
    known = {"name", "version", "description", "function_name", "model_format", "model_content_size_in_bytes",
             "model_content_hash_value", "total_chunks"}  # fmt: skip
    assert set(meta) == known
    assert (meta["function_name"], meta["model_format"]) == ("SPARSE_TOKENIZE", "TORCH_SCRIPT")
    identity = f"model-{len(cluster.models)}"
    cluster.models[identity] = {**meta, "algorithm": meta["function_name"], "model_state": "REGISTERING", "chunks": {}}
    return {"model_id": identity, "status": "CREATED"}


def upload(cluster: Cluster, model: dict[str, Any], number: int, body: bytes) -> Any:
    if not 0 < len(body) <= LARGEST_CHUNK or number >= model["total_chunks"]:
        raise Refused(500, "exception", "Chunk size exceeds 10MB")
    model["chunks"][number] = body
    if number + 1 == model["total_chunks"]:
        model["model_state"] = "UPLOADED"
    return {"status": "Uploaded"}


def found_models(cluster: Cluster, asked: Any) -> Any:
    if not cluster.models:
        raise Refused(404, "index_not_found_exception", "no such index [.plugins-ml-model]")
    if asked["query"] == {"match_none": {}}:
        return {"timed_out": False, "hits": {"total": {"value": 0, "relation": "eq"}, "hits": []}}
    (term,) = asked["query"]["bool"]["filter"]
    digest = term["term"]["model_content_hash_value"]
    hits = [
        {"_index": ".plugins-ml-model", "_id": identity, "_source": without_content(model)}
        for identity, model in cluster.models.items()
        if model["model_content_hash_value"] == digest
    ]
    for hit in hits:
        if hit["_source"]["model_state"] == "UPLOADED":
            hit["_source"]["model_state"] = "REGISTERING"
    return {"timed_out": False, "hits": {"total": {"value": len(hits), "relation": "eq"}, "hits": hits}}


def deploy(cluster: Cluster, identity: str) -> Any:
    if not cluster.ml_nodes:
        reason = "No eligible node found to execute this request. It's best practice to provision ML nodes to serve "
        more = 'your models. You can disable this setting by disabling the "plugins.ml_commons.only_run_on_ml_node"'
        raise Refused(400, "illegal_argument_exception", reason + more)
    cluster.models[identity]["model_state"] = "DEPLOYING"
    task = f"task-{len(cluster.tasks)}"
    cluster.tasks[task] = {"model_id": identity, "state": "CREATED"}
    return {"task_id": task, "status": "CREATED"}


def finish(cluster: Cluster, task: dict[str, Any]) -> None:
    model = cluster.models[task["model_id"]]
    content = b"".join(model["chunks"][number] for number in range(model["total_chunks"]))
    whole = hashlib.sha256(content).hexdigest() == model["model_content_hash_value"]
    error = cluster.deployment_error or (None if whole else "model content changed")
    if error is None:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            assert archive.namelist() == ["tokenizer.json", "idf.json"]
            tokenizer = Tokenizer.from_str(archive.read("tokenizer.json").decode("utf-8"))
            model["idf"] = json.loads(archive.read("idf.json").decode("ascii"))
        most = MOST_TOKENS if tokenizer.truncation is None else min(MOST_TOKENS, tokenizer.truncation["max_length"])
        tokenizer.enable_truncation(most)
        tokenizer.enable_padding()
        model["tokenizer"] = tokenizer
        model["model_state"] = "DEPLOYED"
    else:
        task |= {"state": "FAILED", "error": error}
        model["model_state"] = "DEPLOY_FAILED"


def tokenized(cluster: Cluster, identity: str | None, text: str) -> dict[str, float]:
    """What SPARSE_TOKENIZE answers: the distinct tokens of ``text``, decoded, and their weights."""
    model = cluster.models.get(identity or "")
    if model is None or model["model_state"] != "DEPLOYED":
        raise Refused(400, "illegal_argument_exception", f"Model not ready yet. Please deploy the model: {identity}")
    tokenizer, found = model["tokenizer"], {}
    for number in dict.fromkeys(tokenizer.encode(text).ids):
        token = tokenizer.decode([number], skip_special_tokens=True)
        if token in found:
            raise Refused(500, "illegal_state_exception", f"Duplicate key {token}")
        if token:
            found[token] = float(np.float32(model["idf"].get(token, 1.0)))
    return found


def put_pipeline(cluster: Cluster, name: str, body: Any) -> Any:
    assert set(body) <= {"description", "request_processors"}
    known = ["neural_query_enricher"] * cluster.has_plugins + ["neural_sparse_two_phase_processor"] * cluster.two_phase
    for processor in body["request_processors"]:
        (kind,) = processor
        if kind not in known:
            raise Refused(400, "illegal_argument_exception", f"Invalid processor type {kind}")
    cluster.pipelines[name] = body
    return {"acknowledged": True}


@contextmanager
def opensearch_server(answer: tuple[int, Any] | None = None) -> Iterator[Any]:
    """The address of a server; with ``answer``, a status and a body, of one that says nothing else."""
    with running(answer) as server:
        yield server.url


@contextmanager
def running(answer: tuple[int, Any] | None = None) -> Iterator[Any]:
    """The server itself: ``url``, ``requests`` (method, path, authorization), ``bodies`` (method and path with its
    parameters, body), ``cluster`` and its ``indices``."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.cluster = Cluster()
    server.indices, server.requests, server.bodies, server.answer = server.cluster.indices, [], [], answer
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
