"""Exact search against what else searches sparse vectors, in one process and on one thread.

    python tests/benchmarks/exact_search.py [--small] [--documents N] [--depth K] [--repeats N]
        [--peers bm25s splade-index] [--vectors DOCUMENTS.npz QUERIES.npz]

The vectors are shaped like those of a learned sparse encoder: terms of Zipf-like frequency, 150 weights a document, 30
a query, a vocabulary of 30,000; or they are those of a file (``scipy.sparse.save_npz``), such as an encoder made.
vtkit's index is compared with scipy's sparse product and argpartition, with itself scoring every document (``vtkit,
everything``), and with the peers asked for, each if it is installed. bm25s has no weights in queries, and is timed
without them. Approximate engines are in ``engines.py``.

The last line is one object of JSON; ``ratio`` is scipy's median time over vtkit's.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numba
import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from memory import forget_peak, peak_mebibytes

from vtkit.search.exact import ExactIndex

VOCABULARY = 30_000
CHUNK_VALUES = 5_000_000
"""Scores that scipy makes at a time; a fifth and ten times as many are equally fast."""

PEERS = {"bm25s": "bm25s", "splade-index": "splade_index"}

Ranking = tuple[np.ndarray, np.ndarray]
Search = Callable[[], Ranking]


@dataclass(frozen=True)
class Row:
    """What one side took."""

    name: str
    build_seconds: float
    peak_mib: float
    """Beside the vectors, building and searching."""

    milliseconds_a_query: float
    worst: float
    recall: float
    """Share of the true best documents, as many as asked for."""


def zipf_vectors(rows: int, weights: int, seed: int) -> sp.csr_matrix:
    """``rows`` vectors of about ``weights`` distinct terms each, p(rank) proportional to 1/(rank + 20)^0.9."""
    generator = np.random.default_rng(seed)
    shares = (np.arange(VOCABULARY) + 20.0) ** -0.9
    bounds = np.cumsum(shares / shares.sum())
    parts = []
    for start in range(0, rows, 10_000):
        count = min(10_000, rows - start)
        sampled = np.sort(np.searchsorted(bounds, generator.random((count, weights * 2))).astype(np.int32), axis=1)
        order = generator.random(sampled.shape, dtype=np.float32)
        order[:, 1:][sampled[:, 1:] == sampled[:, :-1]] = 2.0  # a term's second time
        chosen = np.argpartition(order, weights, axis=1)[:, :weights]
        there = np.take_along_axis(order, chosen, axis=1) < 2.0
        columns = np.take_along_axis(sampled, chosen, axis=1)[there]
        starts = np.cumsum([0, *there.sum(axis=1)])
        values = generator.gamma(1.5, 0.4, len(columns)).astype(np.float32)
        parts.append(sp.csr_matrix((values, columns, starts), shape=(count, VOCABULARY)))
    matrix = sp.vstack(parts, format="csr")
    matrix.sort_indices()
    return matrix


def scipy_search(transposed: sp.csr_matrix, queries: sp.csr_matrix, depth: int) -> Ranking:
    """The best documents of each query by the product of two sparse matrices."""
    documents = transposed.shape[1]
    depth, chunk = min(depth, documents), max(1, CHUNK_VALUES // documents)
    all_ids, all_scores = [], []
    for start in range(0, queries.shape[0], chunk):
        dense = (queries[start : start + chunk] @ transposed).toarray()
        best = np.argpartition(dense, documents - depth, axis=1)[:, documents - depth :]
        scores = np.take_along_axis(dense, best, axis=1)
        order = np.argsort(-scores, axis=1)
        all_ids.append(np.take_along_axis(best, order, axis=1))
        all_scores.append(np.take_along_axis(scores, order, axis=1))
    return np.concatenate(all_ids), np.concatenate(all_scores)


def vtkit_search(documents: sp.csr_matrix, queries: sp.csr_matrix, depth: int) -> Search:
    index = ExactIndex.build(documents)
    return lambda: index.search(queries, depth)


def everything_scored(documents: sp.csr_matrix, queries: sp.csr_matrix, depth: int) -> Search:
    index = replace(ExactIndex.build(documents), frequent=None)
    return lambda: index.search(queries, depth)


def scipy_product(documents: sp.csr_matrix, queries: sp.csr_matrix, depth: int) -> Search:
    transposed = documents.T.tocsr()
    return lambda: scipy_search(transposed, queries, depth)


def _numba_scoring(
    retrieve: Callable[..., Ranking], documents: sp.csr_matrix, depth: int, *query: np.ndarray
) -> Search:
    by_term = documents.tocsc()

    def search() -> Ranking:
        scores, ids = retrieve(
            *query, depth, True, np.dtype("f4"), np.dtype("i4"),
            by_term.data, by_term.indptr.astype(np.int32), by_term.indices, documents.shape[0],
        )  # fmt: skip
        return ids, scores

    return search


def bm25s_scoring(documents: sp.csr_matrix, queries: sp.csr_matrix, depth: int) -> Search:
    from bm25s.numba.retrieve_utils import _retrieve_internal_jitted_serial as retrieve

    terms, starts = queries.indices.astype(np.int32), queries.indptr.astype(np.int32)
    return _numba_scoring(retrieve, documents, depth, terms, starts)


def splade_index_scoring(documents: sp.csr_matrix, queries: sp.csr_matrix, depth: int) -> Search:
    from splade_index.numba.retrieve_utils import _retrieve_internal_jitted_parallel as retrieve

    terms, starts = queries.indices.astype(np.int32), queries.indptr.astype(np.int32)
    return _numba_scoring(retrieve, documents, depth, terms, queries.data, starts)


def measured(name: str, build: Callable[[], Search], repeats: int, reference: np.ndarray | None) -> tuple[Row, Ranking]:
    """One side's time and memory, and what it found the last time."""
    before, started = forget_peak(), time.perf_counter()
    search = build()
    build_seconds = time.perf_counter() - started
    ranking, seconds = search(), []
    for _ in range(repeats):
        started = time.perf_counter()
        search()
        seconds.append(time.perf_counter() - started)
    queries = max(len(ranking[0]), 1)
    kept = [
        len(np.intersect1d(ours[ours >= 0], theirs)) / max(len(theirs), 1)
        for ours, theirs in zip(ranking[0], reference if reference is not None else ranking[0], strict=True)
    ]
    to_milliseconds = 1000 / queries
    row = Row(
        name, round(build_seconds, 3), round(peak_mebibytes() - before, 1),
        round(statistics.median(seconds) * to_milliseconds, 4), round(max(seconds) * to_milliseconds, 4),
        round(float(np.mean(kept)), 4),
    )  # fmt: skip
    print(
        f"{name:24} build {row.build_seconds:8.2f} s  {row.peak_mib:8.0f} MiB  "
        f"{row.milliseconds_a_query:8.3f} ms a query (worst {row.worst:.3f})  recall {row.recall:.4f}",
        flush=True,
    )
    return row, ranking


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="5,000 documents and 100 queries, for a quick look")
    parser.add_argument("--documents", type=int, default=100_000, help="documents of the vectors that are made")
    parser.add_argument("--depth", type=int, default=1000, help="results a query")
    parser.add_argument("--repeats", type=int, default=5, help="timed searches a side")
    parser.add_argument("--threads", type=int, help="of vtkit and the peers in numba; default: as many as numba takes")
    parser.add_argument("--peers", nargs="*", default=[], choices=sorted(PEERS), help="what else is measured")
    parser.add_argument("--vectors", nargs=2, metavar="FILE", help="documents and queries instead of those made here")
    arguments = parser.parse_args()
    if arguments.threads:
        numba.set_num_threads(arguments.threads)
    count, query_count = (5_000, 100) if arguments.small else (arguments.documents, 1_000)
    if arguments.vectors:
        documents, queries = (sp.load_npz(file).tocsr().astype(np.float32) for file in arguments.vectors)
    else:
        documents, queries = zipf_vectors(count, 150, seed=1), zipf_vectors(query_count, 30, seed=2)
    depth, repeats = min(arguments.depth, documents.shape[0]), arguments.repeats
    print(
        f"{documents.shape[0]} documents of {documents.nnz / documents.shape[0]:.0f} weights, "
        f"{queries.shape[0]} queries of {queries.nnz / queries.shape[0]:.0f}, "
        f"top {depth}, {numba.get_num_threads()} threads, "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    sides = (documents, queries, depth)
    ours, (found, scores) = measured("vtkit", lambda: vtkit_search(*sides), repeats, None)
    rows = [ours, measured("vtkit, everything", lambda: everything_scored(*sides), repeats, found)[0]]
    theirs, (_, reference) = measured("scipy", lambda: scipy_product(*sides), min(repeats, 3), found)
    rows.append(theirs)
    difference = float(np.abs(scores - np.maximum(reference, 0)).max())
    if difference > 1e-4:
        raise SystemExit(f"the two sides disagree: scores differ by up to {difference}")
    for peer in arguments.peers:
        if find_spec(PEERS[peer]) is None:
            print(f"{peer:24} is not installed")
        else:
            scoring = bm25s_scoring if peer == "bm25s" else splade_index_scoring
            rows.append(measured(peer, lambda scoring=scoring: scoring(*sides), min(repeats, 3), found)[0])
    print(
        json.dumps(
            {
                "benchmark": "exact_search",
                "documents": documents.shape[0],
                "queries": queries.shape[0],
                "depth": depth,
                "vocabulary": documents.shape[1],
                "threads": numba.get_num_threads(),
                "cores": os.cpu_count(),
                "load": round(os.getloadavg()[0], 2),
                "ratio": round(theirs.milliseconds_a_query / ours.milliseconds_a_query, 2),
                "largest_score_difference": difference,
                "sides": [asdict(row) for row in rows],
            }
        )
    )


if __name__ == "__main__":
    main()
