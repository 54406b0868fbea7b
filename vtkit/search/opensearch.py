"""Engine ``opensearch``: an OpenSearch cluster, vectors in a field of type ``rank_features``, which keeps 9 significant
bits of a weight. The index on the server is named after a digest of the vectors, so a build that was killed goes on."""

from __future__ import annotations

import json
import os
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from vtkit.data.text import batches
from vtkit.search.engine import Rank
from vtkit.search.exact import ExactIndex
from vtkit.search.index_info import REBUILD, Ids, Scores, digest_of
from vtkit.search.opensearch_client import PARALLEL, answers, connected_to, error_of, is_busy, patiently, reason_of
from vtkit.search.stored_vectors import shortest
from vtkit.settings.index import IndexSection
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.outputs import is_running
from vtkit.system.results import Result

FIELD, NUMBER, DOCUMENT = "weights", "number", "document"
MAPPING: Mapping[str, Any] = {
    "dynamic": "strict",
    "_source": {"includes": ["by", "sent"]},
    "properties": {
        FIELD: {"type": "rank_features"},
        NUMBER: {"type": "integer"},  # of the row: a document, or a passage ...
        DOCUMENT: {"type": "integer"},  # ... of this one
        "by": {"type": "keyword", "index": False, "doc_values": False},  # of BUILDER
        "sent": {"type": "integer", "index": False, "doc_values": False},
    },
}

MOST_CLAUSES = 1024
"""OpenSearch's default limit on the terms of a query; of longer queries the largest weights are sent."""

LARGEST_WEIGHT = 64.0  # the largest query weight that Lucene accepts
LEAST_WEIGHT = 2.0**-126  # of a feature; engines refuse smaller floats, which are not normal

BUILDER = "builder"
"""Id of a document that an index has while it is filled: by which process, and how many documents are there."""

PATIENCE_S = 60.0  # without news of another process that fills an index, after which this one goes on

_RECORD = "opensearch.json"
_BULK_BYTES = 4_000_000  # of a request
_QUERIES_AT_ONCE = 64
_RESULTS_AT_ONCE = 50_000
_WINDOW = 10_000  # results of one request (index.max_result_window)
_PART = {"status": 503, "error": {"reason": "a part of the index did not answer"}}
_ORDER = [{"_score": "desc"}, {NUMBER: "asc"}]


@dataclass(frozen=True)
class _Sent(Result):
    index: str
    documents: int  # documents with weights; the others are left out
    url: str


def build(postings: ExactIndex, folder: Path, settings: IndexSection) -> None:
    """Send the rows of ``postings`` to the server, but for those without weights and those that it has already; then
    point the alias to them. ``folder`` keeps the name of the index."""
    documents, groups = postings.by_document(), None if postings.passages is None else postings.passages.documents
    name = f"vtkit-{digest_of(documents, groups)[:24]}-{settings.shards}"
    rows = np.flatnonzero((documents >= LEAST_WEIGHT).getnnz(axis=1)).tolist()
    own = {"refresh_interval": "-1", "number_of_replicas": settings.replicas}
    with connected_to(settings) as client, answers(settings):
        if settings.alias is not None:
            _behind(client, settings.alias)  # before anything is sent
        if not client.indices.exists(index=name):
            body = {"settings": {"index": own | {"number_of_shards": settings.shards}}, "mappings": MAPPING}
            made = client.indices.create(index=name, body=body, ignore=400)
            if "error" in made and made["error"]["type"] != "resource_already_exists_exception":  # by another process
                raise ValueError(reason_of(made))
        client.indices.put_settings(index=name, body={"index": own})
        with _turn(client, name, len(rows)) as sent:
            _wait_for_copies(client, name, settings.replicas)  # a node may be lost with the only copy of a shard
            _send(client, name, documents, groups, rows, sent)
            patiently(partial(_complete, client, name, len(rows)))
        if settings.alias is not None:
            _wait_for_copies(client, name, settings.replicas)
            _switch(client, name, settings.alias)
    assert settings.url is not None
    _Sent(name, len(rows), settings.url).to_file(folder / _RECORD)


@contextmanager
def _turn(client: Any, name: str, wanted: int) -> Iterator[int]:
    """Fill the index in the block, as the only process that does: how many documents it has already, ``wanted`` for
    all. Another process is waited for as long as it runs on this machine, or gives a sign of life."""
    import opensearchpy

    own = _this_process()
    seen, since = None, time.monotonic()
    while patiently(partial(_count, client, name)) != wanted:
        try:
            client.create(index=name, id=BUILDER, body={"by": own, "sent": 0})
            sent = 0
            break
        except opensearchpy.ConflictError:
            held = client.get(index=name, id=BUILDER, ignore=404)
        if not held.get("found"):
            continue
        other, sent = held["_source"]["by"], held["_source"]["sent"]
        if (other, held["_version"]) != seen:
            if seen is None and _may_run(other):
                console.say(f"waiting for {other}, which is filling the index {name}")
            seen, since = (other, held["_version"]), time.monotonic()
        if not _may_run(other) or time.monotonic() - since > PATIENCE_S:
            place = {"if_seq_no": held["_seq_no"], "if_primary_term": held["_primary_term"]}
            taken = client.index(index=name, id=BUILDER, body={"by": own, "sent": sent}, params=place, ignore=409)
            if taken.get("result") == "updated":
                console.say(f"going on after {sent:,} documents, which {other} sent")
                break
        time.sleep(min(1.0, PATIENCE_S / 10))
    else:
        yield wanted
        return
    yield sent
    client.delete(index=name, id=BUILDER, ignore=404, params={"refresh": "true"})


def _this_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _may_run(process: str) -> bool:
    """Report whether ``process PID on HOST`` may still run: False only for a process of this machine that has ended."""
    number, host = process.removeprefix("process ").split(" on ", 1)
    return host != socket.gethostname() or (int(number) != os.getpid() and is_running(int(number)))


def _send(client: Any, name: str, documents: sp.csr_matrix, groups: Ids | None, rows: Sequence[int], sent: int) -> None:
    """Send ``rows`` of ``documents`` behind the first ``sent``, :data:`PARALLEL` requests of about :data:`_BULK_BYTES`
    at once; ``groups`` are the documents of passages."""
    own = _this_process()
    entries = (
        {NUMBER: row, **({} if groups is None else {DOCUMENT: int(groups[row])}), FIELD: _features(documents, row)}
        for row in rows[sent:]
    )
    actions = (
        f'{{"index":{{"_id":"{entry[NUMBER]}"}}}}\n{json.dumps(entry, separators=(",", ":"))}\n' for entry in entries
    )
    waiting: deque[tuple[int, Future[None]]] = deque()

    def acknowledge() -> None:
        nonlocal sent
        count, request = waiting.popleft()
        request.result()
        sent += count
        client.index(index=name, id=BUILDER, body={"by": own, "sent": sent})
        bar.advance(count)

    with console.progress("sending", total=len(rows) - sent) as bar, ThreadPoolExecutor(PARALLEL) as pool:
        for lines in batches(actions, len(rows), _BULK_BYTES):
            if len(waiting) == PARALLEL:
                acknowledge()
            waiting.append((len(lines), pool.submit(_bulk, client, name, lines)))
        while waiting:
            acknowledge()


def _bulk(client: Any, name: str, lines: list[str]) -> None:
    """Send ``lines``; in halves if the server finds them too large or is too busy for them, and again, after a pause,
    the documents for which it is too busy or has no shard."""
    import opensearchpy

    def send() -> None:
        nonlocal lines
        try:
            items = [item["index"] for item in client.bulk(index=name, body="".join(lines))["items"]]
        except opensearchpy.TransportError as error:
            if len(lines) == 1 or error.status_code not in (413, 429):
                raise
            if error.status_code == 413:
                console.say(f"{len(''.join(lines)):,} bytes are more than http.max_content_length: sent in halves")
            else:
                time.sleep(1.0)
            _bulk(client, name, lines[: len(lines) // 2])
            _bulk(client, name, lines[len(lines) // 2 :])
            return
        refused = [(line, error_of(item)) for line, item in zip(lines, items, strict=True) if "error" in item]
        if refused:
            lines = [line for line, _ in refused]
            raise next((error for _, error in refused if not is_busy(error)), refused[0][1])

    patiently(send)


def _behind(client: Any, alias: str) -> set[str]:
    """The indexes that ``alias`` stands for. DataError: it is the name of an index, or stands for one of others."""
    found = set(client.indices.get_alias(name=alias)) if client.indices.exists_alias(name=alias) else set()
    taken = [each for each in found if not each.startswith("vtkit-")]
    if taken or (not found and client.indices.exists(index=alias)):
        raise DataError(f"index.alias: {alias} is {', '.join(taken) or 'an index'}, not of vtkit. Name another alias.")
    return found


def _wait_for_copies(client: Any, name: str, replicas: int) -> None:
    nodes = client.cluster.health()["number_of_data_nodes"]
    if nodes <= replicas:
        needs = f"{replicas} replicas of an index need {replicas + 1} nodes, but the cluster has {nodes}"
        console.once(console.warn, f"{needs}: index.replicas")
    elif client.cluster.health(index=name, wait_for_status="green", ignore=408)["timed_out"]:
        console.warn(f"after half a minute, not all copies of the index {name} are complete")


def _switch(client: Any, name: str, alias: str) -> None:
    """Let ``alias`` stand for the index ``name`` and for no other from one moment to the next; then remove the index
    that it stood for. A second alias tells which that was, if this process does not come to removing it."""
    replaced = f"{alias}.replaced"
    before, left = _behind(client, alias) - {name}, _behind(client, replaced)
    removed = [(each, alias) for each in before] + ([(name, replaced)] if name in left else [])
    added = [(name, alias), *((each, replaced) for each in before)]
    actions: list[Any] = [{"remove": {"index": at, "alias": which, "must_exist": False}} for at, which in removed]
    actions += [{"add": {"index": at, "alias": which}} for at, which in added]
    client.indices.update_aliases(body={"actions": actions})
    if gone := (before | left) - {name}:
        client.indices.delete(index=",".join(sorted(gone)), ignore_unavailable=True)


def open_ranker(folder: Path, postings: ExactIndex, settings: IndexSection) -> Rank:
    """The index that :func:`build` made for ``folder``."""
    sent = _Sent.from_file(folder / _RECORD, REBUILD)
    if sent.url != settings.url:
        raise DataError(f"{folder} was sent to {sent.url}, but index.url is {settings.url}. {REBUILD}")
    client = connected_to(settings)
    with answers(settings):
        there = client.indices.exists(index=sent.index)
        held = patiently(partial(_count, client, sent.index), search=True) if there else None
    if held != sent.documents:
        has = "is not there" if held is None else f"has {held:,} of {sent.documents:,} documents"
        raise DataError(f"OpenSearch at {sent.url}: the index {sent.index} {has}. {REBUILD}")
    return partial(_rank, client, sent.index, settings, postings.passages is not None)


def _rank(
    client: Any, index: str, settings: IndexSection, passages: bool, queries: sp.csr_matrix, depth: int
) -> Iterator[tuple[Ids, Scores]]:
    """The :data:`Rank` of an index of a server that answers. It groups passages as far as one request goes; behind
    that, it returns all rows."""
    collapse = {"collapse": {"field": DOCUMENT}} if passages and depth <= _WINDOW else {}
    at_once = max(1, min(_QUERIES_AT_ONCE, _RESULTS_AT_ONCE // depth)) if depth <= _WINDOW else 1
    for start in range(0, queries.shape[0], at_once):
        batch = queries[start : start + at_once]
        largest = batch.max(axis=1).toarray().ravel().astype(np.float64)
        # powers of two, which bring the weights of each query below Lucene's limit
        scales = (2.0 ** -np.ceil(np.log2(np.maximum(largest / LARGEST_WEIGHT, 1)))).tolist()
        asked = [_query(_features(batch, row, scale), depth) | collapse for row, scale in enumerate(scales)]
        with answers(settings):
            pages = [_asked(client, index, asked)]
            while len(pages[-1][0][0]) == _WINDOW and len(pages) * _WINDOW < depth:  # so deep, a query is alone
                after = {"search_after": [float(pages[-1][0][1][-1]), int(pages[-1][0][0][-1])]}
                pages.append(_asked(client, index, [asked[0] | after]))
        for row, scale in enumerate(scales):
            ids, scores = (np.concatenate([page[row][part] for page in pages]) for part in (0, 1))
            yield ids[:depth], scores[:depth] / scale


def _query(features: dict[str, float], depth: int) -> dict[str, Any]:
    """The body of a search; of equal scores, the lower number comes first."""
    query = {"neural_sparse": {FIELD: {"query_tokens": features}}}
    window = {"size": min(depth, _WINDOW), "sort": _ORDER, "track_total_hits": False}
    return {"query": query, "stored_fields": "_none_", **window}


def _asked(client: Any, index: str, queries: Sequence[dict[str, Any]]) -> list[tuple[Ids, Scores]]:
    """The answers to some searches in one request, which is repeated while a shard is lost or busy."""
    lines = [line for query in queries for line in ("{}", json.dumps(query, separators=(",", ":")))]

    def ask() -> list[tuple[Ids, Scores]]:
        responses = client.msearch(index=index, body="\n".join([*lines, ""]))["responses"]
        if len(responses) != len(queries):
            raise ValueError(f"{len(responses)} answers to {len(queries)} queries")
        return [_hits(response) for response in responses]

    return patiently(ask, search=True)


def _features(matrix: sp.csr_matrix, row: int, scale: float = 1.0) -> dict[str, float]:
    """Feature -> weight of a row."""
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    pairs = zip(matrix.indices[part].tolist(), shortest(matrix.data[part] * np.float32(scale)).tolist(), strict=True)
    return {f"t{term}": weight for term, weight in pairs if weight >= LEAST_WEIGHT}


def _complete(client: Any, name: str, documents: int) -> None:
    """Let searches find what was sent: so many ``documents``. An error that is busy, if a shard did not take part."""
    client.indices.refresh(index=name)
    if (held := _count(client, name)) != documents:
        reason = f"the index {name} has {held:,} of {documents:,} documents"
        raise error_of({"status": 503, "error": {"reason": reason}})


def _count(client: Any, name: str) -> int:
    """The documents of an index that a search finds, in all of its shards."""
    answer = client.count(index=name, body={"query": {"exists": {"field": NUMBER}}})
    if answer["_shards"]["failed"]:
        raise error_of(_PART)
    return int(answer["count"])


def _hits(response: Mapping[str, Any]) -> tuple[Ids, Scores]:
    """Document numbers and scores of one answer; raises its error, or that of an incomplete one."""
    if "error" in response:
        raise error_of(response)
    if response["timed_out"]:
        raise ValueError("a search did not end in time")
    if response["_shards"]["failed"]:
        raise error_of(_PART)
    found = [hit["sort"] for hit in response["hits"]["hits"]]
    ids = np.asarray([number for _, number in found], dtype=np.int32)
    return ids, np.asarray([score for score, _ in found], dtype=np.float32)
