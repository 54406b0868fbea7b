"""Engine ``opensearch``: an OpenSearch cluster, vectors in a field of type ``rank_features``.

The index's folder holds what was sent: ``mapping.json`` and ``bulk-00000.ndjson`` and so on, which any client can send
as well (docs/engines.md). A dimension is the feature ``t`` and its number, a document's id its number. OpenSearch keeps
9 significant bits of a weight, which moves scores by up to 0.4 %. The index on the server is named after a digest of
the vectors, so equal vectors are sent once and an index never meets those of another.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from vtkit.errors import DataError
from vtkit.recipe.engines import OpenSearchSettings
from vtkit.search.index_info import Ids, Scores, digest_of

USER, PASSWORD = "VTKIT_OPENSEARCH_USER", "VTKIT_OPENSEARCH_PASSWORD"
"""Environment variables: who asks."""

FIELD = "weights"
MAPPING: Mapping[str, Any] = {
    "settings": {"index": {"number_of_shards": 1, "refresh_interval": "-1"}},
    "mappings": {
        "dynamic": "strict",
        "_source": {"enabled": False},
        "properties": {FIELD: {"type": "rank_features"}},
    },
}

MOST_CLAUSES = 1024
"""Terms of a query that OpenSearch takes unless it is told otherwise; of longer ones the largest weights are asked."""

_REBUILD = "Build it again: vtkit run RECIPE --force index."
_RECORD = "opensearch.json"
_BULK_BYTES = 8_000_000
_LEAST_WEIGHT = 2.0**-126  # of a feature; smaller floats are not normal
_QUERIES_AT_ONCE = 64
_RESULTS_AT_ONCE = 50_000


def build_opensearch(documents: sp.csr_matrix, folder: Path, settings: OpenSearchSettings) -> None:
    """Write the mapping and the bulk files into ``folder``, and send them.

    Args:
        documents: (documents, vocabulary), weights above zero, terms ascending. Those without weights are left out.
        folder: where it goes; it exists.

    Raises:
        DataError: the server cannot be reached, or refuses.
    """
    name = f"vtkit-{digest_of(documents)[:24]}"
    (folder / "mapping.json").write_text(json.dumps(MAPPING, indent=1), encoding="utf-8")
    files, sent = _write_bulk(documents, folder)
    client = connected_to(settings)
    try:
        with _answers(settings):
            if not client.indices.exists(index=name) or _count(client, name) != sent:
                client.indices.delete(index=name, ignore_unavailable=True)
                client.indices.create(index=name, body=MAPPING)
                for file in files:
                    _checked_bulk(client.bulk(index=name, body=file.read_text(encoding="utf-8")), file)
                client.indices.refresh(index=name)
    finally:
        client.close()
    recorded = {"index": name, "documents": sent, "url": settings.url}
    (folder / _RECORD).write_text(json.dumps(recorded), encoding="utf-8")


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
    with _answers(settings):
        client.info()["version"]["number"]
    return client


@dataclass(frozen=True)
class OpenSearchRanker:
    """An index of an OpenSearch that answers."""

    client: Any
    index: str
    settings: OpenSearchSettings

    @classmethod
    def open(cls, folder: Path, settings: OpenSearchSettings, documents: int) -> OpenSearchRanker:
        """The index that :func:`build_opensearch` made for ``folder``.

        Args:
            documents: how many of the index have weights.

        Raises:
            DataError: it is not on the server, or not whole.
        """
        try:
            recorded = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
            name, url = str(recorded["index"]), recorded["url"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{folder / _RECORD} is missing or damaged ({error}). {_REBUILD}") from error
        if url != settings.url:
            raise DataError(f"{folder} was sent to {url}, not to {settings.url}. {_REBUILD}")
        client = connected_to(settings)
        with _answers(settings):
            held = _count(client, name) if client.indices.exists(index=name) else None
        if held != documents:
            has = "is not there" if held is None else f"has {held:,} of {documents:,} documents"
            raise DataError(f"OpenSearch at {url}: the index {name} {has}. {_REBUILD}")
        return cls(client, name, settings)

    def rank(self, queries: sp.csr_matrix, depth: int) -> Iterator[tuple[Ids, Scores]]:
        """As :meth:`vtkit.search.engine.Ranker.rank`."""
        at_once = max(1, min(_QUERIES_AT_ONCE, _RESULTS_AT_ONCE // depth))
        for start in range(0, queries.shape[0], at_once):
            batch = queries[start : start + at_once]
            asked: list[dict[str, Any]] = []
            for row in range(batch.shape[0]):
                query = query_of(_features(batch, row, MOST_CLAUSES), self.settings.query)
                asked += [{}, {"query": query, "size": depth, "_source": False, "track_total_hits": False}]
            with _answers(self.settings):
                responses = self.client.msearch(index=self.index, body=asked)["responses"]
                answers = [_hits(response) for response in responses]
            if len(answers) != batch.shape[0]:
                raise DataError(
                    f"OpenSearch at {self.settings.url} answers {len(answers)} of {batch.shape[0]} queries."
                )
            yield from answers


def query_of(features: Mapping[str, float], kind: str) -> dict[str, Any]:
    """The query whose score is the dot product with ``features``, in OpenSearch's query language."""
    if kind == "neural_sparse":
        return {"neural_sparse": {FIELD: {"query_tokens": dict(features)}}}
    products = [
        {"rank_feature": {"field": f"{FIELD}.{name}", "boost": weight, "linear": {}}}
        for name, weight in features.items()
    ]
    return {"bool": {"should": products}}


def _features(matrix: sp.csr_matrix, row: int, most: int | None = None) -> dict[str, float]:
    """Feature -> weight of a row; of more than ``most`` the largest."""
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    terms, weights = matrix.indices[part], matrix.data[part]
    if most is not None and len(terms) > most:
        kept = np.sort(np.argsort(-weights, kind="stable")[:most])
        terms, weights = terms[kept], weights[kept]
    pairs = zip(terms.tolist(), weights.tolist(), strict=True)
    return {f"t{term}": weight for term, weight in pairs if weight >= _LEAST_WEIGHT}


def _write_bulk(documents: sp.csr_matrix, folder: Path) -> tuple[list[Path], int]:
    """The bulk files, none much above :data:`_BULK_BYTES`, and how many documents are in them."""
    files: list[Path] = []
    lines: list[str] = []
    sent = size = 0

    def close() -> None:
        nonlocal size
        if lines:
            files.append(folder / f"bulk-{len(files):05}.ndjson")
            files[-1].write_text("".join(lines), encoding="utf-8")
            lines.clear()
            size = 0

    for row in range(documents.shape[0]):
        features = _features(documents, row)
        if features:
            lines += [f'{{"index": {{"_id": "{row}"}}}}\n', json.dumps({FIELD: features}) + "\n"]
            size += len(lines[-1])
            sent += 1
        if size > _BULK_BYTES:
            close()
    close()
    return files, sent


def _count(client: Any, name: str) -> int:
    return int(client.count(index=name)["count"])


def _checked_bulk(response: Mapping[str, Any], file: Path) -> None:
    if response["errors"] is not False:
        errors = [entry["index"]["error"]["reason"] for entry in response["items"] if "error" in entry["index"]]
        raise ValueError(f"it refuses {len(errors):,} documents of {file.name}, the first because: {errors[:1]}")


def _hits(response: Mapping[str, Any]) -> tuple[Ids, Scores]:
    """Document numbers and scores of one answer.

    Raises:
        ValueError: it is an error, or only a part of the answer.
    """
    if "error" in response:
        causes = response["error"].get("root_cause") or [response["error"]]
        raise ValueError(str(causes[0].get("reason")))
    if response["timed_out"] or response["_shards"]["failed"]:
        raise ValueError("a part of the index did not answer")
    hits = response["hits"]["hits"]
    ids = np.asarray([int(hit["_id"]) for hit in hits], dtype=np.int32)
    return ids, np.asarray([float(hit["_score"]) for hit in hits], dtype=np.float32)


@contextmanager
def _answers(settings: OpenSearchSettings) -> Iterator[None]:
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
        ) from error
