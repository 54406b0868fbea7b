"""Queries on which the scores of two rankings are compared, none of which is evaluated: training queries of the
collection where it has enough, else queries of users or spans of its documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.overlap import query_key
from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.sampling import draw
from vtkit.encoder.documents import row_blocks
from vtkit.evaluation.balance import FEWEST_WEIGHT_QUERIES, WEIGHT_QUERIES, Balance, ProbedWeight, balance
from vtkit.evaluation.systems import Bm25System, EncodeQueries, SparseSystem, System, query_vectors
from vtkit.search.measures.effectiveness import per_query
from vtkit.settings.evaluate import DEPTH
from vtkit.settings.index import IndexSection
from vtkit.settings.types import SEED
from vtkit.system import console
from vtkit.system.errors import RecipeError

if TYPE_CHECKING:
    import scipy.sparse as sp
    from sentence_transformers import SparseEncoder

    from vtkit.search.lexical import LexicalPart
    from vtkit.search.passages import Passages

SPANS = 256  # spans of documents that stand for queries where there are no training queries
SPAN_WORDS = (4, 12)  # fewest and most words of such a span


@dataclass(frozen=True)
class Balancing:
    """The queries on which the scores of two rankings are compared."""

    asked: RetrievalSet  # the collection with these queries, and with their judgements where they are training queries
    judged: bool  # whether they are; otherwise they are queries of users or spans of documents ...
    logged: bool = False  # ... of these two the first

    @property
    def texts(self) -> list[str]:
        return [query.text for query in self.asked.queries]


def balancing_queries(
    collection: RetrievalSet,
    training: RetrievalSet | None,
    seed: int,
    trained: Set[str] = frozenset(),
    log: Iterable[str] = (),
    asked: Set[str] = frozenset(),
) -> Balancing:
    """Choose the queries that balance two rankings.

    These are training queries if enough of them were not used to train the encoder; else the queries of ``log`` if
    enough of them are distinct and not evaluated; else spans of the documents.

    Args:
        collection: with all its judged queries, none of which balances.
        training: the same documents under training queries.
        trained, asked: documents and queries that the encoder was trained on (:func:`weight_queries`).
        log: queries that users asked, without judgements.
    """
    others = None if training is None else weight_queries(training, collection, seed, trained, asked)
    if others is not None:
        return Balancing(others, judged=True)
    evaluated = {query_key(query.text) for query in collection.queries}
    unjudged = draw((text for text in dict.fromkeys(log) if query_key(text) not in evaluated), WEIGHT_QUERIES, seed)
    logged = len(unjudged) >= FEWEST_WEIGHT_QUERIES
    texts = unjudged if logged else _spans(collection, seed)
    queries = [Query(str(number), text) for number, text in enumerate(texts)]
    return Balancing(replace(collection, queries=queries, qrels={}, own_documents=False), judged=False, logged=logged)


def balance_of(
    system: System, bm25: System, balancing: Balancing, depth: int, measure: str, probed: ProbedWeight | None
) -> Balance:
    """The weight and the deviations that bring two systems together, measured on the queries of ``balancing``.

    Args:
        measure: by which training queries choose the weight.
        probed: the weight that spans suggest.
    """
    asked, qrels = balancing.asked, balancing.asked.qrels
    runs = system.rank(asked, depth).run, bm25.rank(asked, depth).run
    judging = (lambda run: per_query(run, qrels, [measure])[measure]) if balancing.judged else None
    return replace(balance(*runs, depth, probed, judging), logged=balancing.logged)


def in_one_index(
    vectors: sp.csr_matrix,
    bm25: Bm25System,
    encode: EncodeQueries,
    balancing: Balancing,
    probed: ProbedWeight | None,
    measure: str,
    passages: Passages | None = None,
) -> tuple[Iterator[sp.csr_matrix], LexicalPart, Balance]:
    """Documents with BM25's terms behind the encoder's dimensions, in blocks of rows, what queries need, and
    :func:`balance_of` both.

    Args:
        vectors: the encoder's, of the documents as they are indexed, or of their ``passages``.
        bm25: over the same documents or passages.
        encode: encodes the queries of ``balancing``.
    """
    from vtkit.search.engine import index_in_memory
    from vtkit.search.lexical import LexicalPart

    system = SparseSystem(index_in_memory(vectors, passages), encode)
    measured = balance_of(system, bm25, balancing, DEPTH, measure, probed)
    impacts, factors = bm25.bm25.index.by_document(), (measured.weight, measured.deviations)
    part = LexicalPart.balanced(bm25.bm25.terms, vectors, impacts, *factors)
    return part.documents(row_blocks(vectors), row_blocks(impacts)), part, measured


def probed_beside_bm25(
    encoder: SparseEncoder, documents: Sequence[Document], index: IndexSection, language: str | None = None
) -> tuple[str | None, ProbedWeight | None]:
    """The languages of ``documents``, detected unless given, and what spans of them say of the encoder's weight beside
    BM25; None if the texts show no language, or are too few."""
    from vtkit.evaluation.probe import probed_by_spans
    from vtkit.search.languages import languages_of

    collection = RetrievalSet("the documents", documents, [], {})
    language = language or languages_of(collection.contents)
    if language is None:
        return None, None
    over = partial(SparseSystem.over, encoder, settings=index)
    return language, probed_by_spans(collection, over, SEED, language, index)


def beside_bm25(
    encoder: SparseEncoder,
    vectors: sp.csr_matrix,
    documents: Sequence[Document],
    passages: Passages | None,
    counts: Path,
    index: IndexSection,
    language: str | None = None,
) -> tuple[Iterator[sp.csr_matrix], LexicalPart]:
    """:func:`in_one_index` of documents without queries, weighed by spans of them.

    Args:
        vectors: of ``documents``, as they are indexed, or of their ``passages``.
        counts: folder in which the counts of BM25's terms are kept.
        language: of the texts, an ISO 639 code, or several separated by commas; None: detected.
    """
    collection = RetrievalSet("the documents", documents, [], {})
    language, probed = probed_beside_bm25(encoder, documents, index, language)
    if language is None:
        raise RecipeError("BM25 needs the language, which the texts do not show. Name it with --language.")
    encode, spans = query_vectors(encoder, index, "encoding spans"), balancing_queries(collection, None, SEED)
    bm25 = Bm25System.over(collection, language, index.bm25_analyser, passages, counts)
    indexed, part, measured = in_one_index(vectors, bm25, encode, spans, probed, "nDCG@10", passages)
    console.say(f"BM25 is balanced with the encoder on {measured.measured_on}; the encoder weighs {measured.weight:g}")
    return indexed, part


def weight_queries(
    training: RetrievalSet,
    judged: RetrievalSet,
    seed: int,
    trained: Set[str] = frozenset(),
    asked: Set[str] = frozenset(),
) -> RetrievalSet | None:
    """The training queries that choose the weight of a sum; None where there are too few.

    Args:
        judged: the set with all its judged queries; these are left out of ``training``.
        trained: documents that the encoder was trained to find; queries to which one is relevant are left out too, for
            it finds them better than others, and would get too large a weight.
        asked: keys (:func:`vtkit.data.overlap.query_key`) of the queries that it was trained on, left out too.
    """
    seen = {query_key(query.text) for query in judged.queries} | asked

    def unknown(query: Query) -> bool:
        grades = training.qrels[query.id].items()
        return query_key(query.text) not in seen and not any(grade > 0 and name in trained for name, grade in grades)

    queries = [query for query in training.queries if unknown(query)]
    qrels = {query.id: training.qrels[query.id] for query in queries}
    others = replace(training, queries=queries, qrels=qrels).sample(WEIGHT_QUERIES, seed)
    return others if len(others.queries) >= FEWEST_WEIGHT_QUERIES else None


def _spans(collection: RetrievalSet, seed: int) -> list[str]:
    """Random spans of random documents."""
    import numpy as np

    from vtkit.training.crops import SHORTEST_TEXT, joined, query_span, units

    draw = np.random.default_rng(seed)
    texts = (collection.contents[number] for number in draw.permutation(len(collection.documents)).tolist())
    spans = (
        joined(words[query_span(words, *SPAN_WORDS, draw)], text)
        for text in texts
        if len(words := units(text)) >= SHORTEST_TEXT
    )
    return list(islice(spans, SPANS))
