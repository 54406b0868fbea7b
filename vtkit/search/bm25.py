"""BM25 in the form of Lucene.

For a fixed collection BM25 is a dot product, impacts of the document with counts of the query's terms, so the
search itself is that of :mod:`vtkit.search.exact`. What a term is, :mod:`vtkit.search.analysers` says.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from vtkit.recipe.analysers import Analysis
from vtkit.search.analysers import K1, Analyser, analyser
from vtkit.search.exact import ExactIndex
from vtkit.search.index_info import Ids, Scores


@dataclass(frozen=True)
class TermDimensions:
    """Which dimension each of BM25's terms has: those of a collection as they were met, or all terms by a hash."""

    analyser: Analyser
    numbers: dict[str, int]
    """Term of the collection -> its dimension; empty where terms are hashed and the index was loaded."""

    hashed: int | None = None
    """How many dimensions terms are hashed into; then terms that share one count as the same term."""

    def __len__(self) -> int:
        return len(self.numbers) if self.hashed is None else self.hashed

    def of(self, term: str) -> int | None:
        """The dimension of ``term``; None for a term that the collection does not have."""
        return self.numbers.get(term) if self.hashed is None else hashed_term(term, self.hashed)

    def enter(self, term: str) -> int:
        """The dimension of ``term``, which gets one if it has none."""
        number = self.numbers.get(term)
        if number is None:
            number = len(self.numbers) if self.hashed is None else hashed_term(term, self.hashed)
            self.numbers[term] = number
        return number

    @property
    def share_sharing(self) -> float:
        """Share of the collection's terms that have a dimension together with another; 0 where terms are not hashed."""
        alone = sum(count == 1 for count in Counter(self.numbers.values()).values())
        return 1 - alone / max(len(self.numbers), 1)

    def counts(self, texts: Sequence[str]) -> sp.csr_matrix:
        """How often each term stands in each of ``texts``, queries as a rule, (texts, dimensions)."""
        starts, columns, counts = array("q", [0]), array("i"), array("f")
        for text in texts:
            numbers = (self.of(term) for term in self.analyser(text))
            counted = Counter(number for number in numbers if number is not None)
            columns.extend(counted)
            counts.extend(counted.values())
            starts.append(len(columns))
        return _matrix(starts, columns, counts, len(self))


def hashed_term(term: str, dimensions: int) -> int:
    """One of ``dimensions`` numbers, the same for the same term everywhere: CRC-32 of its UTF-8, modulo."""
    return zlib.crc32(term.encode("utf-8", "surrogatepass")) % dimensions


def bm25_impacts(
    texts: Iterable[str], cut: Analyser, k1: float = K1, b: float | None = None, hashed: int | None = None
) -> tuple[sp.csr_matrix, TermDimensions]:
    """BM25's impact of each term on each of ``texts``, (texts, dimensions) float32, and which dimension is whose.

    Args:
        cut: cuts a text into terms.
        k1, b: how soon repetitions stop to count, and how much long documents are held back; ``b`` defaults to
            what goes with the analyser.
        hashed: number of dimensions that terms are hashed into. Default: every term has its own.
    """
    counts, runs = _count(texts, cut)
    terms = TermDimensions(cut, {}, hashed)
    counts = (counts @ _terms_of(runs, terms)).tocsr()
    counts.data = _impacts(counts, k1, cut.b if b is None else b)
    return counts, terms


@dataclass(frozen=True)
class Bm25:
    """A collection's BM25 impacts: ln(1 + (N − df + ½)/(df + ½)) · tf/(tf + k1·(1 − b + b·length/mean length)).

    Lucene's form (no factor k1 + 1, lengths not rounded). Lengths are counted in terms. A term that the query repeats
    counts as often as it stands there.
    """

    index: ExactIndex
    terms: TermDimensions

    @classmethod
    def build(
        cls, texts: Iterable[str], language: str, analysis: Analysis = "full", k1: float = K1, b: float | None = None
    ) -> Bm25:
        """Count ``texts`` and turn the counts into impacts; document numbers are places in ``texts``.

        Args:
            texts: the documents.
            language: ISO 639 code; see :func:`vtkit.search.analysers.analyser`.
            analysis: ``full``, or ``words`` for plain words.
            k1, b: as in :func:`bm25_impacts`.
        """
        impacts, terms = bm25_impacts(texts, analyser(language, analysis), k1, b)
        return cls(ExactIndex.build(impacts), terms)

    @property
    def analyser(self) -> Analyser:
        """What cuts texts into terms."""
        return self.terms.analyser

    def search(self, texts: Sequence[str], depth: int) -> tuple[Ids, Scores]:
        """Document numbers and scores of the best ``depth`` documents, as :meth:`ExactIndex.search` returns them."""
        return self.index.search(self.terms.counts(texts), depth)


def _count(texts: Iterable[str], cut: Analyser) -> tuple[sp.csr_matrix, list[str]]:
    """How often each run of characters stands in each text, (texts, runs), and the runs."""
    numbers: dict[str, int] = {}
    starts, columns, counts = array("q", [0]), array("i"), array("f")
    for text in texts:
        counted = Counter(cut.runs(text))
        columns.extend(numbers.setdefault(run, len(numbers)) for run in counted)
        counts.extend(counted.values())
        starts.append(len(columns))
    return _matrix(starts, columns, counts, len(numbers)), list(numbers)


def _terms_of(runs: Sequence[str], terms: TermDimensions) -> sp.csr_matrix:
    """How often each term stands in each run, (runs, dimensions); every run is cut once. New terms enter ``terms``."""
    starts, columns = array("q", [0]), array("i")
    for run in runs:
        columns.extend(terms.enter(term) for term in terms.analyser.terms(run))
        starts.append(len(columns))
    return _matrix(starts, columns, array("f", [1.0]) * len(columns), len(terms))


def _matrix(starts: array[int], columns: array[int], counts: array[float], width: int) -> sp.csr_matrix:
    data, indices = np.asarray(counts).astype(np.float32, copy=False), np.asarray(columns).astype(np.int32, copy=False)
    return sp.csr_matrix((data, indices, np.asarray(starts).astype(np.int64)), shape=(len(starts) - 1, width))


def _impacts(counts: sp.csr_matrix, k1: float, b: float) -> np.ndarray:
    """The impact of each stored count, (postings,) float32."""
    documents = counts.shape[0]
    lengths = np.asarray(counts.sum(axis=1, dtype=np.float64)).ravel()
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log1p((documents - frequency + 0.5) / (frequency + 0.5))
    mean_length = lengths.mean() if lengths.sum() else 1.0
    normalisation = np.repeat(k1 * (1 - b + b * lengths / mean_length), np.diff(counts.indptr))
    impacts: np.ndarray = (idf[counts.indices] * counts.data / (counts.data + normalisation)).astype(np.float32)
    return impacts
