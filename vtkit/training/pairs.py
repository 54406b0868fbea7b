"""Training batches out of judged pairs: which query, relevant document and hard negatives stand together, in order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vtkit.data.documents import text_hash, text_hashes
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.sequences import Lazy, Ragged
from vtkit.settings.finetune import FinetuneSection
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.training.resuming import fixed_order

BATCHES_KEPT = 64  # batches that are held: a teacher is asked about some steps before they are trained on

Pools = Sequence[Sequence[int]] | Sequence[npt.NDArray[np.int32]]
"""For each query the documents that hard negatives are sampled from."""


@dataclass(frozen=True, eq=False)
class Judged:
    """The judgements of a collection, by number."""

    pairs: npt.NDArray[np.int32]  # query and relevant document, both with a text, (pairs, 2)
    relevant: Ragged
    """For each query all documents that are no negatives of it: the relevant ones, those with the text of one, and the
    query itself where it is a document."""


def training_batches(
    judged: Judged, section: FinetuneSection, seed: int, pools: Pools = ()
) -> Lazy[npt.NDArray[np.int32]]:
    """The batches of a whole run out of shuffled passes over all pairs: query, relevant document and hard negatives of
    each row, (batch, 2 + hard negatives). A batch may hold documents that are relevant to another of its queries, which
    :func:`relevant_to_others` finds.

    Args:
        seed: of the order and of the hard negatives.
        pools: for each query the documents that hard negatives are sampled from, where there are any.
    """
    size, negatives, queries = section.batch_size, section.hard_negatives, np.unique(judged.pairs[:, 0])
    if len(queries) == 1:
        raise DataError(
            f"data has only one query with a relevant document in split {section.split}. The other documents of a "
            "batch serve as negatives, so training needs at least two queries. Name another split, or give more data."
        )
    if len(judged.pairs) < size:
        raise DataError(
            f"data has {len(judged.pairs)} relevant pairs in split {section.split}, fewer than one batch of {size}. "
            "Lower batch_size, or give more data."
        )
    fewest = min((len(pools[query]) for query in queries.tolist()), default=0) if negatives else 0
    if fewest < negatives:
        raise DataError(
            f"hard_negatives = {negatives}, but one query has only {fewest} documents that were judged or found and "
            "are not relevant to it. Lower it."
        )
    steps = section.steps or max(1, round(section.epochs * len(judged.pairs) / size))
    order = fixed_order(len(judged.pairs), steps * size, seed).reshape(steps, size)

    @lru_cache(maxsize=BATCHES_KEPT)
    def rows(step: int) -> npt.NDArray[np.int32]:
        pairs, draw = judged.pairs[order[step]], np.random.default_rng([seed, 2, step])
        drawn = [draw.choice(pools[query], negatives, replace=False) for query in pairs[:, 0].tolist() if negatives]
        return np.hstack([pairs, np.array(drawn, dtype=np.int32).reshape(size, negatives)])

    return Lazy(steps, rows)


def relevant_to_others(judged: Judged, batches: Sequence[npt.NDArray[np.int32]], step: int) -> Tensor:
    """Which documents of a batch of :func:`training_batches` are relevant to a query without being its own, and so no
    negatives of it; (queries, documents) bool, documents as in :class:`~vtkit.training.objective.Batch`."""
    queries, documents = batches[step][:, 0], batches[step][:, 1:].T.reshape(-1)
    relevant = np.stack([np.isin(documents, judged.relevant[query]) for query in queries.tolist()])
    return torch.from_numpy(relevant).fill_diagonal_(False)


def judged_pairs(data: RetrievalSet) -> Judged:
    """The judgements of ``data``; pairs without a text are left out, and counted."""
    judged = Ragged.of(
        sorted(number for number, grade in data.by_number(data.qrels, query.id).items() if grade > 0)
        for query in data.queries
    )
    hashes, documents = text_hashes(data.documents), judged.values
    queries = np.repeat(np.arange(len(judged), dtype=np.int32), judged.lengths)
    blank = np.array([not query.text.strip() for query in data.queries], dtype=bool)
    usable = ~(blank[queries] | (hashes[documents] == np.frombuffer(text_hash(""), np.uint64)))
    pairs = np.stack([queries, documents], axis=1)[usable]
    if len(pairs) < len(documents):
        console.say(f"  {len(documents) - len(pairs)} pairs with an empty query or document are left out")

    alike = np.flatnonzero(np.isin(hashes, hashes[documents]))  # documents with the text of a relevant one
    with_text: dict[int, list[int]] = {}
    _, place, count = np.unique(hashes[alike], return_inverse=True, return_counts=True)
    for document in alike[count[place] > 1].tolist():
        with_text.setdefault(int(hashes[document]), []).append(document)

    def wider(documents: list[int], own: int) -> list[int]:
        same = {same for each in documents for same in with_text.get(int(hashes[each]), (each,))}
        return sorted(same if own < 0 else same | {own})

    relevant, own = judged, data.own_numbers.tolist()
    if with_text or data.own_documents:
        relevant = Ragged.of(wider(row.tolist(), number) for row, number in zip(judged, own, strict=True))
    repeated = len(relevant.values) - len(documents)
    if repeated and not data.own_documents:
        console.say(
            f"  {repeated} documents have the same text as a relevant one, and are not used as negatives of its query"
        )
    return Judged(pairs, relevant)
