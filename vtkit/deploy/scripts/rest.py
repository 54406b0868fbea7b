"""Requests to a server whose address is in an environment variable, with Python's own library."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import ssl
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from encode import HERE, opened

PATIENCE_S, LONGEST_PAUSE_S = 300.0, 32.0  # for which a busy server is asked again
DEEP = 1000  # results of each list that a hybrid query adds
BAD, NOT_FOUND, TOO_LARGE, BUSY = 400, 404, 413, (429, 503)  # of the last two, one is for a lost node
LATE = f", also after {PATIENCE_S:g} seconds, so it is overloaded or has lost a node; run the command again later"
CLOSED = BrokenPipeError, ConnectionResetError, ConnectionAbortedError, ssl.SSLEOFError


class Server:
    """A server. Name and password stand in its address (https://NAME:PASSWORD@HOST:PORT)."""

    def __init__(self, variable: str, default: str, key: str | None = None) -> None:
        parts = urlsplit(os.environ.get(variable, default))
        host = parts.netloc.rpartition("@")[2]
        self.variable = variable
        self.address = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self.headers = {}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self.headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        elif key is not None and key in os.environ:
            self.headers["Authorization"] = f"ApiKey {os.environ[key]}"

    def __call__(self, method: str, path: str, body: Any = None, unless: Collection[int] = ()) -> Any:
        """Send a request and return the answer's JSON, or None if its status is one of ``unless``. The ``body`` is sent
        as JSON, or as it is if it is bytes. A server that is busy or has just lost a node is asked again after a pause.
        One that closes the connection before it has read the body finds it too large."""
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        request = Request(f"{self.address}/{path}", content, {**self.headers, "Content-Type": kind}, method=method)
        for pause in pauses():
            try:
                with urlopen(request, timeout=300) as answer:
                    return json.loads(answer.read() or b"null")
            except HTTPError as error:
                if error.code in unless:
                    return None
                if error.code not in BUSY or pause is None:
                    late = LATE if error.code in BUSY else ""
                    sys.exit(f"{method} {path}: {error.code}{late}: {error.read().decode(errors='replace')[:500]}")
                time.sleep(pause)
            except (OSError, HTTPException, ValueError) as error:
                if TOO_LARGE in unless and isinstance(getattr(error, "reason", error), CLOSED):
                    return None
                sys.exit(f"{self.address} does not answer as it should ({error}). Check it, or set {self.variable}.")
        return None


def pauses() -> Iterator[float | None]:
    """Growing pauses in seconds, and None when :data:`PATIENCE_S` are over."""
    until, pause = time.monotonic() + PATIENCE_S, 1.0
    while time.monotonic() + pause <= until:
        yield pause
        if pause == 1.0:
            print(f"the server is busy or lacks a shard: asked again for {PATIENCE_S:g} s at most", file=sys.stderr)
        pause = min(2 * pause, LONGEST_PAUSE_S)
    yield None


def index_name(suffix: str = "") -> str:
    """The name of the index: INDEX, or the name of the exported model."""
    name = opened(HERE / "settings.json")["name"].lower()
    return os.environ.get("INDEX") or re.sub(r"[^0-9a-z]+", "-", name).strip("-") + suffix


def load_bulk(server: Server, index: str, mapping: Any, change: Callable[[Any], Any] | None = None) -> None:
    """Create the index and send the files of bulk/ that it does not have yet, their documents changed by ``change``. If
    the server lacks the analyser of the texts, standard takes its place."""
    contents = mapping["mappings"].get("properties", {}).get("contents")
    if contents is not None:
        asked = {"analyzer": contents["analyzer"], "text": "a"}
        if server("POST", "_analyze", asked, unless=[BAD]) is None:
            print(f"the server has no analyser {contents['analyzer']}: texts are analysed by standard")
            contents["analyzer"] = "standard"
    parts = sorted((HERE / "bulk").glob("part-*.ndjson"))
    content = hashlib.sha256()
    for path in [*parts, HERE / "dimensions.json"]:
        content.update(path.read_bytes())
    own = {"vtkit": content.hexdigest()}
    if "--replace" in sys.argv:
        server("DELETE", index, unless=[NOT_FOUND])
    there, held, sent = server("GET", f"{index}/_mapping", unless=[NOT_FOUND]), 0, 0
    if there is None:
        server("PUT", index, {**mapping, "mappings": {**mapping["mappings"], "_meta": own}})
    elif any(each["mappings"].get("_meta") != own for each in there.values()):
        sys.exit(
            f"There is an index {index} of other documents: python index.py load --replace removes it first; "
            "INDEX=NAME gives the new one another name."
        )
    else:
        server("POST", f"{index}/_refresh")
        held = server("GET", f"{index}/_count")["count"]
    for path in parts:  # in their order, so that the first ones are there if a load was broken off
        lines = path.read_bytes().decode().removesuffix("\n").split("\n")
        sent += len(lines) // 2
        if sent > held:
            if change is not None:
                lines[1::2] = [json.dumps(change(json.loads(line))) for line in lines[1::2]]
            send(server, index, lines)
    server("POST", f"{index}/_refresh")
    print(f"{sent:,} documents" + (f", {min(held, sent):,} of which were there" if held else ""))


def send(server: Server, index: str, lines: Sequence[str]) -> None:
    """Send actions and documents, alternating; halves if the server finds them too large, again what it is too busy for
    or has no shard for."""
    for pause in pauses():
        answer = server("POST", f"{index}/_bulk", ("\n".join(lines) + "\n").encode(), unless=[TOO_LARGE])
        if answer is None and len(lines) > 2:
            middle = len(lines) // 4 * 2
            send(server, index, lines[:middle])
            send(server, index, lines[middle:])
            return
        if answer is None:
            server("GET", f"{index}/_count")  # which says so if the server is gone
            sys.exit(f"{lines[0]}: the document is larger than http.max_content_length allows. Raise it on the server.")
        refused = [place for place, item in enumerate(answer["items"]) if "error" in item["index"]]
        again = [place for place in refused if answer["items"][place]["index"]["status"] in BUSY and pause is not None]
        if len(again) < len(refused):
            first = next(answer["items"][place]["index"] for place in refused if place not in again)
            late = LATE if first["status"] in BUSY else ""
            sys.exit(f"{len(refused)} documents are refused{late}, {first['_id']} because: {first['error']}")
        if not again:
            return
        time.sleep(pause or 0)
        lines = [line for place in again for line in lines[2 * place : 2 * place + 2]]


def filtered(clause: Any) -> Any:
    """A query, limited to the documents that meet the condition FILTER (JSON), if it is given."""
    condition = os.environ.get("FILTER")
    return {"bool": {"must": [clause], "filter": [json.loads(condition)]}} if condition else clause


def grouped(body: dict[str, Any]) -> dict[str, Any]:
    """The body of a search for documents: of each, the best passage, if they are cut into passages."""
    if opened(HERE / "settings.json")["passages"]:
        body["collapse"] = {"field": "fields.document_number"}
    return body


def hits(server: Server, index: str, body: Any) -> list[tuple[str, float]]:
    """Ids and scores of a search, of which no shard is left out."""
    answer = server("POST", f"{index}/_search?allow_partial_search_results=false", body)
    return [(hit["_source"]["id"], float(hit["_score"])) for hit in answer["hits"]["hits"]]
