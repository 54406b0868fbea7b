"""Two systems' runs made into one ranking: an encoder's and BM25's, on one scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from vtkit.data.trec import Run
from vtkit.results import Result

ENCODER_WEIGHT = 0.2
"""Share of the encoder in the sum where no training queries choose it: the constant that is best over those of six
collections (docs/log.md, 2026-11-22) ..."""

CAUTIOUS_WEIGHT = 0.05
"""... and where spans of the documents do not show that it helps (:mod:`vtkit.checks.probed_weight`)."""

WEIGHTS = tuple(tenth / 10 for tenth in range(11))
"""What is tried where there are training queries: from BM25 alone to the encoder alone."""


@dataclass(frozen=True)
class ProbedWeight(Result):
    """A weight of the encoder, and what it goes by."""

    weight: float
    bm25: float
    """Mean reciprocal rank of a span's own document by BM25 ..."""

    both: float
    """... and by the sum in which the encoder weighs ENCODER_WEIGHT."""

    p: float
    """Of their difference."""

    pairs: int

    @property
    def words(self) -> str:
        """What it goes by, for a report."""
        return (
            f"{self.pairs} spans find the document they were cut out of with a mean reciprocal rank of {self.both:.3f} "
            f"by the sum with {ENCODER_WEIGHT:g}, {self.bm25:.3f} by BM25, p = {self.p:.3f}"
        )


def unjudged_weight(probed: ProbedWeight | None) -> float:
    """Of the encoder where no training queries choose it: what a probe says, else ENCODER_WEIGHT."""
    return ENCODER_WEIGHT if probed is None else probed.weight


def weighted_sum(encoder: Run, bm25: Run, depth: int, weight: float = ENCODER_WEIGHT) -> Run:
    """S = w · S_encoder / σ_encoder + (1 − w) · S_BM25 / σ_BM25 over the union of both lists.

    σ is one number a run, :func:`deviation`, so that the sum is a fixed linear combination of the two scores, as any
    engine can compute it. CAI (arXiv:2211.03988) adds the scores as they are, which leaves the balance to the scale
    that a model happens to have. A document that only one list holds has 0 for the other: it scored below that
    list's last. Equal sums keep the order in which documents come, the encoder's first.

    Args:
        encoder, bm25: the runs; a query that only one of them has keeps its results.
        depth: results a query.
        weight: w, between 0 (BM25 alone) and 1.
    """
    joined: Run = {}
    shares = ((encoder, weight / deviation(encoder)), (bm25, (1 - weight) / deviation(bm25)))
    for query in [*encoder, *(query for query in bm25 if query not in encoder)]:
        sums: dict[str, float] = {}
        for run, factor in shares:
            for document, score in run.get(query, []):
                sums[document] = sums.get(document, 0.0) + factor * score
        joined[query] = sorted(sums.items(), key=lambda result: -result[1])[:depth]
    return joined


def above_last(run: Run) -> Run:
    """Each score less the last of its query's list.

    For dense vectors, whose scores lie far from 0: in :func:`weighted_sum` a document that is not in the list then
    counts as much as the last one that is.
    """
    return {
        query: [(document, score - results[-1][1]) for document, score in results] for query, results in run.items()
    }


def weight_curve(encoder: Run, bm25: Run, depth: int, judge: Callable[[Run], float]) -> tuple[tuple[float, float], ...]:
    """Each of :data:`WEIGHTS` with what ``judge`` finds of the sum, for runs of training queries."""
    return tuple((weight, judge(weighted_sum(encoder, bm25, depth, weight))) for weight in WEIGHTS)


def best_weight(curve: tuple[tuple[float, float], ...]) -> float:
    """The weight whose value in a :func:`weight_curve`, taken with those beside it, is largest.

    The mean with the neighbours keeps the chance of some hundred queries from deciding on a curve that is flat. The
    ends count as they are: a mean over one side only would favour them wherever the curve falls towards the middle.
    Of several equal weights the one nearest to ENCODER_WEIGHT.
    """
    values = [value for _, value in curve]
    inside = [math.fsum(near) / 3 for near in zip(values, values[1:], values[2:], strict=False)]
    means = [values[0], *inside, values[-1]]
    points = zip((weight for weight, _ in curve), means, strict=True)
    return max(points, key=lambda point: (round(point[1], 9), -abs(point[0] - ENCODER_WEIGHT)))[0]


def deviation(run: Run) -> float:
    """The mean, over the queries with results, of the standard deviation of a query's scores; 1 if that is 0."""
    deviations = []
    for results in run.values():
        if results:
            mean = math.fsum(score for _, score in results) / len(results)
            deviations.append(math.sqrt(math.fsum((score - mean) ** 2 for _, score in results) / len(results)))
    return (math.fsum(deviations) / len(deviations) if deviations else 0.0) or 1.0
