"""Engine ``lucene``: Lucene's inverted index with impacts, in process, through Anserini's jar. A dimension is the term
``t`` and its number; a document's weight is its frequency, a whole number, and a query's weight a boost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from vtkit.search.index_info import REBUILD, Ids, Scores
from vtkit.search.java import cast_to, java_class, java_errors, java_type
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.results import Result

_FIELD, _ID = "contents", "id"
BITS = 8  # of an impact: weights are rounded to whole numbers up to 255
_BUFFER_MB = 128.0
_MOST_CLAUSES = 2**31 - 1
_HIT = re.compile(r"doc=(\d+) score=(\S+) ")


@dataclass(frozen=True)
class Quantisation(Result):
    """How document weights were rounded to whole numbers, and the loss."""

    bits: int
    step: float  # the weight of 1: the largest weight of the collection over 2^bits - 1
    mean_error: float  # sum of the weights' changes over the sum of the weights
    dropped: float  # share of the postings that were rounded to 0, and left out

    def words(self) -> str:
        """For the console."""
        return (
            f"document weights in {self.bits} bits: rounding changes {self.mean_error:.2%} of the weight and drops "
            f"{self.dropped:.2%} of the postings"
        )


def quantised(documents: sp.csr_matrix, bits: int) -> tuple[sp.csr_matrix, Quantisation]:
    """Weights above zero as whole numbers from 1 to 2^bits - 1, in equal steps, rounded to the nearest; those below
    half a step are left out."""
    weights = documents.data.astype(np.float64)
    largest = float(weights.max()) if len(weights) else 1.0
    step = largest / (2**bits - 1)
    total = float(weights.sum()) or 1.0
    loss = Quantisation(
        bits,
        step,
        float(np.abs(np.rint(weights / step) * step - weights).sum()) / total,
        float((np.rint(weights / step) == 0).mean()) if len(weights) else 0.0,
    )
    return quantised_by(documents, step), loss


def quantised_by(documents: sp.csr_matrix, step: float) -> sp.csr_matrix:
    """Weights above zero as whole numbers of steps, rounded to the nearest; below half a step they are left out."""
    levels = np.rint(documents.data.astype(np.float64) / step).astype(np.int32)
    whole = sp.csr_matrix((levels, documents.indices, documents.indptr), documents.shape, copy=True)
    whole.eliminate_zeros()
    return whole


def build_lucene(documents: sp.csr_matrix, folder: Path) -> None:
    """Fill ``folder`` with ``index/``, one segment whose documents keep their numbers, and ``quantisation.json``.
    ``documents``, (documents, vocabulary), have weights above zero, terms ascending."""
    whole, loss = quantised(documents, BITS)
    console.say(f"  lucene: {loss.words()}")
    with java_errors(str(folder), "Give the same command again."):
        writer = _writer(folder / "index")
        field, number, document = _document()
        starts = whole.indptr.tolist()
        try:
            for row, (start, stop) in enumerate(pairwise(starts)):
                pairs = zip(whole.indices[start:stop].tolist(), whole.data[start:stop].tolist(), strict=True)
                field.setStringValue(" ".join([f"t{term}|{weight}" for term, weight in pairs]))
                number.setStringValue(str(row))
                writer.addDocument(document)
            writer.forceMerge(1)
            writer.commit()
        finally:
            writer.close()
    (folder / "quantisation.json").write_text(json.dumps(loss.to_json()), encoding="utf-8")


@dataclass(frozen=True)
class LuceneRanker:
    """An open Lucene index."""

    searcher: Any
    quantisation: Quantisation
    folder: Path

    @classmethod
    def open(cls, folder: Path, documents: int) -> LuceneRanker:
        """The index that :func:`build_lucene` left in ``folder``."""
        loss = Quantisation.from_file(folder / "quantisation.json", REBUILD)
        if loss.step <= 0:
            raise DataError(f"{folder}/quantisation.json is damaged: its step is {loss.step!r}. {REBUILD}")
        with java_errors(f"{folder}: the index is damaged", REBUILD):
            directory = java_class("org.apache.lucene.store.FSDirectory").open(_path(folder / "index"))
            reader = java_class("org.apache.lucene.index.DirectoryReader").open(directory)
            searcher = java_class("org.apache.lucene.search.IndexSearcher")(
                cast_to("org.apache.lucene.index.IndexReader", reader)
            )
            searcher.setSimilarity(java_class("io.anserini.search.similarity.ImpactSimilarity")())
            java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(_MOST_CLAUSES)
            held = reader.numDocs()
        if held != documents:
            raise DataError(f"{folder} is damaged: it has {held:,} of {documents:,} documents. {REBUILD}")
        return cls(searcher, loss, folder)

    def rank(self, queries: sp.csr_matrix, depth: int) -> Iterator[tuple[Ids, Scores]]:
        """As :meth:`vtkit.search.engine.Ranker.rank`.

        Queries run one after the other in the caller's thread. With short-lived Python threads, one query in some
        thousands was parsed wrongly or not at all (pyjnius 1.9, Java 21 and 25).
        """
        with java_errors(f"{self.folder}: the index cannot be searched", REBUILD):
            analyser = java_class("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
            parser = java_class("org.apache.lucene.queryparser.classic.QueryParser")(_FIELD, analyser)
            text_of = _text_of_hits()
            for start, stop in pairwise(queries.indptr.tolist()):
                pairs = zip(queries.indices[start:stop].tolist(), queries.data[start:stop].tolist(), strict=True)
                # the parser knows no exponents; 40 places hold the least weight there is
                query = parser.parse(" ".join([f"t{term}^{weight:.40f}" for term, weight in pairs]))
                hits = _HIT.findall(text_of(self.searcher.search(query, depth)))
                scores = np.asarray([score for _, score in hits], dtype=np.float32)
                ids = np.asarray([number for number, _ in hits], dtype=np.int32)
                yield ids, scores * np.float32(self.quantisation.step)


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


def _text_of_hits() -> Callable[[Any], str]:
    """A function that turns Lucene's hits into one string, so that they cross the bridge in one call.

    A hit as an object takes 20 µs; ``Arrays.toString(hits.scoreDocs)`` takes a fifth of that. It is composed of method
    handles because the bridge cannot pass an array on. The numbers are read back exactly.
    """
    handles, kind = java_class("java.lang.invoke.MethodHandles"), java_class("java.lang.invoke.MethodType")
    text, array = java_type("java.lang.String"), java_type("[Lorg.apache.lucene.search.ScoreDoc;")
    lookup = handles.publicLookup()
    field = lookup.findGetter(java_type("org.apache.lucene.search.TopDocs"), "scoreDocs", array)
    listed = kind.methodType(text, java_type("[Ljava.lang.Object;"))
    written = lookup.findStatic(java_type("java.util.Arrays"), "toString", listed).asType(kind.methodType(text, array))
    composed = handles.filterReturnValue(field, written)
    arguments = java_class("java.util.ArrayList")

    def text_of(hits: Any) -> str:
        listed_hits = arguments()
        listed_hits.add(hits)
        return str(composed.invokeWithArguments(listed_hits))

    return text_of


def _path(folder: Path) -> Any:
    return java_class("java.io.File")(str(folder)).toPath()
