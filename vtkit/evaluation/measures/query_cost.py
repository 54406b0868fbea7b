"""What queries cost in an index, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from vtkit.system.results import Result


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
