"""Engine ``lucene``: Lucene's inverted index with impacts, in process, through Anserini's jar. A dimension is the term
``t`` and its number; a document's weight is its frequency, a whole number, and a query's weight a boost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from vtkit.search.engine import Rank
from vtkit.search.exact import ExactIndex
from vtkit.search.index_info import REBUILD, Ids, Scores
from vtkit.search.java import cast_to, java_class, java_errors
from vtkit.search.stored_vectors import read_array
from vtkit.settings.index import IndexSection
from vtkit.system.errors import DataError

_FIELD, _ID = "contents", "id"
BITS = 8  # of an impact: weights are rounded to whole numbers up to 255
_BUFFER_MB = 128.0
_MOST_CLAUSES = 2**31 - 1
_STEP = "step.npy"


def quantised(documents: sp.csr_matrix, bits: int = BITS) -> tuple[sp.csr_matrix, float]:
    """Weights above zero as whole numbers from 1 to 2^bits - 1, in equal steps, rounded to the nearest, without those
    below half a step; and the step."""
    step = (float(documents.data.max(initial=0)) or 1.0) / (2**bits - 1)
    levels = np.rint(documents.data.astype(np.float64) / step).astype(np.int32)
    whole = sp.csr_matrix((levels, documents.indices, documents.indptr), documents.shape, copy=True)
    whole.eliminate_zeros()
    return whole, step


def build(postings: ExactIndex, folder: Path, settings: IndexSection) -> None:
    """Fill ``folder`` with ``index/``, one segment in which the rows of ``postings`` keep their numbers, and
    ``step.npy``, the weight of 1."""
    whole, step = quantised(postings.by_document())
    with java_errors(str(folder), "Give the same command again."):
        writer = _writer(folder / "index")
        field, number, document = _document()
        try:
            for row, (start, stop) in enumerate(pairwise(whole.indptr.tolist())):
                pairs = zip(whole.indices[start:stop].tolist(), whole.data[start:stop].tolist(), strict=True)
                field.setStringValue(" ".join([f"t{term}|{weight}" for term, weight in pairs]))
                number.setStringValue(str(row))
                writer.addDocument(document)
            writer.forceMerge(1)
            writer.commit()
        finally:
            writer.close()
    np.save(folder / _STEP, step)


def open_ranker(folder: Path, postings: ExactIndex, settings: IndexSection) -> Rank:
    """The index that :func:`build` left in ``folder``."""
    step = float(read_array(folder / _STEP, "float64", REBUILD, ()))
    if not step > 0:
        raise DataError(f"{folder / _STEP} is damaged: its step is {step!r}. {REBUILD}")
    with java_errors(f"{folder}: the index is damaged", REBUILD):
        directory = java_class("org.apache.lucene.store.FSDirectory").open(_path(folder / "index"))
        reader = java_class("org.apache.lucene.index.DirectoryReader").open(directory)
        searchers = java_class("org.apache.lucene.search.IndexSearcher")
        searcher = searchers(cast_to("org.apache.lucene.index.IndexReader", reader))
        searcher.setSimilarity(java_class("io.anserini.search.similarity.ImpactSimilarity")())
        searchers.setMaxClauseCount(_MOST_CLAUSES)
        held = reader.numDocs()
    if held != postings.document_count:
        raise DataError(f"{folder} is damaged: it has {held:,} of {postings.document_count:,} documents. {REBUILD}")

    def rank(queries: sp.csr_matrix, depth: int) -> Iterator[tuple[Ids, Scores]]:
        # Queries run one after the other in the caller's thread. With short-lived Python threads, one query in some
        # thousands was parsed wrongly or not at all (pyjnius 1.9, Java 21 and 25).
        with java_errors(f"{folder}: the index cannot be searched", REBUILD):
            analyser = java_class("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
            parser = java_class("org.apache.lucene.queryparser.classic.QueryParser")(_FIELD, analyser)
            for start, stop in pairwise(queries.indptr.tolist()):
                pairs = zip(queries.indices[start:stop].tolist(), queries.data[start:stop].tolist(), strict=True)
                # the parser knows no exponents; 40 places hold the least weight there is
                query = parser.parse(" ".join([f"t{term}^{weight:.40f}" for term, weight in pairs]))
                hits = [(hit.doc, hit.score) for hit in searcher.search(query, depth).scoreDocs]
                scores = np.asarray([score for _, score in hits], dtype=np.float32)
                yield np.asarray([number for number, _ in hits], dtype=np.int32), scores * np.float32(step)

    return rank


def _writer(folder: Path) -> Any:
    """A writer of a new index whose segments are merged in their order, so that documents keep their numbers."""
    parameters = java_class("java.util.HashMap")
    builder = java_class("org.apache.lucene.analysis.custom.CustomAnalyzer").builder()
    builder = builder.withTokenizer("whitespace", parameters())
    analyser = builder.addTokenFilter("delimitedTermFrequency", parameters()).build()
    config = java_class("org.apache.lucene.index.IndexWriterConfig")(analyser)
    config.setSimilarity(java_class("io.anserini.search.similarity.ImpactSimilarity")())
    config.setMergePolicy(java_class("org.apache.lucene.index.LogDocMergePolicy")())
    config.setMergeScheduler(java_class("org.apache.lucene.index.SerialMergeScheduler")())
    config.setRAMBufferSizeMB(_BUFFER_MB)
    directory = java_class("org.apache.lucene.store.FSDirectory").open(_path(folder))
    return java_class("org.apache.lucene.index.IndexWriter")(directory, config)


def _document() -> tuple[Any, Any, Any]:
    """The field of the terms, the field of the number, and their document, which is reused for every row."""
    kind = java_class("org.apache.lucene.document.FieldType")()
    kind.setIndexOptions(java_class("org.apache.lucene.index.IndexOptions").DOCS_AND_FREQS)
    kind.setOmitNorms(True)
    kind.freeze()
    nothing = cast_to("java.lang.CharSequence", java_class("java.lang.String")(""))
    terms = java_class("org.apache.lucene.document.Field")(_FIELD, nothing, kind)
    stored = java_class("org.apache.lucene.document.StoredField")
    number = stored(_ID, nothing, stored.TYPE)
    document = java_class("org.apache.lucene.document.Document")()
    document.add(terms)
    document.add(number)
    return terms, number, document


def _path(folder: Path) -> Any:
    return java_class("java.io.File")(str(folder)).toPath()
