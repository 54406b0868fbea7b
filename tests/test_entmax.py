"""α-entmax by blocks: equal to the library's bisection over full rows, whatever the block and the first guess of k."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from entmax import entmax_bisect, sparsemax
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from vtkit.errors import RecipeError
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


@pytest.mark.parametrize("alpha", [1.0, 1.2, 1.5, 2.0, 2.5, 4.0, 8.0])
def test_rows_equal_bisection_over_the_full_matrix(alpha: float) -> None:
    queries, keys = unit_vectors(37, 48, 1), unit_vectors(3000, 48, 2)
    weights = entmax_rows(queries, keys, alpha, rows_at_once=16)
    expected = reference(queries, keys, alpha)
    assert np.abs(weights.toarray() - expected).max() < 1e-12
    assert np.array_equal(weights.toarray() > 0, expected > 0)
    assert np.allclose(weights.sum(axis=1), 1, atol=1e-12)
    assert weights.has_sorted_indices


def test_alpha_two_is_sparsemax() -> None:
    queries, keys = unit_vectors(20, 32, 3), unit_vectors(500, 32, 4)
    expected = sparsemax(torch.from_numpy(queries @ keys.T), dim=1).numpy()
    assert np.abs(entmax_rows(queries, keys, 2.0).toarray() - expected).max() < 1e-12


def test_a_first_k_that_is_too_small_is_found_out() -> None:
    # 300 keys at nearly the same place: with k = 2 nearly all weight would be lost.
    keys = unit_vectors(1, 24, 5) + 0.01 * unit_vectors(300, 24, 6)
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    queries = keys[:5]
    weights = entmax_rows(queries, keys, 4.0, first_k=2)
    expected = reference(queries, keys, 4.0)
    assert (expected > 0).sum(axis=1).min() > 2
    assert np.abs(weights.toarray() - expected).max() < 1e-10


def test_equal_similarities_share_the_weight_equally() -> None:
    key = unit_vectors(1, 8, 7)
    weights = entmax_rows(key, np.repeat(key, 100, axis=0), 4.0).toarray()
    assert np.allclose(weights, 0.01)


def test_by_hand() -> None:
    # Sparsemax of (0.5, 0.3, -1): the threshold of the first two is (0.8 - 1) / 2 = -0.1, above the third.
    assert entmax(np.array([[0.5, 0.3, -1.0]]), 2.0) == pytest.approx(np.array([[0.6, 0.4, 0.0]]))
    # One score further than 1 / (α - 1) above the others takes everything.
    assert entmax(np.array([[0.9, 0.5]]), 4.0).tolist() == [[1.0, 0.0]]


@given(
    st.integers(1, 6).flatmap(
        lambda width: st.lists(st.lists(st.floats(-1, 1), min_size=width, max_size=width), min_size=1, max_size=5)
    ),
    st.floats(1.2, 6),
    st.floats(-5, 5),
)
def test_weights_are_a_distribution_that_ignores_shifts_and_keeps_order(
    rows: list[list[float]], alpha: float, shift: float
) -> None:
    scores = np.array(rows)
    weights = entmax(scores, alpha)
    assert np.all(weights >= 0)
    assert np.allclose(weights.sum(axis=1), 1)
    assert np.allclose(entmax(scores + shift, alpha), weights, atol=1e-6)
    order = np.argsort(scores, axis=1)
    assert np.all(np.diff(np.take_along_axis(weights, order, axis=1), axis=1) >= -1e-12)


def test_no_queries_give_no_rows() -> None:
    weights = entmax_rows(np.empty((0, 4)), unit_vectors(9, 4, 8), 4.0)
    assert isinstance(weights, csr_matrix)
    assert weights.shape == (0, 9)


def test_a_result_too_large_for_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_RESULT", 100)
    with pytest.raises(RecipeError, match=r"transfer\.alpha = 1 leaves weight"):
        entmax_rows(unit_vectors(4, 4, 9), unit_vectors(50, 4, 10), 1.0)
