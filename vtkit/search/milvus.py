"""Engine ``milvus``: the vector database Milvus, embedded (Milvus Lite, files of the index) or a cluster at an address.
The collection is named after a digest of the vectors, so equal vectors are sent once and indexes never mix."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from vtkit.search.index_info import REBUILD, Ids, Scores, digest_of
from vtkit.settings.engines import TIMEOUT_S
from vtkit.system.errors import DataError
from vtkit.system.results import Result

TOKEN = "VTKIT_MILVUS_TOKEN"  # environment variable with the token, or `user:password`, of a cluster

_COLLECTION, _DATABASE = "collection.json", "milvus.db"
_POSTINGS_AT_ONCE = 200_000
_QUERIES_AT_ONCE = 64
_EMBEDDED_SECONDS = 24 * 3600.0  # the embedded Milvus scores every document in Python, so its answers may take long


@dataclass(frozen=True)
class _Collection(Result):
    collection: str
    documents: int  # documents with weights; the others are left out
    uri: str | None


def build_milvus(documents: sp.csr_matrix, folder: Path, url: str | None) -> None:
    """Send ``documents``, (documents, vocabulary), weights above zero, terms ascending, to the cluster unless it holds
    them all, or write them into ``folder``, where ``collection.json`` names the collection. Those without weights are
    left out."""
    import pymilvus

    name, sent = f"vtkit_{digest_of(documents)[:24]}", np.flatnonzero(np.diff(documents.indptr))
    where = url or str(folder / _DATABASE)
    with ExitStack() as opened, _answers(where):
        client = connected(where)
        opened.callback(_close, client, where)
        if _documents_of(client, name) != len(sent):
            client.drop_collection(name)
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("id", pymilvus.DataType.INT64, is_primary=True)
            schema.add_field("vector", pymilvus.DataType.SPARSE_FLOAT_VECTOR)
            kind = client.prepare_index_params()
            kind.add_index("vector", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
            client.create_collection(name, schema=schema, index_params=kind, consistency_level="Strong")
            at_once = max(1, _POSTINGS_AT_ONCE * len(sent) // max(1, documents.nnz))
            for start in range(0, len(sent), at_once):
                rows = sent[start : start + at_once].tolist()
                client.insert(name, [{"id": row, "vector": _entries(documents, row)} for row in rows])
            client.flush(name)
    _Collection(name, len(sent), url).to_file(folder / _COLLECTION)


def connected(where: str) -> Any:
    """A client of the cluster at the address ``where``, or of the database in the folder of that name."""
    import pymilvus

    for logger in ("pymilvus", "milvus_lite", "grpc"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)  # they raise what they log
    with _answers(where):
        seconds = TIMEOUT_S if "://" in where else _EMBEDDED_SECONDS
        client = pymilvus.MilvusClient(where, token=os.environ.get(TOKEN, ""), timeout=seconds)
        client.list_collections()
    return client


@dataclass(frozen=True)
class MilvusRanker:
    """A collection of a Milvus server that answers."""

    client: Any
    collection: str
    where: str

    @classmethod
    def open(cls, folder: Path, url: str | None, documents: int) -> MilvusRanker:
        """The collection that :func:`build_milvus` made for ``folder``; an embedded database is searched in a temporary
        copy, as Milvus writes into the files that it opens, and admits one process only."""
        record = _Collection.from_file(folder / _COLLECTION, REBUILD)
        name, uri = record.collection, record.uri
        if uri != url:
            built_for, named = uri or "the embedded Milvus", url or "the embedded Milvus"
            raise DataError(f"{folder} was built for {built_for}, but index.url names {named}. {REBUILD}")
        with ExitStack() as opened:
            where = uri or opened.enter_context(_copy_of(folder / _DATABASE))
            client = connected(where)
            opened.callback(_close, client, where)
            with _answers(where):
                held = _documents_of(client, name)
                if held != documents:
                    has = "is not there" if held is None else f"has {held:,} of {documents:,} documents"
                    raise DataError(f"{uri or folder}: the collection {name} {has}. {REBUILD}")
                client.load_collection(name)
            ranker = cls(client, name, where)
            weakref.finalize(ranker, opened.pop_all().close)
        return ranker

    def rank(self, queries: sp.csr_matrix, depth: int) -> Iterator[tuple[Ids, Scores]]:
        """As :meth:`vtkit.search.engine.Ranker.rank`."""
        for start in range(0, queries.shape[0], _QUERIES_AT_ONCE):
            batch = queries[start : start + _QUERIES_AT_ONCE]
            with _answers(self.where):
                answers = self.client.search(
                    self.collection,
                    data=[_entries(batch, row) for row in range(batch.shape[0])],
                    anns_field="vector",
                    limit=depth,
                    output_fields=["id"],
                    search_params={"metric_type": "IP"},
                )
                for hits in answers:
                    yield (
                        np.asarray([int(hit["id"]) for hit in hits], dtype=np.int32),
                        np.asarray([float(hit["distance"]) for hit in hits], dtype=np.float32),
                    )


def _documents_of(client: Any, name: str) -> int | None:
    return int(client.get_collection_stats(name)["row_count"]) if client.has_collection(name) else None


def _entries(matrix: sp.csr_matrix, row: int) -> dict[int, float]:
    """Dimension -> weight of a row."""
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return dict(zip(matrix.indices[part].tolist(), matrix.data[part].tolist(), strict=True))


@contextmanager
def _copy_of(database: Path) -> Iterator[str]:
    if not database.is_dir():
        raise DataError(f"{database} is missing. {REBUILD}")
    with tempfile.TemporaryDirectory(prefix="vtkit-milvus-") as place:
        copy = f"{place}/{_DATABASE}"
        shutil.copytree(database, copy, copy_function=shutil.copyfile)
        for below, _, _ in os.walk(copy):  # an index that may not be written to still has a copy that may
            os.chmod(below, 0o700)
        yield copy


def _close(client: Any, where: str) -> None:
    """End a client, and the server behind an embedded database."""
    client.close()
    if "://" not in where:
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_server(where)


@contextmanager
def _answers(where: str) -> Iterator[None]:
    import grpc
    import pymilvus

    try:
        yield
    except (pymilvus.MilvusException, grpc.RpcError, OSError, LookupError, TypeError, ValueError) as error:
        said = str(getattr(error, "message", "") or str(error) or type(error).__name__)
        remedy = (
            f"Check that it is running, and that the environment variable {TOKEN} is right. Its address is index.url."
        )
        raise DataError(f"Milvus at {where}: {said[:300]}. {remedy if '://' in where else REBUILD}") from error
