"""Fewer weights a vector: the largest, up to a number, or until they hold a share of its sum."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Removed:
    """What pruning took from some vectors."""

    weights: int = 0  # how many there were before
    weights_removed: int = 0
    mass: float = 0.0  # their sum before
    mass_removed: float = 0.0

    def __add__(self, other: Removed) -> Removed:
        return Removed(
            self.weights + other.weights,
            self.weights_removed + other.weights_removed,
            self.mass + other.mass,
            self.mass_removed + other.mass_removed,
        )

    @property
    def share_of_weights(self) -> float:
        """Share of the weights (postings of an index) that are gone."""
        return self.weights_removed / self.weights if self.weights else 0.0

    @property
    def share_of_mass(self) -> float:
        """Share of their sum that is gone."""
        return self.mass_removed / self.mass if self.mass else 0.0


def pruned(
    vectors: sp.csr_matrix, top_dimensions: int | None = None, keep: float | None = None
) -> tuple[sp.csr_matrix, Removed]:
    """The largest weights of each row, and what the others were.

    Of a row with the weights w₁ ≥ w₂ ≥ … the first n are kept, n the least number with w₁ + … + wₙ ≥ ``keep`` · Σw
    (Lassance et al., 2023, arXiv:2304.12702, prune by number; the share is theirs of α-mass subvectors in Seismic,
    Bruch et al., 2024, arXiv:2404.18812). Of equal weights the lower dimension comes first.

    Args:
        vectors: (texts, vocabulary), not negative.
        top_dimensions: at most so many of each row.
        keep: share of a row's sum, above 0 and up to 1.
    """
    before = Removed(vectors.nnz, 0, float(vectors.data.sum(dtype=np.float64)), 0.0)
    longest = np.diff(vectors.indptr).max(initial=0)
    if keep is None and (top_dimensions is None or (longest <= top_dimensions and vectors.data.all())):
        return vectors, before
    vectors = vectors.copy()
    for start, stop in pairwise(vectors.indptr.tolist()):
        weights = vectors.data[start:stop]
        order = np.argsort(-weights, kind="stable")
        count = len(order) if top_dimensions is None else min(top_dimensions, len(order))
        if keep is not None and len(order):
            sums = np.cumsum(weights[order], dtype=np.float64)
            count = min(count, int(np.searchsorted(sums, keep * sums[-1])) + 1)
        weights[order[count:]] = 0.0
    vectors.eliminate_zeros()
    mass = float(vectors.data.sum(dtype=np.float64))
    return vectors, Removed(before.weights, before.weights - vectors.nnz, before.mass, max(0.0, before.mass - mass))
