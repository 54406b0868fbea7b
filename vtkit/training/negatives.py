"""Hard negatives: documents that a ranking puts near the top and that are not relevant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vtkit.data.retrieval import RetrievalSet
from vtkit.search.bm25 import Bm25

HARD_NEGATIVES_FROM = 50
"""Hard negatives are sampled from this many of the best BM25 results that are not judged relevant."""


def bm25_negatives(data: RetrievalSet, relevant: Sequence[set[int]], index: Bm25) -> np.ndarray:
    """The best BM25 results of each query without the relevant ones, (queries, HARD_NEGATIVES_FROM), padded -1."""
    most = max((len(documents) for documents in relevant), default=0)
    found, _ = index.search([query.text for query in data.queries], HARD_NEGATIVES_FROM + most)
    candidates = np.full((len(data.queries), HARD_NEGATIVES_FROM), -1, dtype=np.int64)
    everything = np.arange(len(data.documents))
    for row, documents in enumerate(found):
        kept = [int(i) for i in documents if i >= 0 and int(i) not in relevant[row]][:HARD_NEGATIVES_FROM]
        if len(kept) < HARD_NEGATIVES_FROM:  # a query that matches too little: fill up with any other documents
            filler = np.random.default_rng([3, row]).permutation(everything)[: 4 * HARD_NEGATIVES_FROM]
            kept += [int(i) for i in filler if int(i) not in relevant[row] and int(i) not in kept]
        candidates[row, : min(len(kept), HARD_NEGATIVES_FROM)] = kept[:HARD_NEGATIVES_FROM]
    return candidates
