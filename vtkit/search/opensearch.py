"""Engine ``opensearch``: an OpenSearch cluster, vectors in a field of type ``rank_features``, which keeps 9 significant
bits of a weight. The index on the server is named after a digest of the vectors; its folder keeps the files sent."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from vtkit.evaluation.measures.agreement import DEPTH, agreement
from vtkit.search.index_info import REBUILD, Ids, Scores, digest_of
from vtkit.search.opensearch_client import answers, connected_to
from vtkit.search.opensearch_text import (
    LARGEST_WEIGHT,
    TextQueries,
    deployed_model,
    pipelines,
    same_scores,
    text_query,
    two_phase_of,
)
from vtkit.settings.index import IndexSection
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.results import Result

FIELD = "weights"
MAPPING: Mapping[str, Any] = {
    "settings": {"index": {"number_of_shards": 1, "refresh_interval": "-1"}},
    "mappings": {"dynamic": "strict", "_source": {"enabled": False}, "properties": {FIELD: {"type": "rank_features"}}},
}

MOST_CLAUSES = 1024
"""OpenSearch's default limit on the terms of a query; of longer queries the largest weights are sent."""

_RECORD, _FEATURES = "opensearch.json", "features.json"
_BULK_BYTES = 8_000_000
_LEAST_WEIGHT = 2.0**-126  # of a feature; smaller floats are not normal
_QUERIES_AT_ONCE = 64
_RESULTS_AT_ONCE = 50_000


@dataclass(frozen=True)
class _Sent(Result):
    index: str
    documents: int  # documents with weights; the others are left out
    url: str
    tokens: bool = False  # whether dimensions are named after their tokens


def build_opensearch(
    documents: sp.csr_matrix, folder: Path, settings: IndexSection, text: TextQueries | None = None
) -> None:
    """Write the mapping and the bulk files of ``documents``, (documents, vocabulary), weights above zero, terms
    ascending, into ``folder``, and send them. Documents without weights are left out.

    Args:
        text: the query table, if the cluster is to encode queries. Its model is registered and deployed, the index
            answers text by default, and its answers are compared with those to vtkit's own query vectors.
    """
    digest = digest_of(documents)
    if text is not None:
        digest = hashlib.sha256(f"{digest} {text.digest}".encode()).hexdigest()
    name = f"vtkit-{digest[:24]}"
    features = None if text is None else text.features
    mapping = MAPPING
    if text is not None:
        index = {**MAPPING["settings"]["index"], "search.default_pipeline": name}
        mapping = {**MAPPING, "settings": {"index": index}}
        (folder / _FEATURES).write_text(json.dumps(features), encoding="utf-8")
    (folder / "mapping.json").write_text(json.dumps(mapping, indent=1), encoding="utf-8")
    files, sent = _write_bulk(documents, folder, features)
    client = connected_to(settings)
    try:
        if text is not None:
            model = deployed_model(client, text.model, settings, folder)
            pipelines(client, name, model, settings, folder)
        with answers(settings):
            if not client.indices.exists(index=name) or _count(client, name) != sent:
                client.indices.delete(index=name, ignore_unavailable=True)
                client.indices.create(index=name, body=mapping)
                for file in files:
                    _checked_bulk(client.bulk(index=name, body=file.read_text(encoding="utf-8")), file)
                client.indices.refresh(index=name)
        if text is not None:
            _check_text(OpenSearchRanker(client, name, settings, features), text)
    finally:
        client.close()
    assert settings.url is not None
    _Sent(name, sent, settings.url, text is not None).to_file(folder / _RECORD)


@dataclass(frozen=True)
class OpenSearchRanker:
    """An index of an OpenSearch server that answers."""

    client: Any
    index: str
    settings: IndexSection
    features: Sequence[str | None] | None = None  # the names of the dimensions, if they are named after their tokens

    @classmethod
    def open(cls, folder: Path, settings: IndexSection) -> OpenSearchRanker:
        """The index that :func:`build_opensearch` made for ``folder``."""
        sent, features = _Sent.from_file(folder / _RECORD, REBUILD), None
        if sent.tokens:
            try:
                features = [name and str(name) for name in json.loads((folder / _FEATURES).read_text("utf-8"))]
            except (FileNotFoundError, ValueError, TypeError, RecursionError) as error:
                raise DataError(f"{folder / _FEATURES} is missing or damaged ({error}). {REBUILD}") from error
        if sent.url != settings.url:
            raise DataError(f"{folder} was sent to {sent.url}, but index.url is {settings.url}. {REBUILD}")
        client = connected_to(settings)
        with answers(settings):
            held = _count(client, sent.index) if client.indices.exists(index=sent.index) else None
        if held != sent.documents:
            has = "is not there" if held is None else f"has {held:,} of {sent.documents:,} documents"
            raise DataError(f"OpenSearch at {sent.url}: the index {sent.index} {has}. {REBUILD}")
        return cls(client, sent.index, settings, features)

    def rank(self, queries: sp.csr_matrix, depth: int) -> Iterator[tuple[Ids, Scores]]:
        """As :meth:`vtkit.search.engine.Ranker.rank`."""
        at_once = max(1, min(_QUERIES_AT_ONCE, _RESULTS_AT_ONCE // depth))
        for start in range(0, queries.shape[0], at_once):
            batch = queries[start : start + at_once]
            scales = [_scale(batch, row) for row in range(batch.shape[0])]
            requests: list[dict[str, Any]] = []
            for row, scale in enumerate(scales):
                features = _features(batch, row, self.features, MOST_CLAUSES, scale)
                query = query_of(features, self.settings.opensearch.query)
                requests += [{}, {"query": query, "size": depth, "_source": False, "track_total_hits": False}]
            with answers(self.settings):
                responses = self.client.msearch(index=self.index, body=requests)["responses"]
                hits = [_hits(response) for response in responses]
            if len(hits) != batch.shape[0]:
                raise DataError(f"OpenSearch at {self.settings.url} answers {len(hits)} of {batch.shape[0]} queries.")
            yield from ((ids, scores / scale) for (ids, scores), scale in zip(hits, scales, strict=True))

    def rank_text(self, text: str, **parameters: str) -> tuple[Ids, Scores]:
        """The first document numbers and scores that an application gets for ``text``."""
        with answers(self.settings):
            return _hits(self.client.search(index=self.index, body=text_query(text, FIELD), params=parameters))


def query_of(features: Mapping[str, float], kind: str) -> dict[str, Any]:
    """The query whose score is the dot product with ``features``, in OpenSearch's query language."""
    if kind != "rank_feature":
        return {"neural_sparse": {FIELD: {"query_tokens": dict(features)}}}
    products = [
        {"rank_feature": {"field": f"{FIELD}.{name}", "boost": weight, "linear": {}}}
        for name, weight in features.items()
    ]
    return {"bool": {"should": products}}


def _check_text(ranker: OpenSearchRanker, text: TextQueries) -> None:
    """Check, and say, that the cluster answers the queries of ``text`` as it answers their vectors."""
    nothing = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
    some = np.diff(text.vectors.indptr) > 0
    answered = ranker.rank(text.vectors[np.flatnonzero(some)], DEPTH)
    exact = [next(answered) if asks else nothing for asks in some]
    for query, (_, wanted) in zip(text.texts, exact, strict=True):
        _, scores = ranker.rank_text(query)
        if not same_scores(scores, wanted):
            best, expected = (f"{values[0]:.4f}" if len(values) else "no results" for values in (scores, wanted))
            raise DataError(
                f"OpenSearch at {ranker.settings.url} encodes queries differently from vtkit: the best score for "
                f"{query[:80]!r} is {best} as text and {expected} as vtkit's vector. Set index.opensearch.query to "
                '"neural_sparse", or try a newer OpenSearch: older ones have older tokenizers.'
            )
    if text.texts:
        console.say(f"  opensearch: {len(text.texts)} queries as text give the scores of their vectors")
    if text.texts and ranker.settings.opensearch.two_phase is not None:
        two_phase = [ranker.rank_text(query, search_pipeline=two_phase_of(ranker.index)) for query in text.texts]
        compared = agreement("in two phases", *_table(two_phase), *_table(exact))
        console.say(f"  opensearch {compared.words()}")


def _table(results: Sequence[tuple[Ids, Scores]]) -> tuple[Ids, Scores]:
    """Results of several queries, (queries, results), -1 and 0 behind the last."""
    ids = np.full((len(results), DEPTH), -1, dtype=np.int32)
    scores = np.zeros((len(results), DEPTH), dtype=np.float32)
    for row, (numbers, values) in enumerate(results):
        ids[row, : len(numbers)], scores[row, : len(values)] = numbers, values
    return ids, scores


def _scale(queries: sp.csr_matrix, row: int) -> float:
    """The power of two that brings the weights of a query below Lucene's limit."""
    weights = queries.data[queries.indptr[row] : queries.indptr[row + 1]]
    largest = float(weights.max(initial=0.0))
    return 1.0 if largest <= LARGEST_WEIGHT else 2.0 ** -math.ceil(math.log2(largest / LARGEST_WEIGHT))


def _features(
    matrix: sp.csr_matrix, row: int, names: Sequence[str | None] | None, most: int | None = None, scale: float = 1.0
) -> dict[str, float]:
    """Feature -> weight of a row, the ``most`` largest."""
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    terms, weights = matrix.indices[part], matrix.data[part] * scale
    if most is not None and len(terms) > most:
        kept = np.sort(np.argsort(-weights, kind="stable")[:most])
        terms, weights = terms[kept], weights[kept]
    named = ((f"t{term}" if names is None else names[term]) for term in terms.tolist())
    pairs = zip(named, weights.tolist(), strict=True)
    return {name: weight for name, weight in pairs if name and weight >= _LEAST_WEIGHT}


def _write_bulk(documents: sp.csr_matrix, folder: Path, names: Sequence[str | None] | None) -> tuple[list[Path], int]:
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
        features = _features(documents, row, names)
        if features:
            lines += [f'{{"index": {{"_id": "{row}"}}}}\n', json.dumps({FIELD: features}) + "\n"]
            size += len(lines[-1])
            sent += 1
        if size > _BULK_BYTES:
            close()
    close()
    return files, sent


def _count(client: Any, name: str) -> int:
    # with a query, because neural_query_enricher fails without one
    return int(client.count(index=name, body={"query": {"match_all": {}}})["count"])


def _checked_bulk(response: Mapping[str, Any], file: Path) -> None:
    if response["errors"] is not False:
        errors = [entry["index"]["error"]["reason"] for entry in response["items"] if "error" in entry["index"]]
        raise ValueError(f"it refuses {len(errors):,} documents of {file.name}, the first with {errors[:1]}")


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
