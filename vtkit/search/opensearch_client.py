"""The client of an OpenSearch server, and messages for its errors: what went wrong, where, and what to do."""

import base64
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vtkit.settings.engines import TIMEOUT_S
from vtkit.settings.index import IndexSection
from vtkit.system.errors import DataError

PARALLEL = 4  # requests on their way at once

USER, PASSWORD = "VTKIT_OPENSEARCH_USER", "VTKIT_OPENSEARCH_PASSWORD"
"""Environment variables with the user and the password."""

_BLOCK = "cluster_block_exception"  # type of the errors of what is read-only


def connected_to(settings: IndexSection) -> Any:
    """A client of the server, which has answered."""
    import opensearchpy

    logging.getLogger("opensearch").setLevel(logging.CRITICAL)  # it raises what it logs
    user = os.environ.get(USER)
    who = f"{user}:{os.environ.get(PASSWORD, '')}".encode()  # the client itself supports Latin letters only
    client = opensearchpy.OpenSearch(
        hosts=[settings.url],
        headers={"authorization": f"Basic {base64.b64encode(who).decode()}"} if user else None,
        verify_certs=True,
        ssl_show_warn=False,
        timeout=TIMEOUT_S,
        max_retries=1,
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


def is_busy(answer: Mapping[str, Any]) -> bool:
    """Report whether the server may take later what it refuses now, because it is busy (429) or has just lost a node
    (503, or no answer in time); it never takes changes of what is read-only."""
    return answer["status"] in (429, 503, "TIMEOUT") and _BLOCK not in str(answer.get("error"))


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
