"""Sparse weights from similarities: α-entmax over every row of a similarity matrix that is never held as a whole.
Single precision finds the few anchors that can have weight, the solvers of the ``entmax`` library see only these, in
double precision, and the threshold of the solution *proves* that nothing outside has any; else more are looked at."""

import math

import numpy as np
import torch
from entmax import entmax15, entmax_bisect, sparsemax
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from vtkit.system.errors import DataError

FIRST_K = 64  # candidates of a row that are looked at first
WIDENING = 4  # how much larger `k` is made for rows whose weights are not proven
RANKED = 8  # highest similarities of a row whose threshold, in single precision, rules out others
SIMILARITIES_AT_ONCE = 16_000_000  # similarities of a block of rows (4 bytes each)
CANDIDATES_AT_ONCE = 2_000_000  # candidates of a block that are solved together (8 bytes each, a few times over)
PAIRS_AT_ONCE = 4096  # pairs of vectors that are multiplied exactly at a time, where they are few

LARGEST_RESULT = 50_000_000
"""Weights that are stored: 12 bytes each, and about 90 while a mixture and its record are made of them. Rows with more
in all are made in blocks whenever they are needed (:class:`vtkit.transfer.dense_rows.DenseRows`)."""

HALVINGS = 64  # halvings of the interval of the threshold, no longer than one: beyond the last bit of a double
LAST_BITS = 1e-14  # how close to the threshold `(α-1) s` is told from it by rounding alone

NEARLY_SOFTMAX = 1e-8
"""An α closer to 1 than this is softmax: the weights differ by less than bisection could tell apart."""


def entmax_rows(queries: NDArray[np.floating], anchors: NDArray[np.floating], alpha: float) -> csr_matrix | None:
    """α-entmax of the inner products of each query with all anchors, (queries, anchors); None where it has more than
    :data:`LARGEST_RESULT` weights, as with α = 1, where it is dense.

    ``p_j = [(α-1) s_j - τ]_+ ^ (1/(α-1))`` with τ such that the row sums to one (Peters et al. 2019, arXiv:1905.05702);
    α = 1 is softmax, α = 2 sparsemax.

    Args:
        queries, anchors: unit vectors, (queries, width) and (anchors, width).

    Returns:
        Float64 rows that sum to one; columns sorted.
    """
    _refuse_unfit(queries, anchors, alpha)
    if alpha - 1 < NEARLY_SOFTMAX:
        return None
    blocks = [csr_matrix((0, len(anchors)), dtype=np.float64)]
    room = LARGEST_RESULT
    rows = max(1, SIMILARITIES_AT_ONCE // len(anchors))
    space = Space(anchors)
    for begin in range(0, len(queries), rows):
        blocks.append(_sparse(space, space.vectors(queries[begin : begin + rows]), alpha))
        room -= blocks[-1].nnz
        if room < 0:
            return None
    return vstack(blocks, format="csr")


def entmax(scores: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """α-entmax of each row of ``scores`` in double precision, (rows, scores): exactly that of scores which differ from
    the given ones by about ``1e-14 / (α-1)``, where the highest is 0."""
    _check_alpha(alpha)
    weights: NDArray[np.float64] = solve(torch.from_numpy(np.asarray(scores, dtype=np.float64)), alpha).numpy()
    return weights


def solve(scores: torch.Tensor, alpha: float, halvings: int = HALVINGS) -> torch.Tensor:
    """:func:`entmax` of float64 tensors; the library's exact solvers where it has one for this α."""
    below = scores - scores.max(dim=1, keepdim=True).values
    if alpha - 1 < NEARLY_SOFTMAX:
        return below.softmax(dim=1)
    # What is further below than 1/(α-1) has no weight; sums over the others lose no digits to it.
    below = below.clamp(min=-2 / (alpha - 1))
    weights: torch.Tensor
    if alpha == 2:
        weights = sparsemax(below, dim=1)
    elif alpha == 1.5:
        weights = entmax15(below, dim=1)
    else:
        weights = entmax_bisect(below, alpha, dim=1, n_iter=halvings, ensure_sum_one=False)
        if alpha > 2:
            weights = _settle_lowest(below * (alpha - 1), weights, alpha)
    return weights / weights.sum(dim=1, keepdim=True)


def _settle_lowest(scaled: torch.Tensor, weights: torch.Tensor, alpha: float) -> torch.Tensor:
    """``weights``, the scores at the threshold, or else the lowest, sharing equally what the others leave: a weight p
    lies only ``p^(α-1)`` above it, 1e-63 for p = 0.1 and α = 64, so that its last bit would decide over them.

    Args:
        scaled: ``(α-1)(s - s_1)``.
        weights: of the library, not normalised.
    """
    threshold = -(weights.max(dim=1, keepdim=True).values ** (alpha - 1))
    near = (scaled - threshold).abs() <= LAST_BITS
    lowest = scaled == scaled.where(weights > 0, 0).min(dim=1, keepdim=True).values
    near |= lowest & ~near.any(dim=1, keepdim=True)
    above = weights.where(~near, 0)
    left = (1 - above.sum(dim=1, keepdim=True)).clamp(min=0)
    return above.where(~near, left / near.sum(dim=1, keepdim=True))


def _thresholds(scores: torch.Tensor, weights: torch.Tensor, alpha: float) -> torch.Tensor:
    """The score of each row, (rows, 1), at or below which there is no weight: ``s_1 - p_1^(α-1) / (α-1)``."""
    highest, heaviest = scores.max(dim=1, keepdim=True).values, weights.max(dim=1, keepdim=True).values
    return highest - heaviest ** (alpha - 1) / (alpha - 1)


class Space:
    """The anchors, ready for products: quick ones with a known error, and exact ones."""

    def __init__(self, anchors: NDArray[np.floating]) -> None:
        from vtkit.system.runtime import fastest_device

        self.device = fastest_device()
        self.anchors = self.vectors(anchors)
        self.single = self.anchors.float()
        self.norm = float(self.single.norm(dim=1).max())

    def __len__(self) -> int:
        return len(self.anchors)

    def vectors(self, of: NDArray[np.floating]) -> torch.Tensor:
        """``of`` on the device of the anchors."""
        return torch.from_numpy(np.ascontiguousarray(of)).to(self.device)

    def similarities(self, queries: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Inner products, (queries, anchors), and how far each may be from the exact one: single precision changes
        vectors, products and sums by 2^-24 of each, and all together, by Cauchy-Schwarz, that share of the lengths'
        product."""
        single = queries.float()
        share = 1.01 * (self.anchors.shape[1] + 3) * 2.0**-24
        # without the short cuts (TF32, bfloat16) that a program may have allowed: they are less exact
        allowed = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            products = single @ self.single.T
        finally:
            torch.set_float32_matmul_precision(allowed)
        return products, share * self.norm * float(single.norm(dim=1).max())

    def exact(self, queries: torch.Tensor, columns: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Inner products in double precision where ``wanted``, else -inf; all are (queries, columns)."""
        rows, places = torch.nonzero(wanted, as_tuple=True)
        ids = columns[rows, places]
        scores = torch.full(columns.shape, -math.inf, dtype=torch.float64, device=self.device)
        if len(rows) > queries.shape[0] * len(self) // 128:  # making all of them is quicker than picking vectors
            scores[rows, places] = self.all(queries)[rows, ids]
        else:
            for begin in range(0, len(rows), PAIRS_AT_ONCE):
                now = slice(begin, begin + PAIRS_AT_ONCE)
                products = queries[rows[now]].double() * self.anchors[ids[now]].double()
                scores[rows[now], places[now]] = products.sum(dim=1)
        return scores

    def all(self, queries: torch.Tensor) -> torch.Tensor:
        """Inner products in double precision, (queries, anchors)."""
        exact = queries.double()
        chunks = torch.split(self.anchors, PAIRS_AT_ONCE)
        return torch.cat([exact @ chunk.double().T for chunk in chunks], dim=1)


def _sparse(space: Space, queries: torch.Tensor, alpha: float) -> csr_matrix:
    """One block of rows whose α leaves anchors out.

    The threshold of some scores is never above that of all. So that of a row's highest similarities rules out all below
    it, and that of the candidates is the full row's if nothing outside lies above it, up to ``error``.
    """
    similarities, error = space.similarities(queries)
    size = len(space)
    k = min(FIRST_K, size)
    open_rows = torch.arange(len(queries), device=space.device)
    rows, columns, values = [], [], []
    while len(open_rows):
        unsettled = []
        for chunk in torch.split(open_rows, max(1, CANDIDATES_AT_ONCE // k)):
            best = similarities if len(chunk) == len(similarities) else similarities[chunk]
            best, places = best.topk(min(k + 1, size), dim=1)
            best = best.double()
            highest, candidates, outside = best[:, :RANKED], best[:, :k], best[:, k:]
            wanted = candidates > _thresholds(highest, solve(highest, alpha), alpha) - 3 * error
            width = int(wanted.sum(dim=1).max())
            places, wanted = places[:, :width], wanted[:, :width]
            scores = space.exact(queries[chunk], places, wanted)
            weights = solve(scores, alpha)
            settled = (outside + 2 * error <= _thresholds(scores, weights, alpha)).all(dim=1)
            kept = torch.nonzero((weights > 0) & settled[:, None], as_tuple=True)
            rows.append(chunk[kept[0]])
            columns.append(places[kept])
            values.append(weights[kept])
            unsettled.append(chunk[~settled])
        open_rows = torch.cat(unsettled)
        k = size if WIDENING * k > size // 4 else WIDENING * k
    data, row, column = (torch.cat(parts).cpu().numpy() for parts in (values, rows, columns))
    block = csr_matrix((data, (row, column)), shape=(len(queries), size))
    block.sort_indices()
    return block


def _refuse_unfit(queries: NDArray[np.floating], anchors: NDArray[np.floating], alpha: float) -> None:
    _check_alpha(alpha)
    if not len(anchors):
        raise ValueError("there are no anchors to give weight to")
    if queries.ndim != 2 or anchors.ndim != 2 or queries.shape[1] != anchors.shape[1]:
        raise DataError(
            f"Vectors of the shape {queries.shape[1:]} cannot be compared with vectors of the shape "
            f"{anchors.shape[1:]}: they must come from one space."
        )
    for vectors, what in ((queries, "new tokens"), (anchors, "source tokens")):
        bad = len(vectors) - int(np.isfinite(vectors.sum(axis=1)).sum())
        if bad:
            raise DataError(f"The vectors of {bad} of {len(vectors)} {what} are not finite numbers (NaN or infinite).")


def _check_alpha(alpha: float) -> None:
    if not 1 <= alpha < math.inf:
        raise ValueError(f"alpha must be at least 1, not {alpha}")
