"""The client of an OpenSearch, and its errors in words: what went wrong, where, and what to do about it."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vtkit.settings.engines import OpenSearchSettings
from vtkit.system.errors import DataError

USER, PASSWORD = "VTKIT_OPENSEARCH_USER", "VTKIT_OPENSEARCH_PASSWORD"
"""Environment variables: who asks."""

_ADVICE = {
    "allow_registering_model_via_local_file": "Allow it in the cluster's settings: "
    "plugins.ml_commons.allow_registering_model_via_local_file = true.",
    "only_run_on_ml_node": "Give the cluster a node of the role ml, or let its data nodes run models: "
    "plugins.ml_commons.only_run_on_ml_node = false.",
    "no handler found for uri": "index.opensearch.text_queries needs the plugins ML Commons and neural-search, which "
    "come with OpenSearch: install them, or set it to false.",
    "neural_query_enricher": "index.opensearch.text_queries needs the plugin neural-search, 2.13 or newer.",
    "neural_sparse_two_phase_processor": "index.opensearch.two_phase needs the plugin neural-search, 2.15 or newer.",
}
"""Words in a refusal -> what to do about it."""


def connected_to(settings: OpenSearchSettings) -> Any:
    """A client of the server, which has answered.

    Raises:
        DataError: there is no answer, or not one of OpenSearch.
    """
    import opensearchpy

    logging.getLogger("opensearch").setLevel(logging.CRITICAL)  # what it has to say is raised as well
    user = os.environ.get(USER)
    who = f"{user}:{os.environ.get(PASSWORD, '')}".encode()  # the client's own way knows Latin letters only
    client = opensearchpy.OpenSearch(
        hosts=[settings.url],
        headers={"authorization": f"Basic {base64.b64encode(who).decode()}"} if user else None,
        verify_certs=settings.verify_certificates,
        ssl_show_warn=False,
        timeout=settings.timeout,
        max_retries=1,
        http_compress=True,
    )
    with answers(settings):
        client.info()["version"]["number"]
    return client


def advice(refusal: str) -> str:
    """What to do about a refusal, with a space before it; empty where nothing is known."""
    return next((f" {what}" for words, what in _ADVICE.items() if words in refusal), "")


@contextmanager
def answers(settings: OpenSearchSettings) -> Iterator[None]:
    """The block's errors of OpenSearch, and answers that are none of its, as :class:`DataError`."""
    import opensearchpy

    where = f"OpenSearch at {settings.url}"
    try:
        yield
    except opensearchpy.AuthorizationException as error:
        raise DataError(f"{where} does not let you do that: {str(error)[:200]}.") from error
    except opensearchpy.AuthenticationException as error:
        raise DataError(f"{where} wants to know who asks: set {USER} and {PASSWORD} in the environment.") from error
    except opensearchpy.SSLError as error:
        raise DataError(
            f"{where}: its certificate is not trusted here ({str(error)[:200]}). If you trust it: "
            "index.opensearch.verify_certificates = false"
        ) from error
    except opensearchpy.ConnectionError as error:
        raise DataError(
            f"{where} does not answer ({str(error)[:200]}). Is it running? The address is index.opensearch.url."
        ) from error
    except (opensearchpy.OpenSearchException, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"{where} answers what OpenSearch would not, or refuses: {type(error).__name__}: {str(error)[:300]}."
            + advice(str(error))
        ) from error
