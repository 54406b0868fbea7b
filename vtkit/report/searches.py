"""Searches of a run's index with its own queries: queries won and lost, examples, shared tokens, and the cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vtkit.encoder.truncation import first_tokens
from vtkit.report.data import Example, ExampleResult, Outcomes, QueryOutcome
from vtkit.search.measures.cost import QUERIES_TIMED, SearchCost
from vtkit.search.results import NO_WORD
from vtkit.system import console

if TYPE_CHECKING:
    from vtkit.data.retrieval import RetrievalSet
    from vtkit.evaluation.analyses.coverage import Coverage
    from vtkit.search.searcher import Searcher

EXAMPLE_RESULTS = 3
OUTCOMES_SHOWN = 5  # queries most won, and most lost, that are listed
TOKENS_SHOWN = 8  # tokens of each of these
DOCUMENTS_READ = 200_000  # documents at the most of which coverage is counted
QUERIES_READ = QUERIES_TIMED  # queries whose shared tokens are counted: the first of the set


def outcomes(
    searcher: Searcher | None,
    collection: RetrievalSet,
    system: Mapping[str, float],
    baseline: Mapping[str, float],
    *,
    measure: str,
    names: tuple[str, str],
) -> Outcomes:
    """The queries that are better and worse by the system than by the baseline.

    Args:
        searcher: tells what queries are searched as; None where that is not to be said.
        system: query id -> ``measure``; so ``baseline``.
        names: of system and baseline, in words.
    """
    texts = {query.id: query.text for query in collection.queries}
    differences = {name: system[name] - baseline[name] for name in texts if name in system and name in baseline}
    ordered = sorted(differences, key=lambda name: -differences[name])
    won = [name for name in ordered if differences[name] > 0]
    lost = [name for name in reversed(ordered) if differences[name] < 0]

    def listed(ids: list[str]) -> tuple[QueryOutcome, ...]:
        shown = ids[:OUTCOMES_SHOWN]
        found = () if searcher is None else searcher.search([texts[name] for name in shown], 1)
        tokens = [each.tokens[:TOKENS_SHOWN] for each in found] or [()] * len(shown)
        named = zip(shown, tokens, strict=True)
        return tuple(QueryOutcome(texts[name], system[name], baseline[name], of) for name, of in named)

    return Outcomes(
        collection.name, measure, *names, len(differences), len(won), len(lost), listed(won), listed(lost)
    )  # fmt: skip


def examples(
    searcher: Searcher, collection: RetrievalSet, query: str | None, outcomes: Outcomes | None
) -> tuple[Example, ...]:
    """The searches for ``query`` (default: the first of the set), and for the queries most won and most lost."""
    chosen = {query or collection.queries[0].text: ""}
    if outcomes is not None:
        for why, entries in (("Most won", outcomes.most_won), ("Most lost", outcomes.most_lost)):
            for entry in entries[:1]:
                said = f"{outcomes.measure} {entry.value:.3f}, {outcomes.baseline} {entry.baseline:.3f}"
                chosen[entry.query] = f"{why} ({said})"
    answers = list(searcher.search(list(chosen), EXAMPLE_RESULTS, why=True))
    for warning in answers[0].warnings:
        console.warn(warning)
    shown = []
    for answer, why in zip(answers, chosen.values(), strict=True):
        judged = [collection.qrels.get(each.id, {}) for each in collection.queries if each.text == answer.query]
        results = []
        for hit in answer.results:
            words = tuple((part.word or NO_WORD, part.score) for part in hit.words)
            relevant = any(grades.get(hit.id, 0) > 0 for grades in judged)
            results.append(ExampleResult(hit.rank, hit.score, hit.id, hit.title, hit.shown, words, relevant))
        shown.append(Example(answer.query, answer.tokens, tuple(results), why))
    return tuple(shown)


def query_tokens_shared(searcher: Searcher, collection: RetrievalSet) -> float | None:
    """Share of a query's dimensions that a document relevant to it activates too, averaged over the relevant documents
    of the first queries. Special tokens and the terms of a lexical part do not count; None if no query has any left."""
    shares = []
    queries = collection.queries[:QUERIES_READ]
    vectors = searcher.encode([query.text for query in queries])
    for row, query in enumerate(queries):
        vector = vectors[row]
        own = set(_own_dimensions(searcher, vector.indices))
        grades = collection.by_number(collection.qrels, query.id)
        for number in [number for number, grade in grades.items() if grade > 0 and number >= 0] if own else ():
            shared = searcher.index.postings.explain(vector, number).dimensions
            shares.append(len(own & set(_own_dimensions(searcher, shared))) / len(own))
    return float(np.mean(shares)) if shares else None


def term_coverage(searcher: Searcher, collection: RetrievalSet) -> Coverage | None:
    """Coverage of the first queries; None for latent units, which name no tokens, for passages of documents, and for
    more than DOCUMENTS_READ documents."""
    from vtkit.evaluation.analyses.coverage import coverage
    from vtkit.evaluation.analyses.together import tokens_of_words

    tokenizer, index = searcher.encoder.output_tokenizer, searcher.index.postings
    too_many = index.document_count > DOCUMENTS_READ or index.passages is not None
    if too_many or len(tokenizer) != len(searcher.encoder.tokenizer):
        return None
    asked = collection.queries[:QUERIES_READ]
    texts, special = [query.text for query in asked], list(searcher.special)
    listed = first_tokens(tokenizer, texts, searcher.query_length, add_special_tokens=False)["input_ids"]
    own = [np.setdiff1d(np.asarray(ids, dtype=np.int64), special) for ids in listed]
    judged = (collection.by_number(collection.qrels, query.id) for query in asked)
    relevant = [np.array([number for number, grade in of.items() if grade > 0], dtype=np.int64) for of in judged]
    words = [tokens_of_words(tokenizer, text) for text in texts]
    return coverage(words, own, searcher.encode(texts), index.by_document(), relevant)


def search_cost(searcher: Searcher, collection: RetrievalSet) -> SearchCost:
    """Size of the index, without the documents' texts, and time of the first queries, one at a time."""
    from vtkit.data.document_files import DOCUMENTS

    files = (path for path in searcher.documents.path.parent.rglob("*") if path.is_file() and path.name != DOCUMENTS)
    return SearchCost.timed(
        collection.name,
        len(searcher.documents),
        sum(path.stat().st_size for path in files),
        [query.text for query in collection.queries],
        lambda query: searcher.index.search(searcher.encode([query]), 10),
        searcher.encoder.parameters,
    )


def _own_dimensions(searcher: Searcher, dimensions: NDArray[np.integer]) -> list[int]:
    """The dimensions among the encoder's tokens that stand for text."""
    width = searcher.index.info.vocabulary if searcher.lexical is None else searcher.lexical.vocabulary
    return [number for number in dimensions.tolist() if number < width and number not in searcher.special]
