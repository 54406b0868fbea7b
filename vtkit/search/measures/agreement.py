"""How well an engine's results agree with exact ones: what quantisation and approximation cost."""

from dataclasses import dataclass

import numpy as np

from vtkit.search.index_info import Ids, Scores
from vtkit.system.results import Result

DEPTH = 10


@dataclass(frozen=True)
class Agreement(Result):
    """The results of an engine beside those of ``exact``, for the same queries and vectors."""

    engine: str
    overlap: float
    """Share of the exact first 10 results that are among the engine's first 10, mean over the queries that have any."""

    mean_error: float  # |score − exact score| / exact score, mean over the documents that both find; so the next
    largest_error: float
    measure: str = ""
    measure_loss: float = 0.0  # the measure on the exact results less that on the engine's, in the measure's own unit

    def words(self) -> str:
        loss = f"; {self.measure} {-self.measure_loss:+.4f}" if self.measure else ""
        return (
            f"{self.engine} against exact: overlap@{DEPTH} {self.overlap:.4f}, scores off by {self.mean_error:.3%} on "
            f"average and {self.largest_error:.3%} at most{loss}"
        )


def agreement(engine: str, ids: Ids, scores: Scores, exact_ids: Ids, exact_scores: Scores) -> Agreement:
    """Compare two searches of the same queries, all (queries, depth), -1 where fewer were found."""
    overlaps: list[float] = []
    errors: list[np.ndarray] = [np.zeros(0)]
    for found, weights, wanted, true in zip(ids, scores, exact_ids, exact_scores, strict=True):
        best = wanted[:DEPTH][wanted[:DEPTH] >= 0]
        if len(best):
            overlaps.append(float(np.isin(best, found[:DEPTH]).mean()))
        both, here, there = np.intersect1d(found[found >= 0], wanted[wanted >= 0], return_indices=True)
        if len(both):
            exact = true[there].astype(np.float64)
            errors.append(np.abs(weights[here] - exact) / exact)
    every = np.concatenate(errors)
    mean_error = float(every.mean()) if len(every) else 0.0
    return Agreement(engine, float(np.mean(overlaps)) if overlaps else 1.0, mean_error, float(every.max(initial=0.0)))
