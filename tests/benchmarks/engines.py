"""The search engines of vtkit and what else searches sparse vectors, over the same vectors, on one thread.

    python tests/benchmarks/engines.py [--documents N] [--queries N] [--depth K] [--only NAME ...]
        [--vectors DOCUMENTS QUERIES]

Each is built and searched in a process of its own, so that its peak of memory is its own. Vectors are shaped like those
of a learned sparse encoder (terms of Zipf-like frequency, 150 weights a document, 30 a query, 30,000 terms), or those
of two folders of vectors (:func:`vtkit.search.stored_vectors.write_vectors`), of which the first ``--documents`` and
``--queries`` are taken. ``everything`` is vtkit's own index scoring every document, without pruning.
bm25s, splade-index, kannolo and sparse_dot_topn are peers, timed where they are installed; bm25s has no weights in
queries, so its overlap says nothing. OpenSearch needs a server: --opensearch URL.

A line an engine: seconds to build, milliseconds a query (all queries in one call, median of three calls) and their
ratio to those of the first engine, overlap of the first results with the exact ones, MiB of memory at the peak and on
disk. The last line is one object of JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import numba
import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from memory import forget_peak, peak_mebibytes

from vtkit.search.engine import build_index, open_index
from vtkit.search.exact import ExactIndex
from vtkit.search.stored_vectors import read_vectors
from vtkit.settings.engines import Engine, missing_packages
from vtkit.settings.index import IndexSection
from vtkit.system.runtime import want_threads

Ranking = tuple[np.ndarray, np.ndarray]
Search = Callable[[], Ranking]
ENGINES: tuple[Engine, ...] = get_args(Engine)
REPEATS = 3
VOCABULARY = 30_000
CHUNK_VALUES = 5_000_000  # scores that scipy makes at a time; a fifth and ten times as many are equally fast


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


def sparse_dot_topn_product(documents: sp.csr_matrix, queries: sp.csr_matrix, depth: int) -> Search:
    from sparse_dot_topn import sp_matmul_topn

    transposed = documents.T.tocsr()

    def search() -> Ranking:
        best = sp_matmul_topn(queries, transposed, top_n=depth, sort=True, n_threads=1)
        ids = np.full((queries.shape[0], depth), -1, dtype=np.int32)
        scores = np.zeros((queries.shape[0], depth), dtype=np.float32)
        for row, (start, stop) in enumerate(zip(best.indptr, best.indptr[1:], strict=False)):
            ids[row, : stop - start], scores[row, : stop - start] = best.indices[start:stop], best.data[start:stop]
        return ids, scores

    return search


def kannolo_graph(documents: sp.csr_matrix, queries: sp.csr_matrix, depth: int) -> Search:
    """kANNolo's HNSW graph with its own settings, which is approximate."""
    from kannolo import SparsePlainHNSW

    def arrays(matrix: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return matrix.indices.astype(np.int32), matrix.data.astype(np.float32), matrix.indptr.astype(np.int64)

    index = SparsePlainHNSW.build_from_arrays(*arrays(documents))
    asked = arrays(queries)

    def search() -> Ranking:
        scores, ids = index.batch_search(*asked, k=depth, num_threads=1)
        return ids.reshape(-1, depth), scores.reshape(-1, depth)

    return search


PEERS: dict[str, tuple[str, Callable[[sp.csr_matrix, sp.csr_matrix, int], Search]]] = {
    "everything": ("numba", everything_scored),
    "scipy": ("scipy", scipy_product),
    "bm25s": ("bm25s", bm25s_scoring),
    "splade-index": ("splade_index", splade_index_scoring),
    "kannolo": ("kannolo", kannolo_graph),
    "sparse_dot_topn": ("sparse_dot_topn", sparse_dot_topn_product),
}
"""Name -> the module it needs, and what builds it."""


def engine_search(engine: Engine, documents: sp.csr_matrix, queries: sp.csr_matrix, depth: int, url: str) -> Search:
    folder = Path("index")
    settings = IndexSection(engine=engine, url=url or None)
    build_index(settings, documents, folder)
    index = open_index(settings, folder)
    return lambda: index.search(queries, depth)


def one(name: str, folder: Path, depth: int, url: str) -> dict[str, float | str]:
    """What one side took, in this process."""
    documents, queries = (sp.load_npz(folder / f"{which}.npz").tocsr() for which in ("documents", "queries"))
    numba.set_num_threads(1)  # the peers compute on its threads
    want_threads(1)
    if name in ENGINES:
        engine_search(name, documents[:100], queries[:3], depth, url)()  # compiles and imports
    before, started = forget_peak(), time.perf_counter()
    if name in ENGINES:
        search = engine_search(name, documents, queries, depth, url)
    else:
        search = PEERS[name][1](documents, queries, depth)
    built = time.perf_counter() - started
    ids, _ = search()
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        search()
        seconds.append(time.perf_counter() - started)
    np.save(folder / f"{name}.npy", ids)
    on_disk = sum(path.stat().st_size for path in Path("index").rglob("*") if path.is_file()) / 2**20
    return {
        "name": name,
        "build_seconds": round(built, 2),
        "milliseconds_a_query": round(statistics.median(seconds) * 1000 / queries.shape[0], 3),
        "peak_mib": round(peak_mebibytes() - before),
        "disk_mib": round(on_disk),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=[*ENGINES, *PEERS])
    parser.add_argument("--vectors", nargs=2, type=Path)
    parser.add_argument("--opensearch", default="", metavar="URL")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(asked.one[0], Path(asked.one[1]), asked.depth, asked.opensearch)))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if asked.vectors:
            documents, queries = map(read_vectors, asked.vectors)
            documents, queries = documents[: asked.documents], queries[: asked.queries]
        else:
            documents, queries = zipf_vectors(asked.documents, 150, 1), zipf_vectors(asked.queries, 30, 2)
        for which, matrix in (("documents", documents), ("queries", queries)):
            sp.save_npz(folder / f"{which}.npz", matrix, compressed=False)
        print(f"{documents.shape[0]:,} documents, {queries.shape[0]:,} queries, the best {asked.depth}, one thread")
        rows = []
        for name in asked.only or [*ENGINES, *PEERS]:
            missing = missing_packages(name) if name in ENGINES else not find_spec(PEERS[name][0])
            if missing or (name == "opensearch" and not asked.opensearch):
                print(f"{name:16} not here")
                continue
            row = measured(name, folder, asked.depth, asked.opensearch)
            if row is None:
                continue
            exact, found = (folder / f"{which}.npy" for which in ("exact", name))
            row["overlap"] = overlap(np.load(found), np.load(exact)) if exact.exists() else float("nan")
            rows.append(row)
            row["ratio"] = round(float(row["milliseconds_a_query"]) / float(rows[0]["milliseconds_a_query"]), 2)
            print(
                f"{name:16} build {row['build_seconds']:8.2f} s  query {row['milliseconds_a_query']:8.3f} ms  "
                f"ratio {row['ratio']:8.2f}  overlap {row['overlap']:.4f}  "
                f"memory {row['peak_mib']:6} MiB  disk {row['disk_mib']:6} MiB",
                flush=True,
            )
    print(json.dumps({"benchmark": "engines", "documents": documents.shape[0], "depth": asked.depth, "rows": rows}))


def measured(name: str, folder: Path, depth: int, url: str) -> dict[str, float | str] | None:
    """What :func:`one` says in a process of its own."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as work:
        command = [sys.executable, str(Path(__file__).resolve()), "--one", name, str(folder), "--depth", str(depth)]
        command += ["--opensearch", url]
        done = subprocess.run(command, cwd=work, env={**os.environ, **threads}, capture_output=True, text=True)
    if done.returncode:
        print(f"{name:16} failed: {done.stderr.strip().splitlines()[-1:]}")
        return None
    row: dict[str, float | str] = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def overlap(found: np.ndarray, exact: np.ndarray) -> float:
    """Share of the exact results that were found, mean over the queries that have any."""
    pairs = [(set(ids.tolist()) - {-1}, set(true.tolist()) - {-1}) for ids, true in zip(found, exact, strict=True)]
    return float(np.mean([len(ids & true) / len(true) for ids, true in pairs if true]))


if __name__ == "__main__":
    main()
