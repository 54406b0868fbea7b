"""What vectors cost to store and to search; nothing heavy is imported here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vtkit.system import console
from vtkit.system.results import Result

if TYPE_CHECKING:
    import scipy.sparse as sp


def active_dimensions(vectors: sp.csr_matrix) -> float:
    """Mean number of non-zero weights of ``vectors``, (texts, vocabulary); 0 for no vectors."""
    return float(np.count_nonzero(vectors.data)) / vectors.shape[0] if vectors.shape[0] else 0.0


def flops(query_shares: npt.NDArray[np.float64], document_shares: npt.NDArray[np.float64]) -> float:
    """Σ_j p_q(j)·p_d(j), the terms that a random query and a random document are expected to share.

    p(j) is the share of vectors with a non-zero weight at j. This is the FLOPS measure that SPLADE's papers
    report (multiplications to score one document), not the penalty of the same name that trains it.

    Args:
        query_shares, document_shares: p(j) of queries and documents, (vocabulary,); see :func:`activation_shares`.
    """
    return float(query_shares @ document_shares)


def activation_shares(vectors: sp.csr_matrix) -> npt.NDArray[np.float64]:
    """Share of the vectors that are non-zero at each dimension, (vocabulary,)."""
    active = np.bincount(vectors.indices[vectors.data != 0], minlength=vectors.shape[1]).astype(np.float64)
    return active / float(max(vectors.shape[0], 1))


@dataclass(frozen=True)
class QueryCost(Result):
    """The cost of some queries in the exact lists of an index (:func:`vtkit.search.maxscore.query_cost`).

    Counts are means over the queries. ``score`` to ``next_geq`` are those of MaxScore for 10 results, as table 6 of CSV
    (Yu et al., ECIR 2024) has them.
    """

    queries: int
    postings: float  # postings in a query's lists together: what is read where nothing is pruned
    lists: float  # lists that a query has
    list_lengths: tuple[float, ...]
    """Deciles, from the shortest to the longest, of the lengths of the index's lists that are not empty."""

    list_maxima: tuple[float, ...]  # deciles of their largest weights (CSV, figure 3)
    score: float  # products of weights that were added up
    insert: float  # documents that entered the heap of the best
    next: float  # steps to the following posting of a list
    next_geq: float  # jumps to the first posting of a document or a later one
    mean_ms: float  # to search one encoded query for 10 results with one thread, vtkit's exact search; so the next two
    median_ms: float
    p99_ms: float
    index_bytes: int  # of the lists, without the documents' texts


@dataclass(frozen=True)
class Sparsity(Result):
    """Use of the dimensions in one index."""

    dead_dimensions: float
    """Share of the dimensions that no document activates. Special tokens, padding and masked dimensions do not count:
    they never can be active."""

    size_edges: tuple[float, ...] = ()  # of a histogram of the documents by their active dimensions
    size_counts: tuple[int, ...] = ()  # documents between each two of the edges
    largest_share: float | None = None
    """Share of the documents in which the most used dimension is active; 0 if none is active anywhere."""

    median_share: float | None = None  # the same of the middle one of the dimensions that are active anywhere
    left_out: float = 0.0  # share of the documents' weights that pruning removed, and so of the index it saved


QUERIES_TIMED = 100  # the first of a set


@dataclass(frozen=True)
class SearchCost(Result):
    """The size of an index, and the time of a query in it, encoding included."""

    set: str
    documents: int
    index_bytes: int
    queries: int  # timed, one at a time
    query_ms: float  # the median
    query_ms_p99: float
    parameters: int | None = None  # of the model that encodes queries; None where a table does

    @classmethod
    def timed(
        cls,
        name: str,
        documents: int,
        index_bytes: int,
        queries: Sequence[str],
        search: Callable[[str], Any],
        parameters: int | None = None,
    ) -> SearchCost:
        """The cost of a set called ``name``; ``search`` is asked the first of its queries, one at a time."""
        queries = queries[:QUERIES_TIMED]
        milliseconds = []
        with console.without_bars():
            search(queries[0])  # what is loaded at the first search is not timed
            for query in queries:
                start = time.perf_counter()
                search(query)
                milliseconds.append(1000 * (time.perf_counter() - start))
        median, slowest = (round(float(value), 2) for value in np.quantile(milliseconds, [0.5, 0.99]))
        return cls(name, documents, index_bytes, len(queries), median, slowest, parameters)
