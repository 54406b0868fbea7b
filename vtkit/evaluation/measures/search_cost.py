"""What a search costs, encoding included; nothing heavy is imported here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vtkit.system import console
from vtkit.system.results import Result

QUERIES_TIMED = 100  # the first of a set


@dataclass(frozen=True)
class SearchCost(Result):
    """What an index takes, and how long a query takes in it, encoding included."""

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
        import numpy as np

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
