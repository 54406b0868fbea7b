"""Exact search over sparse vectors, in process, term at a time with one accumulator a document
(:mod:`vtkit.search.posting_lists`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from vtkit.data.shards import write_arrays
from vtkit.search.index_info import REBUILD, Contributions, Ids, IndexInfo, Scores, check_weights
from vtkit.search.passages import PASSAGES, WIDENED, Passages, best_documents
from vtkit.search.posting_lists import BLOCK, LEFT_OUT, Lists, fill_lists, search_lists, step_of, weights_of
from vtkit.search.stored_vectors import Growing, read_array
from vtkit.system.errors import DataError
from vtkit.system.runtime import threads

COUNTS = "counts"  # array of the number of rows and, if they are passages, that of their documents, else -1
_KINDS = dict(zip(Lists._fields, ("int64", "int32", "int64", "int32", "float32", "int32"), strict=True))


@dataclass(frozen=True)
class ExactIndex:
    """Posting lists of a collection's sparse vectors, of documents or, with ``passages``, of these; a document scores
    as its best passage."""

    lists: Lists
    document_count: int  # rows of the vectors
    passages: Passages | None = None  # whose vectors these are; None: each row is a document
    most_weights: ClassVar[None] = None  # of a query: all

    @property
    def vocabulary(self) -> int:
        """Number of terms, the width of the vectors."""
        return len(self.lists.firsts) - 1

    @property
    def postings(self) -> ExactIndex:
        """Itself: the lists by which every index counts and explains."""
        return self

    @cached_property
    def info(self) -> IndexInfo:
        """Counts of its documents and dimensions."""
        before = np.concatenate([[0], np.cumsum(self.lists.sizes, dtype=np.int64)])
        sizes = [np.bincount(entries % BLOCK, minlength=BLOCK) for _, entries in self._of_blocks()]
        return IndexInfo(np.diff(before[self.lists.firsts]), np.concatenate(sizes)[: self.document_count])

    @classmethod
    def build(
        cls,
        documents: sp.csr_matrix | Iterable[sp.csr_matrix],
        passages: Passages | None = None,
        folder: Path | None = None,
    ) -> ExactIndex:
        """The index of ``documents``, (documents, vocabulary), or of their passages, (passages, vocabulary), or of one
        of these in parts, row after row; explicit zeros are dropped. It is saved in ``folder``, if there is one:
        postings as they come, so that memory holds those of a block."""
        entries, count, width = Growing(folder, "entries", "int32"), 0, 0
        terms, columns = list[npt.NDArray[np.int64]](), []
        parts = [documents] if isinstance(documents, sp.csr_matrix) else documents
        for by_term in map(sp.csr_matrix.tocsc, _blocks(parts)):
            count, width = count + by_term.shape[0], by_term.shape[1]
            by_term.sum_duplicates()
            by_term.eliminate_zeros()
            check_weights(by_term.data, "document")
            filled = np.flatnonzero(np.diff(by_term.indptr))
            starts, sizes = by_term.indptr[filled].astype(np.int64), np.diff(by_term.indptr)[filled]
            largest, of_block = np.empty(len(filled), np.float32), np.empty(by_term.nnz, np.int32)
            fill_lists(starts, sizes, by_term.indices, by_term.data, of_block, largest)
            columns.append((np.full(len(filled), len(terms), np.int32), starts + entries.size, sizes, largest))
            terms.append(filled)
            entries.append(of_block)
            del by_term, of_block
        of_lists = np.concatenate(terms)
        order = np.argsort(of_lists, kind="stable")
        firsts = np.searchsorted(of_lists[order], np.arange(width + 1))
        arrays = firsts, *(np.concatenate(parts)[order] for parts in zip(*columns, strict=True)), entries.whole()
        index = cls(Lists(*map(_frozen, arrays)), count, passages)
        if folder is not None:
            index.save(folder, written={"entries"})
        return index

    def save(self, folder: str | Path, written: Collection[str] = ()) -> None:
        """Write the index into ``folder`` as plain arrays (no pickle), but for those ``written`` already; a missing
        folder is created."""
        folder = Path(folder)
        documents = -1 if self.passages is None else self.passages.document_count
        arrays = {**self.lists._asdict(), COUNTS: np.array([self.document_count, documents])}
        write_arrays(folder, {name: array for name, array in arrays.items() if name not in written})
        if self.passages is not None:
            self.passages.save(folder)

    @classmethod
    def load(cls, folder: str | Path) -> ExactIndex:
        """The index that :meth:`save` wrote, its arrays mapped into memory, not read."""
        folder = Path(folder)
        count, documents = read_array(folder / f"{COUNTS}.npy", "int64", REBUILD, (2,)).tolist()
        lists = Lists(*(read_array(folder / f"{name}.npy", kind, REBUILD) for name, kind in _KINDS.items()))
        if not _are_sound(lists, count):
            raise DataError(f"{folder} is damaged: its files do not match each other. {REBUILD}")
        passages = Passages.load(folder, count)
        if documents != (-1 if passages is None else passages.document_count):
            raise DataError(f"{folder} is damaged: {PASSAGES} does not match its other files. {REBUILD}")
        return cls(lists, count, passages)

    @property
    def ranked(self) -> int:
        """Number of documents that a search ranks."""
        return self.document_count if self.passages is None else self.passages.document_count

    def by_document(self) -> sp.csr_matrix:
        """The vectors of the rows, (documents or passages, vocabulary), terms ascending."""
        width, parts = self.vocabulary, list[sp.csr_matrix]()
        terms = np.repeat(np.arange(width, dtype=np.int32), np.diff(self.lists.firsts))
        for of_block, entries in self._of_blocks():
            sizes, height = self.lists.sizes[of_block], min(BLOCK, self.document_count - BLOCK * len(parts))
            weights = weights_of(sizes, self.lists.largest[of_block], entries)
            lists = weights, entries % BLOCK, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
            rows = sp.csc_matrix(lists, (height, len(sizes))).tocsr()
            parts.append(sp.csr_matrix((rows.data, terms[of_block][rows.indices], rows.indptr), (height, width)))
        return sp.vstack(parts, format="csr")

    def _of_blocks(self) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]]:
        """The lists of each block, terms ascending, and their entries."""
        _, blocks, starts, sizes, _, entries = self.lists
        for block in range(max(1, -(-self.document_count // BLOCK))):
            lists = np.flatnonzero(blocks == block)
            start = int(starts[lists].min(initial=len(entries)))
            yield lists, entries[start : start + int(sizes[lists].sum(dtype=np.int64))]

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
            return best_documents(partial(self._search_rows, passing=allowed), matrix, depth, rows_of, WIDENED * depth)
        return self._search_rows(matrix, depth, passing)

    def _search_rows(
        self, matrix: sp.csr_matrix, depth: int, passing: npt.NDArray[np.bool_] | None
    ) -> tuple[Ids, Scores]:
        """:meth:`search` among the rows of the vectors, of which ``passing`` are to be chosen from."""
        ids = np.full((matrix.shape[0], depth), -1, dtype=np.int32)
        scores = np.zeros((matrix.shape[0], depth), dtype=np.float32)
        chosen = _frozen(np.empty(0, np.bool_) if passing is None else passing)
        index = self.lists, np.float64(LEFT_OUT), self.document_count, chosen
        terms = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data
        workers = max(1, min(threads(), matrix.shape[0]))
        if workers == 1:
            search_lists(*index, *terms, ids, scores, 0, 1)
            return ids, scores
        with ThreadPoolExecutor(workers) as pool:
            for done in [pool.submit(search_lists, *index, *terms, ids, scores, at, workers) for at in range(workers)]:
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
        lists, (block, place) = self.lists, divmod(row, BLOCK)
        for term, weight in zip(matrix.indices.tolist(), matrix.data.tolist(), strict=True):
            of_term = np.arange(lists.firsts[term], lists.firsts[term + 1])
            for one in of_term[lists.blocks[of_term] == block].tolist():
                entries = lists.entries[lists.starts[one] : lists.starts[one] + lists.sizes[one]]
                code = entries[entries % BLOCK == place] >> 16
                if len(code):
                    shared.append((term, weight, float(code[0] * step_of(lists.largest[one]))))
        terms, of_query, of_document = zip(*shared, strict=True) if shared else ((), (), ())
        return Contributions(
            np.asarray(terms, np.int64), np.asarray(of_query, np.float64), np.asarray(of_document, np.float64), row
        )


def _blocks(parts: Iterable[sp.csr_matrix]) -> Iterator[sp.csr_matrix]:
    """The rows of ``parts`` in blocks, of which the last may have fewer; one at least. Nothing but who takes a block
    keeps it."""
    held: list[sp.csr_matrix] = []
    filled = blocks = 0
    for part in parts:
        first = 0
        while first < part.shape[0] or not blocks + len(held):
            held.append(part[first : first + BLOCK - filled])
            first, filled = first + held[-1].shape[0], filled + held[-1].shape[0]
            if filled == BLOCK:
                held[:] = [sp.vstack(held, format="csr", dtype=np.float32)]
                yield held.pop()
                filled, blocks = 0, blocks + 1
    if held:
        held[:] = [sp.vstack(held, format="csr", dtype=np.float32)]
        yield held.pop()


def _are_sound(lists: Lists, documents: int) -> bool:
    """Whether nothing in ``lists`` points outside of them."""
    firsts, of_blocks, starts, sizes, largest, entries = lists
    last = max(0, documents - 1) // BLOCK
    if not len(firsts) or {int(firsts[-1])} != {len(one) for one in lists[1:5]}:
        return False
    in_last = entries[starts[of_blocks == last].min(initial=len(entries)) :] % BLOCK
    limits = (
        (firsts[:1], 0, 0),
        (np.diff(firsts), 0, last + 1),
        (of_blocks, 0, last),
        (starts, 0, len(entries)),
        (sizes, 1, BLOCK),
        (starts + sizes, 0, len(entries)),
        (largest, 0, np.finfo(np.float32).max),
        (in_last, 0, max(0, documents - 1 - BLOCK * last)),
    )
    return all(low <= some.min(initial=low) and some.max(initial=low) <= high for some, low, high in limits)


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array, read-only, so that built and loaded indexes have the same type for the compiler."""
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array
