"""The server: one process, which listens until it is stopped, and then finishes its requests."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from vtkit.system import console
from vtkit.system.errors import MachineError
from vtkit.system.interrupt import leave_interrupted, watched_elsewhere

if TYPE_CHECKING:
    from vtkit.deploy.limits import Limits
    from vtkit.deploy.served import Served

CONNECTIONS_A_REQUEST = 4  # open connections per request in progress: most connections are idle
BACKLOG = 2048  # connections that the system queues until they are accepted
CHANGED_SECONDS = 1.0  # between two looks at whether an index has changed
KEEP_ALIVE_SECONDS = 30  # lifetime of an idle connection


def serve(served: Served, limits: Limits, bound: socket.socket, ready: Callable[[str], None]) -> None:
    """Answer requests on ``bound``, a socket of ``limits.host``, until SIGTERM or Ctrl-C; then accept no more, and end
    when those in progress are answered. A second Ctrl-C ends at once. ``ready`` gets the address when the server
    accepts requests."""
    from vtkit.deploy.app import HEADERS, Service

    host = limits.host
    with _refused(host, bound.getsockname()[1]):  # another server may have bound the same port, and listened first
        bound.listen(BACKLOG)
    shown = f"[{host}]" if ":" in host else host
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # else it logs every client that disconnects
    config = Config(
        Service(served, limits),
        http=_Connection,
        headers=list(HEADERS.items()),
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=CONNECTIONS_A_REQUEST * limits.requests,
        timeout_keep_alive=min(KEEP_ALIVE_SECONDS, int(limits.seconds) + 1),
        timeout_graceful_shutdown=int(limits.seconds) + 1,
    )
    config.patience = 2 * limits.seconds + 1  # type: ignore[attr-defined]
    server = _Server(config)
    ready(f"http://{shown}:{bound.getsockname()[1]}")
    stopped = threading.Event()
    threading.Thread(target=_renew, args=(served, stopped), daemon=True).start()
    with watched_elsewhere(), console.without_bars():
        server.run([bound])
    stopped.set()
    if server.force_exit:
        leave_interrupted()


def _renew(served: Served, stopped: threading.Event) -> None:
    while not stopped.wait(CHANGED_SECONDS):
        served.renew()


class _Server(Server):
    """A server that ends with exit code 0; the library's would end with the signal."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            console.say("stopping after the requests in progress")
        self.force_exit |= self.should_exit and sig == signal.SIGINT
        self.should_exit = True


class _Connection(H11Protocol):
    """A connection that is closed if a request takes too long, from its first byte to the last byte of its answer. The
    library waits forever for a client that sends half a header, or does not read its answer."""

    watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._be_patient()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.watch is not None:
            self.watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.cycle is not None and self.cycle.response_complete and self.timeout_keep_alive_task is not None:
            self._be_patient()  # the next request begins
        super().data_received(data)

    def _be_patient(self) -> None:
        if self.watch is not None:
            self.watch.cancel()
        self.watch = self.loop.call_later(self.config.patience, self.transport.abort)  # type: ignore[attr-defined]


def bind(host: str, port: int) -> socket.socket:
    """A socket with this address, port 0 for any free one, which refuses connections until :func:`serve` listens."""
    with _refused(host, port):
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    return bound


@contextmanager
def _refused(host: str, port: int) -> Iterator[None]:
    """Say what to do if the system refuses an address."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise MachineError(
            f"cannot listen on {host}, port {port}: {getattr(error, 'strerror', None) or error}. Choose another port "
            "or host, or stop the program that uses it."
        ) from error
