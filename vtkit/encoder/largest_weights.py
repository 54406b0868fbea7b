"""Fewer weights a vector: the largest of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from vtkit.system import console

MUCH = 0.25  # share of the sum of all weights from which on its loss is a warning


@dataclass(frozen=True)
class Removed:
    """Counts and sums of the weights that pruning removed."""

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

    def say(self, name: str) -> None:
        """Say what was removed from the vectors of ``name``; much of their sum is a warning."""
        if self.weights_removed:
            (console.warn if self.share_of_mass >= MUCH else console.say)(
                f"  {name}: {self.share_of_weights:.1%} of the weights removed, "
                f"with {self.share_of_mass:.1%} of their sum (index.top_dimensions)"
            )

    @property
    def share_of_weights(self) -> float:
        """Share of the weights (postings of an index) that are gone."""
        return self.weights_removed / self.weights if self.weights else 0.0

    @property
    def share_of_mass(self) -> float:
        """Share of their sum that is gone."""
        return self.mass_removed / self.mass if self.mass else 0.0


def pruned(vectors: sp.csr_matrix, top_dimensions: int | None = None) -> tuple[sp.csr_matrix, Removed]:
    """The ``top_dimensions`` largest weights of each row of ``vectors``, (texts, vocabulary), not negative (Lassance et
    al., 2023, arXiv:2304.12702), and what the others were. Of equal weights the lower dimension comes first."""
    before = Removed(vectors.nnz, 0, float(vectors.data.sum(dtype=np.float64)), 0.0)
    longest = np.diff(vectors.indptr).max(initial=0)
    if top_dimensions is None or (longest <= top_dimensions and vectors.data.all()):
        return vectors, before
    vectors = vectors.copy()
    for start, stop in pairwise(vectors.indptr.tolist()):
        weights = vectors.data[start:stop]
        weights[np.argsort(-weights, kind="stable")[top_dimensions:]] = 0.0
    vectors.eliminate_zeros()
    mass = float(vectors.data.sum(dtype=np.float64))
    return vectors, Removed(before.weights, before.weights - vectors.nnz, before.mass, max(0.0, before.mass - mass))
