"""Engine ``milvus``: the vector database Milvus, embedded (Milvus Lite, files of the index) or a cluster at an address.

Both are spoken to by the same client code. The collection is named after a digest of the vectors, so equal vectors are
sent once and an index never meets those of another. Scores are exact float32 inner products; a cluster may be asked by
many at once, and holds more than one machine does.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from vtkit.errors import DataError
from vtkit.recipe.engines import MilvusSettings
from vtkit.search.index_info import REBUILD, Ids, Scores, digest_of

TOKEN = "VTKIT_MILVUS_TOKEN"
"""Environment variable: the token, or ``user:password``, of a cluster."""

_COLLECTION, _DATABASE = "collection.json", "milvus.db"
_POSTINGS_AT_ONCE = 200_000
_QUERIES_AT_ONCE = 256
_RESULTS_AT_ONCE = 100_000


def build_milvus(documents: sp.csr_matrix, folder: Path, settings: MilvusSettings) -> None:
    """Send ``documents`` to the cluster, or write them into ``folder``; ``collection.json`` names what they are there.

    Args:
        documents: (documents, vocabulary), weights above zero, terms ascending. Those without weights are left out.
        folder: where it goes; it exists.

    Raises:
        DataError: the cluster cannot be reached, or refuses.
    """
    name, sent = f"vtkit_{digest_of(documents)[:24]}", np.flatnonzero(np.diff(documents.indptr))
    if settings.uri is None:
        # the database keeps an open connection to its path, and this folder is going to be moved
        with tempfile.TemporaryDirectory(prefix="vtkit-milvus-") as place:
            database = Path(place) / _DATABASE
            _fill(str(database), settings.timeout, name, documents, sent)
            shutil.copytree(database, folder / _DATABASE)
    else:
        _fill(settings.uri, settings.timeout, name, documents, sent)
    recorded = {"collection": name, "documents": len(sent), "uri": settings.uri}
    (folder / _COLLECTION).write_text(json.dumps(recorded), encoding="utf-8")


def connected(uri: str, timeout: float) -> Any:
    """A client of the cluster at ``uri``, or of the database that is a folder of that name.

    Raises:
        DataError: there is no answer.
    """
    import pymilvus

    for logger in ("pymilvus", "milvus_lite", "grpc"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)  # what they have to say is raised as well
    with _answers(uri):
        client = pymilvus.MilvusClient(uri, token=os.environ.get(TOKEN, ""), timeout=timeout)
        client.list_collections()
    return client


@dataclass(frozen=True)
class MilvusRanker:
    """A collection of a Milvus that answers."""

    client: Any
    collection: str
    where: str
    timeout: float

    @classmethod
    def open(cls, folder: Path, settings: MilvusSettings, documents: int) -> MilvusRanker:
        """The collection that :func:`build_milvus` made for ``folder``.

        An embedded one is searched in a temporary copy: Milvus writes into what it opens, and lets only one process in.

        Args:
            documents: how many of the index have weights.

        Raises:
            DataError: it is not there, damaged, or not whole.
        """
        try:
            recorded = json.loads((folder / _COLLECTION).read_text(encoding="utf-8"))
            name, uri = str(recorded["collection"]), recorded["uri"]
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{folder / _COLLECTION} is missing or damaged ({error}). {REBUILD}") from error
        if uri != settings.uri:
            raise DataError(
                f"{folder} is an index of {uri or 'the embedded Milvus'}, not of {settings.uri or 'that'}. {REBUILD}"
            )
        if uri is None:
            where, (client, copy) = str(folder / _DATABASE), _copy_of(folder / _DATABASE, settings.timeout)
        else:
            where, copy = uri, None
            client = connected(uri, settings.timeout)
        with _answers(where):
            there = client.has_collection(name)
            held = int(client.get_collection_stats(name)["row_count"]) if there else 0
            if there:
                client.load_collection(name)
        if not there or held != documents:
            has = f"has {held:,} of {documents:,} documents" if there else "is not there"
            raise DataError(f"{where}: the collection {name} {has}. {REBUILD}")
        ranker = cls(client, name, where, settings.timeout)
        weakref.finalize(ranker, _close, client, copy, None if copy is None else str(Path(copy).parent))
        return ranker

    def rank(self, queries: sp.csr_matrix, depth: int) -> Iterator[tuple[Ids, Scores]]:
        """As :meth:`vtkit.search.engine.Ranker.rank`."""
        most = max(1, min(_QUERIES_AT_ONCE, _RESULTS_AT_ONCE // depth))
        at_once, start = 1, 0
        while start < queries.shape[0]:
            batch = queries[start : start + at_once]
            begun = time.monotonic()
            with _answers(self.where):
                found = self.client.search(
                    self.collection,
                    data=[_entries(batch, row) for row in range(batch.shape[0])],
                    anns_field="vector",
                    limit=depth,
                    output_fields=["id"],
                    search_params={"metric_type": "IP"},
                    timeout=self.timeout,
                )
                answers = [
                    (
                        np.asarray([int(hit["id"]) for hit in hits], dtype=np.int32),
                        np.asarray([float(hit["distance"]) for hit in hits], dtype=np.float32),
                    )
                    for hits in found
                ]
            if len(answers) != batch.shape[0]:
                raise DataError(f"{self.where} answers {len(answers)} of {batch.shape[0]} queries.")
            yield from answers
            start += batch.shape[0]
            # a large collection takes seconds a query, and an answer may not take longer than the timeout
            share = (time.monotonic() - begun) / self.timeout
            at_once = min(most, 2 * at_once) if share < 0.1 else max(1, int(at_once * 0.1 / share))


def _fill(uri: str, timeout: float, name: str, documents: sp.csr_matrix, sent: np.ndarray) -> None:
    """Make the collection ``name`` of the rows ``sent`` of ``documents``, if it is not there in full."""
    import pymilvus

    client = connected(uri, timeout)
    try:
        with _answers(uri):
            if client.has_collection(name):
                if int(client.get_collection_stats(name)["row_count"]) == len(sent):
                    return
                client.drop_collection(name)
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("id", pymilvus.DataType.INT64, is_primary=True)
            schema.add_field("vector", pymilvus.DataType.SPARSE_FLOAT_VECTOR)
            kind = client.prepare_index_params()
            kind.add_index("vector", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
            client.create_collection(name, schema=schema, index_params=kind, consistency_level="Strong")
            at_once = max(1, _POSTINGS_AT_ONCE // max(1, documents.nnz // max(1, len(sent))))
            for start in range(0, len(sent), at_once):
                rows = sent[start : start + at_once].tolist()
                client.insert(name, [{"id": row, "vector": _entries(documents, row)} for row in rows])
            client.flush(name)
    finally:
        _close(client, None if "://" in uri else uri)


def _entries(matrix: sp.csr_matrix, row: int) -> dict[int, float]:
    """Dimension -> weight of a row."""
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return dict(zip(matrix.indices[part].tolist(), matrix.data[part].tolist(), strict=True))


def _copy_of(database: Path, timeout: float) -> tuple[Any, str]:
    """A client of a temporary copy of ``database``, and where that is."""
    if not database.is_dir():
        raise DataError(f"{database} is missing. {REBUILD}")
    place = tempfile.mkdtemp(prefix="vtkit-milvus-")
    copy = f"{place}/{_DATABASE}"
    try:
        shutil.copytree(database, copy, copy_function=shutil.copyfile)
        for below, _, _ in os.walk(copy):  # an index that may not be written to still has a copy that may
            os.chmod(below, 0o700)
        return connected(copy, timeout), copy
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def _close(client: Any, database: str | None, place: str | None = None) -> None:
    """End a client, the server behind an embedded ``database``, and the temporary folder ``place``."""
    client.close()
    if database is not None:
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_server(database)
    if place is not None:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _answers(where: str) -> Iterator[None]:
    """The block's errors of Milvus as :class:`DataError`."""
    import grpc
    import pymilvus

    try:
        yield
    except (pymilvus.MilvusException, grpc.RpcError, OSError, LookupError, TypeError, ValueError) as error:
        said = str(getattr(error, "message", "") or str(error) or type(error).__name__)
        if isinstance(error, grpc.RpcError) and "://" not in where and grpc.StatusCode.DEADLINE_EXCEEDED.name in said:
            said = "it did not answer in time"
            remedy = "Raise index.milvus.timeout (seconds), or keep other heavy processes away."
        elif "://" in where:
            remedy = f"Is it running, and does {TOKEN} in the environment let you in? The address is index.milvus.uri."
        else:
            remedy = REBUILD
        raise DataError(f"Milvus at {where}: {said[:300]}. {remedy}") from error
