"""The queries that choose the fusion weight of a system and BM25, none of which is evaluated: training queries of the
collection if it has enough, else queries of users or random snippets of its documents; and snippet pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from vtkit.data.overlap import query_key
from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.sampling import draw
from vtkit.data.synthetic_queries import FEWEST_PAIRS, SnippetPairs, random_snippets, snippet_pairs
from vtkit.data.trec import Run
from vtkit.evaluation.fusion import ENCODER_WEIGHT, FusionWeight, Kind, SnippetWeight
from vtkit.evaluation.systems import Bm25System, SparseSystem, System, query_vectors, to_sum
from vtkit.search.bm25 import Bm25
from vtkit.search.languages import languages_of
from vtkit.search.measures.effectiveness import per_query
from vtkit.search.passages import Passages, row_contents
from vtkit.settings.analysers import Analysis
from vtkit.settings.evaluate import DEPTH
from vtkit.settings.index import IndexSection, PassagesSection
from vtkit.settings.types import SEED
from vtkit.system import console
from vtkit.system.errors import RecipeError

if TYPE_CHECKING:
    import scipy.sparse as sp
    from sentence_transformers import SparseEncoder


WEIGHT_QUERIES = 1000  # training queries, or queries of a log, at most, sampled with the seed ...
FEWEST_WEIGHT_QUERIES = 50  # ... and fewer than these choose nothing: it would be chance
SNIPPETS = 256  # that stand for queries if there are no others

PAIRS = 500  # snippet pairs at most: with 300 a difference of .01 was not told from chance (docs/log.md)

Over = Callable[[RetrievalSet], System]
"""A system over the documents of any collection."""


@dataclass(frozen=True)
class FusionQueries:
    """The queries that choose a fusion weight."""

    asked: RetrievalSet  # the collection with these queries, and with their judgements if they are training queries
    kind: Kind
    pairs: SnippetPairs  # of the collection's documents


def fusion_queries(
    collection: RetrievalSet,
    training: RetrievalSet | None,
    seed: int,
    passages: PassagesSection | None = None,
    log: Iterable[str] = (),
) -> FusionQueries:
    """Choose the queries that choose a fusion weight.

    These are training queries if there are any; else the queries of ``log`` if enough of them are distinct and not
    evaluated; else snippets of the documents.

    Args:
        collection: with all its judged queries, none of which is used.
        training: the same documents under training queries (:func:`weight_queries`); None: there are too few.
        passages: as which the documents are indexed.
        log: queries that users asked, without judgements.
    """
    pairs = pairs_of(collection.documents, passages, seed)
    if training is not None:
        return FusionQueries(training, "other judged queries", pairs)
    evaluated = {query_key(query.text) for query in collection.queries}
    unjudged = draw((text for text in dict.fromkeys(log) if query_key(text) not in evaluated), WEIGHT_QUERIES, seed)
    kind: Kind = "queries of the log" if len(unjudged) >= FEWEST_WEIGHT_QUERIES else "snippets"
    texts = random_snippets(collection.contents, SNIPPETS, seed) if kind == "snippets" else unjudged
    queries = [Query(str(number), text) for number, text in enumerate(texts)]
    return FusionQueries(replace(collection, queries=queries, qrels={}, own_documents=False), kind, pairs)


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


def pairs_of(documents: Sequence[Document], passages: PassagesSection | None, seed: int) -> SnippetPairs:
    """Snippet pairs of random documents; if these are indexed as ``passages``, a random one stands for each, as long as
    the texts that an index compares."""
    drawn = draw(map(str, range(len(documents))), PAIRS, seed)
    documents = [documents[int(number)] for number in drawn]
    cut = Passages.of(documents, passages)
    contents = row_contents(documents, cut)
    if cut is not None:
        choose = np.random.default_rng([seed, 7])
        contents = [contents[int(choose.choice(cut.rows_of(number)))] for number in range(len(documents))]
    return snippet_pairs(contents, PAIRS, seed)


def fusion_weight(
    queries: FusionQueries, system: System, over: Over, bm25: Bm25System, measure: str, depth: int = DEPTH
) -> FusionWeight:
    """The weight of ``system`` beside ``bm25`` in the sum of their scores, chosen on ``queries``.

    Args:
        over: the same system over the documents of snippet pairs.
        measure: by which training queries choose the weight.
    """
    asked, qrels, pairs = queries.asked, queries.asked.qrels, queries.pairs
    snippets = snippet_weight(pairs, f"snippets of {asked.name}", over, *bm25.bm25.terms.analyser.made_from)
    runs = to_sum(system.rank(asked, depth)), bm25.rank(asked, depth).run
    judge = (lambda run: per_query(run, qrels, [measure])[measure]) if qrels else None
    return FusionWeight.of(*runs, depth, queries.kind, snippets, judge)


def snippet_weight(
    pairs: SnippetPairs, name: str, over: Over, language: str, analysis: Analysis
) -> SnippetWeight | None:
    """The weight beside BM25 that snippets choose for the system that ``over`` makes of their documents; None if there
    are too few. ``language`` and ``analysis`` are BM25's."""
    if len(pairs) < FEWEST_PAIRS:
        return None
    asked = pairs.as_collection(name)
    encoder = to_sum(over(asked).rank(asked, len(pairs)))
    return SnippetWeight.of(pairs, encoder, bm25_run(pairs, language, analysis), language)


def bm25_run(pairs: SnippetPairs, language: str, analysis: Analysis) -> Run:
    """All documents of snippet pairs by BM25."""
    bm25 = Bm25System(Bm25.build(pairs.documents, language, analysis))
    return bm25.rank(pairs.as_collection("snippets"), len(pairs)).run


def weight_beside_bm25(
    encoder: SparseEncoder, documents: Sequence[Document], index: IndexSection
) -> tuple[str | None, float]:
    """The languages of ``documents``, None if they do not show them, and the encoder's weight beside an engine's own
    BM25 over them, by snippets."""
    language = languages_of(RetrievalSet("the documents", documents, [], {}).contents)
    if language is None:
        return None, ENCODER_WEIGHT
    over = partial(SparseSystem.over, encoder, settings=index)
    pairs = pairs_of(documents, index.passages, SEED)
    snippets = snippet_weight(pairs, "snippets of the documents", over, language, index.bm25_analyser)
    return language, ENCODER_WEIGHT if snippets is None else snippets.weight


def beside_bm25(
    encoder: SparseEncoder,
    documents: Sequence[Document],
    index: IndexSection,
    language: str | None,
    vectors: sp.csr_matrix,
    passages: Passages | None,
) -> tuple[Bm25, float, tuple[float, float]]:
    """BM25 over documents without queries, the weight of the encoder beside it that snippets choose, and the deviations
    of the scores of both.

    Args:
        language: of the texts, an ISO 639 code, or several separated by commas; None: detected.
        vectors: of ``documents``, as they are indexed, or of their ``passages``.
    """
    from vtkit.search.engine import index_in_memory

    collection = RetrievalSet("the documents", documents, [], {})
    language = language or languages_of(collection.contents)
    if language is None:
        raise RecipeError("BM25 needs the language, which the texts do not show. Name it with --language.")
    system = SparseSystem(index_in_memory(vectors, passages), query_vectors(encoder, index, "encoding snippets"))
    bm25 = Bm25System.over(collection, language, index.bm25_analyser, passages)
    queries = fusion_queries(collection, None, SEED, index.passages)
    weight = fusion_weight(queries, system, partial(SparseSystem.over, encoder, settings=index), bm25, "nDCG@10")
    console.say(f"compared with BM25 on {weight.queries:,} {weight.kind}, the encoder weighs {weight.weight:g}")
    return bm25.bm25, weight.weight, weight.deviations
