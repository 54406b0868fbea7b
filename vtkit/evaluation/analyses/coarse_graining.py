"""What merging surface forms (``Token`` and ``token``) gains and loses by the theory of the vocabulary transfer paper
(section 3): a smaller hypothesis class, at the price of what the merged dimensions told apart."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from vtkit.system.results import Result

SIGNS = 200  # draws of Rademacher signs


@dataclass(frozen=True)
class CoarseGraining(Result):
    """The two terms of the generalisation bound (theorem 3.2), before and after merging."""

    dimensions: int
    merged_dimensions: int
    rademacher: float
    """E_σ ‖(1/n) Σ σ_i u(z_i)‖_∞ of this one encoder, on the vocabulary as it is: a lower bound on the theorem's R̂_n,
    which is a supremum over all encoders of a class."""

    rademacher_merged: float
    """The same with merged dimensions. It is never larger, whatever the vectors: the draws are the same for both, and
    the mean of some sums is not above the largest of them. So it shows how much merging takes, and is no test of the
    theorem."""

    compatibility: float
    """Upper bound, for B = 1, on the ε_RC of these pairs: the largest error, in units of a pair's score, with which a
    merged dimension can stand in for the worst of the dimensions that it merges. Over all pairs ε_RC may be larger."""

    relative: float  # the same over the largest feature R
    worst: int  # that dimension
    pairs: int


def features(queries: sp.csr_matrix, documents: sp.csr_matrix) -> sp.csr_matrix:
    """u(q, d)_t = w_q(t) · w_d(t), a row for each pair of rows: what the score of the pair sums."""
    return sp.csr_matrix(queries.multiply(documents))


def coarse_graining(pairs: sp.csr_matrix, merged_to: NDArray[np.int64], seed: int) -> CoarseGraining:
    """Estimate one encoder's R̂_n and ε_RC for the map π of dimensions (Geng and Yang, SIGIR 2026, section 3,
    doi:10.1145/3805712.3809724).

    G is the row-stochastic matrix that gives each merged dimension the mean of the dimensions it merges. ε_RC is the
    supremum over β of the smallest error that β' can reach; that error is convex in β, so the supremum lies at a β of
    one dimension t. The β' tried for it is c · e_π(t) with the best c in [0, 1], so the result is an upper bound on the
    sample.

    Args:
        pairs: of :func:`features`, (pairs, vocabulary), not negative.
        merged_to: π, the dimension that each dimension is merged into, itself where it stays.
    """
    width = len(merged_to)
    sizes = np.bincount(merged_to, minlength=width)
    grouping = sp.csr_matrix((1 / sizes[merged_to], (np.arange(width), merged_to)), shape=(width, width))
    merged = sp.csc_matrix(pairs @ grouping)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (SIGNS, pairs.shape[0]))
    whole, coarse = (float(np.abs((signs @ each) / pairs.shape[0]).max(axis=1).mean()) for each in (pairs, merged))
    columns, worst, error = sp.csc_matrix(pairs), 0, 0.0
    for dimension in np.flatnonzero(sizes[merged_to] > 1):
        own = columns[:, [dimension]].toarray().ravel()
        if own.any():
            best = _best_error(own, merged[:, [merged_to[dimension]]].toarray().ravel())
            if best > error:
                worst, error = int(dimension), best
    largest = float(pairs.max()) if pairs.nnz else 0.0
    kept = int((sizes > 0).sum())
    return CoarseGraining(
        width, kept, whole, coarse, error, error / largest if largest else 0.0, worst, int(pairs.shape[0])
    )


def _best_error(own: NDArray[np.float64], merged: NDArray[np.float64]) -> float:
    """Minimum over c in [0, 1] of max |own - c merged|, which is convex in c."""
    from scipy.optimize import minimize_scalar

    error = minimize_scalar(lambda c: np.abs(own - c * merged).max(), bounds=(0, 1), options={"xatol": 1e-9})
    return float(error.fun)
