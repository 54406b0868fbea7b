"""What sparse vectors cost to store and to search."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp


def active_dimensions(vectors: sp.csr_matrix) -> float:
    """Mean number of non-zero weights a vector has; 0 for no vectors.

    Args:
        vectors: (texts, vocabulary).
    """
    return float(np.count_nonzero(vectors.data)) / vectors.shape[0] if vectors.shape[0] else 0.0


def flops(query_shares: npt.NDArray[np.float64], document_shares: npt.NDArray[np.float64]) -> float:
    """Σ_j p_q(j)·p_d(j), the terms that a random query and a random document are expected to share.

    p(j) is the share of vectors with a non-zero weight at j. This is the FLOPS measure that SPLADE's papers
    report (multiplications to score one document), not the penalty of the same name that trains it.

    Args:
        query_shares, document_shares: p(j) of queries and documents, (vocabulary,); see :func:`activation_shares`.

    Raises:
        ValueError: the vocabularies differ.
    """
    if query_shares.shape != document_shares.shape:
        raise ValueError(f"queries have {len(query_shares)} dimensions, documents {len(document_shares)}")
    return float(query_shares @ document_shares)


def activation_shares(vectors: sp.csr_matrix) -> npt.NDArray[np.float64]:
    """Share of the vectors that are non-zero at each dimension, (vocabulary,)."""
    active = np.bincount(vectors.indices[vectors.data != 0], minlength=vectors.shape[1]).astype(np.float64)
    return active / float(max(vectors.shape[0], 1))
