"""Engine ``opensearch``: an OpenSearch cluster, vectors in a field of type ``rank_features``, which keeps 9 significant
bits of a weight. The index on the server is named after a digest of the vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from vtkit.search.engine import Rank
from vtkit.search.exact import ExactIndex
from vtkit.search.index_info import REBUILD, Ids, Scores, digest_of
from vtkit.search.opensearch_client import answers, connected_to
from vtkit.settings.index import IndexSection
from vtkit.system.errors import DataError
from vtkit.system.results import Result

FIELD = "weights"
MAPPING: Mapping[str, Any] = {
    "settings": {"index": {"number_of_shards": 1, "refresh_interval": "-1"}},
    "mappings": {"dynamic": "strict", "_source": {"enabled": False}, "properties": {FIELD: {"type": "rank_features"}}},
}

MOST_CLAUSES = 1024
"""OpenSearch's default limit on the terms of a query; of longer queries the largest weights are sent."""

LARGEST_WEIGHT = 64.0  # the largest query weight that Lucene accepts

_RECORD = "opensearch.json"
_BULK_BYTES, _RETRIES = 8_000_000, 8  # of a request; each retry waits twice as long, the first two seconds
LEAST_WEIGHT = 2.0**-126  # of a feature; engines refuse smaller floats, which are not normal
_QUERIES_AT_ONCE = 64
_RESULTS_AT_ONCE = 50_000


@dataclass(frozen=True)
class _Sent(Result):
    index: str
    documents: int  # documents with weights; the others are left out
    url: str


def build(documents: sp.csr_matrix, folder: Path, settings: IndexSection) -> None:
    """Send ``documents``, (documents, vocabulary), to the server, but for those without weights, unless it has them
    already; ``folder`` keeps the name of the index."""
    from opensearchpy.helpers import bulk

    name = f"vtkit-{digest_of(documents)[:24]}"
    sent = int(np.count_nonzero((documents >= LEAST_WEIGHT).getnnz(axis=1)))
    vectors = ((str(row), _features(documents, row)) for row in range(documents.shape[0]))
    with connected_to(settings) as client, answers(settings):
        if _count(client, name) != sent:
            client.indices.delete(index=name, ignore_unavailable=True)
            client.indices.create(index=name, body=MAPPING)
            actions = ({"_id": row, FIELD: features} for row, features in vectors if features)
            bulk(client, actions, index=name, max_chunk_bytes=_BULK_BYTES, max_retries=_RETRIES)
            client.indices.refresh(index=name)
    assert settings.url is not None
    _Sent(name, sent, settings.url).to_file(folder / _RECORD)


def open_ranker(folder: Path, postings: ExactIndex, settings: IndexSection) -> Rank:
    """The index that :func:`build` made for ``folder``."""
    sent = _Sent.from_file(folder / _RECORD, REBUILD)
    if sent.url != settings.url:
        raise DataError(f"{folder} was sent to {sent.url}, but index.url is {settings.url}. {REBUILD}")
    client = connected_to(settings)
    with answers(settings):
        held = _count(client, sent.index)
    if held != sent.documents:
        has = "is not there" if held is None else f"has {held:,} of {sent.documents:,} documents"
        raise DataError(f"OpenSearch at {sent.url}: the index {sent.index} {has}. {REBUILD}")
    return partial(_rank, client, sent.index, settings)


def _rank(
    client: Any, index: str, settings: IndexSection, queries: sp.csr_matrix, depth: int
) -> Iterator[tuple[Ids, Scores]]:
    """The :data:`Rank` of an index of a server that answers."""
    at_once = max(1, min(_QUERIES_AT_ONCE, _RESULTS_AT_ONCE // depth))
    for start in range(0, queries.shape[0], at_once):
        batch = queries[start : start + at_once]
        largest = batch.max(axis=1).toarray().ravel().astype(np.float64)
        # powers of two, which bring the weights of each query below Lucene's limit
        scales = (2.0 ** -np.ceil(np.log2(np.maximum(largest / LARGEST_WEIGHT, 1)))).tolist()
        requests: list[dict[str, Any]] = []
        for row, scale in enumerate(scales):
            query = {"neural_sparse": {FIELD: {"query_tokens": _features(batch, row, MOST_CLAUSES, scale)}}}
            requests += [{}, {"query": query, "size": depth, "_source": False, "track_total_hits": False}]
        with answers(settings):
            responses = client.msearch(index=index, body=requests)["responses"]
            hits = [_hits(response) for response in responses]
        if len(hits) != batch.shape[0]:
            raise DataError(f"OpenSearch at {settings.url} answers {len(hits)} of {batch.shape[0]} queries.")
        yield from ((ids, scores / scale) for (ids, scores), scale in zip(hits, scales, strict=True))


def _features(matrix: sp.csr_matrix, row: int, most: int | None = None, scale: float = 1.0) -> dict[str, float]:
    """Feature -> weight of a row, the ``most`` largest."""
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    terms, weights = matrix.indices[part], matrix.data[part] * scale
    if most is not None and len(terms) > most:
        kept = np.sort(np.argsort(-weights, kind="stable")[:most])
        terms, weights = terms[kept], weights[kept]
    pairs = zip(terms.tolist(), weights.tolist(), strict=True)
    return {f"t{term}": weight for term, weight in pairs if weight >= LEAST_WEIGHT}


def _count(client: Any, name: str) -> int | None:
    """The documents of an index; None if there is no such index."""
    return int(client.count(index=name)["count"]) if client.indices.exists(index=name) else None


def _hits(response: Mapping[str, Any]) -> tuple[Ids, Scores]:
    """Document numbers and scores of one answer; ValueError for an error, or an incomplete one."""
    if "error" in response:
        causes = response["error"].get("root_cause") or [response["error"]]
        raise ValueError(str(causes[0].get("reason")))
    if response["timed_out"] or response["_shards"]["failed"]:
        raise ValueError("a part of the index did not answer")
    hits = response["hits"]["hits"]
    ids = np.asarray([int(hit["_id"]) for hit in hits], dtype=np.int32)
    return ids, np.asarray([float(hit["_score"]) for hit in hits], dtype=np.float32)
