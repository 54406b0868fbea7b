"""BM25's saturation (Robertson and Zaragoza 2009) of documents whose dimensions are summed over tokens.

s_j = x_j / (x_j + k₁ (1 − b + b L / L̄)),   L the sum of a document's weights, L̄ its mean over the collection

L counts all weights, also those that `index.top_dimensions` cuts, so that k₁ and b mean the same whatever is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sentence_transformers import SparseEncoder

from vtkit.encoder.asymmetric import writes_units
from vtkit.system.results import Result

K1 = 3.0  # in sums of log(1 + logit). A unit that fires adds about 3.4, so that this is BM25's usual 0.9 firings.

B = 0.75
FILE = "saturation.json"


def saturates(encoder: SparseEncoder) -> bool:
    """Report whether documents of ``encoder`` are saturated when they are indexed, because it sums units over
    tokens."""
    return writes_units(encoder) and encoder[1].pooling_strategy == "sum"


@dataclass(frozen=True)
class Saturation(Result):
    """How the documents of an index were saturated, so that further ones can be too."""

    k1: float
    b: float
    mean_sum: float  # L̄

    @classmethod
    def of(cls, sums: NDArray[np.float64]) -> Saturation:
        """For the documents of a collection; ``sums`` are their L, (documents,)."""
        return cls(K1, B, float(sums.mean()) if sums.any() else 1.0)

    def applied(self, vectors: sparse.csr_matrix, sums: NDArray[np.float64]) -> sparse.csr_matrix:
        """The documents after saturation, (documents, units); ``sums`` are their L, (documents,)."""
        half = np.repeat(self.k1 * (1 - self.b + self.b * sums / self.mean_sum), np.diff(vectors.indptr))
        saturated = (vectors.data / (vectors.data + half)).astype(np.float32)
        return sparse.csr_matrix((saturated, vectors.indices, vectors.indptr), vectors.shape)
