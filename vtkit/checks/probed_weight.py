"""How much an encoder weighs beside BM25 where no judgements say so: by probe pairs out of the documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vtkit.checks.probe import CHANCE, FEWEST_PAIRS, Probe, by_number
from vtkit.data.trec import Run, to_run
from vtkit.measures.significance import paired_randomization
from vtkit.recipe.analysers import Analysis
from vtkit.search.bm25 import Bm25
from vtkit.search.engine import search_exactly
from vtkit.search.hybrid import CAUTIOUS_WEIGHT, ENCODER_WEIGHT, ProbedWeight, weighted_sum

if TYPE_CHECKING:
    import scipy.sparse as sp

PAIRS = 500
"""Probe pairs at most: with 300 a gain of .01 was not told from chance (docs/log.md)."""


def probed_weight(
    probe: Probe, queries: sp.csr_matrix, documents: sp.csr_matrix, language: str, analysis: Analysis
) -> ProbedWeight | None:
    """ENCODER_WEIGHT where the sum with it finds the documents of spans better than BM25 alone (p < .05), else
    CAUTIOUS_WEIGHT; None where there are too few pairs to tell.

    Args:
        queries, documents: the encoder's vectors of the probe's, (pairs, vocabulary).
        language, analysis: of BM25.
    """
    count = len(probe.queries)
    if count < FEWEST_PAIRS:
        return None
    names = [str(number) for number in range(count)]
    index = Bm25.build(probe.documents, language, analysis)
    bm25 = to_run(names, names, *index.search(probe.queries, count))
    encoder = to_run(names, names, *search_exactly(documents, queries, count))
    alone, both = (own_reciprocal_ranks(run, names) for run in (bm25, weighted_sum(encoder, bm25, count)))
    p = paired_randomization(by_number(both), by_number(alone))
    better = both.mean() > alone.mean() and p < CHANCE
    weight = ENCODER_WEIGHT if better else CAUTIOUS_WEIGHT
    return ProbedWeight(weight, float(alone.mean()), float(both.mean()), p, count)


def own_reciprocal_ranks(run: Run, names: Sequence[str]) -> np.ndarray:
    """Of the document that is called as its query, (queries,): the mean over the ranks that it could have among
    those of its score, so that ties broken by chance gain nothing; 0 where it is not found."""
    found = np.zeros(len(names))
    for number, name in enumerate(names):
        scores = dict(run.get(name, ()))
        if name in scores:
            values, own = np.fromiter(scores.values(), float), scores[name]
            above, tied = int((values > own).sum()), int((values == own).sum())
            found[number] = (1 / np.arange(above + 1, above + tied + 1)).mean()
    return found
