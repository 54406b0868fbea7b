"""BM25 in the form of Lucene, as a dot product of a document's impacts with the counts of a query's terms, so that the
search is that of :mod:`vtkit.search.exact`."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress, islice, pairwise
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from vtkit.data.executors import in_order
from vtkit.encoder.documents import row_blocks
from vtkit.search.analysers import K1, MARK, Analyser, analyser
from vtkit.search.exact import ExactIndex
from vtkit.search.index_info import REBUILD, Ids, Scores
from vtkit.search.passages import Passages
from vtkit.search.stored_vectors import read_vectors, row_sums, write_vectors
from vtkit.settings.analysers import DOCUMENTS_A_PART, Analysis
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

    def __len__(self) -> int:
        return len(self.numbers)

    def counts(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Occurrences of each term in each of the queries ``texts``, (texts, dimensions)."""
        starts, columns, counts = array("q", [0]), array("i"), array("f")
        for text in texts:
            numbers = (self.numbers.get(term) for term in self.analyser.of_query(text))
            counted = Counter(number for number in numbers if number is not None)
            columns.extend(counted)
            counts.extend(counted.values())
            starts.append(len(columns))
        return _matrix(starts, columns, counts, len(self))


@dataclass(frozen=True)
class Bm25:
    """A collection's BM25 impacts: ln(1 + (N − df + ½)/(df + ½)) · tf/(tf + k1·(1 − b + b·length/mean length)).

    Lucene's form (no factor k1 + 1), with lengths that are not rounded. Lengths are counted in terms. A term counts as
    often as it occurs in the query. N and mean length are those of the documents in the language of the document.
    """

    parts: Sequence[ExactIndex]
    """Indexes of consecutive documents: one, or several that are mapped from files if the collection is large."""

    terms: TermDimensions

    @classmethod
    def build(
        cls,
        texts: Iterable[str],
        language: str,
        analysis: Analysis = "full",
        folder: Path | None = None,
        kept: Path | None = None,
        passages: Passages | None = None,
    ) -> Bm25:
        """Count ``texts`` and turn the counts into impacts; document numbers are positions in ``texts``, or the
        documents whose ``passages`` they are: its statistics are then those of the passages. More than
        :data:`DOCUMENTS_A_PART` documents are kept in parts in ``folder``, if there is one, with the same scores. The
        counts are written into the folder ``kept``, if there is one (:meth:`TermCounts.save`)."""
        cut = analyser(language, analysis)
        if folder is None:
            counts = TermCounts.of(texts, cut)
            if kept is not None:
                counts.save(kept)
            return cls([ExactIndex.build(counts.impacts(cut.b), passages)], counts.dimensions(cut))
        terms = TermDimensions(cut, {})
        counted = _counted_parts(iter(texts), terms, folder)
        whole = Collected.of(counted, terms.numbers)
        parts = []
        for part in counted:
            matrix = _loaded(part)
            matrix.resize(matrix.shape[0], len(terms))
            matrix.data = whole.impacts(matrix, cut.b)
            index = ExactIndex.build(matrix)
            if isinstance(part, Path):
                index.save(part.with_suffix(""))
                index = ExactIndex.load(part.with_suffix(""))
                part.unlink()
            parts.append(index)
        return cls(parts, terms)

    @property
    def impacts(self) -> sp.csr_matrix:
        """BM25's impact of each term on each document, (documents, dimensions) float32."""
        return sp.vstack([part.by_document() for part in self.parts], format="csr")

    @property
    def languages(self) -> dict[str, int]:
        """The number of documents in each language, the most frequent first; empty if there is only one."""
        if self.terms.analyser.query_runs is None:
            return {}
        numbers = languages_of_terms(self.terms.numbers)
        rows = [languages_of_rows(part.by_document(), numbers) for part in self.parts]
        names = dict.fromkeys(term.partition(MARK)[0] for term in self.terms.numbers)
        return dict(Counter(dict(zip(names, np.bincount(np.concatenate(rows)).tolist(), strict=False))).most_common())

    def search(self, texts: Sequence[str], depth: int) -> tuple[Ids, Scores]:
        """Document numbers and scores of the best ``depth`` documents, as :meth:`ExactIndex.search` returns them."""
        queries, first = self.terms.counts(texts), 0
        ids, scores = self.parts[0].search(queries, depth)
        for before, part in pairwise(self.parts):
            first += before.document_count
            part_ids, part_scores = part.search(queries, depth)
            ids = np.concatenate([ids, np.where(part_ids < 0, part_ids, part_ids + first)], axis=1)
            scores = np.concatenate([scores, part_scores], axis=1)
            best = np.lexsort((ids, -scores), axis=1)[:, :depth]
            ids, scores = np.take_along_axis(ids, best, axis=1), np.take_along_axis(scores, best, axis=1)
        return ids, scores


@dataclass(frozen=True)
class Collected:
    """BM25's statistics of a whole collection, those of each language by itself if it has several."""

    languages: np.ndarray  # number of each term's language, (terms,)
    documents: np.ndarray  # documents in each language, (languages,)
    mean_length: np.ndarray  # (languages,)
    frequencies: np.ndarray  # documents that contain each term, (terms,)

    @classmethod
    def of(cls, parts: Iterable[sp.csr_matrix | Path], terms: Collection[str]) -> Collected:
        """From the counts of ``terms`` in its parts, or the files of these."""
        numbers = languages_of_terms(terms)
        count = int(numbers.max(initial=0)) + 1
        documents, lengths, frequencies = np.zeros(count, np.int64), np.zeros(count), np.zeros(len(terms), np.int64)
        for part in map(_loaded, parts):
            languages = languages_of_rows(part, numbers)
            documents += np.bincount(languages, minlength=count)
            lengths += np.bincount(languages, weights=row_sums(part), minlength=count)
            frequencies += np.bincount(part.indices, minlength=len(terms))
        return cls(numbers, documents, np.where(lengths, lengths / np.maximum(documents, 1), 1.0), frequencies)

    def impacts(self, counts: sp.csr_matrix, b: float) -> np.ndarray:
        """The impact of each stored count, (postings,) float32."""
        idf = np.log1p((self.documents[self.languages] - self.frequencies + 0.5) / (self.frequencies + 0.5))
        mean_length = self.mean_length[languages_of_rows(counts, self.languages)]
        normalisation = np.repeat(K1 * (1 - b + b * row_sums(counts) / mean_length), np.diff(counts.indptr))
        impacts: np.ndarray = (idf[counts.indices] * counts.data / (counts.data + normalisation)).astype(np.float32)
        return impacts


def languages_of_terms(terms: Collection[str]) -> np.ndarray:
    """The number of each term's language, in the order of their first terms; 0 if there is only one, (terms,)."""
    numbers: dict[str, int] = {}
    marks = (term.partition(MARK)[0] if MARK in term else "" for term in terms)
    return np.fromiter((numbers.setdefault(mark, len(numbers)) for mark in marks), np.int64, len(terms))


def languages_of_rows(counts: sp.csr_matrix, languages: np.ndarray) -> np.ndarray:
    """The number of each document's language, which is that of its first term; 0 without terms, (documents,)."""
    rows, filled = np.zeros(counts.shape[0], np.int64), np.diff(counts.indptr) > 0
    rows[filled] = languages[counts.indices[counts.indptr[:-1][filled]]]
    return rows


@dataclass(frozen=True)
class TermCounts:
    """Occurrences of each term in each document, in which further documents are counted alike and joined. The terms
    are in order, whatever the order of the documents, so that equal documents have equal indexes."""

    terms: Sequence[str]  # ascending
    counts: sp.csr_matrix  # (documents, terms)

    @classmethod
    def of(cls, texts: Iterable[str], cut: Analyser) -> TermCounts:
        """Count the terms of ``texts`` that an analyser cuts; the same whatever executor counts them."""
        left = iter(texts)
        blocks = iter(lambda: list(islice(left, TEXTS_A_BLOCK)), list[str]())
        with console.progress("BM25: counting words") as bar:
            counted = list(in_order(partial(_counted_block, cut), blocks, bar, FEW_BLOCKS))
        return cls.joined(counted or [_counted_block(cut, [], None)])

    @classmethod
    def joined(cls, parts: Sequence[TermCounts]) -> TermCounts:
        """The documents of all ``parts``, and the terms that they have."""
        terms = list(dict.fromkeys(sorted(chain.from_iterable(part.terms for part in parts))))
        numbers = {term: number for number, term in enumerate(terms)}
        rows = []
        for part in parts:
            places = np.fromiter(map(numbers.__getitem__, part.terms), dtype=np.int32, count=len(part.terms))
            entries = part.counts.data, places[part.counts.indices], part.counts.indptr
            rows.append(sp.csr_matrix(entries, (part.counts.shape[0], len(terms))))
        counts = sp.vstack(rows, format="csr")
        counts.sort_indices()
        used = np.bincount(counts.indices, minlength=len(terms)) > 0
        if not used.all():
            counts.indices = (np.cumsum(used) - 1).astype(counts.indices.dtype)[counts.indices]
            terms = list(compress(terms, used.tolist()))
            counts = sp.csr_matrix((counts.data, counts.indices, counts.indptr), (counts.shape[0], len(terms)))
        return cls(terms, counts)

    def dimensions(self, cut: Analyser) -> TermDimensions:
        """The dimensions of the terms, for queries that the same analyser cuts."""
        return TermDimensions(cut, {term: number for number, term in enumerate(self.terms)})

    def impacts(self, b: float) -> sp.csr_matrix:
        """BM25's impact of each term on each document, (documents, terms) float32."""
        whole = Collected.of((self.counts[rows] for rows in row_blocks(self.counts)), self.terms)
        impacts = np.concatenate([whole.impacts(self.counts[rows], b) for rows in row_blocks(self.counts)])
        return sp.csr_matrix((impacts, self.counts.indices, self.counts.indptr), self.counts.shape)

    def save(self, folder: Path) -> None:
        """Write terms and counts into ``folder``."""
        write_vectors(self.counts, folder)
        (folder / TERMS).write_text(json.dumps(self.terms, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> TermCounts:
        """The counts that :meth:`save` wrote, mapped into memory."""
        counts = read_vectors(folder)
        try:
            terms = json.loads((folder / TERMS).read_text("utf-8"))
            if len(terms) != counts.shape[1] or not all(isinstance(term, str) for term in terms):
                raise ValueError("these are not the terms of the counts")
        except (FileNotFoundError, ValueError, TypeError, RecursionError) as error:
            raise DataError(f"{folder / TERMS}: the terms are missing or damaged. {REBUILD}") from error
        return cls(terms, counts)


def _counted_block(cut: Analyser, texts: Sequence[str], bar: console.Bar | None) -> TermCounts:
    """The counts of a block of texts."""
    terms = TermDimensions(cut, {})
    counts = _term_counts(texts, terms)
    if bar is not None:
        bar.advance(len(texts))
    return TermCounts(list(terms.numbers), counts)


def _loaded(counts: sp.csr_matrix | Path) -> sp.csr_matrix:
    return sp.load_npz(counts) if isinstance(counts, Path) else counts


def _counted_parts(texts: Iterator[str], terms: TermDimensions, folder: Path) -> Sequence[sp.csr_matrix | Path]:
    """The counts of :data:`DOCUMENTS_A_PART` documents each; several parts are kept in files below ``folder``."""
    counts = _term_counts(islice(texts, DOCUMENTS_A_PART), terms)
    if counts.shape[0] < DOCUMENTS_A_PART:
        return [counts]
    folder.mkdir(parents=True, exist_ok=True)
    parts: list[Path] = []
    with console.progress("BM25: counting words") as bar:
        while counts.shape[0]:
            parts.append(folder / f"part-{len(parts)}.npz")
            sp.save_npz(parts[-1], counts, compressed=False)
            bar.advance(counts.shape[0])
            counts = _term_counts(islice(texts, DOCUMENTS_A_PART), terms)
    return parts


def _term_counts(texts: Iterable[str], terms: TermDimensions) -> sp.csr_matrix:
    """Occurrences of each term in each text, (texts, terms): those of runs, (texts, runs), times the terms of each run,
    (runs, terms), so that every run is cut once. New terms enter ``terms``."""
    runs: dict[str, int] = {}
    starts, columns, counts = array("q", [0]), array("i"), array("f")
    for text in texts:
        counted = Counter(terms.analyser.runs(text))
        columns.extend(runs.setdefault(run, len(runs)) for run in counted)
        counts.extend(counted.values())
        starts.append(len(columns))
    runs_of_texts = _matrix(starts, columns, counts, len(runs))
    starts, columns = array("q", [0]), array("i")
    for run in runs:
        columns.extend(terms.numbers.setdefault(term, len(terms)) for term in terms.analyser.terms(run))
        starts.append(len(columns))
    terms_of_runs = _matrix(starts, columns, array("f", [1.0]) * len(columns), len(terms))
    return (runs_of_texts @ terms_of_runs).tocsr()


def _matrix(starts: array[int], columns: array[int], counts: array[float], width: int) -> sp.csr_matrix:
    data, indices = np.asarray(counts).astype(np.float32, copy=False), np.asarray(columns).astype(np.int32, copy=False)
    return sp.csr_matrix((data, indices, np.asarray(starts).astype(np.int64)), shape=(len(starts) - 1, width))
