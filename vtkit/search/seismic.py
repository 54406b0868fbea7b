"""Engine ``seismic``: an approximate index in process (Bruch et al. 2024, arXiv:2404.18812; the library pyseismic-lsr),
with weights in half precision. The evaluation compares it with exact search."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from vtkit.search.engine import Rank
from vtkit.search.exact import ExactIndex
from vtkit.search.index_info import REBUILD, Ids, Scores
from vtkit.settings.index import IndexSection
from vtkit.system.errors import DataError
from vtkit.system.runtime import threads, without_output

SHAPE = {"n_postings": 3500, "centroid_fraction": 0.1, "summary_energy": 0.4, "doc_cut": 15}
"""Postings kept per list, on average; number of blocks of a list, as a share of its postings; share of a block's weight
that its summary keeps (a larger share is slower and finds more); number of a document's largest weights that put it
into blocks."""

QUERY_CUT = 20  # largest query weights whose lists are searched; all weights count in the score

MOST_ROOM = 2**36
"""Lists times dimensions. The library clears 24 bytes a dimension for each list, so that this many take minutes."""

HEAP_FACTOR = 0.9
"""Share of the worst kept score that a block must promise to be read. On our collections 0.9 finds over 99 % of the
exact top ten (docs/log.md); smaller factors are slower and find more."""

_NAME = "documents"
_QUERIES_AT_ONCE = 1024
_MOST_DIMENSIONS = 2**16  # the library's usual classes keep a dimension in two bytes, others in four


def build(postings: ExactIndex, folder: Path, settings: IndexSection) -> None:
    """Fill ``folder`` with the index of the rows of ``postings``; it stays empty if no row has a weight."""
    documents = postings.by_document()
    if not documents.nnz:
        return
    lists, width = np.count_nonzero(documents.getnnz(axis=0)), documents.shape[1]
    if lists * width > MOST_ROOM:
        raise DataError(f'seismic would take hours for {lists:,} of {width:,} dimensions in use. Use "exact".')
    with without_output():
        dataset, index = _classes(width)
        collected = dataset(dim=width)
        collected.add_documents_by_id(  # documents without weights are left out
            [str(number) for number in range(documents.shape[0])],
            documents.indices.astype(np.int64),
            documents.data,
            documents.indptr.astype(np.int64),
        )
        built = index.build_from_dataset(collected, **SHAPE, num_threads=threads())
        built.save(str(folder / _NAME))


def open_ranker(folder: Path, postings: ExactIndex, settings: IndexSection) -> Rank:
    """The index that :func:`build` left in ``folder``."""
    path = folder / f"{_NAME}.index.seismic"
    if not len(postings.lists.entries):
        return partial(_rank, None)
    try:
        index = _classes(postings.vocabulary)[1].load(str(path))
        held = index.nnz
    except BaseException as error:  # a panic of its Rust code is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        why = "it is missing" if not path.exists() else str(error)[:200]
        raise DataError(f"{path}: the index is damaged ({why}). {REBUILD}") from error
    if held != len(postings.lists.entries):
        raise DataError(
            f"{path}: the index is damaged: it has {held:,} of {len(postings.lists.entries):,} postings. {REBUILD}"
        )
    return partial(_rank, index)


def _classes(dimensions: int) -> tuple[Any, Any]:
    """The library's classes of a dataset and an index with this many dimensions."""
    import seismic

    if dimensions > _MOST_DIMENSIONS:
        return seismic.SeismicDatasetLV, seismic.SeismicIndexLV
    return seismic.SeismicDataset, seismic.SeismicIndex


def _rank(index: Any, queries: sp.csr_matrix, depth: int) -> Iterator[tuple[Ids, Scores]]:
    """Search a loaded index, as a :data:`Rank` does."""
    import seismic

    text = seismic.get_seismic_string()
    for start in range(0, queries.shape[0], _QUERIES_AT_ONCE):
        batch = queries[start : start + _QUERIES_AT_ONCE]
        rows = np.split(np.arange(batch.nnz), batch.indptr[1:-1])
        results = index.batch_search(
            np.array([str(row) for row in range(len(rows))], dtype=text),
            [batch.indices[row].astype(text) for row in rows],
            [batch.data[row] for row in rows],
            k=depth,
            query_cut=QUERY_CUT,
            heap_factor=HEAP_FACTOR,
            num_threads=threads(),
        )
        by_query = {int(hits[0][0]): hits for hits in results if hits}  # unordered, and only queries with results
        for row in range(len(rows)):
            hits = by_query.get(row, [])
            ids = np.asarray([number for _, _, number in hits], dtype=np.int32)
            yield ids, np.asarray([score for _, score, _ in hits], dtype=np.float32)
