"""The client of an OpenSearch server, and messages for its errors: what went wrong, where, and what to do."""

from __future__ import annotations

import base64
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from vtkit.settings.engines import TIMEOUT_S
from vtkit.settings.index import IndexSection
from vtkit.system import console
from vtkit.system.errors import DataError

if TYPE_CHECKING:
    from opensearchpy import TransportError

Answer = TypeVar("Answer")

PARALLEL = 4  # requests on their way at once

PATIENCE_S, SEARCH_PATIENCE_S = 300.0, 30.0
"""Seconds for which a request that the server cannot serve now is repeated, and a search. Each time, the server may
itself wait a minute for a shard's primary."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 32.0

USER, PASSWORD = "VTKIT_OPENSEARCH_USER", "VTKIT_OPENSEARCH_PASSWORD"
"""Environment variables with the user and the password."""

_BLOCK = "cluster_block_exception"  # type of the errors of what is read-only


def connected_to(settings: IndexSection) -> Any:
    """A client of the server, which has answered. Its requests are repeated by :func:`patiently`, except bulk requests,
    which are divided first."""
    import opensearchpy

    class Patient(opensearchpy.Transport):  # type: ignore[misc]
        def perform_request(self, method: str, url: str, *further: Any, **named: Any) -> Any:
            ask = partial(super().perform_request, method, url, *further, **named)
            if url.endswith("/_bulk"):
                return ask()
            return patiently(ask, search=url == "/" or url.endswith("/_msearch"))

    logging.getLogger("opensearch").setLevel(logging.CRITICAL)  # it raises what it logs
    user = os.environ.get(USER)
    who = f"{user}:{os.environ.get(PASSWORD, '')}".encode()  # the client itself supports Latin letters only
    client = opensearchpy.OpenSearch(
        hosts=[settings.url],
        transport_class=Patient,
        headers={"authorization": f"Basic {base64.b64encode(who).decode()}"} if user else None,
        verify_certs=True,
        ssl_show_warn=False,
        timeout=TIMEOUT_S,
        max_retries=1,
        retry_on_status=(),
        pool_maxsize=PARALLEL,
        http_compress=True,
    )
    with answers(settings):
        client.info()["version"]["number"]
    return client


def reason_of(answer: Any) -> str:
    """The reason of an error in the server's words: the innermost cause that says one."""
    error: Any = answer.get("error", answer) if isinstance(answer, Mapping) else answer
    said = ""
    while isinstance(error, Mapping):
        said = str(error.get("reason") or "") or said
        causes = error.get("root_cause") or [None]
        error = error.get("caused_by") or (causes[0] if not said else None)
    return said or str(answer)


def error_of(answer: Mapping[str, Any]) -> TransportError:
    """The error of a part of a request, as the client raises that of a whole one."""
    import opensearchpy

    return opensearchpy.TransportError(answer.get("status", 500), "", {"error": answer["error"]})


def is_busy(error: TransportError) -> bool:
    """Report whether the server may do later what it refuses now, because it is busy (429) or has lost a node (503, or
    no answer in time); it never takes changes of what is read-only."""
    return error.status_code in (503, "TIMEOUT") or (error.status_code == 429 and _BLOCK not in str(error.info))


def patiently(ask: Callable[[], Answer], search: bool = False) -> Answer:
    """The answer of ``ask``, repeated after growing pauses while the server is busy (:func:`is_busy`), for at most
    :data:`PATIENCE_S`."""
    import opensearchpy

    seconds, pause = SEARCH_PATIENCE_S if search else PATIENCE_S, FIRST_PAUSE_S
    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except opensearchpy.TransportError as error:
            if not is_busy(error) or time.monotonic() + pause > until:
                raise
            if pause == FIRST_PAUSE_S:
                reason = reason_of(error.info or f"status {error.status_code}")
                console.say(f"OpenSearch cannot do it now ({reason[:300]}): asked again for {seconds:g} s at most")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


@contextmanager
def answers(settings: IndexSection) -> Iterator[None]:
    """OpenSearch's errors in the block, and malformed answers, as :class:`DataError`."""
    import opensearchpy

    try:
        yield
    except (opensearchpy.OpenSearchException, AttributeError, LookupError, TypeError, ValueError) as error:
        info = getattr(error, "info", None) if isinstance(error, opensearchpy.TransportError) else None
        reason = (reason_of(info) if isinstance(info, Mapping) else str(error))[:300]
        match error:
            case opensearchpy.TransportError(status_code=503):
                why = (
                    f"cannot do it, also after pauses: {reason}. A node may be lost. Run the command again when "
                    "/_cluster/health there says green or yellow; what is sent stays. If a shard is lost for good, "
                    "remove its index there first."
                )
            case _ if _BLOCK in f"{info} {error}":
                why = (
                    f"takes no changes: {reason}. If its disks are nearly full (flood stage), free some space or add a "
                    "node; otherwise its administrator made it read-only."
                )
            case opensearchpy.AuthorizationException():
                why = f"denies permission: {reason}."
            case opensearchpy.AuthenticationException():
                why = f"asks for a login: set {USER} and {PASSWORD} in the environment."
            case opensearchpy.SSLError() if "CERTIFICATE" not in str(error).upper():
                why = (
                    f"does not speak TLS ({reason}). If it is meant to be reached by http://, write that in index.url."
                )
            case opensearchpy.SSLError():
                why = (
                    f"has a certificate that this machine does not trust ({reason}). If you do, name a file with it, "
                    "or with that of its authority, in the environment variable SSL_CERT_FILE."
                )
            case opensearchpy.ConnectionError():
                why = (
                    f"does not answer ({reason}). Check that it is running, and index.url; then run the command again."
                )
            case opensearchpy.TransportError(status_code=413):
                why = "accepts no document of that size: raise http.max_content_length there."
            case opensearchpy.TransportError(status_code=429):
                why = f"is busy, also after pauses: {reason}. Run the command again later; what is sent stays."
            case _:
                why = f"refuses, or does not answer like OpenSearch: {type(error).__name__}: {reason}."
        raise DataError(f"OpenSearch at {settings.url} {why}") from error
