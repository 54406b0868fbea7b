"""α-entmax by blocks: equal to the library's bisection over full rows, whatever the block and the first guess of k."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from entmax import entmax15, entmax_bisect, sparsemax
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support import refused

from vtkit.system.errors import DataError
from vtkit.transfer import dense_rows
from vtkit.transfer import entmax as module
from vtkit.transfer.entmax import entmax, entmax_rows


def unit_vectors(rows: int, width: int, seed: int) -> NDArray[np.float64]:
    vectors = np.random.default_rng(seed).normal(size=(rows, width))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def reference(queries: NDArray[np.float64], keys: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    scores = torch.from_numpy(queries @ keys.T)
    if alpha == 1:
        return scores.softmax(dim=1).numpy()
    return entmax_bisect(scores, alpha, dim=1, n_iter=100).numpy()


@pytest.mark.parametrize("alpha", [1.1, 1.5, 2.0, 3.0, 4.0, 8.0])
def test_rows_equal_bisection_over_the_full_matrix(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIMILARITIES_AT_ONCE", 16_000)  # of 16 rows
    queries, keys = unit_vectors(37, 48, 1), unit_vectors(1000, 48, 2)
    weights = entmax_rows(queries, keys, alpha)
    expected = reference(queries, keys, alpha)
    # A weight near zero magnifies the last bit of a similarity by the power 1 / (α - 1): for α = 8 to about 1e-5.
    assert np.abs(weights.toarray() - expected).max() < {4.0: 1e-8, 8.0: 1e-4}.get(alpha, 1e-12)
    assert np.array_equal(weights.toarray() > 0, expected > 0)
    assert np.allclose(weights.sum(axis=1), 1, atol=1e-12)
    assert weights.has_sorted_indices
    if alpha in (1.5, 2.0):  # the library has an exact algorithm
        exact = {1.5: entmax15, 2.0: sparsemax}[alpha](torch.from_numpy(queries @ keys.T), dim=1)
        assert np.abs(weights.toarray() - exact.numpy()).max() < 1e-12
    assert entmax_rows(queries[:0], keys, alpha).shape == (0, 1000)


def off(scores: list[float], weights: list[float], alpha: float) -> float:
    """How far scores are from those whose entmax ``weights`` are exactly, beside a highest of 0.

    By the definition that is ``s_j = t + p_j^β / β``, β = α - 1, where ``p_j`` is above 0, and ``s_j ≤ t`` elsewhere
    (or so little above it that the weight is too small for a double); the highest score and its weight give the
    threshold t. Counted in 60 digits; infinite unless the weights sum to one.
    """
    with localcontext() as context:
        context.prec = 60
        beta, exact = Decimal(alpha) - 1, [Decimal(weight) for weight in weights]
        below = [Decimal(score) - Decimal(max(scores)) for score in scores]
        threshold = -(max(exact) ** beta) / beta
        distances = []
        for above, weight in zip([score - threshold for score in below], exact, strict=True):
            if weight:
                distances.append(abs(above - weight**beta / beta))
            elif above > 0 and (beta * above).ln() / beta > -700:
                distances.append(above)
        return float(max(distances, default=Decimal(0))) if abs(sum(exact) - 1) < 1e-12 else math.inf


SPREAD = st.one_of(
    st.floats(-1, 1),
    st.floats(-1, 1, width=32),
    st.sampled_from([0.0, 0.5, 0.5 + 1e-9, 0.5 + 1e-15, -1e6, -1e30, 1e6]),
    st.integers(-18, 3).map(lambda power: 10.0**power),
)


@settings(max_examples=150)
@given(
    st.lists(SPREAD, min_size=1, max_size=5),
    st.one_of(st.floats(1.001, 64), st.sampled_from([1 + 1e-7, 1.0001, 1.5, 2.0, 3.0, 4.0, 64.0])),
)
@example([0.5, 0.38, 0.3] + [-1e6] * 9, 2.0)
@example([0.0] * 4, 64.0)
@example([1e-12, 0.0, 1e-14], 64.0)
def test_weights_are_those_of_the_definition_whatever_the_scores(scores: list[float], alpha: float) -> None:
    assert off(scores, entmax(np.array([scores]), alpha)[0].tolist(), alpha) < 1e-12 / min(alpha - 1, 1)


def test_many_scores_far_below_the_others_change_nothing() -> None:
    few = np.array([[0.5, 0.3, 0.38]])
    for alpha in (1.0, 1 + 1e-9, 1.1, 1.5, 2.0, 3.0, 4.0, 64.0):
        for far in (-1e3, -1e6, -np.inf):
            weights = entmax(np.hstack([few, np.full((1, 20_000), far)]), alpha)
            assert weights[:, :3] == pytest.approx(entmax(few, alpha), abs=1e-12)
            assert not weights[:, 3:].any()
    assert entmax(np.hstack([few, np.full((1, 20_000), -1e6)]), 2.0)[0, :3] == pytest.approx([0.44, 0.24, 0.32])


def test_an_alpha_close_to_one_is_softmax() -> None:
    scores = np.random.default_rng(32).normal(size=(5, 1000))
    for alpha in (1 + 1e-12, 1 + 1e-9, 1 + 1e-6):
        assert np.abs(entmax(scores, alpha) - entmax(scores, 1.0)).max() < 10 * (alpha - 1) + 1e-15


def test_single_precision_vectors_give_the_weights_of_their_exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_K", 3)
    queries, keys = (unit_vectors(40, 64, seed).astype(np.float32) for seed in (33, 34))
    keys = np.concatenate([keys, queries, queries + 1e-4])
    for alpha in (1.2, 1.5, 2.0, 4.0, 8.0):
        weights = entmax_rows(queries, keys, alpha).toarray()
        assert np.abs(weights - entmax(queries.astype(np.float64) @ keys.T.astype(np.float64), alpha)).max() < 1e-6


def test_a_first_k_that_is_too_small_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_K", 2)
    # 300 keys at nearly the same place: with k = 2 nearly all weight would be lost.
    keys = unit_vectors(1, 24, 5) + 0.01 * unit_vectors(300, 24, 6)
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    queries = keys[:5]
    weights = entmax_rows(queries, keys, 4.0)
    expected = reference(queries, keys, 4.0)
    assert (expected > 0).sum(axis=1).min() > 2
    assert np.abs(weights.toarray() - expected).max() < 1e-10


def test_by_hand() -> None:
    # Sparsemax of (0.5, 0.3, -1): the threshold of the first two is (0.8 - 1) / 2 = -0.1, above the third.
    assert entmax(np.array([[0.5, 0.3, -1.0]]), 2.0) == pytest.approx(np.array([[0.6, 0.4, 0.0]]))
    # One score further than 1 / (α - 1) above the others takes everything, and equal ones share it.
    for scores, alpha, weights in (
        ([0.9, 0.5], 4.0, [1, 0]),
        ([0.7], 64.0, [1]),
        ([0.7, 0.68], 64.0, [1, 0]),
        ([0.7, 0.7, 0.7, 0.6], 64.0, [1 / 3, 1 / 3, 1 / 3, 0]),
    ):
        assert entmax(np.array([scores]), alpha)[0] == pytest.approx(weights)
    key = unit_vectors(1, 8, 7)
    assert np.allclose(entmax_rows(key, np.repeat(key, 100, axis=0), 4.0).toarray(), 0.01)


def test_what_cannot_be_compared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, broken = unit_vectors(4, 8, 12), unit_vectors(4, 8, 11)
    broken[1, 3] = np.nan
    for queries, keys, said in (
        (broken, vectors, "1 of 4 new tokens"),
        (vectors, broken, "1 of 4 source tokens"),
        (vectors, unit_vectors(4, 9, 12), r"\(8,\) .* \(9,\)"),
    ):
        refused(DataError, said, entmax_rows, queries, keys, 4.0)
    for alpha in (0.5, math.inf, math.nan):
        with pytest.raises(ValueError, match="alpha"):
            entmax(np.zeros((1, 2)), alpha)
        refused(ValueError, "alpha", entmax_rows, vectors, vectors, alpha)


@pytest.mark.parametrize("alpha", [1.0, 1 + 1e-6, 1.05, 1.2, 1.5, 2.0, 4.0])
def test_rows_with_too_many_weights_to_store_are_those_of_bisection(
    alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 2,500 x 30,000 at α = 1.2: more weights than are stored, so that blocks of them are made when needed."""
    monkeypatch.setattr(module, "LARGEST_RESULT", 100)
    monkeypatch.setattr(dense_rows, "WEIGHTS_AT_ONCE", 7 * 300)
    queries, keys = (unit_vectors(count, 16, seed) for count, seed in ((40, 9), (300, 10)))
    assert entmax_rows(queries, keys, alpha) is None
    exact = reference(queries, keys, alpha)
    values = np.random.default_rng(11).normal(size=(310, 3)).astype(np.float32)
    source_ids = np.arange(5, 305)
    rows = dense_rows.DenseRows(np.arange(40), queries, keys, source_ids, alpha)
    assert rows.times(values) == pytest.approx(exact @ values[source_ids], abs=3e-6)
    heaviest = rows.heaviest(310).toarray()[:, source_ids]
    assert heaviest.max(axis=1) == pytest.approx(exact.max(axis=1), abs=3e-6)


def test_a_programs_own_precision_is_left_alone() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        entmax_rows(unit_vectors(2, 4, 23), unit_vectors(5, 4, 24), 4.0)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
