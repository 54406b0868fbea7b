"""Engine ``seismic``: an approximate index in process, posting lists cut into blocks that are passed over by their
summaries (Bruch et al. 2024, arXiv:2404.18812); the library is pyseismic-lsr.

Weights are kept in half precision, so scores agree with the exact ones to about three digits. What it does not find,
the comparison with ``exact`` in the evaluation tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from vtkit.errors import DataError
from vtkit.recipe.engines import SeismicSettings
from vtkit.runtime import search_threads, without_output
from vtkit.search.index_info import REBUILD, Ids, Scores

_NAME = "documents"
_FILE = f"{_NAME}.index.seismic"
_QUERIES_AT_ONCE = 1024
_MOST_DIMENSIONS = 2**16
"""Of the library's usual classes, which keep a dimension in two bytes; others keep it in four."""


def build_seismic(documents: sp.csr_matrix, folder: Path, settings: SeismicSettings) -> None:
    """Fill ``folder`` with the index of ``documents``, or with nothing where no document has a weight.

    Args:
        documents: (documents, vocabulary), weights above zero, terms ascending.
        folder: where it goes; it exists.
    """
    if not documents.nnz:
        return
    import seismic

    with without_output():
        _build(seismic, documents, folder, settings)


def _build(seismic: Any, documents: sp.csr_matrix, folder: Path, settings: SeismicSettings) -> None:
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
        n_postings=settings.n_postings,
        centroid_fraction=settings.centroid_fraction,
        summary_energy=settings.summary_energy,
        doc_cut=settings.doc_cut,
        num_threads=search_threads(),
    )
    built.save(str(folder / _NAME))


def _classes(seismic: Any, dimensions: int) -> tuple[Any, Any]:
    """The library's dataset and index for so many dimensions."""
    if dimensions > _MOST_DIMENSIONS:
        return seismic.SeismicDatasetLV, seismic.SeismicIndexLV
    return seismic.SeismicDataset, seismic.SeismicIndex


@dataclass(frozen=True)
class SeismicRanker:
    """A loaded Seismic index."""

    index: Any
    """None where no document has a weight."""

    settings: SeismicSettings

    @classmethod
    def open(cls, folder: Path, settings: SeismicSettings, postings: int, dimensions: int) -> SeismicRanker:
        """The index that :func:`build_seismic` left in ``folder``, of documents with so many postings and dimensions.

        Raises:
            DataError: it is missing or damaged.
        """
        if not postings:
            return cls(None, settings)
        import seismic

        path = folder / _FILE
        try:
            index = _classes(seismic, dimensions)[1].load(str(path))
            held = index.nnz
        except BaseException as error:  # what its Rust code panics with is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            why = "it is missing" if not path.exists() else str(error)[:200]
            raise DataError(f"{path}: the index is damaged ({why}). {REBUILD}") from error
        if held != postings:
            raise DataError(f"{path}: the index is damaged: it has {held:,} of {postings:,} postings. {REBUILD}")
        return cls(index, settings)

    def rank(self, queries: sp.csr_matrix, depth: int) -> Iterator[tuple[Ids, Scores]]:
        """As :meth:`vtkit.search.engine.Ranker.rank`."""
        for start in range(0, queries.shape[0], _QUERIES_AT_ONCE):
            yield from self._rank(queries[start : start + _QUERIES_AT_ONCE], depth)

    def _rank(self, queries: sp.csr_matrix, depth: int) -> Iterator[tuple[Ids, Scores]]:
        import seismic

        rows = np.split(np.arange(queries.nnz), queries.indptr[1:-1])
        text = seismic.get_seismic_string()
        found = self.index.batch_search(
            np.array([str(row) for row in range(len(rows))], dtype=text),
            [queries.indices[row].astype(text) for row in rows],
            [queries.data[row] for row in rows],
            k=depth,
            query_cut=self.settings.query_cut,
            heap_factor=self.settings.heap_factor,
            num_threads=search_threads(),
        )
        by_query = {int(hits[0][0]): hits for hits in found if hits}  # in no order, and of all with results
        for row in range(len(rows)):
            hits = by_query.get(row, [])
            ids = np.asarray([number for _, _, number in hits], dtype=np.int32)
            yield ids, np.asarray([score for _, score, _ in hits], dtype=np.float32)
