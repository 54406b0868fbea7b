"""Cost of sparse vectors against counting it out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from vtkit.evaluation.measures.cost import activation_shares, active_dimensions, flops


@st.composite
def two_matrices(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    columns = draw(st.integers(1, 5))
    row = st.lists(st.sampled_from([0.0, 0.0, 0.5, 2.0]), min_size=columns, max_size=columns)
    rows = st.lists(row, min_size=1, max_size=6)
    return np.array(draw(rows)), np.array(draw(rows))


@given(two_matrices())
def test_flops_is_the_mean_number_of_shared_terms_over_all_pairs(matrices: tuple[np.ndarray, np.ndarray]) -> None:
    queries, documents = matrices
    shared = [np.count_nonzero(query * document) for query in queries for document in documents]
    assert flops(
        activation_shares(sp.csr_matrix(queries)), activation_shares(sp.csr_matrix(documents))
    ) == pytest.approx(np.mean(shared))


@given(two_matrices())
def test_active_dimensions_is_the_mean_number_of_weights(matrices: tuple[np.ndarray, np.ndarray]) -> None:
    assert active_dimensions(sp.csr_matrix(matrices[0])) == pytest.approx((matrices[0] != 0).sum(axis=1).mean())


def test_stored_zeros_are_not_active_and_no_vectors_cost_nothing() -> None:
    zeros = sp.csr_matrix((np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
    empty = sp.csr_matrix((0, 3))
    assert (active_dimensions(zeros), flops(activation_shares(zeros), activation_shares(zeros))) == (1.0, 1.0)
    assert (active_dimensions(empty), flops(activation_shares(empty), activation_shares(zeros))) == (0.0, 0.0)
    with pytest.raises(ValueError, match="queries have 3 dimensions, documents 4"):
        flops(activation_shares(zeros), np.zeros(4))
