"""Training batches out of judged pairs: which query, relevant document and hard negatives stand together, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vtkit.data.retrieval import RetrievalSet
from vtkit.errors import DataError
from vtkit.recipe.sections import FinetuneSection
from vtkit.training.negatives import bm25_negatives

FRUITLESS_PASSES = 20
"""Passes over the pairs, each in another order, after which it is given up to find a full batch."""


@dataclass(frozen=True)
class Example:
    """One training row by number: a query, a relevant document, and hard negatives."""

    query: int
    positive: int
    negatives: tuple[int, ...]


def training_batches(data: RetrievalSet, section: FinetuneSection, language: str, seed: int) -> list[list[Example]]:
    """The batches of a whole run, in order; no batch has a document that is relevant to another of its queries.

    A document relevant to two queries of one batch would be a negative of one of them although it is
    relevant: such a pair waits for a later batch.
    """
    number = {document.id: i for i, document in enumerate(data.documents)}
    relevant = [
        {number[name] for name, grade in data.qrels.get(query.id, {}).items() if grade > 0} for query in data.queries
    ]
    pairs = [(query, document) for query, documents in enumerate(relevant) for document in sorted(documents)]
    if len(pairs) < section.batch_size:
        raise DataError(
            f"finetune.data has {len(pairs)} relevant pairs in split {section.split}, fewer than one batch of "
            f"{section.batch_size}. Lower finetune.batch_size or give more data."
        )
    steps = section.steps or max(1, round(section.epochs * len(pairs) / section.batch_size))
    candidates = bm25_negatives(data, relevant, language) if section.hard_negatives else None

    batches: list[list[Example]] = []
    waiting: list[tuple[int, int]] = []
    epoch = fruitless = 0
    while len(batches) < steps:
        shuffled = np.random.default_rng([seed, epoch]).permutation(len(pairs))
        stream = deque(waiting + [pairs[i] for i in shuffled])
        made = len(batches)
        while len(batches) < steps:
            batch, wanted = _next_batch(stream, relevant, section.batch_size)
            if len(batch) < section.batch_size:
                stream.extendleft(reversed(batch))
                break
            draw = np.random.default_rng([seed, 2, len(batches)])
            batches.append([_example(pair, wanted, candidates, section.hard_negatives, draw) for pair in batch])
        epoch += 1
        if len(batches) > made:
            fruitless, waiting = 0, list(stream)[: len(pairs)]
            continue
        # The pair that waited longest fits into no full batch: let the next pass begin with others.
        fruitless, waiting = fruitless + 1, []
        if fruitless == FRUITLESS_PASSES:
            raise DataError(
                f"finetune.data: no {section.batch_size} queries have documents of their own. "
                "Lower finetune.batch_size."
            )
    return batches


def _next_batch(
    stream: deque[tuple[int, int]], relevant: Sequence[set[int]], size: int
) -> tuple[list[tuple[int, int]], set[int]]:
    """The first ``size`` pairs of ``stream`` that can stand in one batch, taken out of it; and all documents that are
    relevant to their queries. Fewer where the stream holds no more."""
    batch: list[tuple[int, int]] = []
    passed: list[tuple[int, int]] = []
    documents, wanted = set[int](), set[int]()
    while stream and len(batch) < size:
        query, document = stream.popleft()
        if document in wanted or relevant[query] & documents:
            passed.append((query, document))
            continue
        batch.append((query, document))
        documents.add(document)
        wanted |= relevant[query]
    stream.extendleft(reversed(passed))
    return batch, wanted


def _example(
    pair: tuple[int, int],
    relevant_in_batch: set[int],
    candidates: np.ndarray | None,
    wanted: int,
    draw: np.random.Generator,
) -> Example:
    """Hard negatives must not be relevant to any query of the batch: every document is scored with every query."""
    if candidates is None:
        return Example(*pair, negatives=())
    pool = [int(i) for i in candidates[pair[0]] if i >= 0 and int(i) not in relevant_in_batch]
    if len(pool) < wanted:
        raise DataError(
            f"finetune.hard_negatives is {wanted}, but BM25 finds only {len(pool)} documents that are not relevant for "
            "one of the queries. Lower it."
        )
    return Example(*pair, negatives=tuple(int(i) for i in draw.choice(pool, size=wanted, replace=False)))
