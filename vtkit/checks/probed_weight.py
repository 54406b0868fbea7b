"""How much an encoder weighs beside BM25 where no judgements say so: by probe pairs out of the documents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vtkit.checks.probe import FEWEST_PAIRS, Probe, by_number
from vtkit.data.trec import Run, to_run
from vtkit.measures.significance import CHANCE, paired_randomization
from vtkit.recipe.analysers import Analysis
from vtkit.search.bm25 import Bm25
from vtkit.search.hybrid import CAUTIOUS_WEIGHT, ENCODER_WEIGHT, WEIGHTS, ProbedWeight, deviation, weighted_sum

PAIRS = 500
"""Probe pairs at most: with 300 a gain of .01 was not told from chance (docs/log.md)."""


def probed_weight(probe: Probe, encoder: Run, language: str, analysis: Analysis) -> ProbedWeight | None:
    """ENCODER_WEIGHT where the sum with it finds the documents of spans better than BM25 alone (p < .05), else
    CAUTIOUS_WEIGHT; None where there are too few pairs to tell.

    Args:
        encoder: what it finds for the queries of ``probe`` among its documents, all called by their numbers.
        language, analysis: of BM25.
    """
    count = len(probe.queries)
    if count < FEWEST_PAIRS:
        return None
    names = [str(number) for number in range(count)]
    bm25 = to_run(names, names, *Bm25.build(probe.documents, language, analysis).search(probe.queries, count))
    deviations = deviation(encoder), deviation(bm25)
    alone = own_reciprocal_ranks(bm25, names)
    curve = []
    for weight in WEIGHTS:
        both = own_reciprocal_ranks(weighted_sum(encoder, bm25, count, weight, deviations), names)
        curve.append((weight, float(both.mean()), paired_randomization(by_number(both), by_number(alone))))
    found = float(alone.mean())
    better = any(weight == ENCODER_WEIGHT and value > found and p < CHANCE for weight, value, p in curve)
    return ProbedWeight(ENCODER_WEIGHT if better else CAUTIOUS_WEIGHT, found, tuple(curve), count)


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
