"""The lexical part of an index: BM25's terms as further dimensions behind those of an encoder, so that one search in
any engine finds ``S = w · S_encoder / σ_encoder + (1 − w) · S_BM25 / σ_BM25``. The factors are in the query."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from vtkit.search.analysers import analyser
from vtkit.search.bm25 import TERMS, Bm25, TermDimensions, read_terms
from vtkit.search.index_info import LexicalRecord
from vtkit.search.words import PREFIX


@dataclass(frozen=True)
class LexicalPart:
    """The dimensions of BM25's terms behind the encoder's, and the factors of both in a query."""

    record: LexicalRecord
    terms: TermDimensions
    vocabulary: int  # dimensions of the encoder; BM25's terms come after them

    @classmethod
    def weighted(
        cls, bm25: Bm25, vectors: sp.csr_matrix, weight: float, deviations: tuple[float, float]
    ) -> LexicalPart:
        """The part for documents of ``vectors`` that ``bm25`` ranks too.

        The factors are (1, (1 − w)/w · σ_encoder/σ_BM25) over the scale of the documents: the sum of the two scores
        times σ_encoder/w; for w = 0, BM25 alone. ``weight`` is w, ``deviations`` are σ of the encoder and of BM25. The
        scale is the power of two that brings the largest impact nearest to the largest weight, so that weights kept in
        few bits do not depend on it.
        """
        factors = (1.0, (1 - weight) / weight * (deviations[0] / deviations[1])) if weight else (0.0, 1.0)
        largest = [float(part.max(initial=0.0)) or 1.0 for part in (vectors.data, bm25.index.lists.largest)]
        scale = float(np.exp2(np.rint(np.log2(largest[0] / largest[1]))))
        record = LexicalRecord(*bm25.terms.analyser.made_from, len(bm25.terms), scale, factors[0], factors[1] / scale)
        return cls(record, bm25.terms, vectors.shape[1])

    def join_documents(
        self, vectors: Iterable[sp.csr_matrix], impacts: Iterable[sp.csr_matrix]
    ) -> Iterator[sp.csr_matrix]:
        """Encoder's weights and BM25's impacts side by side, in blocks of rows, (documents, width)."""
        scale = np.float32(self.record.document_scale)
        for weights, of_terms in zip(vectors, impacts, strict=True):
            yield sp.hstack([weights, of_terms * scale], format="csr", dtype=np.float32)

    def join_queries(self, vectors: sp.csr_matrix, texts: Sequence[str]) -> sp.csr_matrix:
        """The encoder's query vectors with the counts of terms behind them, (queries, width)."""
        encoder, term = np.float32(self.record.encoder_factor), np.float32(self.record.term_factor)
        joined = sp.hstack([vectors * encoder, self.terms.count(texts) * term], format="csr", dtype=np.float32)
        joined.eliminate_zeros()
        return joined

    def names(self) -> list[str]:
        """The names of the terms' dimensions."""
        return [f"{PREFIX}{term}" for term in self.terms.numbers]

    def save(self, folder: Path) -> LexicalRecord:
        """Write the terms into ``folder``; returns the part's entry in the manifest of the index."""
        (folder / TERMS).write_text(json.dumps(list(self.terms.numbers), ensure_ascii=False), encoding="utf-8")
        return self.record

    @classmethod
    def load(cls, folder: Path, record: LexicalRecord, vocabulary: int) -> LexicalPart:
        """The part of an index."""
        terms = TermDimensions.of(analyser(record.language, record.analysis), read_terms(folder, record.terms))
        return cls(record, terms, vocabulary)
