"""The cost of queries in the lists of an index: postings, time, and the operations of MaxScore, which other engines use
and the papers' tables report."""

import heapq
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from vtkit.search.exact import ExactIndex
from vtkit.search.measures.cost import QueryCost
from vtkit.search.posting_lists import cached_njit

DEPTH = 10  # results per query

DECILES = np.linspace(0, 1, 11)


def query_cost(index: ExactIndex, queries: sp.csr_matrix) -> QueryCost:
    """The cost of ``queries``, (queries, vocabulary), at least one, in an index."""
    matrix = sp.csr_matrix(queries, dtype=np.float32, copy=True)
    matrix.eliminate_zeros()
    by_term = index.by_document().tocsc()
    counts = maxscore_operations(by_term, matrix, DEPTH)
    lengths = np.diff(by_term.indptr)
    present = (matrix != 0).astype(np.float64)
    milliseconds = []
    for row in (0, *range(matrix.shape[0])):
        start = time.perf_counter()
        index.search(matrix[row], DEPTH)
        milliseconds.append(1000 * (time.perf_counter() - start))
    del milliseconds[0]  # in which the search is compiled, and files are mapped
    median, slow = np.quantile(milliseconds, [0.5, 0.99])
    operations = dict(zip(("score", "insert", "next", "next_geq"), counts.mean(axis=0).tolist(), strict=True))
    return QueryCost(
        queries=matrix.shape[0],
        postings=float((present @ lengths).mean()),
        lists=float((present @ (lengths > 0)).mean()),
        list_lengths=_deciles(lengths[lengths > 0]),
        list_maxima=_deciles(by_term.max(axis=0).toarray()[0][lengths > 0]),
        **operations,
        mean_ms=float(np.mean(milliseconds)),
        median_ms=float(median),
        p99_ms=float(slow),
        index_bytes=sum(array.nbytes for array in index.lists),
    )


def maxscore_operations(documents: sp.csc_matrix, queries: sp.csr_matrix, depth: int) -> npt.NDArray[np.int64]:
    """SCORE, INSERT, NEXT and NEXT-GEQ of MaxScore for each query, (queries, 4), in the lists of ``documents``.

    MaxScore (Turtle and Flood, 1995) document at a time, as PISA runs it: once the ``depth`` best documents score more
    than the lists with the smallest largest contributions could sum to, these are only looked up for documents of
    others.
    """
    matrix = queries.tocsr()
    counts = np.zeros((matrix.shape[0], 4), dtype=np.int64)
    _count(
        documents.indptr.astype(np.int64), documents.indices, documents.data, documents.max(axis=0).toarray()[0],
        matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data.astype(np.float32),
        np.int64(documents.shape[0]), depth, counts,
    )  # fmt: skip
    return counts


def _deciles(values: npt.NDArray[Any]) -> tuple[float, ...]:
    return tuple(np.quantile(values, DECILES).tolist()) if len(values) else ()


@cached_njit()
def _count(
    starts: Any, documents: Any, weights: Any, maxima: Any,
    query_starts: Any, query_terms: Any, query_weights: Any, end: Any, depth: int, counts: Any,
) -> None:  # fmt: skip
    for query in range(len(counts)):
        chosen = np.empty(query_starts[query + 1] - query_starts[query], np.int64)
        bounds = np.empty(len(chosen), np.float32)
        lists = 0
        for entry in range(query_starts[query], query_starts[query + 1]):
            term = query_terms[entry]
            bound = query_weights[entry] * maxima[term]
            if starts[term] < starts[term + 1] and bound > 0:
                chosen[lists], bounds[lists] = entry, bound
                lists += 1
        order = np.argsort(bounds[:lists])
        terms, factors = np.empty(lists, np.int64), np.empty(lists, np.float32)
        at, stop, upper = np.empty(lists, np.int64), np.empty(lists, np.int64), np.empty(lists, np.float64)
        total = 0.0
        for place in range(lists):
            entry = chosen[order[place]]
            terms[place], factors[place] = query_terms[entry], query_weights[entry]
            at[place], stop[place] = starts[terms[place]], starts[terms[place] + 1]
            total += bounds[order[place]]
            upper[place] = total
        heap = [np.float32(0)] * depth  # the best scores, the smallest first
        first = 0  # lists before ``first`` are looked up only
        current = end
        for place in range(lists):
            current = min(current, documents[at[place]])
        while first < lists and current < end:
            score, following = np.float32(0), end
            for place in range(first, lists):
                if at[place] < stop[place] and documents[at[place]] == current:
                    score += factors[place] * weights[at[place]]
                    counts[query, 0] += 1
                    at[place] += 1
                    counts[query, 2] += 1
                if at[place] < stop[place]:
                    following = min(following, documents[at[place]])
            for place in range(first - 1, -1, -1):
                if score + upper[place] <= heap[0]:
                    break
                at[place] += np.searchsorted(documents[at[place] : stop[place]], current)
                counts[query, 3] += 1
                if at[place] < stop[place] and documents[at[place]] == current:
                    score += factors[place] * weights[at[place]]
                    counts[query, 0] += 1
            if score > heap[0]:
                heapq.heapreplace(heap, score)
                counts[query, 1] += 1
                while first < lists and upper[first] <= heap[0]:
                    first += 1
            current = following
