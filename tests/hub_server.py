"""A server on this machine that speaks as much of the Hugging Face hub as its client asks for: revisions, listings with
checksums, files with byte ranges, refusals; and that can break a connection in the middle of a file."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

LARGE = 1000
"""Bytes from which on a file is stored as a large one, under its SHA-256."""


@dataclass
class Hub:
    """What the server holds, and what it was asked."""

    repositories: dict[str, dict[str, Mapping[str, bytes]]] = field(default_factory=dict)
    """``datasets/NAME`` or ``NAME`` -> commit -> path -> content; the last commit is ``main``."""

    gated: set[str] = field(default_factory=set)
    broken: dict[str, list[int]] = field(default_factory=dict)
    """Path -> bytes after which the connection breaks, one for each answer that does."""

    waiting: set[str] = field(default_factory=set)
    """Paths whose answers stop, without an end, where the next of ``broken`` says."""

    damaged: set[str] = field(default_factory=set)
    """Paths that arrive with another first byte."""

    asked: list[str] = field(default_factory=list)
    """``METHOD path [range]`` of every request."""

    token: str = ""
    """What may write."""

    url: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def etag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if len(content) >= LARGE else git_sha1(content)


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub without repositories, on a free port."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path).lstrip("/")
            hub.asked.append(" ".join(filter(None, (self.command, path, self.headers.get("Range")))))
            listing = path.startswith("api/")
            name, commits = self.repository(path.removeprefix("api/").removeprefix("models/"))
            if commits is None:
                self.refuse(401, "RepoNotFound")
                return
            _, _, rest = path.partition(name)
            verb, _, rest = rest.lstrip("/").partition("/")
            revision, _, file = rest.partition("/")
            commit = list(commits)[-1] if revision in ("", "main") else revision
            if commit not in commits:
                self.refuse(404, "RevisionNotFound")
            elif listing:
                self.answer_json(self.info(name, commit) if verb != "tree" else self.tree(name, commit))
            elif name in hub.gated and not file.endswith("README.md"):
                self.refuse(403, "GatedRepo")
            elif file not in commits[commit]:
                self.refuse(404, "EntryNotFound")
            else:
                self.answer_file(file, commits[commit][file], commit)

        def do_POST(self) -> None:
            """Making a repository, and a commit whose files all travel inside it."""
            path = urlsplit(self.path).path.lstrip("/")
            hub.asked.append(f"POST {path}")
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            name, _, verb = path.removeprefix("api/models/").rpartition("/")[0].rpartition("/")
            if not self.headers.get("Authorization", "").endswith(hub.token):
                self.refuse(401, "")
            elif path == "api/repos/create":
                asked = json.loads(content)
                made = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
                hub.repositories.setdefault(made, {})
                self.answer_json({"url": f"{hub.url}/{made}", "name": made})
            elif path == "api/validate-yaml":
                self.answer_json({"errors": [], "warnings": []})
            elif verb == "preupload":
                named = [file["path"] for file in json.loads(content)["files"]]
                files = [{"path": each, "uploadMode": "regular", "shouldIgnore": False} for each in named]
                self.answer_json({"files": files})
            elif verb == "commit":
                entries = [json.loads(line) for line in content.splitlines()]
                added = [entry["value"] for entry in entries if entry["key"] == "file"]
                commit = f"{len(hub.repositories[name]) + 1:040x}"
                hub.repositories[name][commit] = {file["path"]: base64.b64decode(file["content"]) for file in added}
                self.answer_json({"commitUrl": f"{hub.url}/{name}/commit/{commit}", "commitOid": commit})
            else:
                self.refuse(404, "")

        def repository(self, path: str) -> tuple[str, dict[str, Mapping[str, bytes]] | None]:
            for name, commits in hub.repositories.items():
                if path == name or path.startswith(f"{name}/"):
                    return name, commits
            return "", None

        def refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def answer_json(self, value: object) -> None:
            content = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def info(self, name: str, commit: str) -> object:
            siblings = []
            for path, content in hub.repositories[name][commit].items():
                entry: dict[str, object] = {"rfilename": path, "size": len(content), "blobId": git_sha1(content)}
                if len(content) >= LARGE:
                    entry["lfs"] = {"size": len(content), "sha256": etag(content), "pointerSize": 130}
                siblings.append(entry)
            return {"id": name.removeprefix("datasets/"), "sha": commit, "siblings": siblings}

        def tree(self, name: str, commit: str) -> object:
            entries = []
            for path, content in hub.repositories[name][commit].items():
                entry: dict[str, object] = {"type": "file", "path": path, "size": len(content)}
                entry["oid"] = git_sha1(content)
                if len(content) >= LARGE:
                    entry["lfs"] = {"size": len(content), "oid": etag(content), "pointerSize": 130}
                entries.append(entry)
            return entries

        def answer_file(self, path: str, content: bytes, commit: str) -> None:
            digest = etag(content)
            if path in hub.damaged:
                content = bytes([content[0] ^ 1]) + content[1:]
            wanted = self.headers.get("Range")
            first = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
            self.send_response(206 if wanted else 200)
            self.send_header("X-Repo-Commit", commit)
            self.send_header("ETag", f'"{digest}"')
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(content) - first))
            if wanted:
                self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            if self.command == "HEAD":
                return
            breaks = hub.broken.get(path)
            end = breaks.pop(0) if breaks else None  # before the write, which fails where the client was killed
            self.wfile.write(content[first:end])
            if end is not None:
                if path in hub.waiting:
                    hub.stopped.wait(30)
                self.connection.close()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.stopped.set()
        server.shutdown()
        server.server_close()
