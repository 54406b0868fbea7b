"""The client of an OpenSearch server, and messages for its errors: what went wrong, where, and what to do."""

import base64
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vtkit.settings.engines import TIMEOUT_S
from vtkit.settings.index import IndexSection
from vtkit.system.errors import DataError

USER, PASSWORD = "VTKIT_OPENSEARCH_USER", "VTKIT_OPENSEARCH_PASSWORD"
"""Environment variables with the user and the password."""


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
        http_compress=True,
    )
    with answers(settings):
        client.info()["version"]["number"]
    return client


@contextmanager
def answers(settings: IndexSection) -> Iterator[None]:
    """OpenSearch's errors in the block, and malformed answers, as :class:`DataError`."""
    import opensearchpy

    try:
        yield
    except (opensearchpy.OpenSearchException, AttributeError, LookupError, TypeError, ValueError) as error:
        said = str(error)[:200]
        match error:
            case opensearchpy.AuthorizationException():
                why = f"denies permission: {said}."
            case opensearchpy.AuthenticationException():
                why = f"asks for a login: set {USER} and {PASSWORD} in the environment."
            case opensearchpy.SSLError():
                why = (
                    f"has a certificate that this machine does not trust ({said}). If you do, name a file with it, or "
                    "with that of its authority, in the environment variable SSL_CERT_FILE."
                )
            case opensearchpy.ConnectionError():
                why = f"does not answer ({said}). Check that it is running, and index.url."
            case _:
                why = f"refuses, or does not answer like OpenSearch: {type(error).__name__}: {str(error)[:300]}."
        raise DataError(f"OpenSearch at {settings.url} {why}") from error
