"""Requests to a server whose address is in an environment variable, with Python's own library."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from encode import HERE, opened


class Server:
    """A server. Name and password stand in its address (https://NAME:PASSWORD@HOST:PORT)."""

    def __init__(self, variable: str, default: str, key: str | None = None) -> None:
        parts = urlsplit(os.environ.get(variable, default))
        host = parts.netloc.rpartition("@")[2]
        self.address = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self.headers = {}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self.headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        elif key is not None and key in os.environ:
            self.headers["Authorization"] = f"ApiKey {os.environ[key]}"

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request; ``body`` is JSON, or bytes as they are."""
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        headers = {**self.headers, "Content-Type": kind}
        try:
            with urlopen(Request(f"{self.address}/{path}", content, headers, method=method), timeout=300) as answer:
                return json.loads(answer.read() or b"null")
        except HTTPError as error:
            sys.exit(f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:500]}")


def index_name(suffix: str = "") -> str:
    """The name of the index: INDEX, or the name of the exported model."""
    name = opened(HERE / "settings.json")["name"].lower()
    return os.environ.get("INDEX") or re.sub(r"[^0-9a-z]+", "-", name).strip("-") + suffix


def send_bulk(server: Server, index: str, change: Any = None) -> None:
    """Send the files of bulk/, their documents changed first where that is asked for."""
    sent = 0
    for path in sorted((HERE / "bulk").glob("part-*.ndjson")):
        content = path.read_bytes()
        if change is not None:
            lines = content.decode().removesuffix("\n").split("\n")
            content = "".join(
                (json.dumps(change(json.loads(line))) if number % 2 else line) + "\n"
                for number, line in enumerate(lines)
            ).encode()
        answer = server("POST", f"{index}/_bulk", content)
        if answer["errors"]:
            errors = [entry["index"]["error"] for entry in answer["items"] if "error" in entry["index"]]
            sys.exit(f"{path.name}: {len(errors)} documents are refused, the first because: {errors[0]}")
        sent += len(answer["items"])
    server("POST", f"{index}/_refresh")
    print(f"{sent:,} documents")


def hits(answer: Any) -> list[tuple[str, float]]:
    """Ids and scores of an answer."""
    return [(hit["_source"]["id"], float(hit["_score"])) for hit in answer["hits"]["hits"]]
