"""Search engines: the interface of an index over sparse vectors, and the engine that a recipe names. Every index holds
the exact postings, which explain, count and compare results."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import scipy.sparse as sp

from vtkit.encoder.documents import pruned
from vtkit.search.index_info import REBUILD, Ids, IndexInfo, Scores
from vtkit.search.passages import Passages, best_documents
from vtkit.settings.engines import Engine, missing_packages
from vtkit.settings.index import IndexSection
from vtkit.system import console
from vtkit.system.errors import DataError, MissingExtra
from vtkit.system.outputs import aside, publish

if TYPE_CHECKING:
    from vtkit.search.exact import ExactIndex

POSTINGS = "postings"  # folder of the index, beside the documents


Rank: TypeAlias = "Callable[[sp.csr_matrix, int], Iterator[tuple[Ids, Scores]]]"
"""An engine at work: at most so many document numbers (no more than there are) and their scores for each query, in the
order of the queries, (queries, vocabulary), whose weights are above zero and terms ascending. The results may be
approximate, and come in any order.

The file ``vtkit/search/ENGINE.py`` of an engine other than ``exact`` has ``build(postings, folder, settings)``, which
fills ``folder``, or a server, with the rows of ``postings``, whose weights are above zero, and ``open_ranker(folder,
postings, settings)``, which returns this function. An engine that groups passages returns one row of a document."""


@dataclass(frozen=True)
class EngineIndex:
    """An index that an engine other than ``exact`` searches; the exact postings beside it count and explain."""

    postings: ExactIndex  # its exact lists; the engine may keep a coarser form of them
    rank: Rank
    engine: Engine
    most_weights: int | None = None  # that the engine takes of a query, the largest; None: all

    @property
    def info(self) -> IndexInfo:
        """Counts of its documents and dimensions."""
        return self.postings.info

    def search(self, queries: sp.csr_matrix, depth: int) -> tuple[Ids, Scores]:
        """As :meth:`vtkit.search.exact.ExactIndex.search`, but ``seismic`` may keep any of the documents that tie
        for the last place.

        Raises:
            CollapseError: a query weight is infinite or NaN.
            DataError: the engine's files are damaged, or its server gives no usable answer.
            ValueError: the queries have another vocabulary, or ``depth`` is not positive.
        """
        matrix, passages = self.postings.checked(queries, depth), self.postings.passages
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        if cut := int((matrix.getnnz(axis=1) > (self.most_weights or np.inf)).sum()):
            console.warn(
                f"{cut:,} of {matrix.shape[0]:,} queries have more than {self.most_weights:,} weights, of which "
                f"{self.engine} takes the largest"
            )
            matrix, _ = pruned(matrix, self.most_weights)
        if matrix.data.min(initial=0) < 0:
            raise ValueError("only exact takes query weights below zero")
        if passages is not None:
            return best_documents(self._search_rows, matrix, depth, passages.documents, depth)
        return self._search_rows(matrix, depth)

    def _search_rows(self, matrix: sp.csr_matrix, depth: int) -> tuple[Ids, Scores]:
        """:meth:`search` among the rows of the vectors."""
        count = self.postings.document_count if len(self.postings.lists.entries) else 0
        ids = np.full((matrix.shape[0], depth), -1, dtype=np.int32)
        scores = np.zeros((matrix.shape[0], depth), dtype=np.float32)
        rows = np.flatnonzero(np.diff(matrix.indptr)) if count else np.empty(0, dtype=np.int64)
        answers = self.rank(matrix[rows], min(depth, count)) if len(rows) else iter(())
        for row, (numbers, weights) in zip(rows, answers, strict=True):
            known = np.unique(numbers[(numbers >= 0) & (numbers < count)])
            if not (len(known) == len(numbers) == len(weights) <= depth and np.isfinite(weights).all()):
                raise DataError(
                    f"{self.engine} names documents that the index does not have, or gives no scores: its files or "
                    f"its server belong to another index. {REBUILD}"
                )
            good = weights > 0
            numbers, weights = numbers[good], weights[good].astype(np.float32)
            order = np.lexsort((numbers, -weights))
            ids[row, : len(order)], scores[row, : len(order)] = numbers[order], weights[order]
        return ids, scores


Index: TypeAlias = "ExactIndex | EngineIndex"
"""A collection's sparse vectors, ready to be searched. Documents keep the numbers they had when it was built."""


def build_index(
    index: IndexSection,
    documents: sp.csr_matrix | Iterable[sp.csr_matrix],
    folder: Path,
    passages: Passages | None = None,
) -> Index:
    """An index of ``documents``, (documents, vocabulary), or of their ``passages``, whole or in parts, for the engine
    of ``index``, kept in ``folder``, where it takes the place of an earlier index when it is whole.

    Raises:
        CollapseError: a weight is infinite or NaN.
        DataError: ``folder`` holds other files; a server gives no usable answer; a weight is negative, and the engine
            is not ``exact``.
        MissingExtra: a package that the engine needs is not installed.
    """
    from vtkit.search.exact import COUNTS, ExactIndex

    require_engine(index.engine)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / f"{COUNTS}.npy").is_file():
        raise DataError(f"{folder} holds files that are no index. Name another folder, or empty it.")
    fresh = aside(folder.with_name(f"{folder.name}.index"))
    try:
        exact = ExactIndex.build(documents, passages, fresh)
        if index.engine != "exact":
            if exact.lists.entries.min(initial=0) < 0:
                raise DataError(
                    f'The engine {index.engine} cannot hold negative weights, which the documents have. Use "exact".'
                )
            (fresh / index.engine).mkdir()
            import_module(f"vtkit.search.{index.engine}").build(exact, fresh / index.engine, index)
        publish(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return exact if index.engine == "exact" else open_index(index, folder)


def open_index(index: IndexSection, folder: Path) -> Index:
    """The index that :func:`build_index` left in ``folder``, searched by the engine of ``index``; ``exact`` opens every
    one.

    Raises:
        DataError: files are missing or damaged, or a server no longer has the index.
        MissingExtra: a package that the engine needs is not installed.
    """
    from vtkit.search.exact import ExactIndex

    require_engine(index.engine)
    exact, files = ExactIndex.load(folder), folder / index.engine
    if index.engine == "exact":
        return exact
    if not files.is_dir():
        raise DataError(f"{folder} has no files of the engine {index.engine}. {REBUILD}")
    module = import_module(f"vtkit.search.{index.engine}")
    rank, most = module.open_ranker(files, exact, index), getattr(module, "MOST_CLAUSES", None)
    return EngineIndex(exact, rank, index.engine, most)


def require_engine(engine: Engine) -> None:
    """Check that the packages of ``engine`` are installed."""
    missing = missing_packages(engine)
    if missing:
        raise MissingExtra(f"The engine {engine}", " and ".join(missing), engine)


def reach_engine(index: IndexSection) -> None:
    """Check that the server of ``index``, if it names one, answers."""
    require_engine(index.engine)
    if index.engine == "opensearch":
        from vtkit.search.opensearch_client import connected_to

        connected_to(index).close()


def index_in_memory(documents: sp.csr_matrix, passages: Passages | None = None) -> Index:
    """An exact index that is not kept, of documents or their passages."""
    from vtkit.search.exact import ExactIndex

    return ExactIndex.build(documents, passages)
