"""The search engines of vtkit and what else searches sparse vectors, over the same vectors, on one thread.

    python tests/benchmarks/engines.py [--documents N] [--queries N] [--depth K] [--only NAME ...]
        [--vectors DOCUMENTS QUERIES]

An engine is built in one process and searched in another, which opens the files. Documents are read block by block,
so that they are no part of the peak. Vectors are shaped like those of a learned sparse encoder (terms of Zipf-like
frequency, 150 weights a document, 30 a query, 30,000 terms), or those of two folders of vectors
(:func:`vtkit.search.stored_vectors.write_vectors`), of which the first ``--documents`` and ``--queries`` are taken.
The peers (bm25s, splade-index, kannolo, sparse_dot_topn, timed where they are installed) hold the documents and are
built and searched in one process. bm25s adds up the documents' weights of a query's terms, without the query's, so its
overlap says nothing. OpenSearch needs a server: --opensearch URL.

A line an engine: seconds to build; milliseconds a query as the mean of all queries in one call (median of three calls),
its ratio to that of the first engine, and p50 and p99 of one query at a time; overlap of the first results with the
exact ones; MiB of resident memory: after imports and compilation, at the peak of building, at that of searching; MiB on
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
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import numba
import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from measuring import forget_peak, options, peak_mebibytes

from vtkit.search.engine import build_index, open_index
from vtkit.search.stored_vectors import read_vectors, write_vectors
from vtkit.settings.engines import Engine, missing_packages
from vtkit.settings.index import IndexSection
from vtkit.system.runtime import want_threads

Ranking = tuple[np.ndarray, np.ndarray]
Search = Callable[[sp.csr_matrix], Ranking]
Row = dict[str, float | str]
ENGINES: tuple[Engine, ...] = get_args(Engine)
REPEATS = 3
ROWS_AT_ONCE = 10_000
FEW = 20  # documents that are enough to compile
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


def scipy_product(documents: sp.csr_matrix, depth: int) -> Search:
    transposed = documents.T.tocsr()
    return lambda queries: scipy_search(transposed, queries, depth)


def bm25s_scoring(documents: sp.csr_matrix, depth: int) -> Search:
    from bm25s.numba.retrieve_utils import _retrieve_internal_jitted_serial as retrieve

    lists = list_arguments(documents, depth)
    return lambda queries: retrieve(queries.indices, queries.indptr, *lists)[::-1]


def splade_index_scoring(documents: sp.csr_matrix, depth: int) -> Search:
    from splade_index.numba.retrieve_utils import _retrieve_internal_jitted_parallel as retrieve

    lists = list_arguments(documents, depth)
    return lambda queries: retrieve(queries.indices, queries.data, queries.indptr, *lists)[::-1]


def list_arguments(documents: sp.csr_matrix, depth: int) -> tuple[object, ...]:
    """What the scoring functions of bm25s and splade-index ask for behind the query."""
    lists = documents.tocsc()
    starts = lists.indptr.astype(np.int64)
    return depth, True, np.dtype("f4"), np.dtype("i4"), lists.data, starts, lists.indices, documents.shape[0]


def sparse_dot_topn_product(documents: sp.csr_matrix, depth: int) -> Search:
    from sparse_dot_topn import sp_matmul_topn

    transposed = documents.T.tocsr()

    def search(queries: sp.csr_matrix) -> Ranking:
        best = sp_matmul_topn(queries, transposed, top_n=depth, sort=True, n_threads=1)
        ids = np.full((queries.shape[0], depth), -1, dtype=np.int32)
        scores = np.zeros((queries.shape[0], depth), dtype=np.float32)
        for row, (start, stop) in enumerate(zip(best.indptr, best.indptr[1:], strict=False)):
            ids[row, : stop - start], scores[row, : stop - start] = best.indices[start:stop], best.data[start:stop]
        return ids, scores

    return search


def kannolo_graph(documents: sp.csr_matrix, depth: int) -> Search:
    """kANNolo's HNSW graph with its own settings, which is approximate."""
    from kannolo import SparsePlainHNSW

    def arrays(matrix: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return matrix.indices.astype(np.int32), matrix.data.astype(np.float32), matrix.indptr.astype(np.int64)

    index = SparsePlainHNSW.build_from_arrays(*arrays(documents))

    def search(queries: sp.csr_matrix) -> Ranking:
        scores, ids = index.batch_search(*arrays(queries), k=depth, num_threads=1)
        return ids.reshape(-1, depth), scores.reshape(-1, depth)

    return search


PEERS: dict[str, tuple[str, Callable[[sp.csr_matrix, int], Search]]] = {
    "scipy": ("scipy", scipy_product),
    "bm25s": ("bm25s", bm25s_scoring),
    "splade-index": ("splade_index", splade_index_scoring),
    "kannolo": ("kannolo", kannolo_graph),
    "sparse_dot_topn": ("sparse_dot_topn", sparse_dot_topn_product),
}
"""Name -> the module it needs, and what builds it."""


def row_blocks(folder: Path, rows: int) -> Iterator[sp.csr_matrix]:
    """The first ``rows`` vectors of ``folder``, block by block; no file stays mapped between two blocks."""
    starts, width = np.load(folder / "indptr.npy")[: rows + 1], int(np.load(folder / "width.npy"))
    for row in range(0, len(starts) - 1, ROWS_AT_ONCE):
        bounds = starts[row : row + ROWS_AT_ONCE + 1]
        files = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("indices", "data"))
        indices, data = (file[bounds[0] : bounds[-1]].copy() for file in files)
        yield sp.csr_matrix((data, indices, bounds - bounds[0]), shape=(len(bounds) - 1, width))


def build(name: str, documents: Path, rows: int, depth: int, url: str, folder: Path) -> Search | None:
    """Build the index of the first ``rows`` documents: an engine's in ``folder``, a peer's in memory."""
    if name in PEERS:
        return PEERS[name][1](sp.vstack(list(row_blocks(documents, rows)), format="csr"), depth)
    build_index(IndexSection(engine=name, url=url or None), row_blocks(documents, rows), folder)
    return None


def opened(name: str, depth: int, url: str, folder: Path) -> Search:
    index = open_index(IndexSection(engine=name, url=url or None), folder)
    return lambda queries: index.search(queries, depth)


def one(name: str, step: str, place: Path, asked: argparse.Namespace) -> Row:
    """What building or searching took, in this process. A peer is built and searched in one."""
    numba.set_num_threads(1)  # the peers compute on its threads
    want_threads(1)
    documents, queries = asked.vectors[0], read_vectors(asked.vectors[1])[: asked.queries]
    how, row = (asked.depth, asked.opensearch), Row()
    with tempfile.TemporaryDirectory() as few:  # compiles and imports
        search = build(name, documents, FEW, *how, Path(few, "index")) or opened(name, *how, Path(few, "index"))
        search(queries[:3])
    row["imports_mib"], search = round(forget_peak()), None
    if name in PEERS or step == "build":
        started = time.perf_counter()
        search = build(name, documents, asked.documents, *how, place / "index")
        row["build_seconds"] = round(time.perf_counter() - started, 2)
        row["build_mib"] = round(peak_mebibytes())
        row["disk_mib"] = round(sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) / 2**20)
    if step == "search":
        forget_peak()
        search = search or opened(name, *how, place / "index")
        ids, _ = search(queries)
        np.save(asked.found / f"{name}.npy", ids)
        calls = [seconds(search, queries) for _ in range(REPEATS)]
        row["milliseconds_a_query"] = round(statistics.median(calls) * 1000 / queries.shape[0], 3)
        singly = [seconds(search, queries[at]) * 1000 for at in range(queries.shape[0])]
        row["p50"], row["p99"] = np.quantile(singly, [0.5, 0.99]).round(3).tolist()
        row["search_mib"] = round(peak_mebibytes())
    return row


def seconds(search: Search, queries: sp.csr_matrix) -> float:
    started = time.perf_counter()
    search(queries)
    return time.perf_counter() - started


def main() -> None:
    parser = options(__doc__, documents=100_000, queries=1000, depth=10)
    parser.add_argument("--only", nargs="+", choices=[*ENGINES, *PEERS])
    parser.add_argument("--vectors", nargs=2, type=Path, metavar=("DOCUMENTS", "QUERIES"))
    parser.add_argument("--opensearch", default="", metavar="URL")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # name, step, folder of the index
    parser.add_argument("--found", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(*asked.one[:2], Path(asked.one[2]), asked)))
        return
    with tempfile.TemporaryDirectory() as place:
        asked.found = Path(place)
        if not asked.vectors:
            asked.vectors = Path(place, "documents"), Path(place, "queries")
            write_vectors(zipf_vectors(asked.documents, 150, 1), asked.vectors[0])
            write_vectors(zipf_vectors(asked.queries, 30, 2), asked.vectors[1])
        print(f"{asked.documents:,} documents, {asked.queries:,} queries, the best {asked.depth}, one thread")
        rows: list[Row] = []
        for name in asked.only or [*ENGINES, *PEERS]:
            missing = missing_packages(name) if name in ENGINES else not find_spec(PEERS[name][0])
            if missing or (name == "opensearch" and not asked.opensearch):
                print(f"{name:16} not here")
            elif row := measured(name, asked):
                rows.append(row)
                row["ratio"] = round(float(row["milliseconds_a_query"]) / float(rows[0]["milliseconds_a_query"]), 2)
                print(
                    "{name:16} build {build_seconds:8.2f} s  query {milliseconds_a_query:8.3f} ms  ratio {ratio:8.2f}  "
                    "p50 {p50:8.3f} ms  p99 {p99:8.3f} ms  overlap {overlap:.4f}  imports {imports_mib:5} MiB  "
                    "build {build_mib:6} MiB  search {search_mib:6} MiB  disk {disk_mib:6} MiB".format(**row),
                    flush=True,
                )
    print(json.dumps({"benchmark": "engines", "documents": asked.documents, "depth": asked.depth, "rows": rows}))


def measured(name: str, asked: argparse.Namespace) -> Row | None:
    """What :func:`one` says in processes of their own."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    row: Row = {"name": name}
    with tempfile.TemporaryDirectory() as place:
        for step in ["search"] if name in PEERS else ["build", "search"]:
            command = [sys.executable, str(Path(__file__).resolve()), "--one", name, step, place]
            for option in ("documents", "queries", "depth", "found", "opensearch"):
                command += [f"--{option}", str(getattr(asked, option))]
            command += ["--vectors", *map(str, asked.vectors)]
            done = subprocess.run(command, env={**os.environ, **threads}, capture_output=True, text=True)
            if done.returncode:
                print(f"{name:16} failed: {done.stderr.strip().splitlines()[-1:]}")
                return None
            row |= json.loads(done.stdout.strip().splitlines()[-1])
    exact, found = (asked.found / f"{which}.npy" for which in ("exact", name))
    row["overlap"] = overlap(np.load(found), np.load(exact)) if exact.exists() else float("nan")
    return row


def overlap(found: np.ndarray, exact: np.ndarray) -> float:
    """Share of the exact results that were found, mean over the queries that have any."""
    pairs = [(set(ids.tolist()) - {-1}, set(true.tolist()) - {-1}) for ids, true in zip(found, exact, strict=True)]
    return float(np.mean([len(ids & true) / len(true) for ids, true in pairs if true]))


if __name__ == "__main__":
    main()
