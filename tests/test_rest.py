"""The requests of an export's ``index.py`` (``rest.py``), to a server on loopback that refuses as real ones do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from opensearch_server import serving

from vtkit.deploy.portable import SCRIPTS

LARGEST = 100_000  # bytes of a request
NO_PRIMARY = {"type": "unavailable_shards_exception", "reason": "[i][0] primary shard is not active"}
FULL = {"type": "rejected_execution_exception", "reason": "queue is full"}


class Handler(BaseHTTPRequestHandler):
    """A server that closes the connection before it reads a body that is too large, and takes documents only after
    ``server.refusals``: pairs of a status and an error, of a whole request or of each of its documents."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        server: Any = self.server
        size = int(self.headers.get("Content-Length") or 0)
        if size > LARGEST:
            server.closed += 1
            self.close_connection = True
            return
        body = self.rfile.read(size)
        if self.path.endswith("/_mapping"):
            self._say(404, {})
        elif not self.path.endswith("/_bulk"):
            self._say(200, {"count": 0})
        elif server.refusals and server.whole:
            self._say(*server.refusals.pop(0))
        else:
            identities = [json.loads(line)["index"]["_id"] for line in body.splitlines()[::2]]
            status, error = server.refusals.pop(0) if server.refusals else (201, None)
            refused = {} if error is None else {"error": error}
            if error is None:
                server.documents += identities
            self._say(200, {"items": [{"index": {"_id": each, "status": status, **refused}} for each in identities]})

    do_POST = do_PUT = do_GET

    def _say(self, status: int, answer: Any) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def running(*refusals: tuple[int, Any], whole: bool = False) -> Iterator[Any]:
    with serving(Handler) as server:
        server.refusals, server.whole, server.documents, server.closed = list(refusals), whole, [], 0
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The programs of an export, and ten documents of 60 kB in one file."""
    for name in ("encode.py", "rest.py"):
        shutil.copy(SCRIPTS / name, tmp_path)
    (tmp_path / "dimensions.json").write_text('["t0"]', "utf-8")
    written(tmp_path, [60_000] * 10)
    return tmp_path


def written(folder: Path, sizes: list[int]) -> None:
    """Write documents of so many bytes."""
    pairs = [(json.dumps({"index": {"_id": str(n)}}), json.dumps({"text": "x" * size})) for n, size in enumerate(sizes)]
    (folder / "bulk").mkdir(exist_ok=True)
    (folder / "bulk" / "part-00000.ndjson").write_text("".join(f"{a}\n{b}\n" for a, b in pairs), "utf-8")


def loaded(folder: Path, server: Any, patience_s: float = 60) -> subprocess.CompletedProcess[str]:
    """``load_bulk`` in a process of its own."""
    code = (
        f"import rest\nrest.PATIENCE_S = {patience_s}\n"
        f"server = rest.Server('SERVER', 'http://127.0.0.1:{server.server_address[1]}')\n"
        "rest.load_bulk(server, 'i', {'mappings': {}})"
    )
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300)


def test_a_connection_that_is_closed_while_a_body_is_sent_is_a_body_that_is_too_large(folder: Path) -> None:
    with running() as server:
        done = loaded(folder, server)
        assert done.stdout == "10 documents\n", done.stderr
        assert server.documents == [str(number) for number in range(10)]
        assert server.closed == 9  # of 10, 5, 5, 2, 3, 2, 3, and of 2 in each 3
    written(folder, [60_000, 8_000_000])
    with running() as server:
        done = loaded(folder, server)
        assert done.returncode == 1
        assert '"_id": "1"' in done.stderr
        assert "larger than http.max_content_length" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("whole", [True, False])
def test_a_server_that_is_busy_or_lacks_a_shard_is_asked_again(folder: Path, whole: bool) -> None:
    written(folder, [10, 20])
    with running((503, NO_PRIMARY), (429, FULL), whole=whole) as server:
        done = loaded(folder, server)
        assert done.stdout == "2 documents\n", done.stderr
        assert server.documents == ["0", "1"]
        assert "busy or lacks a shard" in done.stderr


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("refusal", [(503, NO_PRIMARY), (429, FULL)])
def test_a_server_that_stays_so_is_named_after_a_while(folder: Path, refusal: tuple[int, Any], whole: bool) -> None:
    written(folder, [10])
    with running(*[refusal] * 100, whole=whole) as server:
        done = loaded(folder, server, 1.5)
        assert done.returncode == 1
        assert len(server.refusals) == 98  # asked twice
        assert refusal[1]["reason"] in done.stderr
        assert "overloaded or has lost a node; run the command again" in done.stderr
        assert "Traceback" not in done.stderr


def test_what_is_refused_for_another_reason_is_not_asked_again(folder: Path) -> None:
    written(folder, [10])
    with running((400, {"type": "mapper_parsing_exception", "reason": "no room"})) as server:
        done = loaded(folder, server)
        assert done.returncode == 1
        assert "1 documents are refused, 0 because" in done.stderr
        assert "no room" in done.stderr
