"""The documents of an index with their vectors, in the files that an engine loads in bulk: memory holds one part of the
collection, a file is written whole or not at all, and existing files are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from vtkit.encoder.largest_weights import pruned
from vtkit.search.exact import ExactIndex
from vtkit.search.lucene import quantised_by
from vtkit.search.searcher import Documents, Searcher
from vtkit.system import console
from vtkit.system.errors import DataError

DEPTH = 10  # results of a replayed query
PART_BYTES = 8_000_000  # approximate size of a file, which bulk interfaces accept as one request

_POSTING_BYTES = 16
_AT_ONCE = 4096


@dataclass(frozen=True)
class Entry:
    """A document with weights above zero."""

    number: int  # its position in the collection
    id: str
    title: str
    text: str
    dimensions: NDArray[np.int64]  # ascending, from 0
    weights: NDArray[np.float64]  # the index's float32 values, or whole numbers of steps for engines that need these

    def vector(self, names: Sequence[str] | None = None) -> dict[str, float]:
        """Weight by dimension; its name is in ``names``, or its number."""
        pairs = zip(self.dimensions.tolist(), self.weights.tolist(), strict=True)
        return {str(number) if names is None else names[number]: weight for number, weight in pairs}


@dataclass(frozen=True)
class Collection:
    """The documents of an index in the form that an engine needs."""

    postings: ExactIndex
    documents: Documents
    top_dimensions: int | None = None  # number of a document's largest weights that are kept; None: all
    step: float | None = None  # the weight of 1, if the engine needs whole numbers
    nine_bits: bool = False  # whether the engine cuts weights to 9 significant bits, like Lucene's features

    @classmethod
    def of(
        cls, searcher: Searcher, top_dimensions: int | None = None, bits: int | None = None, nine_bits: bool = False
    ) -> Collection:
        """The documents that ``searcher`` finds, as whole numbers of ``bits`` where an engine needs them."""
        postings = searcher.index.postings
        if len(postings.weights) and float(postings.weights.min()) < 0:
            raise DataError(
                "The documents have negative weights, which no engine can hold. Only vtkit can search them."
            )
        largest = float(postings.weights.max(initial=0.0)) or 1.0
        step = None if bits is None else largest / (2**bits - 1)
        return cls(postings, searcher.documents, top_dimensions, step, nine_bits)

    @property
    def dimensions(self) -> int:
        """Width of the vectors."""
        return self.postings.vocabulary

    def __len__(self) -> int:
        return self.postings.document_count

    @property
    def changed(self) -> bool:
        """Whether the vectors differ from those of the index."""
        return self.top_dimensions is not None or self.step is not None or self.nine_bits

    @property
    def longest(self) -> int:
        """The most weights that a document has."""
        longest = int(self.postings.info.document_sizes.max(initial=0))
        return min(longest, self.top_dimensions or longest)

    @property
    def found(self) -> int:
        """Number of documents with weights; the others can never be found, and are left out."""
        return int((self.postings.info.document_sizes > 0).sum())

    def rows(self, start: int, stop: int) -> sp.csr_matrix:
        """The vectors of documents ``start`` to ``stop``, (stop − start, dimensions), dimensions ascending."""
        first, last = (self._bounds(place) for place in (start, stop))
        counts = last - first
        terms = np.repeat(np.arange(len(counts)), counts)
        places = np.arange(len(terms)) + np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        numbers = np.asarray(self.postings.documents[places]) - start
        weights = np.asarray(self.postings.weights[places])
        rows = sp.csr_matrix((weights, (numbers, terms)), shape=(stop - start, self.dimensions), dtype=np.float32)
        rows.sort_indices()
        if self.top_dimensions is not None:
            rows, _ = pruned(rows, self.top_dimensions)
        return rows if self.step is None else quantised_by(rows, self.step)

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """Documents ``start`` to ``stop`` that have weights."""
        rows = self.rows(start, stop)
        for row in range(stop - start):
            part = slice(rows.indptr[row], rows.indptr[row + 1])
            if part.start < part.stop:
                document = self.documents[start + row]
                yield Entry(
                    start + row, document["_id"], document["title"], document["text"],
                    rows.indices[part].astype(np.int64), rows.data[part].astype(np.float64),
                )  # fmt: skip

    def parts(self) -> list[tuple[int, int]]:
        """First and last document of each file, about :data:`PART_BYTES` long."""
        sizes = self.postings.info.document_sizes * _POSTING_BYTES + np.diff(self.documents.starts)[: len(self)]
        ends = np.cumsum(sizes)
        bounds = [0]
        while bounds[-1] < len(self):
            before = int(ends[bounds[-1] - 1]) if bounds[-1] else 0
            bounds.append(max(bounds[-1] + 1, int(np.searchsorted(ends, before + PART_BYTES))))
        return list(zip(bounds, [min(bound, len(self)) for bound in bounds[1:]], strict=False))

    def write(
        self, folder: Path, name: str, line: Callable[[Entry], str], around: tuple[str, str, str] = ("", "", "")
    ) -> list[str]:
        """Write every part as ``folder/name``, in which ``{}`` becomes its number; existing parts are kept.

        Args:
            line: what a file has of a document.
            around: what stands before the first of a file, between two, and behind the last.

        Returns:
            The names of the files.
        """
        folder.mkdir(parents=True, exist_ok=True)
        opening, between, closing = around
        files = []
        with console.progress("documents", total=len(self)) as bar:
            for number, (start, stop) in enumerate(self.parts()):
                path = folder / name.format(f"{number:05}")
                if not path.exists():
                    fresh = path.with_name(f"{path.name}.partial")
                    with fresh.open("w", encoding="utf-8", newline="\n") as file:
                        file.write(opening)
                        for place, entry in enumerate(self.entries(start, stop)):
                            file.write((between if place else "") + line(entry))
                        file.write(closing)
                    fresh.rename(path)
                files.append(path.name)
                bar.advance(stop - start)
        return files

    def search(self, queries: sp.csr_matrix, depth: int = DEPTH) -> list[list[tuple[int, float]]]:
        """The best documents of each query and their scores, by exact search over the engine's vectors."""
        best: list[list[tuple[int, float]]] = [[] for _ in range(queries.shape[0])]
        for start in range(0, len(self), _AT_ONCE):
            stop = min(start + _AT_ONCE, len(self))
            rows = self.rows(start, stop)
            if self.nine_bits:
                rows.data = (rows.data.view(np.int32) >> 15 << 15).view(np.float32)
            scores = (rows @ queries.T).T.tocsr()
            for row, results in enumerate(best):
                part = slice(scores.indptr[row], scores.indptr[row + 1])
                numbers, values = scores.indices[part] + start, scores.data[part] * (self.step or 1.0)
                order = np.lexsort((numbers, -values))[:depth]
                results += zip(numbers[order].tolist(), values[order].tolist(), strict=True)
                results.sort(key=lambda each: (-each[1], each[0]))
                del results[depth:]
        return [[each for each in results if each[1] > 0] for results in best]

    def _bounds(self, document: int) -> NDArray[np.int64]:
        """The position at which the list of each term reaches ``document``, (vocabulary,)."""
        numbers, lists = np.asarray(self.postings.documents), pairwise(self.postings.starts.tolist())
        return np.array([start + numbers[start:stop].searchsorted(document) for start, stop in lists])


def json_line(value: object) -> str:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
