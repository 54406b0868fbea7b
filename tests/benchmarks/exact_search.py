"""Exact search: vtkit's posting lists against scipy's sparse product with argpartition, in one process.

    python tests/benchmarks/exact_search.py [--small] [--repeats N]

The vectors are shaped like those of a learned sparse encoder: terms of Zipf-like frequency, 150 weights a
document, 30 a query, a vocabulary of 30,000. Both sides return the same 1,000 documents a query and are checked
against each other. The last line is one object of JSON; ``ratio`` is scipy's median time over vtkit's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from memory import forget_peak, peak_mebibytes

from vtkit.search.exact import ExactIndex

VOCABULARY = 30_000
DEPTH = 1000
CHUNK = 50
"""Queries that scipy multiplies at a time; 10 to 200 are equally fast."""


def zipf_vectors(rows: int, weights: int, seed: int) -> sp.csr_matrix:
    """``rows`` vectors of about ``weights`` distinct terms each, p(rank) proportional to 1/(rank + 20)^0.9."""
    generator = np.random.default_rng(seed)
    shares = (np.arange(VOCABULARY) + 20.0) ** -0.9
    bounds = np.cumsum(shares / shares.sum())
    drawn = np.searchsorted(bounds, generator.random((rows, weights * 2)))
    kept = [np.unique(row)[generator.permutation(len(np.unique(row)))[:weights]] for row in drawn]
    starts = np.cumsum([0, *map(len, kept)])
    columns = np.concatenate(kept)
    values = generator.gamma(1.5, 0.4, len(columns)).astype(np.float32)
    matrix = sp.csr_matrix((values, columns, starts), shape=(rows, VOCABULARY))
    matrix.sort_indices()
    return matrix


def scipy_search(transposed: sp.csr_matrix, queries: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """The best documents of each query by the product of two sparse matrices."""
    documents = transposed.shape[1]
    depth = min(DEPTH, documents)
    all_ids, all_scores = [], []
    for start in range(0, queries.shape[0], CHUNK):
        dense = (queries[start : start + CHUNK] @ transposed).toarray()
        best = np.argpartition(dense, documents - depth, axis=1)[:, documents - depth :]
        scores = np.take_along_axis(dense, best, axis=1)
        order = np.argsort(-scores, axis=1)
        all_ids.append(np.take_along_axis(best, order, axis=1))
        all_scores.append(np.take_along_axis(scores, order, axis=1))
    return np.concatenate(all_ids), np.concatenate(all_scores)


def timed(search: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each of ``repeats`` calls, after one that is not counted."""
    search()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        search()
        seconds.append(time.perf_counter() - started)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="5,000 documents and 100 queries, for a quick look")
    parser.add_argument("--repeats", type=int, default=5, help="timed searches a side")
    arguments = parser.parse_args()
    document_count, query_count = (5_000, 100) if arguments.small else (100_000, 1_000)
    documents, queries = zipf_vectors(document_count, 150, seed=1), zipf_vectors(query_count, 30, seed=2)
    added = {}

    before = forget_peak()
    started = time.perf_counter()
    index = ExactIndex.build(documents)
    build_seconds = time.perf_counter() - started
    ours = timed(lambda: index.search(queries, DEPTH), arguments.repeats)
    added["vtkit"] = peak_mebibytes() - before

    before = forget_peak()
    started = time.perf_counter()
    transposed = documents.T.tocsr()
    transpose_seconds = time.perf_counter() - started
    theirs = timed(lambda: scipy_search(transposed, queries), arguments.repeats)
    added["scipy"] = peak_mebibytes() - before

    scores, reference = index.search(queries, DEPTH)[1], scipy_search(transposed, queries)[1]
    difference = float(np.abs(scores[:, : reference.shape[1]] - np.maximum(reference, 0)).max())
    if difference > 1e-4:
        raise SystemExit(f"the two sides disagree: scores differ by up to {difference}")

    median, peer = statistics.median(ours), statistics.median(theirs)
    print(
        f"{document_count} documents, {query_count} queries, top {DEPTH}, {numba.get_num_threads()} threads: "
        f"vtkit {median:.3f} s (worst {max(ours):.3f}), scipy {peer:.3f} s (worst {max(theirs):.3f}), "
        f"{peer / median:.1f} times faster; index and search took {added['vtkit']:.0f} MiB at their peak, "
        f"scipy's {added['scipy']:.0f} MiB"
    )
    print(
        json.dumps(
            {
                "benchmark": "exact_search",
                "documents": document_count,
                "queries": query_count,
                "depth": DEPTH,
                "vocabulary": VOCABULARY,
                "threads": numba.get_num_threads(),
                "cores": os.cpu_count(),
                "build_seconds": round(build_seconds, 4),
                "scipy_transpose_seconds": round(transpose_seconds, 4),
                "vtkit_median_seconds": round(median, 4),
                "vtkit_worst_seconds": round(max(ours), 4),
                "scipy_median_seconds": round(peer, 4),
                "scipy_worst_seconds": round(max(theirs), 4),
                "ratio": round(peer / median, 2),
                "largest_score_difference": difference,
                "peak_mib_beside_the_data": {name: round(value, 1) for name, value in added.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
