"""Systems: rankers over the documents of one collection, as values with ``rank``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vtkit.data.retrieval import RetrievalSet
from vtkit.data.trec import Run, to_run
from vtkit.evaluation.fusion import AS_THEY_ARE, FusionWeight, above_last, combined, weighted_sum
from vtkit.evaluation.results import Ranking, Role, SystemResult
from vtkit.search.bm25 import Bm25
from vtkit.search.languages import misfit
from vtkit.search.maxscore import query_cost
from vtkit.search.measures.agreement import agreement
from vtkit.search.measures.cost import QUERIES_TIMED, QueryCost, SearchCost, activation_shares, active_dimensions, flops
from vtkit.search.measures.effectiveness import evaluate
from vtkit.search.passages import WIDENED, Passages, best_documents, row_contents
from vtkit.settings.analysers import Analysis
from vtkit.settings.engines import Engine
from vtkit.settings.index import IndexSection, PassagesSection
from vtkit.system import console
from vtkit.system.errors import DataError

if TYPE_CHECKING:
    import scipy.sparse as sp
    from sentence_transformers import SparseEncoder

    from vtkit.encoder.sides import Side
    from vtkit.search.dense import Vectors
    from vtkit.search.engine import Index
    from vtkit.search.index_info import Ids, Scores
    from vtkit.search.lexical import LexicalPart
    from vtkit.system.runtime import Precision
    from vtkit.training.teachers import CrossEncoderTeacher

EncodeQueries = Callable[[Sequence[str]], "sp.csr_matrix"]  # texts -> vectors, (texts, vocabulary)

TIED_AMONG = 10
QUERIES_COUNTED = 100  # queries that cost_of times, one at a time


class System(Protocol):
    """A ranker over the documents of one collection."""

    def rank(self, asked: RetrievalSet, depth: int) -> Ranking:
        """At most ``depth`` documents for each query of ``asked``, best first."""
        ...


@dataclass(frozen=True)
class SparseSystem:
    """An index of sparse vectors, and the encoder of queries that goes with it."""

    index: Index
    encode: EncodeQueries
    role: Role = "encoder"
    query_encoder: str | None = None  # in words; None where documents have the same
    lexical: LexicalPart | None = None
    """BM25's terms behind the encoder's dimensions, and in ``fusion`` their share."""

    fusion: FusionWeight | None = None
    exact: tuple[Index, Engine, str] | None = None
    """For an approximate engine: the same index, searched exactly, the engine, and the measure whose loss is told."""

    @classmethod
    def over(
        cls, encoder: SparseEncoder, collection: RetrievalSet, settings: IndexSection, kept: Path | None = None
    ) -> SparseSystem:
        """The encoder over documents, or passages of them, that are encoded here.

        Args:
            kept: folder in which their vectors are kept, part after part, and found again where all is the same; None:
                in memory, for a few documents.
        """
        from vtkit.encoder.documents import as_indexed
        from vtkit.encoder.query_tables import query_encoder_of
        from vtkit.search.engine import index_in_memory
        from vtkit.search.sharded_encoding import EncodeTexts, kept_vectors

        work, place = EncodeTexts.of(encoder, settings), None
        passages = Passages.of(collection.documents, settings.passages)
        contents = row_contents(collection.documents, passages)
        if kept is not None:
            place = kept / _digest([work.max_length, work.top_dimensions, work.mass, work.precision], contents)
        vectors = kept_vectors(work, contents, f"encoding the documents of {collection.name}", place)
        vectors = as_indexed(encoder, vectors, contents, settings)
        encode = query_vectors(encoder, settings, f"encoding the queries of {collection.name}")
        return cls(index_in_memory(vectors, passages), encode, query_encoder=query_encoder_of(encoder))

    @classmethod
    def of_index(cls, home: Path, settings: IndexSection, encode: EncodeQueries, measure: str = "") -> SparseSystem:
        """The index in ``home`` in the engine of ``settings``, with its lexical part if it has one. If the engine is
        approximate, exact search tells what it loses in ``measure``."""
        from vtkit.search.engine import POSTINGS, open_index
        from vtkit.search.lexical import LexicalPart
        from vtkit.search.segments import GENERATIONS, Manifest

        manifest, lexical, exact = Manifest.load(home), None, None
        folder = home / GENERATIONS / str(manifest.generation)
        if manifest.lexical is not None:
            lexical = LexicalPart.load(folder, manifest.lexical, manifest.vocabulary)
        if settings.engine != "exact":
            exact = open_index(IndexSection(), folder / POSTINGS), settings.engine, measure
        return cls(open_index(settings, folder / POSTINGS), encode, lexical=lexical, exact=exact)

    def rank(self, asked: RetrievalSet, depth: int) -> Ranking:
        queries = self.encoded_queries(asked)
        run, (ids, scores) = ranked(asked, partial(self.index.search, queries), depth)
        result = SystemResult(role=self.role, fusion=self.fusion)
        if self.role == "encoder":
            result = replace(
                result,
                query_dimensions=active_dimensions(queries),
                document_dimensions=self.index.info.mean_size,
                flops=flops(activation_shares(queries), self.index.info.activation_shares),
                tied_scores=tied(scores),
                query_encoder=self.query_encoder,
            )
        if self.exact is not None:
            index, engine, measure = self.exact
            exact_run, exactly = ranked(asked, partial(index.search, queries), depth)
            qrels = {query.id: asked.qrels[query.id] for query in asked.queries}
            best, own = (evaluate(each, qrels, [measure])[measure] for each in (exact_run, run))
            compared = agreement(engine, ids, scores, *exactly)
            result = replace(result, agreement=replace(compared, measure=measure, measure_loss=best - own))
        return Ranking(run, result)

    def encoded_queries(self, asked: RetrievalSet) -> sp.csr_matrix:
        """Vectors of the queries, (queries, width of the index)."""
        texts = [query.text for query in asked.queries]
        vectors = self.encode(texts)
        return vectors if self.lexical is None else self.lexical.join_queries(vectors, texts)


@dataclass(frozen=True)
class Bm25System:
    """BM25 over the contents of documents or of their passages."""

    bm25: Bm25

    @classmethod
    def over(
        cls,
        collection: RetrievalSet,
        language: str,
        analysis: Analysis,
        passages: Passages | None = None,
    ) -> Bm25System:
        """BM25 with the analyser of a language, or over plain words; an index of its own can take over the counts of
        its terms."""
        contents = row_contents(collection.documents, passages)
        if "," not in language and (why := misfit(collection.contents, language)) is not None:
            console.once(console.warn, f'{collection.name}: {why}. Name its languages, such as language = "en,hi"')
        bm25 = Bm25.build(contents, language, analysis, passages=passages, keep_counts=True)
        if bm25.languages:
            shown, rows = ", ".join(f"{code} {n:,}" for code, n in bm25.languages.items()), passages and "passages"
            text = f"{collection.name}: BM25 analyses each text as its language: {shown} {rows or 'documents'}"
            console.once(console.say, text)
        return cls(bm25)

    def rank(self, asked: RetrievalSet, depth: int) -> Ranking:
        from vtkit.search.analysers import K1

        texts, cut = [query.text for query in asked.queries], self.bm25.terms.analyser
        run, _ = ranked(asked, partial(self.bm25.search, texts), depth)
        return Ranking(run, SystemResult(role="bm25", analyser=cut.description, k1=K1, b=cut.b))


@dataclass(frozen=True)
class DenseSystem:
    """A dense embedder or a multi-vector encoder, searched exactly by its own similarity."""

    embedder: Any  # a `SentenceTransformer` or a `MultiVectorEncoder`
    documents: Vectors  # of :func:`vtkit.encoder.dense.encode_dense`
    name: str  # for messages
    precision: Precision
    passages: Passages | None = None  # whose vectors these are; None: documents'

    @classmethod
    def over(
        cls,
        embedder: Any,
        collection: RetrievalSet,
        name: str,
        precision: Precision,
        cut: PassagesSection | None,
        kept: Path | None = None,
    ) -> DenseSystem:
        """The embedder over documents, or their passages, that are encoded here; ``kept`` as in
        :meth:`SparseSystem.over`."""
        passages = Passages.of(collection.documents, cut)
        texts = row_contents(collection.documents, passages)
        place = None if kept is None else kept / _digest([precision], texts)
        vectors = _embedded(embedder, texts, "document", name, precision, collection.name, place)
        return cls(embedder, vectors, name, precision, passages)

    def rank(self, asked: RetrievalSet, depth: int) -> Ranking:
        from vtkit.search.dense import nearest_documents

        texts = [query.text for query in asked.queries]
        queries = _embedded(self.embedder, texts, "query", self.name, self.precision, asked.name)
        several = self.documents.dtype == object  # the library takes lists of such vectors

        def nearest(some: Vectors, rows: int) -> tuple[Ids, Scores]:
            return nearest_documents(
                some,
                self.documents,
                rows,
                lambda *both: self.embedder.similarity(*map(list, both) if several else both).cpu().numpy(),
            )

        search = partial(nearest, queries)
        if (cut := self.passages) is not None:
            search = partial(best_documents, nearest, queries, documents=cut.documents, wanted=WIDENED * depth)
        return Ranking(ranked(asked, search, depth)[0], SystemResult(role="peer"))

    def cost(self, asked: RetrievalSet) -> SearchCost:
        """Bytes of the vectors as they are searched, in float32, and the time of the first queries of ``asked``."""
        parameters = sum(weight.numel() for weight in self.embedder.parameters())
        one = {query.text: replace(asked, queries=[query]) for query in asked.queries[:QUERIES_TIMED]}
        count, several = len(self.documents), self.documents.dtype == object
        size = sum(vectors.nbytes for vectors in self.documents) if several else self.documents.nbytes
        return SearchCost.timed(asked.name, count, size, list(one), lambda query: self.rank(one[query], 10), parameters)


@dataclass(frozen=True)
class RunSystem:
    """The results in a run."""

    run: Run
    role: Role = "run"

    def rank(self, asked: RetrievalSet, depth: int) -> Ranking:
        run = {
            query.id: [each for each in self.run[query.id] if not (asked.own_documents and each[0] == query.id)][:depth]
            for query in asked.queries
            if query.id in self.run
        }
        return Ranking(run, SystemResult(role=self.role))


@dataclass(frozen=True)
class SumSystem:
    """A system's scores and BM25's in one: their weighted sum (:func:`weighted_sum`), or combined as they are
    (:data:`AS_THEY_ARE`)."""

    system: System
    bm25: System
    fusion: FusionWeight | str  # of the weighted sum; the name of another combination
    role: Role = "sum"

    def rank(self, asked: RetrievalSet, depth: int) -> Ranking:
        ranking, bm25 = self.system.rank(asked, depth), self.bm25.rank(asked, depth).run
        if isinstance(self.fusion, str):
            return Ranking(combined(ranking.run, bm25, depth, AS_THEY_ARE[self.fusion]), SystemResult(role=self.role))
        summed = weighted_sum(to_sum(ranking), bm25, depth, self.fusion.weight, self.fusion.deviations)
        return Ranking(summed, SystemResult(role=self.role, fusion=self.fusion))


def reranked(asked: RetrievalSet, before: Run, cross_encoder: CrossEncoderTeacher, count: int) -> Ranking:
    """The first ``count`` results of each query in the order of a cross-encoder's scores, the others below as they
    were; of equal scores the one that stood higher stays above."""
    from vtkit.training.teachers import Asked

    texts = {query.id: query.text for query in asked.queries}
    run: Run = {}
    for query, results in console.tracked(before.items(), f"reranking {asked.name}", len(before)):
        names = [document for document, _ in results]
        first, rest = names[:count], names[count:]
        contents = [asked.contents[number] for number in asked.numbers_of(first)]
        (scores,) = cross_encoder.scores([Asked([texts[query]], contents, [], len(first))])
        order = (-scores[0]).argsort(kind="stable").tolist()
        ordered = [(first[place], float(scores[0, place])) for place in order]
        last = ordered[-1][1] if ordered else 0.0
        run[query] = ordered + [(name, last - number) for number, name in enumerate(rest, 1)]
    return Ranking(run, SystemResult(role="reranked"))


def to_sum(ranking: Ranking) -> Run:
    """The run of a ranking with the scores that a weighted sum adds: a dense embedder's count from the last of each
    query's list (:func:`above_last`)."""
    return above_last(ranking.run) if ranking.result.role == "peer" else ranking.run


def cost_of(system: System, asked: RetrievalSet) -> QueryCost | None:
    """The cost of the first :data:`QUERIES_COUNTED` queries; None for systems that have no lists of their own."""
    first = asked.under(asked.queries[:QUERIES_COUNTED])
    if isinstance(system, SparseSystem):
        return query_cost(system.index.postings, system.encoded_queries(first))
    if isinstance(system, Bm25System):
        return query_cost(system.bm25.index, system.bm25.terms.count([query.text for query in first.queries]))
    return None


def query_vectors(encoder: SparseEncoder, settings: IndexSection, description: str) -> EncodeQueries:
    """A function that encodes queries with the length, dimensions and precision of ``settings``."""
    from vtkit.encoder.sides import encode_side

    return lambda texts: encode_side(
        encoder,
        texts,
        "query",
        settings.query_length,
        top_dimensions=settings.query_top_dimensions,
        precision=settings.precision,
        description=description,
    )


def ranked(
    asked: RetrievalSet, search: Callable[[int], tuple[Ids, Scores]], depth: int
) -> tuple[Run, tuple[Ids, Scores]]:
    """The first ``depth`` results of a ``search`` for the queries of ``asked``, of those that are not the query's own
    document: as a run, and as arrays with -1 and 0 behind the last."""
    ids, scores = search(min(depth + asked.own_documents, max(len(asked.documents), 1)))
    own = ids == asked.own_numbers[:, None]
    order = np.argsort(own, axis=1, kind="stable")[:, :depth]
    ids, scores = (np.take_along_axis(np.where(own, none, of), order, 1) for of, none in ((ids, -1), (scores, 0)))
    names = [query.id for query in asked.queries], [document.id for document in asked.documents]
    return to_run(*names, ids, scores), (ids, scores)


def tied(scores: Scores) -> float:
    """Share of the queries with two equal scores among their first :data:`TIED_AMONG` results."""
    top = scores[:, :TIED_AMONG]
    equal = (top[:, 1:] > 0) & (top[:, 1:] == top[:, :-1])
    return float(equal.any(axis=1).mean()) if len(top) else 0.0


def _digest(made_from: Sequence[float | str | None], texts: Iterable[str]) -> str:
    digest = hashlib.sha256(json.dumps(made_from).encode())
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:16]


def _embedded(
    embedder: Any,
    texts: Sequence[str],
    side: Side,
    name: str,
    precision: Precision,
    collection: str,
    folder: Path | None = None,
) -> Vectors:
    from vtkit.encoder.dense import encode_dense

    kind = "queries" if side == "query" else "documents"
    try:
        return encode_dense(embedder, texts, side, precision, f"encoding the {kind} of {collection}", folder)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
