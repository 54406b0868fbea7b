"""The documents of an index with their vectors, in the files that an engine loads in bulk."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from vtkit.encoder.largest_weights import pruned
from vtkit.search.exact import ExactIndex
from vtkit.search.index_info import Ids, Scores
from vtkit.search.lucene import quantised_by
from vtkit.search.searcher import Documents
from vtkit.system import console
from vtkit.system.errors import DataError

DEPTH = 10  # results of a replayed query
PART_BYTES = 8_000_000  # approximate size of a file, which bulk interfaces accept as one request

_POSTING_BYTES = 16


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

    vectors: sp.csr_matrix  # (documents, dimensions), float32, or whole numbers of steps
    documents: Documents
    step: float | None = None  # the weight of 1, if the engine needs whole numbers
    nine_bits: bool = False  # whether the engine cuts weights to 9 significant bits, like Lucene's features
    changed: bool = False  # whether the engine's weights differ from those of the index
    refused: re.Pattern[str] | None = None  # a character that the engine refuses
    replaced: dict[int, int] = field(default_factory=dict)
    """Number of a document that was read -> how many of its characters the engine refuses."""

    @classmethod
    def of(
        cls,
        postings: ExactIndex,
        documents: Documents,
        *,
        top_dimensions: int | None = None,
        bits: int | None = None,
        nine_bits: bool = False,
        refused: re.Pattern[str] | None = None,
    ) -> Collection:
        """The documents of an index.

        Args:
            top_dimensions: number of a document's largest weights to keep; None: all.
            bits: of a weight, where the engine needs whole numbers.
        """
        if len(postings.weights) and float(postings.weights.min()) < 0:
            raise DataError(
                "The documents have negative weights, which no engine can hold. Only vtkit can search them."
            )
        lists = postings.weights, postings.documents, postings.starts
        whole = sp.csc_matrix(lists, shape=(postings.document_count, postings.vocabulary)).tocsr()
        vectors, _ = pruned(whole, top_dimensions)
        step = None
        if bits is not None:
            step = (float(postings.weights.max(initial=0.0)) or 1.0) / (2**bits - 1)
            vectors = quantised_by(vectors, step)
        changed = top_dimensions is not None or step is not None or nine_bits
        return cls(vectors, documents, step, nine_bits, changed, refused)

    @property
    def dimensions(self) -> int:
        """Width of the vectors."""
        return int(self.vectors.shape[1])

    def __len__(self) -> int:
        return int(self.vectors.shape[0])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of weights of each document, (documents,). Documents without any can never be found, and are left
        out."""
        sizes: NDArray[np.int64] = np.diff(self.vectors.indptr).astype(np.int64)
        return sizes

    def document(self, number: int) -> dict[str, str]:
        """``_id``, ``title`` and ``text`` of a document, with a space for each character that the engine refuses."""
        document = self.documents[number]
        if self.refused is not None:
            parts = {name: self.refused.subn(" ", text) for name, text in document.items()}
            if count := sum(each for _, each in parts.values()):
                self.replaced[number] = count
                document = {name: text for name, (text, _) in parts.items()}
        return document

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """Documents ``start`` to ``stop`` that have weights."""
        for number in range(start, stop):
            part = slice(self.vectors.indptr[number], self.vectors.indptr[number + 1])
            if part.start < part.stop:
                document = self.document(number)
                yield Entry(
                    number, document["_id"], document["title"], document["text"],
                    self.vectors.indices[part].astype(np.int64), self.vectors.data[part].astype(np.float64),
                )  # fmt: skip

    def parts(self) -> list[tuple[int, int]]:
        """First and last document of each file, about :data:`PART_BYTES` long."""
        sizes = self.sizes * _POSTING_BYTES + np.diff(self.documents.starts)[: len(self)]
        ends = np.cumsum(sizes)
        bounds = [0]
        while bounds[-1] < len(self):
            before = int(ends[bounds[-1] - 1]) if bounds[-1] else 0
            bounds.append(max(bounds[-1] + 1, int(np.searchsorted(ends, before + PART_BYTES))))
        return list(zip(bounds, [min(bound, len(self)) for bound in bounds[1:]], strict=False))

    def write(
        self, folder: Path, name: str, line: Callable[[Entry], str], around: tuple[str, str, str] = ("", "", "")
    ) -> list[str]:
        """Write every part as ``folder/name``, in which ``{}`` becomes its number.

        Args:
            line: what a file has of a document.
            around: what stands before the first of a file, between two, and behind the last.

        Returns:
            The names of the files.
        """
        folder.mkdir()
        opening, between, closing = around
        files = []
        with console.progress("documents", total=len(self)) as bar:
            for number, (start, stop) in enumerate(self.parts()):
                path = folder / name.format(f"{number:05}")
                with path.open("w", encoding="utf-8", newline="\n") as file:
                    file.write(opening)
                    for place, entry in enumerate(self.entries(start, stop)):
                        file.write((between if place else "") + line(entry))
                    file.write(closing)
                files.append(path.name)
                bar.advance(stop - start)
        return files

    def search(self, queries: sp.csr_matrix) -> tuple[Ids, Scores]:
        """The first :data:`DEPTH` documents of each query by exact search over the engine's weights, and their scores,
        both (queries, :data:`DEPTH`)."""
        vectors = self.vectors
        if self.nine_bits:
            vectors = vectors.copy()
            vectors.data = (vectors.data.view(np.int32) >> 15 << 15).view(np.float32)
        ids, scores = ExactIndex.build(vectors).search(queries, DEPTH)
        return ids, scores * np.float32(self.step or 1.0)


def json_line(value: object) -> str:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
