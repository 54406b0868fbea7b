"""Sparse weights from similarities: α-entmax over every row of a similarity matrix that is never held as a whole.

For α = 4 a token keeps one to five anchors out of 30,000. So each block of rows looks at its best ``k`` similarities
only, solves for the threshold there, and then *proves* that nothing outside could have received weight; rows where
that fails are solved again with ``k`` doubled. The result is that of the full matrix.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from vtkit.errors import RecipeError

ROWS_AT_ONCE = 512
FIRST_K = 64
BISECTIONS = 64
"""Halvings of an interval no wider than one: down to the last bit of a double."""

SINGLE_PRECISION_ERROR = 1e-5
"""How far a cosine computed in single precision may be from the exact one, with room to spare."""

LARGEST_RESULT = 250_000_000
"""Weights of the whole result (8 bytes each)."""


def entmax_rows(
    queries: NDArray[np.floating],
    keys: NDArray[np.floating],
    alpha: float,
    rows_at_once: int = ROWS_AT_ONCE,
    first_k: int = FIRST_K,
) -> csr_matrix:
    """α-entmax of the inner products of each query with all keys, (queries, keys).

    ``p_j = [(α-1) s_j - τ]_+ ^ (1/(α-1))`` with τ such that the row sums to one (Peters et al. 2019,
    arXiv:1905.05702); α = 1 is softmax, α = 2 sparsemax, and the larger α the fewer keys keep weight.

    Args:
        queries: unit vectors, (queries, width).
        keys: unit vectors, (keys, width).
        alpha: at least 1.
        rows_at_once: rows whose similarities are held at a time.
        first_k: similarities of a row that are looked at first.

    Returns:
        Float64 rows that sum to one; columns sorted. Candidates are found in single precision, similarities that
        matter are computed in double precision.

    Raises:
        RecipeError: so small an α that almost every key keeps weight and the result would not fit in memory.
    """
    if alpha < 1:
        raise ValueError(f"alpha must be at least 1, not {alpha}")
    if not len(keys):
        raise ValueError("there are no keys to give weight to")
    keys_single = np.asarray(keys, dtype=np.float32)
    keys_double = np.asarray(keys, dtype=np.float64)
    blocks = []
    room = LARGEST_RESULT
    for begin in range(0, len(queries), rows_at_once):
        block = np.asarray(queries[begin : begin + rows_at_once], dtype=np.float64)
        if alpha == 1:
            blocks.append(csr_matrix(_softmax(block @ keys_double.T)))
        else:
            blocks.append(_block(block, keys_double, block.astype(np.float32) @ keys_single.T, alpha, first_k))
        room -= blocks[-1].nnz
        if room < 0:
            raise RecipeError(
                f"transfer.alpha = {alpha:g} leaves weight on so many source tokens that the mixture would take more "
                f"than {8 * LARGEST_RESULT / 1e9:.0f} GB. Raise it; 2 is sparsemax, 4 is the default."
            )
    if not blocks:
        return csr_matrix((0, len(keys)), dtype=np.float64)
    return vstack(blocks, format="csr")


def entmax(scores: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """α-entmax (α > 1) of each row of ``scores`` by bisection in double precision, (rows, scores).

    The threshold lies between ``max (α-1)s - 1``, where one score alone has weight 1, and that of equal scores.
    """
    weights, _ = _solve(scores, alpha)
    return weights


def _block(
    queries: NDArray[np.float64],
    keys: NDArray[np.float64],
    similarities: NDArray[np.float32],
    alpha: float,
    first_k: int,
) -> csr_matrix:
    """One block of rows; ``similarities`` are those of single precision, (rows, keys)."""
    open_rows = np.arange(len(queries))
    columns: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)] * len(queries)
    values: list[NDArray[np.float64]] = [np.empty(0)] * len(queries)
    k = min(first_k, len(keys))
    while len(open_rows):
        here = similarities[open_rows]
        if k < len(keys):
            order = np.argpartition(here, len(keys) - k - 1, axis=1)
            best = np.sort(order[:, -k:], axis=1)
            outside = np.take_along_axis(here, order[:, -k - 1 : -k], axis=1)[:, 0].astype(np.float64)
        else:
            best = np.broadcast_to(np.arange(len(keys)), here.shape)
            outside = np.full(len(open_rows), -np.inf)
        if k <= FIRST_K:
            exact = np.einsum("rd,rkd->rk", queries[open_rows], keys[best])
        else:  # so many keys a row that gathering their vectors would take more memory than all similarities
            exact = np.take_along_axis(queries[open_rows] @ keys.T, best, axis=1)
        weights, thresholds = _solve(exact, alpha)
        settled = (alpha - 1) * (outside + SINGLE_PRECISION_ERROR) <= thresholds
        for place in np.flatnonzero(settled):
            kept = weights[place] > 0
            columns[open_rows[place]] = best[place][kept]
            values[open_rows[place]] = weights[place][kept]
        open_rows = open_rows[~settled]
        k = min(2 * k, len(keys))
    starts = np.concatenate([[0], np.cumsum([len(row) for row in columns])])
    return csr_matrix((np.concatenate(values), np.concatenate(columns), starts), shape=(len(queries), len(keys)))


def _solve(scores: NDArray[np.float64], alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights and thresholds of each row."""
    scaled = (alpha - 1) * np.asarray(scores, dtype=np.float64)
    highest = scaled.max(axis=1)
    low = highest - 1.0
    high = highest - (1.0 / scaled.shape[1]) ** (alpha - 1)
    power = 1.0 / (alpha - 1)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        too_much = (np.clip(scaled - middle[:, None], 0, None) ** power).sum(axis=1) >= 1
        low, high = np.where(too_much, middle, low), np.where(too_much, high, middle)
    weights = np.clip(scaled - low[:, None], 0, None) ** power
    return weights / weights.sum(axis=1, keepdims=True), low


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights
