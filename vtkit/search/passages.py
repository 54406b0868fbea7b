"""Long documents as passages: each passage is a row of vectors of its own, and a document scores as its best one.

MaxP (Dai and Callan 2019, arXiv:1905.09217): ``score(q, d) = max_p score(q, p)`` over the passages p of d. Passages are
cut from the text between sentences (Unicode's rules, UAX 29, which need no language) and carry the document's title. A
collection whose documents are all short enough has no passages: its rows are its documents.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vtkit.data.retrieval import Document
from vtkit.data.sequences import Lazy
from vtkit.data.unspaced import cut_runs
from vtkit.search.index_info import REBUILD, Ids, Scores
from vtkit.search.stored_vectors import read_array
from vtkit.settings.index import PassagesSection
from vtkit.system.errors import DataError

PASSAGES = "passages.npy"  # file beside the vectors or the postings whose rows are passages
WIDENED = 4  # so many times as many rows are asked for while they are of too few documents
_AT_ONCE = 2**24  # results of rows that are held at once

_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Passages:
    """The passages of documents, in the order of the documents; each document has at least one."""

    rows: npt.NDArray[np.int32]
    """Number of the document, first character of its text, and end, (passages, 3)."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def documents(self) -> Ids:
        """The document of each row, ascending, (passages,)."""
        return self.rows[:, 0]

    @property
    def document_count(self) -> int:
        """Number of documents."""
        return int(self.rows[-1, 0]) + 1

    @classmethod
    def of(cls, documents: Iterable[Document], settings: PassagesSection | None) -> Passages | None:
        """The passages of ``documents``; None if passages are not wanted, or if each document is a single one."""
        if settings is None:
            return None
        rows = [
            (number, *span)
            for number, document in enumerate(documents)
            for span in spans_of(document.text, settings.words, settings.overlap)
        ]
        passages = cls(np.array(rows, dtype=np.int32).reshape(-1, 3))
        return passages if rows and len(rows) > passages.document_count else None

    @classmethod
    def joined(cls, parts: Sequence[tuple[Passages | None, int]]) -> Passages | None:
        """The passages of several collections behind one another, each given with its number of documents; a collection
        without passages has a row a document, whose text is not cut. None if all are so."""
        if all(passages is None for passages, _ in parts):
            return None
        firsts = accumulate((count for _, count in parts), initial=0)
        rows = []
        for (passages, count), first in zip(parts, firsts, strict=False):
            whole = np.column_stack([np.arange(count), np.zeros(count), np.full(count, np.iinfo(np.int32).max)])
            own = whole.astype(np.int32) if passages is None else passages.rows
            rows.append(own + np.array([first, 0, 0], dtype=np.int32))
        return cls(np.concatenate(rows))

    def rows_of(self, document: int) -> range:
        """The rows of a document."""
        return range(*np.searchsorted(self.documents, [document, document + 1]).tolist())

    def text(self, row: int, document: Document) -> str:
        """The text of a passage of ``document``."""
        first, end = self.rows[row, 1:].tolist()
        return document.text[first:end]

    def save(self, folder: Path) -> None:
        """Write the file of the passages into ``folder``."""
        np.save(folder / PASSAGES, self.rows, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, count: int) -> Passages | None:
        """The passages that :meth:`save` wrote, for vectors of ``count`` rows; None if there is no such file: each row
        is a document."""
        if not (folder / PASSAGES).exists():
            return None
        passages = cls(read_array(folder / PASSAGES, "int32", REBUILD, (count, 3)))
        steps = np.diff(passages.documents, prepend=-1)
        if not count or steps[0] != 1 or steps.min() < 0 or steps.max() > 1:
            raise DataError(f"{folder / PASSAGES} is damaged: its passages are not in order. {REBUILD}")
        return passages


def row_contents(documents: Sequence[Document], passages: Passages | None) -> Sequence[str]:
    """The texts that are encoded and indexed as the rows of vectors, built on access: those of ``documents``, or of
    their passages, each with the title of its document."""

    def text(row: int) -> str:
        if passages is None:
            return documents[row].contents
        document = documents[int(passages.rows[row, 0])]
        return replace(document, text=passages.text(row, document)).contents

    return Lazy(len(documents) if passages is None else len(passages), text)


def spans_of(text: str, words: int, overlap: int) -> list[tuple[int, int]]:
    """First character and end of each passage of ``text``: as many whole sentences as have at most ``words`` words
    together, the first of them those at the end of the passage before that have at most ``overlap``. Sentences that are
    longer than a passage are cut between words. Words of scripts without spaces are ICU's.
    """
    if sum(len(piece.split()) for piece in cut_runs(text)) <= words:
        return [(0, len(text))]
    from icu4py.breakers import SentenceBreaker

    places: list[tuple[int, int]] = []  # first character and end of each word
    borders = [0]  # numbers of words that a passage may begin with or end before
    at = 0
    for sentence in SentenceBreaker(text, "en"):
        before = len(places)
        for piece in cut_runs(sentence):
            places += [(at + word.start(), at + word.end()) for word in _WORD.finditer(piece)]
            at += len(piece)
        borders += range(before + 1 if len(places) - before > words else len(places), len(places) + 1)
    borders = sorted(set(borders))
    first, spans = 0, []
    while True:
        last = bisect_right(borders, first + words) - 1
        spans.append((places[first][0], places[borders[last] - 1][1]))
        if last == len(borders) - 1:
            return spans
        # far enough back for the overlap, and not so far that the next sentence no longer fits
        first = borders[bisect_left(borders, max(borders[last] - overlap, borders[last + 1] - words))]


def best_documents(
    search: Callable[[Any, int], tuple[Ids, Scores]], queries: Any, depth: int, documents: Ids, wanted: int
) -> tuple[Ids, Scores]:
    """The first ``depth`` documents of each query by their best rows, -1 and 0 behind the last.

    Rows in their order, of which each document's first counts, are documents in theirs, ties included: rows ascend with
    their documents. So the first ``depth`` different documents are certain, however few rows were read.

    Args:
        search: the first rows of queries, so many at most, and their scores, as an index returns them.
        documents: the document of each row, (rows,).
        wanted: rows a query to ask for at first; more, as long as they are of too few documents.
    """
    ids = np.full((queries.shape[0], depth), -1, dtype=np.int32)
    scores = np.zeros((queries.shape[0], depth), dtype=np.float32)
    left = np.arange(len(ids))
    while len(left):
        wanted, unsure = min(wanted, len(documents)), []
        at_once = max(1, _AT_ONCE // wanted)
        for batch in (left[start : start + at_once] for start in range(0, len(left), at_once)):
            for query, rows, weights in zip(batch.tolist(), *search(queries[batch], wanted), strict=True):
                found = documents[rows[rows >= 0]]
                first = np.sort(np.unique(found, return_index=True)[1])[:depth]
                if len(first) < depth and len(found) == wanted < len(documents):
                    unsure.append(query)
                else:
                    ids[query, : len(first)], scores[query, : len(first)] = found[first], weights[first]
        left, wanted = np.array(unsure, dtype=np.int64), WIDENED * wanted
    return ids, scores
