"""Downloads from the hub, by the hub's own client, from a server on this machine that speaks as the hub does."""

import json
import os
import pty
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hub_server import Hub, etag, serving

FIRST, SECOND, THIRD = ("1" * 40, "2" * 40, "3" * 40)
LARGE = os.urandom(2**20) * 30
"""Longer than two of the pieces, of 10 MiB each, in which the client reads."""

SCRIPT = """
import json, sys
from vtkit.data import hub
from vtkit.system.errors import VtkitError
repo, patterns, kind, revision = json.loads(sys.argv[1])
try:
    print(json.dumps([str(hub.fetch(repo, patterns, kind, revision)), hub.revisions()]))
except VtkitError as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(1)
"""


class Client:
    """A process of its own for each try, as a user has."""

    def __init__(self, server: Hub, cache: Path) -> None:
        self.server, self.cache = server, cache

    def start(
        self, repo: str, patterns: list[str], kind: str = "dataset", revision: str | None = None, download: bool = True,
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[str]:  # fmt: skip
        env = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        env |= {"HF_ENDPOINT": self.server.url, "HF_HUB_CACHE": str(self.cache), "HF_TOKEN": "hf_test"}
        env["VTKIT_DOWNLOAD"] = str(int(download))
        command = [sys.executable, "-c", SCRIPT, json.dumps([repo, patterns, kind, revision])]
        return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=stderr)

    def fetch(self, repo: str, patterns: list[str], **more: Any) -> Path:
        process = self.start(repo, patterns, **more)
        out, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        return Path(json.loads(out.splitlines()[-1])[0])

    def refused(self, repo: str, patterns: list[str], **more: Any) -> str:
        process = self.start(repo, patterns, **more)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1, said
        assert "Traceback" not in said
        return said

    def partial(self) -> list[Path]:
        return list(self.cache.rglob("*.incomplete"))

    def partial_sizes(self) -> Iterator[int]:
        for path in self.partial():
            with suppress(FileNotFoundError):  # it is complete by now
                yield path.stat().st_size


@pytest.fixture
def server() -> Iterator[Hub]:
    with serving() as hub:
        yield hub


@pytest.fixture
def client(server: Hub, tmp_path: Path) -> Client:
    server.repositories["datasets/a/texts"] = {
        FIRST: {"README.md": b"first", "ko/corpus.jsonl": b"x" * 5000, "en/corpus.jsonl": b"y" * 5000},
        SECOND: {"README.md": b"second", "ko/corpus.jsonl": b"z" * 6000},
    }
    return Client(server, tmp_path / "hub")


def test_one_bar_of_bytes_on_a_terminal_and_nothing_off_it(client: Client, server: Hub) -> None:
    server.repositories["datasets/a/large"] = {FIRST: {"part.parquet": LARGE, "other.parquet": LARGE[: 2**20]}}
    master, slave = pty.openpty()
    terminal = client.start("a/large", ["*"], stderr=slave)
    os.close(slave)
    shown = b""
    with suppress(OSError):  # which is how the other end of a terminal closes
        while piece := os.read(master, 4096):
            shown += piece
    terminal.communicate(timeout=60)
    os.close(master)
    assert terminal.returncode == 0
    assert b"fetching a/large" in shown
    assert b"/32.5 MB" in shown, "of both files together"
    assert b"Downloading" not in shown, "the bars of the hub's client are off"
    quiet = client.start("a/texts", ["*"])
    assert quiet.communicate(timeout=60)[1] == ""


def gets(server: Hub) -> list[str]:
    """Files whose content was asked for, with the range."""
    return [line.split("/resolve/")[1] for line in server.asked if line.startswith("GET") and "/resolve/" in line]


def test_files_arrive_at_the_pinned_revision_and_are_read_from_the_cache_after(client: Client, server: Hub) -> None:
    folder = client.fetch("a/texts", ["ko/*"], revision=FIRST)
    assert folder.name == FIRST
    assert [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()] == ["ko/corpus.jsonl"]
    assert (folder / "ko" / "corpus.jsonl").read_bytes() == b"x" * 5000
    assert gets(server) == [f"{FIRST}/ko/corpus.jsonl"]
    server.asked.clear()
    assert client.fetch("a/texts", ["ko/*"], revision=FIRST) == folder
    assert client.fetch("a/texts", ["ko/*"], revision=FIRST, download=False) == folder
    assert server.asked == []
    server.repositories["datasets/a/texts"][THIRD] = {"ko/corpus.jsonl": b"x" * 5000}  # the same file at another one
    folder = client.fetch("a/texts", ["ko/*"], revision=THIRD)
    assert (folder / "ko" / "corpus.jsonl").read_bytes() == b"x" * 5000
    assert gets(server) == []


def test_without_a_revision_the_newest_comes_and_offline_what_was_there(client: Client, server: Hub) -> None:
    folder = client.fetch("a/texts", ["ko/*"])
    assert folder.name == SECOND
    server.url = "http://127.0.0.1:9"  # nobody listens there
    assert client.fetch("a/texts", ["ko/*"]) == folder
    assert client.fetch("a/texts", ["ko/*"], download=False) == folder


def test_what_is_not_in_the_cache_or_at_the_hub_is_named(client: Client, server: Hub) -> None:
    said = client.refused("a/texts", ["*"], revision=FIRST, download=False)
    assert server.asked == []
    assert all(part in said for part in ("a/texts", FIRST, "--download"))
    client.fetch("a/texts", ["ko/*"], revision=SECOND)
    assert SECOND in client.refused("a/texts", ["ko/*"], revision=FIRST, download=False)  # which is there
    client.fetch("a/texts", ["ko/*"], revision=FIRST)
    said = client.refused("a/texts", ["ko/*", "en/*"], revision=FIRST, download=False)
    assert "lacks en/corpus.jsonl. Run again with --download" in said
    assert f"revision {THIRD}" in client.refused("a/texts", ["*"], revision=THIRD)
    assert "https://huggingface.co/datasets/a/other " in client.refused("a/other", ["*"])
    assert "https://huggingface.co/a/model " in client.refused("a/model", ["*"], kind="model")
    server.repositories["datasets/a/gated"] = {FIRST: {"text": b"text"}}
    server.gated.add("datasets/a/gated")
    said = client.refused("a/gated", ["*"])
    assert said.startswith("DataError: a/gated")
    assert all(part in said for part in ("https://huggingface.co/datasets/a/gated", "hf auth login"))


def test_a_connection_that_breaks_is_taken_up_again_where_it_broke(client: Client, server: Hub) -> None:
    server.repositories["datasets/a/large"] = {FIRST: {"part.parquet": LARGE}}
    server.broken["part.parquet"] = [25 * 2**20]
    folder = client.fetch("a/large", ["*.parquet"])
    assert (folder / "part.parquet").read_bytes() == LARGE
    assert gets(server) == [f"{FIRST}/part.parquet", f"{FIRST}/part.parquet bytes={20 * 2**20}-"]


def test_files_that_arrived_stay_after_a_kill(client: Client, server: Hub) -> None:
    server.repositories["datasets/a/large"] = {FIRST: {"part.parquet": LARGE, "small.txt": b"small"}}
    server.broken["part.parquet"], server.waiting = [25 * 2**20], {"part.parquet"}
    process = client.start("a/large", ["*"])
    until = time.monotonic() + 30
    while not (20 * 2**20 in client.partial_sizes() and gets(server)[1:]):
        assert time.monotonic() < until
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert "--download" in client.refused("a/large", ["*"], download=False)  # nothing half-used
    server.asked.clear()
    folder = client.fetch("a/large", ["*"])
    assert (folder / "part.parquet").read_bytes() == LARGE
    assert gets(server) == [f"{FIRST}/part.parquet"]


def test_a_file_that_arrives_changed_is_not_kept(client: Client, server: Hub) -> None:
    server.damaged.add("ko/corpus.jsonl")
    said = client.refused("a/texts", ["ko/*"])
    assert "a/texts: the checksum of ko/corpus.jsonl differs from the hub's" in said
    assert not client.partial()
    server.damaged.clear()
    assert (client.fetch("a/texts", ["ko/*"]) / "ko" / "corpus.jsonl").read_bytes() == b"z" * 6000


@pytest.mark.parametrize("listed", [True, False])
def test_a_file_cut_short_in_the_cache_is_found_and_named(client: Client, listed: bool) -> None:
    """By the sizes that the hub listed or, in a cache of an older client, by the checksum that names it."""
    folder = client.fetch("a/texts", ["*"], revision=FIRST)
    blob = (folder / "ko" / "corpus.jsonl").resolve()
    assert blob.name == etag(b"x" * 5000)
    blob.write_bytes(b"x" * 4000)
    if not listed:
        for path in (folder.parents[1] / "trees").iterdir():
            path.unlink()
    for download in (False, True)[: 1 + listed]:  # allowed to, it would fetch the list
        said = client.refused("a/texts", ["*"], revision=FIRST, download=download)
        assert f"{blob} (ko/corpus.jsonl) {'has 4,000 of 5,000 bytes' if listed else 'has another checksum'}" in said
        assert "Remove this file, and run again with --download" in said
    assert client.fetch("a/texts", ["en/*", "README.md"], revision=FIRST, download=False) == folder  # the others serve
    blob.unlink()
    assert (client.fetch("a/texts", ["*"], revision=FIRST) / "ko" / "corpus.jsonl").read_bytes() == b"x" * 5000


def test_a_disk_that_fills_is_said(client: Client, server: Hub) -> None:
    """The largest size that a file may have stands for the disk."""
    server.repositories["datasets/a/large"] = {FIRST: {"part.parquet": LARGE}}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (15 * 2**20, hard))
    try:
        said = client.refused("a/large", ["*"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "MachineError" in said
    assert "file too large" in said
    assert "Files that arrived whole are kept" in said
    assert "--download" in client.refused("a/large", ["*"], download=False)
    assert (client.fetch("a/large", ["*"]) / "part.parquet").read_bytes() == LARGE


def test_what_has_no_room_is_refused_before_a_byte_is_fetched(client: Client, server: Hub) -> None:
    class Claimed(bytes):
        def __len__(self) -> int:
            return 10**15

    server.repositories["datasets/a/vast"] = {FIRST: {"part.parquet": Claimed(b"vast")}}
    said = client.refused("a/vast", ["*"])
    assert "a/vast needs 1000000.0 GB, but only" in said
    assert "HF_HOME" in said
    assert gets(server) == []
