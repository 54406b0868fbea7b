"""BM25 in the form of Lucene, as a dot product of a document's impacts with the counts of a query's terms, so that the
search is that of :mod:`vtkit.search.exact`."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from vtkit.data.executors import in_order
from vtkit.encoder.documents import Blocks, row_blocks
from vtkit.search.analysers import K1, MARK, Analyser, analyser
from vtkit.search.exact import ExactIndex
from vtkit.search.index_info import REBUILD, Ids, Scores
from vtkit.search.passages import Passages
from vtkit.search.stored_vectors import read_vectors, row_sums, write_vectors
from vtkit.settings.analysers import Analysis
from vtkit.system import console
from vtkit.system.errors import DataError

TEXTS_A_BLOCK = 50_000  # counted by themselves; each of their words is cut into terms once
FEW_BLOCKS = 4  # below which other processes are not worth starting

TERMS = "terms.json"  # file of the terms, in the order of their dimensions


@dataclass(frozen=True)
class TermDimensions:
    """The dimension of each of a collection's terms; those of a finished index are in the order of the terms."""

    analyser: Analyser
    numbers: dict[str, int]  # term of the collection -> its dimension

    @classmethod
    def of(cls, cut: Analyser, terms: Iterable[str]) -> TermDimensions:
        """The dimensions of ``terms``, in their order, for queries that the same analyser cuts."""
        return cls(cut, {term: number for number, term in enumerate(terms)})

    def __len__(self) -> int:
        return len(self.numbers)

    def count(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Occurrences of each term in each of the queries ``texts``, (texts, dimensions)."""
        known = ([term for term in self.analyser.of_query(text) if term in self.numbers] for text in texts)
        return _counts(known, self.numbers)


@dataclass(frozen=True)
class Bm25:
    """A collection's BM25 impacts: ln(1 + (N − df + ½)/(df + ½)) · tf/(tf + k1·(1 − b + b·length/mean length)).

    Lucene's form (no factor k1 + 1), with lengths that are not rounded. Lengths are counted in terms. A term counts as
    often as it occurs in the query. N and mean length are those of the documents in the language of the document that
    have a term at all.
    """

    index: ExactIndex
    terms: TermDimensions
    languages: dict[str, int]  # documents in each, the most frequent first; empty if there is only one
    counted: Counted | None = None  # what the impacts were made from, if it was to be kept

    @classmethod
    def build(
        cls,
        texts: Iterable[str],
        language: str,
        analysis: Analysis = "full",
        folder: Path | None = None,
        passages: Passages | None = None,
        *,
        keep_counts: bool = False,
    ) -> Bm25:
        """Count ``texts`` and turn the counts into impacts; document numbers are positions in ``texts``, or the
        documents whose ``passages`` they are: its statistics are then those of the passages. Postings are
        kept in ``folder``, if there is one, and mapped. With ``keep_counts``, the counts stay in memory."""
        cut = analyser(language, analysis)
        counted = Counted.in_texts(texts, cut, folder)
        names = dict.fromkeys(term.partition(MARK)[0] for term in counted.terms if cut.query_runs is not None)
        languages = Counter(dict(zip(names, counted.documents.tolist(), strict=False)))
        index = ExactIndex.build(counted.impacts(cut.b), passages, folder)
        terms, kept = TermDimensions.of(cut, counted.terms), counted if keep_counts else None
        return cls(index, terms, dict(languages.most_common()), kept)

    def search(self, texts: Sequence[str], depth: int) -> tuple[Ids, Scores]:
        """Document numbers and scores of the best ``depth`` documents, as :meth:`ExactIndex.search` returns them."""
        return self.index.search(self.terms.count(texts), depth)


def languages_of_rows(counts: sp.csr_matrix, languages: np.ndarray) -> np.ndarray:
    """The number of each document's language, which is that of its first term; 0 without terms, (documents,)."""
    rows, filled = np.zeros(counts.shape[0], np.int64), np.diff(counts.indptr) > 0
    rows[filled] = languages[counts.indices[counts.indptr[:-1][filled]]]
    return rows


TermCounts = tuple[Sequence[str], sp.csr_matrix]
"""Terms, ascending, and the occurrences of each in each document, (documents, terms). The terms are in order, whatever
the order of the documents, so that equal documents have equal indexes."""


def write_counts(terms: Sequence[str], counts: sp.csr_matrix, folder: Path) -> None:
    """Write :data:`TermCounts` into ``folder``."""
    write_vectors(counts, folder)
    (folder / TERMS).write_text(json.dumps(terms, ensure_ascii=False), encoding="utf-8")


def read_counts(folder: Path) -> TermCounts:
    """The counts that :func:`write_counts` wrote, mapped into memory."""
    counts = read_vectors(folder)
    return read_terms(folder, counts.shape[1]), counts


def read_terms(folder: Path, count: int) -> list[str]:
    """The terms in :data:`TERMS`, which must be ``count`` different ones."""
    try:
        terms: list[str] = json.loads((folder / TERMS).read_text("utf-8"))
        if not len(terms) == len(set(terms)) == count or not set(map(type, terms)) <= {str}:
            raise ValueError("these are other terms")
    except (FileNotFoundError, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{folder / TERMS}: the terms of the index are missing or damaged. {REBUILD}") from error
    return terms


@dataclass(frozen=True)
class Counted:
    """The counts of several parts of a collection in the order of all its terms, and BM25's statistics of the whole,
    those of each language by itself if it has several."""

    terms: Sequence[str]  # ascending
    rows: Blocks
    languages: np.ndarray  # number of each term's language, (terms,)
    documents: np.ndarray  # documents in each language, (languages,)
    mean_length: np.ndarray  # (languages,)
    frequencies: np.ndarray  # documents that contain each term, (terms,)

    @classmethod
    def of(cls, names: Sequence[Sequence[str]], parts: Sequence[Blocks]) -> Counted:
        """From the terms of each part, ascending, and the counts in its rows; terms that no row has are left out."""
        terms, places = merged_terms(names)

        def rows() -> Iterator[sp.csr_matrix]:
            for place, part in zip(places, parts, strict=True):
                for block in part():
                    entries = block.data, place[block.indices], block.indptr
                    yield sp.csr_matrix(entries, (block.shape[0], len(terms)))

        while True:
            numbers = dict[str, int]()  # of languages, in the order of their first terms; one without a mark if alone
            marks = (term.rpartition(MARK)[0] for term in terms)
            of_terms = np.fromiter((numbers.setdefault(mark, len(numbers)) for mark in marks), np.int64, len(terms))
            count = int(of_terms.max(initial=0)) + 1
            documents, lengths, frequencies = np.zeros(count, np.int64), np.zeros(count), np.zeros(len(terms), np.int64)
            for block in rows():
                languages = languages_of_rows(block, of_terms)
                documents += np.bincount(languages[(sizes := row_sums(block)) > 0], minlength=count)
                lengths += np.bincount(languages, weights=sizes, minlength=count)
                np.add.at(frequencies, block.indices, 1)
            if (used := frequencies > 0).all():
                means = np.where(lengths, lengths / np.maximum(documents, 1), 1.0)
                return cls(terms, rows, of_terms, documents, means, frequencies)
            terms = list(compress(terms, used.tolist()))
            places = [(np.cumsum(used, dtype=np.int32) - 1)[place] for place in places]

    @classmethod
    def in_texts(cls, texts: Iterable[str], cut: Analyser, folder: Path | None = None) -> Counted:
        """The terms of ``texts`` that an analyser cuts; the same whatever executor counts them. Counts of full blocks
        are kept in ``folder``, if there is one."""
        left, parts = iter(texts), list[TermCounts]()
        blocks = iter(lambda: list(islice(left, TEXTS_A_BLOCK)), list[str]())
        with console.progress("BM25: counting words") as bar:
            for terms, counts in in_order(partial(_counted_block, cut), blocks, bar, FEW_BLOCKS):
                if folder is not None and counts.shape[0] == TEXTS_A_BLOCK:
                    write_counts(terms, counts, place := folder / f"counts-{len(parts)}")
                    terms, counts = read_counts(place)
                parts.append((terms, counts))
        parts = parts or [_counted_block(cut, [], None)]
        return cls.of([terms for terms, _ in parts], [partial(row_blocks, counts) for _, counts in parts])

    def save(self, folder: Path) -> None:
        """Write the rows of all parts into ``folder``, as :func:`write_counts` does."""
        write_counts(self.terms, sp.vstack(list(self.rows()), format="csr"), folder)

    def impacts(self, b: float) -> Iterator[sp.csr_matrix]:
        """BM25's impact of each term on each document, in blocks of rows, (documents, terms) float32."""
        idf = np.log1p((self.documents[self.languages] - self.frequencies + 0.5) / (self.frequencies + 0.5))
        for block in self.rows():
            mean_length = self.mean_length[languages_of_rows(block, self.languages)]
            normalisation = np.repeat(K1 * (1 - b + b * row_sums(block) / mean_length), np.diff(block.indptr))
            impacts = (idf[block.indices] * block.data / (block.data + normalisation)).astype(np.float32)
            yield sp.csr_matrix((impacts, block.indices, block.indptr), block.shape)


def merged_terms(parts: Sequence[Sequence[str]]) -> tuple[list[str], list[npt.NDArray[np.int32]]]:
    """The terms of all parts, ascending as they are in each, and where those of each part are among them."""
    terms = sorted(dict.fromkeys(chain.from_iterable(parts)))  # parts in order are merged, not sorted again
    numbers = {term: number for number, term in enumerate(terms)}
    return terms, [np.fromiter(map(numbers.__getitem__, part), np.int32, len(part)) for part in parts]


def _counted_block(cut: Analyser, texts: Sequence[str], bar: console.Bar | None) -> TermCounts:
    """The counts of a block of texts: those of runs, (texts, runs), times the terms of each run, (runs, terms), so that
    every run is cut once."""
    runs, numbers = dict[str, int](), dict[str, int]()
    runs_of_texts = _counts(map(cut.runs, texts), runs)
    counts = (runs_of_texts @ _counts(map(cut.terms, runs), numbers)).tocsr()
    if bar is not None:
        bar.advance(len(texts))
    names = sorted(numbers)
    counts = counts[:, [numbers[name] for name in names]]
    counts.sort_indices()
    return names, counts


def _counts(rows: Iterable[Iterable[str]], numbers: dict[str, int]) -> sp.csr_matrix:
    """Occurrences of each string in each of ``rows``, (rows, strings), in the columns ``numbers``, which new ones
    enter."""
    starts, columns, counts = array("q", [0]), array("i"), array("f")
    for row in rows:
        counted = Counter(row)
        columns.extend(numbers.setdefault(each, len(numbers)) for each in counted)
        counts.extend(counted.values())
        starts.append(len(columns))
    data, indices = np.asarray(counts).astype(np.float32, copy=False), np.asarray(columns).astype(np.int32, copy=False)
    return sp.csr_matrix((data, indices, np.asarray(starts).astype(np.int64)), shape=(len(starts) - 1, len(numbers)))
