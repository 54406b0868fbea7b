"""Training batches out of judged pairs: which query, relevant document and hard negatives stand together, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vtkit import console
from vtkit.data.retrieval import RetrievalSet
from vtkit.errors import DataError
from vtkit.recipe.finetune import FinetuneSection

FRUITLESS_PASSES = 20
"""Passes over the pairs, each in another order, after which it is given up to find a full batch."""


@dataclass(frozen=True)
class Example:
    """One training row by number: a query, a relevant document, and hard negatives."""

    query: int
    positive: int
    negatives: tuple[int, ...]


@dataclass(frozen=True)
class Judged:
    """The judgements of a collection, by number."""

    pairs: list[tuple[int, int]]
    """Query and relevant document, both with a text."""

    relevant: list[set[int]]
    """For each query all documents that are no negatives of it: the relevant ones, and those with the text of one."""


def training_batches(
    judged: Judged, section: FinetuneSection, seed: int, pools: Sequence[Sequence[int]] = ()
) -> list[list[Example]]:
    """The batches of a whole run, in order; no batch has a document that is relevant to another of its queries.

    A document relevant to two queries of one batch would be a negative of one of them although it is
    relevant: such a pair waits for a later batch. So does one whose document has the text of such a document, and one
    that leaves a query of the batch too few hard negatives.

    Args:
        judged: of :func:`judged_pairs`.
        section: settings.
        seed: of the order and of the hard negatives.
        pools: for each query the documents that hard negatives are sampled from, where there are any.

    Raises:
        DataError: too few pairs, or too few that can stand in one batch.
    """
    pairs, relevant = judged.pairs, judged.relevant
    if len({query for query, _ in pairs}) == 1:
        raise DataError(
            f"finetune.data has relevant documents for one query only in split {section.split}. The other documents of "
            "a batch are a query's negatives, which takes two queries or more: name another split, or more data."
        )
    if len(pairs) < section.batch_size:
        raise DataError(
            f"finetune.data has {len(pairs)} relevant pairs in split {section.split}, fewer than one batch of "
            f"{section.batch_size}. Lower finetune.batch_size or give more data."
        )
    steps = section.steps or max(1, round(section.epochs * len(pairs) / section.batch_size))
    negatives = section.hard_negatives
    fewest = min((len(pools[query]) for query, _ in pairs), default=0) if negatives else 0
    if fewest < negatives:
        raise DataError(
            f"finetune.hard_negatives is {negatives}, but one of the queries has only {fewest} documents that are "
            "not relevant to it, judged or found. Lower it."
        )

    batches: list[list[Example]] = []
    waiting: list[tuple[int, int]] = []
    epoch = fruitless = 0
    while len(batches) < steps:
        shuffled = np.random.default_rng([seed, epoch]).permutation(len(pairs))
        stream = deque(waiting + [pairs[i] for i in shuffled])
        made = len(batches)
        while len(batches) < steps:
            batch, wanted = _next_batch(stream, relevant, section.batch_size, pools, negatives)
            if len(batch) < section.batch_size:
                stream.extendleft(reversed(batch))
                break
            draw = np.random.default_rng([seed, 2, len(batches)])
            batches.append([_example(pair, wanted, pools, negatives, draw) for pair in batch])
        epoch += 1
        if len(batches) > made:
            fruitless, waiting = 0, list(stream)[: len(pairs)]
            continue
        # The pair that waited longest fits into no full batch: let the next pass begin with others.
        fruitless, waiting = fruitless + 1, []
        if fruitless == FRUITLESS_PASSES:
            raise DataError(
                f"finetune.data: no {section.batch_size} queries have documents of their own"
                + (f" and {negatives} hard negatives that are relevant to none of them. " if negatives else ". ")
                + "Lower finetune.batch_size."
            )
    return batches


def judged_pairs(data: RetrievalSet) -> Judged:
    """The judgements of ``data``; pairs without a text are left out, and counted."""
    number = {document.id: i for i, document in enumerate(data.documents)}
    judged = [
        {number[name] for name, grade in data.qrels.get(query.id, {}).items() if grade > 0} for query in data.queries
    ]
    texts = [document.contents.strip() for document in data.documents]
    empty = {query for query in range(len(judged)) if not data.queries[query].text.strip()}
    all_pairs = [(query, document) for query, documents in enumerate(judged) for document in sorted(documents)]
    pairs = [(query, document) for query, document in all_pairs if query not in empty and texts[document]]
    if len(pairs) < len(all_pairs):
        console.say(f"  {len(all_pairs) - len(pairs)} pairs have an empty query or document, and are left out")

    with_text: dict[str, set[int]] = {}
    for document, text in enumerate(texts):
        with_text.setdefault(text, set()).add(document)
    relevant = [set[int]().union(*(with_text[texts[document]] for document in documents)) for documents in judged]
    repeated = sum(len(wider) - len(documents) for wider, documents in zip(relevant, judged, strict=True))
    if repeated:
        console.say(f"  {repeated} documents have the text of a relevant one, and are no negatives of its query")
    return Judged(pairs, relevant)


def _next_batch(
    stream: deque[tuple[int, int]],
    relevant: Sequence[set[int]],
    size: int,
    pools: Sequence[Sequence[int]],
    negatives: int,
) -> tuple[list[tuple[int, int]], set[int]]:
    """The first ``size`` pairs of ``stream`` that can stand in one batch, taken out of it; and all documents that are
    relevant to their queries. Fewer where the stream holds no more."""
    batch: list[tuple[int, int]] = []
    passed: list[tuple[int, int]] = []
    documents, wanted = set[int](), set[int]()
    while stream and len(batch) < size:
        query, document = stream.popleft()
        wider = wanted | relevant[query]
        if (
            document in wanted
            or relevant[query] & documents
            or (negatives and not all(_enough(pools[q], wider, negatives) for q in (query, *(q for q, _ in batch))))
        ):
            passed.append((query, document))
            continue
        batch.append((query, document))
        documents.add(document)
        wanted = wider
    stream.extendleft(reversed(passed))
    return batch, wanted


def _enough(pool: Sequence[int], relevant_in_batch: set[int], negatives: int) -> bool:
    if len(pool) - len(relevant_in_batch) >= negatives:
        return True
    return sum(number not in relevant_in_batch for number in pool) >= negatives


def _example(
    pair: tuple[int, int],
    relevant_in_batch: set[int],
    pools: Sequence[Sequence[int]],
    wanted: int,
    draw: np.random.Generator,
) -> Example:
    """Hard negatives must not be relevant to any query of the batch: every document is scored with every query."""
    if not wanted:
        return Example(*pair, negatives=())
    pool = [number for number in pools[pair[0]] if number not in relevant_in_batch]
    return Example(*pair, negatives=tuple(int(i) for i in draw.choice(pool, size=wanted, replace=False)))
