"""Sparse weights from similarities: α-entmax over every row of a similarity matrix that is never held as a whole.

For α = 4 a token keeps one to five anchors out of 30,000. So each block of rows looks at its best ``k`` similarities
only, solves for the threshold there, and then *proves* that nothing outside could have received weight; rows where
that fails are solved again with a larger ``k``. The result is that of the full matrix: single precision finds the
candidates, within a proven error, and double precision decides among them.

α may also be chosen for each row, so that a stated number of anchors or a stated entropy remains.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from vtkit.errors import DataError, RecipeError

FIRST_K = 64
WIDENING = 4
"""How much larger ``k`` is made for rows whose weights are not proven."""

SIMILARITIES_AT_ONCE = 16_000_000
"""Similarities of a block of rows (4 bytes each)."""

CANDIDATES_AT_ONCE = 2_000_000
"""Candidates of a block that are solved together (8 bytes each, a few times over)."""

PAIRS_AT_ONCE = 4096
"""Pairs of vectors that are multiplied exactly at a time, where they are few."""

LARGEST_RESULT = 250_000_000
"""Weights of the whole result (12 bytes each)."""

HALVINGS = 56
"""Halvings of an interval of length one: down to the last bit of a double."""

ALPHA_HALVINGS = 36
"""Halvings of the range of log(α - 1), where α is chosen for each row."""

CLOSEST = 1e-6
"""Where α is chosen for each row, similarities as close as this to the highest count as equal to it."""


@dataclass(frozen=True)
class Sparsity:
    """How many anchors keep weight: by one α for all rows, or by an α chosen for each.

    Raises:
        ValueError: α below 1, or both ``keep`` and ``entropy``.
    """

    alpha: float = 4.0
    """1 is softmax, 2 sparsemax, and the larger the fewer. Not used where ``keep`` or ``entropy`` is given."""

    keep: int | None = None
    """The smallest α that leaves weight to no more than so many anchors (:func:`entmax_keep`)."""

    entropy: float | None = None
    """The α whose weights have this entropy, in bits (:func:`entmax_entropy`)."""

    def __post_init__(self) -> None:
        if not 1 <= self.alpha < math.inf:
            raise ValueError(f"alpha must be at least 1, not {self.alpha}")
        if self.keep is not None and self.keep < 1:
            raise ValueError(f"keep must be at least 1, not {self.keep}")
        if self.entropy is not None and not 0 < self.entropy < math.inf:
            raise ValueError(f"entropy must be above 0, not {self.entropy}")
        if self.keep is not None and self.entropy is not None:
            raise ValueError("give keep or entropy, not both: each of them chooses alpha")


def entmax_rows(
    queries: NDArray[np.floating],
    anchors: NDArray[np.floating],
    sparsity: Sparsity | float,
    *,
    rows_at_once: int | None = None,
    first_k: int = FIRST_K,
    device: str | None = None,
) -> csr_matrix:
    """α-entmax of the inner products of each query with all anchors, (queries, anchors).

    ``p_j = [(α-1) s_j - τ]_+ ^ (1/(α-1))`` with τ such that the row sums to one (Peters et al. 2019,
    arXiv:1905.05702); α = 1 is softmax, α = 2 sparsemax, and the larger α the fewer anchors keep weight.

    Args:
        queries: unit vectors, (queries, width).
        anchors: unit vectors, (anchors, width).
        sparsity: α, or how it is chosen for each row.
        rows_at_once: rows whose similarities are held at a time; as many as make 64 MB by default.
        first_k: similarities of a row that are looked at first.
        device: where products are made; the GPU by default where there is one.

    Returns:
        Float64 rows that sum to one; columns sorted. Memory grows with the result and the inputs, not with their
        product. Softmax leaves nothing out, and its result is dense.

    Raises:
        DataError: vectors that are not finite, or of different widths.
        RecipeError: so many anchors keep weight that the result would not fit in memory.
    """
    sparsity = sparsity if isinstance(sparsity, Sparsity) else Sparsity(float(sparsity))
    _check(queries, anchors)
    blocks = []
    room = LARGEST_RESULT
    rows = rows_at_once or max(1, SIMILARITIES_AT_ONCE // len(anchors))
    space = _Space(anchors, device)
    with _full_single_precision():
        for begin in range(0, len(queries), rows):
            blocks.append(_block(space, queries[begin : begin + rows], sparsity, first_k))
            room -= blocks[-1].nnz
            if room < 0:
                raise RecipeError(_too_many(sparsity))
    if not blocks:
        return csr_matrix((0, len(anchors)), dtype=np.float64)
    return vstack(blocks, format="csr")


def entmax(scores: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """α-entmax of each row of ``scores`` in double precision, (rows, scores)."""
    return _weigh(np.asarray(scores, dtype=np.float64), Sparsity(alpha))[0]


def entmax_keep(scores: NDArray[np.float64], keep: int) -> NDArray[np.float64]:
    """Entmax of each row with the smallest α that leaves weight to no more than ``keep`` scores, (rows, scores).

    The larger α, the more the weights are concentrated: those of the larger α majorise those of the smaller, so the
    number of scores with weight and their entropy never grow with α (docs/bridges.md has the proof). At the smallest
    α the score ``c`` that is the next after the first ``keep`` lies at the threshold itself, and

    ``p_j = [(α-1)(s_j - c)]_+ ^ (1/(α-1))``,  α such that they sum to one, found by bisection.

    Exactly ``keep`` scores have weight unless scores are equal: scores equal to ``c`` have none, and where ``c`` is
    equal to the highest, all that are equal to it share the weight, though they be more than ``keep``. Rows of no
    more than ``keep`` scores become their softmax.
    """
    return _weigh(np.asarray(scores, dtype=np.float64), Sparsity(keep=keep))[0]


def entmax_entropy(scores: NDArray[np.float64], bits: float) -> NDArray[np.float64]:
    """Entmax of each row with the α whose weights have the entropy ``-Σ p log2 p = bits``, (rows, scores).

    The entropy falls with α (:func:`entmax_keep`), from that of softmax to the logarithm of the number of scores
    equal to the highest; ``bits`` beyond these two give the nearer of them.
    """
    return _weigh(np.asarray(scores, dtype=np.float64), Sparsity(entropy=bits))[0]


class _Space:
    """The anchors, ready for products: quick ones with a known error, and exact ones."""

    def __init__(self, anchors: NDArray[np.floating], device: str | None) -> None:
        from vtkit.runtime import fastest_device

        self.device = device or fastest_device()
        self.anchors = torch.from_numpy(np.ascontiguousarray(anchors)).to(self.device)
        self.single = self.anchors.float()
        self.norm = float(self.single.norm(dim=1).max())

    def __len__(self) -> int:
        return len(self.anchors)

    def similarities(self, queries: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Inner products, (queries, anchors), and how far each may be from the exact one.

        Single precision changes a number by 2^-24 of it at most: both vectors, each product, and each addition. By
        Cauchy-Schwarz all of it together is that share of the product of the lengths, once for each dimension.
        """
        single = queries.float()
        share = 1.01 * (self.anchors.shape[1] + 3) * 2.0**-24
        return single @ self.single.T, share * self.norm * float(single.norm(dim=1).max())

    def exact(self, queries: torch.Tensor, columns: torch.Tensor, wanted: torch.Tensor) -> NDArray[np.float64]:
        """Inner products in double precision where ``wanted``, else -inf; all are (queries, columns)."""
        rows, places = torch.nonzero(wanted, as_tuple=True)
        ids = columns[rows, places]
        scores = torch.full(columns.shape, -math.inf, dtype=torch.float64, device=self.device)
        if len(rows) > queries.shape[0] * len(self) // 128:  # making all of them is quicker than picking vectors
            scores[rows, places] = self._all(queries)[rows, ids]
        else:
            for begin in range(0, len(rows), PAIRS_AT_ONCE):
                now = slice(begin, begin + PAIRS_AT_ONCE)
                products = queries[rows[now]].double() * self.anchors[ids[now]].double()
                scores[rows[now], places[now]] = products.sum(dim=1)
        found: NDArray[np.float64] = scores.cpu().numpy()
        return found

    def _all(self, queries: torch.Tensor) -> torch.Tensor:
        exact = queries.double()
        chunks = torch.split(self.anchors, PAIRS_AT_ONCE)
        return torch.cat([exact @ chunk.double().T for chunk in chunks], dim=1)


def _block(space: _Space, queries: NDArray[np.floating], sparsity: Sparsity, first_k: int) -> csr_matrix:
    """One block of rows."""
    vectors = torch.from_numpy(np.ascontiguousarray(queries)).to(space.device)
    similarities, error = space.similarities(vectors)
    size = len(space)
    k = first_k
    if sparsity.keep is not None:
        k = max(k, 2 * sparsity.keep)
    elif sparsity.entropy is not None:
        k = 4 * math.ceil(2 ** min(sparsity.entropy, 60))
    k = size if _is_softmax(sparsity, size) else min(k, size)
    open_rows = torch.arange(len(vectors), device=space.device)
    rows, columns, values = [], [], []
    while len(open_rows):
        unsettled = []
        for chunk in torch.split(open_rows, max(1, CANDIDATES_AT_ONCE // k)):
            best = similarities if len(chunk) == len(similarities) else similarities[chunk]
            outside = np.full(len(chunk), -np.inf)
            if k < size:
                best, places = best.topk(k + 1, dim=1)
                best, places, outside = best[:, :k], places[:, :k], _numpy(best[:, k])
            elif _is_softmax(sparsity, size):  # order does not matter where all have weight
                places = torch.arange(size, device=space.device).expand(best.shape)
            else:
                best, places = best.sort(dim=1, descending=True)
            floor = _floor(_numpy(best), sparsity, size)
            wanted = best.double() > torch.from_numpy(floor - 2 * error)[:, None].to(space.device)
            width = int(wanted.any(dim=0).nonzero().max()) + 1
            places, wanted = places[:, :width], wanted[:, :width]
            weights, thresholds = _weigh(space.exact(vectors[chunk], places, wanted), sparsity, size)
            settled = outside + error <= thresholds
            kept = np.nonzero((weights > 0) & settled[:, None])
            rows.append(chunk.cpu().numpy()[kept[0]])
            columns.append(places.cpu().numpy()[kept])
            values.append(weights[kept])
            unsettled.append(chunk[torch.from_numpy(~settled).to(space.device)])
        open_rows = torch.cat(unsettled)
        k = size if WIDENING * k > size // 4 else WIDENING * k
    found = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    block = csr_matrix(found, shape=(len(vectors), size))
    block.sort_indices()
    return block


def _floor(best: NDArray[np.float64], sparsity: Sparsity, size: int) -> NDArray[np.float64]:
    """A bound, (rows,), at or below which no score has weight, from some of the scores of each row, highest first.

    Fewer scores share the same weight among them, so that their threshold is never above that of all. Scores that are
    off by ``error`` move it by no more than that.
    """
    nothing = np.full((len(best), 1), -np.inf)
    if _is_softmax(sparsity, size) or sparsity.entropy is not None:
        return nothing[:, 0]
    if sparsity.keep is not None:  # the threshold is the score after the first ``keep``, if it is not the highest
        return np.asarray(best[:, sparsity.keep]) - CLOSEST
    first_without = _with_weight(_within_reach(best, sparsity.alpha - 1), sparsity.alpha - 1)
    return np.asarray(np.take_along_axis(np.hstack([best, nothing]), first_without, axis=1)[:, 0])


def _weigh(
    scores: NDArray[np.float64], sparsity: Sparsity, size: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights of each row, (rows, scores), and the score at or below which there is none, (rows,).

    Args:
        size: number of scores there are in all, where the others were left out because they cannot have weight.
    """
    size = size or scores.shape[1]
    highest = scores.max(axis=1, keepdims=True)
    if _is_softmax(sparsity, size):
        return _normalised(np.exp(scores - highest)), np.full(len(scores), -np.inf)
    if sparsity.keep is not None:
        return _keep(scores - highest, highest, sparsity.keep)
    if sparsity.entropy is not None:
        return _by_the_lowest(scores, _beta_of_entropy(scores, sparsity.entropy))
    if sparsity.alpha <= 2:
        return _by_newton(scores, sparsity.alpha - 1)
    return _by_the_lowest(scores, sparsity.alpha - 1)


def _is_softmax(sparsity: Sparsity, size: int) -> bool:
    if sparsity.keep is not None:
        return sparsity.keep >= size
    return sparsity.entropy is None and sparsity.alpha == 1


def _keep(
    below: NDArray[np.float64], highest: NDArray[np.float64], keep: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """:func:`entmax_keep` of scores given by how far they are below the highest."""
    cut = -np.partition(-below, keep, axis=1)[:, keep : keep + 1]
    equal = cut >= -CLOSEST
    above = np.clip(below - cut, 0, None)
    # With β = α - 1, each term of Σ (β (s - c))^(1/β) grows with β as long as it is below 1; β = 1 / (s_1 - c) makes
    # the first of them 1.
    low, high = np.zeros_like(cut), 1 / np.maximum(-cut, CLOSEST)
    for _ in range(HALVINGS):
        beta = (low + high) / 2
        too_much = _powers(beta * above, beta).sum(axis=1, keepdims=True) >= 1
        low, high = np.where(too_much, low, beta), np.where(too_much, beta, high)
    weights = np.where(equal, (below >= -CLOSEST).astype(np.float64), _powers(high * above, high))
    thresholds = highest + np.where(equal, -CLOSEST, cut)
    return _normalised(weights), thresholds[:, 0]


def _beta_of_entropy(scores: NDArray[np.float64], bits: float) -> NDArray[np.float64]:
    """α - 1 of each row, (rows, 1), by bisection of its logarithm."""
    low = np.full((len(scores), 1), math.log(1e-3))
    high = np.full((len(scores), 1), math.log(1 / CLOSEST))
    for _ in range(ALPHA_HALVINGS):
        middle = (low + high) / 2
        weights, _ = _by_the_lowest(scores, np.exp(middle))
        entropy = -(weights * np.log2(np.where(weights > 0, weights, 1))).sum(axis=1, keepdims=True)
        low, high = np.where(entropy > bits, middle, low), np.where(entropy > bits, high, middle)
    return np.asarray(np.exp(high))


def _by_newton(scores: NDArray[np.float64], beta: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights and thresholds as :func:`_weigh`, for β = α - 1 from 0 to 1.

    With ``τ = β (s_1 + κ) - 1`` the weights are ``[1 + β (s - s_1 - κ)]_+ ^ (1/β)``, which stay exact as β goes to 0
    (``e^(s - s_1 - κ)``). Their sum is convex in κ, so that steps from 0, where the highest alone has weight 1, never
    go beyond the solution.
    """
    highest = scores.max(axis=1, keepdims=True)
    below = scores - highest
    kappa = np.zeros_like(highest)
    while True:
        base = np.maximum(beta * (below - kappa), -1)
        with np.errstate(divide="ignore"):  # the logarithm of a base of 0: no weight
            weights = np.exp(np.log1p(base) / beta)
        slopes = np.divide(weights, 1 + base, out=np.zeros_like(base), where=base > -1)
        step = (weights.sum(axis=1, keepdims=True) - 1) / slopes.sum(axis=1, keepdims=True)
        kappa += np.maximum(step, 0)
        if not np.any(step > 1e-15 * (1 + kappa)):
            return _normalised(weights), (highest + kappa - 1 / beta)[:, 0]


def _by_the_lowest(
    scores: NDArray[np.float64], beta: float | NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights and thresholds as :func:`_weigh`, for any β = α - 1 above 0; (rows, 1) where each row has its own.

    For large β a weight of 0.1 lies as little as 0.1^β above the threshold, far below the last bit of τ. So the scores
    that have weight are found first, and the sum is then brought to one by the weight x of the lowest of them, ``s_m``:

    ``p = (β (s - s_m) + x^β)^(1/β)``
    """
    scores = _within_reach(scores, beta)
    ranked = -np.sort(-scores, axis=1)
    lowest = np.take_along_axis(ranked, _with_weight(ranked, beta) - 1, axis=1)
    above = beta * (scores - lowest)
    low, high = np.zeros_like(lowest), np.ones_like(lowest)
    for _ in range(HALVINGS):
        x = (low + high) / 2
        too_much = _weights_over(above, x, beta).sum(axis=1, keepdims=True) >= 1
        low, high = np.where(too_much, low, x), np.where(too_much, x, high)
    return _normalised(_weights_over(above, high, beta)), (lowest - high**beta / beta)[:, 0]


def _weights_over(
    above: NDArray[np.float64], x: NDArray[np.float64], beta: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weights for that x of the lowest; itself apart, whose x^β may be too small for a number."""
    return np.where(above > 0, _powers(above + x**beta, beta), np.where(above == 0, x, 0))


def _with_weight(ranked: NDArray[np.float64], beta: float | NDArray[np.float64]) -> NDArray[np.int64]:
    """How many scores of each row have weight, (rows, 1): the m-th has if ``Σ_i [β (s_i - s_m)]_+ ^ (1/β) < 1``, that
    is, if a threshold there would leave the scores above it too little.

    Args:
        ranked: highest first, and none out of reach.
    """
    low = np.ones((len(ranked), 1), dtype=np.int64)
    high = np.full_like(low, ranked.shape[1])
    while np.any(low < high):
        middle = (low + high + 1) // 2
        with np.errstate(over="ignore"):  # far too much is too much
            sums = _powers(beta * (ranked - np.take_along_axis(ranked, middle - 1, axis=1)), beta).sum(axis=1)
        has = (sums < 1)[:, None]
        low, high = np.where(has, middle, low), np.where(has, high, middle - 1)
    return low


def _within_reach(scores: NDArray[np.float64], beta: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """``scores``, those too far below the highest to have weight (1/β) no further below it than twice that."""
    return np.asarray(np.maximum(scores, scores.max(axis=1, keepdims=True) - 2 / np.asarray(beta)))


def _powers(base: NDArray[np.float64], beta: float | NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.clip(base, 0, None) ** (1 / np.asarray(beta)))


def _normalised(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _check(queries: NDArray[np.floating], anchors: NDArray[np.floating]) -> None:
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


def _too_many(sparsity: Sparsity) -> str:
    if sparsity.keep is not None:
        cause, way_out = f"transfer.keep = {sparsity.keep}", "Lower it"
    elif sparsity.entropy is not None:
        cause, way_out = f"transfer.entropy = {sparsity.entropy:g}", "Lower it"
    else:
        cause, way_out = f"transfer.alpha = {sparsity.alpha:g}", "Raise it; 2 is sparsemax, 4 is the default"
    return (
        f"{cause} leaves weight on so many source tokens that the mixture would take more than "
        f"{12 * LARGEST_RESULT / 1e9:.0f} GB. {way_out}."
    )


def _numpy(values: torch.Tensor) -> NDArray[np.float64]:
    return np.asarray(values.double().cpu().numpy())


@contextmanager
def _full_single_precision() -> Iterator[None]:
    """Single precision without the short cuts (TF32, bfloat16) a program may have allowed: they are less exact."""
    allowed = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(allowed)
