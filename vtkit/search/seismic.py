"""Engine ``seismic``: an approximate index in process (Bruch et al. 2024, arXiv:2404.18812; the library pyseismic-lsr),
with weights in half precision. What it misses is measured when it is built (:func:`_probe`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from vtkit.search.exact import ExactIndex
from vtkit.search.index_info import REBUILD, Ids, Scores
from vtkit.search.measures.agreement import DEPTH
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.results import Result
from vtkit.system.runtime import search_threads, without_output

N_POSTINGS, QUERY_CUT = 3500, 20
"""Postings kept per list, on average, and largest query weights whose lists are searched; all weights count in the
score."""

CENTROID_FRACTION = 0.1  # number of blocks of a list, as a share of its postings
SUMMARY_ENERGY = 0.4  # share of a block's weight that its summary keeps; a larger share is slower and finds more
DOCUMENT_CUT = 15  # number of a document's largest weights that put it into blocks

_NAME = "documents"
_FILE = f"{_NAME}.index.seismic"
_QUERIES_AT_ONCE = 1024
_HEAP_FACTORS = (0.9, 0.8, 0.6, 0.4, 0.2, 0.0)  # tried in this order, the fastest first
_OVERLAP = 0.98  # share of the exact top ten that a heap factor must find

_PROBES = 200
_PROBE_WEIGHTS = 32
_PROBED = "probed.json"
_MOST_DIMENSIONS = 2**16  # the library's usual classes keep a dimension in two bytes, others in four


@dataclass(frozen=True)
class _Probed(Result):
    heap_factor: float
    overlap: float  # share of the exact top ten that it finds


def build_seismic(documents: sp.csr_matrix, folder: Path) -> None:
    """Fill ``folder`` with the index of ``documents``, (documents, vocabulary), weights above zero, terms ascending; it
    stays empty if no document has a weight.

    Its heap factor is the first of 0.9, 0.8, 0.6, 0.4, 0.2 and 0 that finds 98 % of the exact top ten of 200 queries
    made of documents. The share found is shown, as a warning if it is below 98 %.
    """
    if not documents.nnz:
        return
    import seismic

    with without_output():
        _build(seismic, documents, folder)
    heap_factor, overlap = _probe(_load(folder, documents.shape[1], documents.nnz), documents)
    _Probed(heap_factor, overlap).to_file(folder / _PROBED)
    share = (
        f"seismic with heap_factor {heap_factor:g} finds {overlap:.1%} of the exact top {DEPTH} of queries made of "
        "documents"
    )
    if overlap < _OVERLAP:
        console.warn(f'{share}. The engine "lucene" finds all of them.')
    else:
        console.say(f"  {share}")


def _probe(index: Any, documents: sp.csr_matrix) -> tuple[float, float]:
    """The heap factor to search with, and the share of the exact top ten that it finds. A query is a random half of the
    32 largest weights of a document: about as many weights as SPLADE's queries have, of terms that occur together."""
    generator = np.random.default_rng(0)
    held = np.flatnonzero(np.diff(documents.indptr))
    rows = np.sort(generator.choice(held, min(_PROBES, len(held)), replace=False))
    queries = documents[rows].tolil()
    for row, (terms, weights) in enumerate(zip(queries.rows, queries.data, strict=True)):
        largest = np.argsort(weights)[::-1][:_PROBE_WEIGHTS]
        kept = np.sort(generator.choice(largest, (len(largest) + 1) // 2, replace=False))
        queries.rows[row], queries.data[row] = [terms[place] for place in kept], [weights[place] for place in kept]
    probes = queries.tocsr()
    exact = ExactIndex.build(documents).search(probes, DEPTH)
    overlap = heap_factor = 0.0
    for heap_factor in _HEAP_FACTORS:
        approximate = SeismicRanker(index, heap_factor).rank(probes, DEPTH)
        pairs = zip(exact[0], approximate, strict=True)
        overlap = float(np.mean([np.isin(ids[ids >= 0], near).mean() for ids, (near, _) in pairs]))
        if overlap >= _OVERLAP:
            break
    return heap_factor, overlap


def _build(seismic: Any, documents: sp.csr_matrix, folder: Path) -> None:
    dataset, index = _classes(seismic, documents.shape[1])
    collected = dataset(dim=documents.shape[1])
    collected.add_documents_by_id(  # documents without weights are left out
        [str(number) for number in range(documents.shape[0])],
        documents.indices.astype(np.int64),
        documents.data,
        documents.indptr.astype(np.int64),
    )
    built = index.build_from_dataset(
        collected,
        n_postings=N_POSTINGS,
        centroid_fraction=CENTROID_FRACTION,
        summary_energy=SUMMARY_ENERGY,
        doc_cut=DOCUMENT_CUT,
        num_threads=search_threads(),
    )
    built.save(str(folder / _NAME))


def _classes(seismic: Any, dimensions: int) -> tuple[Any, Any]:
    """The library's classes of a dataset and an index with this many dimensions."""
    if dimensions > _MOST_DIMENSIONS:
        return seismic.SeismicDatasetLV, seismic.SeismicIndexLV
    return seismic.SeismicDataset, seismic.SeismicIndex


def _load(folder: Path, dimensions: int, postings: int) -> Any:
    import seismic

    path = folder / _FILE
    try:
        index = _classes(seismic, dimensions)[1].load(str(path))
        held = index.nnz
    except BaseException as error:  # a panic of its Rust code is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        why = "it is missing" if not path.exists() else str(error)[:200]
        raise DataError(f"{path}: the index is damaged ({why}). {REBUILD}") from error
    if held != postings:
        raise DataError(f"{path}: the index is damaged: it has {held:,} of {postings:,} postings. {REBUILD}")
    return index


@dataclass(frozen=True)
class SeismicRanker:
    """A loaded Seismic index."""

    index: Any  # none if no document has a weight
    heap_factor: float

    @classmethod
    def open(cls, folder: Path, postings: int, dimensions: int) -> SeismicRanker:
        """The index that :func:`build_seismic` left in ``folder``, with these numbers of postings and dimensions."""
        if not postings:
            return cls(None, 0.0)
        index = _load(folder, dimensions, postings)
        return cls(index, _Probed.from_file(folder / _PROBED, REBUILD).heap_factor)

    def rank(self, queries: sp.csr_matrix, depth: int) -> Iterator[tuple[Ids, Scores]]:
        """As :meth:`vtkit.search.engine.Ranker.rank`."""
        for start in range(0, queries.shape[0], _QUERIES_AT_ONCE):
            yield from self._rank(queries[start : start + _QUERIES_AT_ONCE], depth)

    def _rank(self, queries: sp.csr_matrix, depth: int) -> Iterator[tuple[Ids, Scores]]:
        import seismic

        rows = np.split(np.arange(queries.nnz), queries.indptr[1:-1])
        text = seismic.get_seismic_string()
        results = self.index.batch_search(
            np.array([str(row) for row in range(len(rows))], dtype=text),
            [queries.indices[row].astype(text) for row in rows],
            [queries.data[row] for row in rows],
            k=depth,
            query_cut=QUERY_CUT,
            heap_factor=self.heap_factor,
            num_threads=search_threads(),
        )
        by_query = {int(hits[0][0]): hits for hits in results if hits}  # unordered, without queries that find nothing
        for row in range(len(rows)):
            hits = by_query.get(row, [])
            ids = np.asarray([number for _, _, number in hits], dtype=np.int32)
            yield ids, np.asarray([score for _, score, _ in hits], dtype=np.float32)
