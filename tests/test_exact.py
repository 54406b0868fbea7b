"""Exact search against brute force, its order of equal scores, and what is said about a damaged index."""

from __future__ import annotations

from pathlib import Path

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from vtkit.errors import CollapseError, DataError
from vtkit.search.exact import ExactIndex

Expected = list[list[tuple[int, float]]]


def brute_force(queries: np.ndarray, documents: np.ndarray, depth: int) -> Expected:
    """The definition: all dot products, those above zero, by score down and document number up."""
    scores = queries.astype(np.float64) @ documents.astype(np.float64).T
    return [sorted(((d, s) for d, s in enumerate(row) if s > 0), key=lambda x: (-x[1], x[0]))[:depth] for row in scores]


def found(index: ExactIndex, queries: sp.csr_matrix, depth: int) -> Expected:
    ids, scores = index.search(queries, depth)
    assert (ids.shape, scores.shape) == ((queries.shape[0], depth),) * 2
    assert (ids.dtype.name, scores.dtype.name) == ("int32", "float32")
    for row, row_scores in zip(ids, scores, strict=True):
        results = np.count_nonzero(row >= 0)
        assert set(row[results:].tolist()) <= {-1}
        assert set(row_scores[results:].tolist()) <= {0}
    rows = zip(ids.tolist(), scores.tolist(), strict=True)
    return [[(d, s) for d, s in zip(row, row_scores, strict=True) if d >= 0] for row, row_scores in rows]


def vectors(rows: int, columns: int, density: float, seed: int) -> sp.csr_matrix:
    return sp.random(rows, columns, density, format="csr", dtype=np.float32, random_state=seed)


@st.composite
def small_matrices(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    columns = draw(st.integers(1, 6))
    rows = st.lists(st.lists(st.integers(-1, 3), min_size=columns, max_size=columns), max_size=12)
    documents, queries = draw(rows), draw(rows)
    return np.array(queries).reshape(-1, columns), np.array(documents).reshape(-1, columns)


@given(small_matrices(), st.integers(1, 15))
def test_search_equals_brute_force_ties_included(matrices: tuple[np.ndarray, np.ndarray], depth: int) -> None:
    queries, documents = matrices  # whole numbers: sums are exact, and ties are many
    index = ExactIndex.build(sp.csr_matrix(documents, dtype=np.float32))
    assert found(index, sp.csr_matrix(queries, dtype=np.float32), depth) == brute_force(queries, documents, depth)


@pytest.mark.parametrize("depth", [1, 10, 1000, 5000])
def test_search_agrees_with_scipy_on_larger_random_vectors(depth: int) -> None:
    documents, queries = vectors(3000, 500, 0.05, 1), vectors(20, 500, 0.05, 2)
    dense = (queries @ documents.T).toarray()
    ids, scores = ExactIndex.build(documents).search(queries, depth)
    for row, row_scores, all_scores in zip(ids, scores, dense, strict=True):
        kept = row[row >= 0]
        assert len(kept) == len(set(kept.tolist())) == min(depth, np.count_nonzero(all_scores > 0))
        np.testing.assert_allclose(row_scores[: len(kept)], np.sort(all_scores)[::-1][: len(kept)], rtol=1e-5)
        np.testing.assert_allclose(row_scores[: len(kept)], all_scores[kept], rtol=1e-5)


def test_the_number_of_threads_changes_nothing() -> None:
    index, queries = ExactIndex.build(vectors(500, 100, 0.1, 3)), vectors(37, 100, 0.1, 4)
    many = index.search(queries, 20)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        one = index.search(queries, 20)
    finally:
        numba.set_num_threads(threads)
    assert all((a == b).all() for a, b in zip(many, one, strict=True))


def test_empty_queries_documents_and_collections_find_nothing() -> None:
    index = ExactIndex.build(sp.csr_matrix(np.array([[0, 0], [1, 0]], dtype=np.float32)))
    assert found(index, sp.csr_matrix(np.array([[0, 0], [0, 1], [2, 0]], dtype=np.float32)), 3) == [[], [], [(1, 2.0)]]
    assert found(ExactIndex.build(sp.csr_matrix((0, 2), dtype=np.float32)), sp.csr_matrix([[1.0, 1.0]]), 2) == [[]]
    assert found(index, sp.csr_matrix((0, 2), dtype=np.float32), 2) == []


def test_unsorted_doubled_and_explicit_zero_entries_mean_what_they_add_up_to() -> None:
    untidy = sp.csr_matrix(
        (np.array([1, 0, 2, 3], dtype=np.float64), np.array([2, 1, 0, 2]), np.array([0, 4, 4])), shape=(2, 3)
    )
    index = ExactIndex.build(untidy)
    assert found(index, sp.csr_matrix([[0.0, 5.0, 1.0]]), 2) == [[(0, 4.0)]]
    assert len(index.documents) == 2
    assert untidy.nnz == 4  # the matrix handed over stays as it was


def test_a_saved_index_answers_as_the_built_one(tmp_path: Path) -> None:
    index, queries = ExactIndex.build(vectors(300, 80, 0.1, 5)), vectors(9, 80, 0.1, 6)
    index.save(tmp_path / "index")
    loaded = ExactIndex.load(tmp_path / "index")
    assert (loaded.document_count, loaded.vocabulary) == (300, 80)
    assert all((a == b).all() for a, b in zip(loaded.search(queries, 7), index.search(queries, 7), strict=True))


@pytest.mark.parametrize("damage", ["cut", "swap", "missing", "facts", "number", "pickle"])
def test_a_damaged_index_is_refused(tmp_path: Path, damage: str) -> None:
    ExactIndex.build(vectors(50, 20, 0.2, 7)).save(tmp_path)
    documents = tmp_path / "documents.npy"
    match damage:
        case "cut":
            documents.write_bytes(documents.read_bytes()[:-40])
        case "swap":
            documents.write_bytes((tmp_path / "weights.npy").read_bytes())
        case "missing":
            documents.unlink()
        case "facts":
            (tmp_path / "postings.json").write_text('{"documents": 50')
        case "number":
            numbers = np.load(documents)
            numbers[3] = 50
            np.save(documents, numbers)
        case "pickle":
            np.save(documents, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="Build it again"):
        ExactIndex.load(tmp_path)


def test_weights_that_are_not_numbers_stop_the_search() -> None:
    index = ExactIndex.build(sp.csr_matrix([[1.0, 2.0]]))
    with pytest.raises(CollapseError, match="1 of 2 query weights are infinite"):
        index.search(sp.csr_matrix([[1.0, np.nan]]), 1)
    with pytest.raises(CollapseError, match="1 of 2 document weights"):
        ExactIndex.build(sp.csr_matrix([[np.inf, 1.0]]))


def test_queries_of_another_vocabulary_and_no_depth_are_refused() -> None:
    index = ExactIndex.build(sp.csr_matrix([[1.0, 2.0]]))
    with pytest.raises(ValueError, match="queries have 3 dimensions, the index has 2"):
        index.search(sp.csr_matrix([[1.0, 0.0, 1.0]]), 1)
    with pytest.raises(ValueError, match="depth must be at least 1"):
        index.search(sp.csr_matrix([[1.0, 0.0]]), 0)


def test_results_hold_where_the_sampled_scores_mislead() -> None:
    scores = np.tile(np.array([[1.0], [2.0], [2.0], [3.0]], dtype=np.float32), (1000, 1))
    scores[::32] = 9.0  # the search looks at every 32nd score first; here they are the largest
    scores[1::32] = 0.0
    index = ExactIndex.build(sp.csr_matrix(scores))
    for depth in (1, 100, 2000, 4000):
        assert found(index, sp.csr_matrix([[2.0]]), depth) == brute_force(np.array([[2.0]]), scores, depth)
