"""Exact search over sparse vectors, in process, term at a time with one accumulator a document. For a few results of a
large collection most postings are left unread (:mod:`vtkit.search.pruning`), with the same scores."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from vtkit.data.shards import write_arrays
from vtkit.search.index_info import REBUILD, Contributions, Ids, IndexInfo, Scores, check_weights
from vtkit.search.passages import PASSAGES, WIDENED, Passages, best_documents
from vtkit.search.pruning import DOCUMENTS_A_RESULT, FrequentTerms, frequent_terms, search_lists
from vtkit.search.stored_vectors import read_array, read_lists
from vtkit.system.errors import DataError
from vtkit.system.results import Result
from vtkit.system.runtime import threads

_COUNTS = "postings.json"
_COUNTED_AT_ONCE = 2**24
_ARRAYS = ("starts", "documents", "weights")


@dataclass(frozen=True)
class _Counts(Result):
    """Lengths of the arrays of an index."""

    documents: int  # rows of the vectors
    vocabulary: int
    postings: int
    frequent: int | None = None  # terms with rows; None if everything is always scored
    passages_of: int | None = None  # documents of which the rows are passages; None: they are documents


@dataclass(frozen=True)
class ExactIndex:
    """Posting lists of a collection's sparse vectors, term after term, documents ascending within a list. The vectors
    are of documents or, with ``passages``, of these, and a document scores as its best passage."""

    starts: npt.NDArray[np.int64]  # where each term's list begins, and the end of the last, (vocabulary + 1,)
    documents: Ids  # rows of the vectors, (postings,)
    weights: Scores  # weights beside them, (postings,)
    document_count: int  # rows of the vectors
    frequent: FrequentTerms | None = None  # the rows that pruning needs; None if everything is always scored
    passages: Passages | None = None  # whose vectors these are; None: each row is a document
    most_weights: ClassVar[None] = None  # of a query: all

    @property
    def vocabulary(self) -> int:
        """Number of terms, the width of the vectors."""
        return len(self.starts) - 1

    @property
    def postings(self) -> ExactIndex:
        """Itself: the lists by which every index counts and explains."""
        return self

    @cached_property
    def info(self) -> IndexInfo:
        """Counts of its documents and dimensions."""
        sizes = np.zeros(self.document_count, dtype=np.int64)
        for start in range(0, len(self.documents), _COUNTED_AT_ONCE):  # bincount copies what it counts
            sizes += np.bincount(self.documents[start : start + _COUNTED_AT_ONCE], minlength=self.document_count)
        return IndexInfo(np.diff(self.starts), sizes)

    @classmethod
    def build(cls, documents: sp.csr_matrix, passages: Passages | None = None) -> ExactIndex:
        """The index of ``documents``, (documents, vocabulary), or of their passages, (passages, vocabulary); explicit
        zeros are dropped."""
        matrix = documents.tocsc(copy=True).astype(np.float32, copy=False)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        check_weights(matrix.data, "document")
        starts, numbers = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False)
        weights = matrix.data
        frequent = frequent_terms(starts, numbers, weights, matrix.shape[0])
        if frequent is not None:
            frequent = FrequentTerms(*map(_frozen, frequent._asdict().values()))
        return cls(_frozen(starts), _frozen(numbers), _frozen(weights), matrix.shape[0], frequent, passages)

    def save(self, folder: str | Path) -> None:
        """Write the index into ``folder`` as plain arrays (no pickle); a missing folder is created."""
        folder = Path(folder)
        counts = {"documents": self.document_count, "vocabulary": self.vocabulary, "postings": len(self.documents)}
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        if self.frequent is not None:
            counts["frequent"] = len(self.frequent.terms)
            arrays |= {f"frequent_{name}": array for name, array in self.frequent._asdict().items()}
        write_arrays(folder, arrays)
        if self.passages is not None:
            counts["passages_of"] = self.passages.document_count
            self.passages.save(folder)
        (folder / _COUNTS).write_text(json.dumps(counts), encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> ExactIndex:
        """The index that :meth:`save` wrote, its arrays mapped into memory, not read."""
        folder = Path(folder)
        counts = _Counts.from_file(folder / _COUNTS, REBUILD)
        starts, documents, weights = read_lists(folder, _ARRAYS, counts.documents, REBUILD)
        if (len(starts) - 1, len(documents)) != (counts.vocabulary, counts.postings):
            raise DataError(f"{folder} is damaged: its files do not match each other. {REBUILD}")
        frequent = None
        if (rows := counts.frequent) is not None:

            def array(name: str, kind: str, *shape: int) -> npt.NDArray[Any]:
                return read_array(folder / f"frequent_{name}.npy", kind, REBUILD, shape)

            of_rows = array("rows", "uint8", rows, counts.documents)
            frequent = FrequentTerms(array("terms", "int32", rows), of_rows, array("steps", "float32", rows))
            terms, steps = np.diff(frequent.terms, prepend=-1, append=counts.vocabulary), frequent.steps
            if not ((terms > 0).all() and (np.isfinite(steps) & (steps > 0)).all()):
                raise DataError(f"{folder} is damaged: its frequent terms do not match the others. {REBUILD}")
        passages = Passages.load(folder, counts.documents)
        if counts.passages_of != (None if passages is None else passages.document_count):
            raise DataError(f"{folder} is damaged: {PASSAGES} does not match its other files. {REBUILD}")
        return cls(starts, documents, weights, counts.documents, frequent, passages)

    @property
    def ranked(self) -> int:
        """Number of documents that a search ranks."""
        return self.document_count if self.passages is None else self.passages.document_count

    def by_document(self) -> sp.csr_matrix:
        """The vectors of the rows, (documents or passages, vocabulary), terms ascending."""
        lists = self.weights, self.documents, self.starts
        return sp.csc_matrix(lists, shape=(self.document_count, self.vocabulary)).tocsr()

    def search(
        self, queries: sp.csr_matrix, depth: int, passing: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Ids, Scores]:
        """The ``depth`` documents with the largest dot product with each query, best first.

        Only documents that score above zero are returned; of equal scores the lower document number comes first.

        Args:
            queries: (queries, vocabulary).
            passing: the documents to choose from, (documents,); None: all.

        Returns:
            Document numbers and scores, both (queries, depth); -1 and 0 behind the last result.

        Raises:
            CollapseError: a query weight is infinite or NaN.
            ValueError: the queries have another vocabulary, or ``depth`` is not positive.
        """
        matrix = self.checked(queries, depth)
        if self.passages is not None:
            rows_of = self.passages.documents
            allowed = None if passing is None else passing[rows_of]
            return best_documents(
                lambda some, rows: self._rows(some, rows, allowed), matrix, depth, rows_of, WIDENED * depth
            )
        return self._rows(matrix, depth, passing)

    def _rows(self, matrix: sp.csr_matrix, depth: int, passing: npt.NDArray[np.bool_] | None) -> tuple[Ids, Scores]:
        """:meth:`search` among the rows of the vectors, of which ``passing`` are to be chosen from."""
        ids = np.full((matrix.shape[0], depth), -1, dtype=np.int32)
        scores = np.zeros((matrix.shape[0], depth), dtype=np.float32)
        frequent, workers = self.frequent, max(1, min(threads(), matrix.shape[0]))
        if frequent is None or depth * DOCUMENTS_A_RESULT > self.document_count:
            rows = _frozen(np.empty((0, 0), np.uint8)), _frozen(np.empty(0, np.float32)), False
        else:
            rows = frequent.rows, frequent.steps, True
        chosen = _frozen(np.empty(0, np.bool_) if passing is None else passing)
        lists = self.starts, self.documents, self.weights, self.document_count, chosen, self._places, *rows
        terms = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data
        if workers == 1:
            search_lists(*lists, *terms, ids, scores, 0, 1)
            return ids, scores
        with ThreadPoolExecutor(workers) as pool:
            for done in [pool.submit(search_lists, *lists, *terms, ids, scores, at, workers) for at in range(workers)]:
                done.result()
        return ids, scores

    def checked(self, queries: sp.csr_matrix, depth: int = 1) -> sp.csr_matrix:
        """A copy of ``queries`` in float32, if they can be searched (:meth:`search`)."""
        if queries.shape[1] != self.vocabulary:
            raise ValueError(f"queries have {queries.shape[1]} dimensions, the index has {self.vocabulary}")
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth}")
        matrix = queries.tocsr().astype(np.float32)
        check_weights(matrix.data, "query")
        return matrix

    def explain(self, query: sp.csr_matrix, document: int) -> Contributions:
        """The terms that a query, (1, vocabulary), shares with a document or its best passage, and the weights of
        both."""
        matrix = self.checked(query)
        rows = range(document, document + 1) if self.passages is None else self.passages.rows_of(document)
        return max((self._shared(matrix, row) for row in rows), key=lambda shared: shared.products.sum())

    def _shared(self, matrix: sp.csr_matrix, row: int) -> Contributions:
        shared: list[tuple[int, float, float]] = []
        for term, weight in zip(matrix.indices.tolist(), matrix.data.tolist(), strict=True):
            start, stop = int(self.starts[term]), int(self.starts[term + 1])
            at = start + int(np.searchsorted(self.documents[start:stop], row))
            if at < stop and self.documents[at] == row:
                shared.append((term, weight, float(self.weights[at])))
        terms, of_query, of_document = zip(*shared, strict=True) if shared else ((), (), ())
        return Contributions(
            np.asarray(terms, np.int64), np.asarray(of_query, np.float64), np.asarray(of_document, np.float64), row
        )

    @cached_property
    def _places(self) -> npt.NDArray[np.int32]:
        """The row of each term, -1 for none; (vocabulary,)."""
        places = np.full(self.vocabulary, -1, dtype=np.int32)
        if self.frequent is not None:
            places[self.frequent.terms] = np.arange(len(self.frequent.terms))
        return places


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array, read-only, so that built and loaded indexes have the same type for the compiler."""
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array
