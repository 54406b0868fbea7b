"""Exact search against brute force, its order of equal scores, and what is said about a damaged index."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from vtkit.search import exact
from vtkit.search.exact import ExactIndex
from vtkit.system.errors import CollapseError, DataError

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
def test_search_equals_brute_force_with_ties(matrices: tuple[np.ndarray, np.ndarray], depth: int) -> None:
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
        np.testing.assert_allclose(row_scores[: len(kept)], np.sort(all_scores)[::-1][: len(kept)], atol=1e-4)
        np.testing.assert_allclose(row_scores[: len(kept)], all_scores[kept], atol=1e-4)


def test_the_number_of_threads_changes_nothing() -> None:
    index, queries = ExactIndex.build(vectors(500, 100, 0.1, 3)), vectors(37, 100, 0.1, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "threads", lambda: 3)
        several = index.search(queries, 20)
        patch.setattr(exact, "threads", lambda: 1)
        one = index.search(queries, 20)
    assert all((a == b).all() for a, b in zip(several, one, strict=True))


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
    assert len(index.lists.entries) == 2
    assert untidy.nnz == 4  # the matrix handed over stays as it was


def test_a_saved_index_answers_as_the_built_one(tmp_path: Path) -> None:
    for documents in (300, 70_000):  # of one block, and of two
        index, queries = ExactIndex.build(vectors(documents, 30, 0.2, 5)), vectors(9, 30, 0.3, 6)
        index.save(tmp_path / str(documents))
        loaded = ExactIndex.load(tmp_path / str(documents))
        assert (loaded.document_count, loaded.vocabulary) == (documents, 30)
        assert all((a == b).all() for a, b in zip(loaded.search(queries, 7), index.search(queries, 7), strict=True))


def test_an_index_is_the_same_built_in_memory_in_a_folder_and_from_parts(tmp_path: Path) -> None:
    documents = vectors(140_000, 20, 0.1, 7)
    parts = [documents[:5], documents[5:5], documents[5:70_000], documents[70_000:]]
    built = [ExactIndex.build(documents), ExactIndex.build(documents, None, tmp_path), ExactIndex.build(iter(parts))]
    for index in (*built[1:], ExactIndex.load(tmp_path)):
        assert index.document_count == 140_000
        assert all((a == b).all() for a, b in zip(index.lists, built[0].lists, strict=True))
    assert (built[0].by_document() != ExactIndex.build(built[0].by_document()).by_document()).nnz == 0
    np.testing.assert_array_equal(built[0].info.document_sizes, np.diff(documents.indptr))
    np.testing.assert_array_equal(built[0].info.document_frequencies, np.bincount(documents.indices))


def replaced(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], object]:
    """A damage: ``change`` of the array in ``name.npy``."""
    return lambda folder: np.save(folder / f"{name}.npy", change(np.load(folder / f"{name}.npy")), allow_pickle=True)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda folder: os.truncate(folder / "entries.npy", (folder / "entries.npy").stat().st_size - 40),
    "swap": lambda folder: shutil.copy(folder / "largest.npy", folder / "entries.npy"),
    "missing": lambda folder: (folder / "entries.npy").unlink(),
    "facts": replaced("counts", lambda counts: counts[:1]),
    "number": replaced("entries", lambda entries: np.where(np.arange(len(entries)) == 3, np.int32(20_000), entries)),
    "pickle": replaced("entries", lambda entries: np.array([{}], dtype=object)),
    "starts": replaced("starts", lambda starts: starts + 1),
    "blocks": replaced("blocks", lambda blocks: blocks + np.int32(1)),
    "largest": replaced("largest", lambda largest: -largest),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_refused(tmp_path: Path, damage: str) -> None:
    ExactIndex.build(vectors(20_000, 5, 0.5, 1)).save(tmp_path)
    ExactIndex.load(tmp_path)
    DAMAGES[damage](tmp_path)
    with pytest.raises(DataError, match="Make the index again"):
        ExactIndex.load(tmp_path)


def test_queries_that_cannot_be_searched_are_refused() -> None:
    index = ExactIndex.build(sp.csr_matrix([[1.0, 2.0]]))
    with pytest.raises(CollapseError, match="1 of 2 query weights"):
        index.search(sp.csr_matrix([[1.0, np.nan]]), 1)
    with pytest.raises(CollapseError, match="1 of 2 document weights"):
        ExactIndex.build(sp.csr_matrix([[np.inf, 1.0]]))
    with pytest.raises(ValueError, match="3 dimensions, the index has 2"):
        index.search(sp.csr_matrix([[1.0, 0.0, 1.0]]), 1)
    with pytest.raises(ValueError, match="depth"):
        index.search(sp.csr_matrix([[1.0, 0.0]]), 0)


def test_results_hold_where_the_sampled_scores_mislead() -> None:
    scores = np.tile(np.array([[1.0], [2.0], [2.0], [3.0]], dtype=np.float32), (1000, 1))
    scores[::32] = 9.0  # the search looks at every 32nd score first; here they are the largest
    scores[1::32] = 0.0
    index = ExactIndex.build(sp.csr_matrix(scores))
    for depth in (1, 100, 2000, 4000):
        assert found(index, sp.csr_matrix([[2.0]]), depth) == brute_force(np.array([[2.0]]), scores, depth)


@given(st.lists(st.floats(-1e6, 1e6, width=32).filter(bool), min_size=1, max_size=20))
def test_fifteen_bits_of_the_largest_weight_of_a_list_are_kept(weights: list[float]) -> None:
    column = np.array(weights, dtype=np.float32)[:, None]
    kept = ExactIndex.build(sp.csr_matrix(column)).by_document().toarray()
    assert kept.all()
    assert np.abs(kept - column).max() <= max(np.abs(column).max() * 2.0**-14, 1e-30)
    again = ExactIndex.build(sp.csr_matrix(kept)).by_document().toarray()
    np.testing.assert_array_equal(again, kept)


def assert_the_same(index: ExactIndex, queries: sp.csr_matrix, depth: int) -> None:
    """The results of reading every list are those of leaving some out, be it as much as the k-th score."""
    with pytest.MonkeyPatch.context() as patch:
        results = []
        for share in (0.0, exact.LEFT_OUT, 1.0):
            patch.setattr(exact, "LEFT_OUT", share)
            results.append(index.search(queries, depth))
    for others in results[1:]:
        for ours, theirs in zip(others, results[0], strict=True):
            np.testing.assert_array_equal(ours, theirs)


@st.composite
def uneven_vectors(draw: st.DrawFn) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Weights over many orders of magnitude, terms from rare to everywhere, equal rows, weights below zero: what bounds
    stumble over. Documents are spread over three blocks."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, columns = draw(st.integers(1, 200)), draw(st.integers(1, 20))
    spread, negative = draw(st.sampled_from([0.0, 1.0, 10.0, 44.0])), draw(st.sampled_from([0.0, 0.0, 0.3]))

    def some(count: int) -> np.ndarray:
        there = generator.random((count, columns)) < generator.random(columns) ** draw(st.sampled_from([0, 1, 4]))
        signs = np.where(generator.random((count, columns)) < negative, -1, 1)
        return (10 ** (generator.random((count, columns)) * -spread) * there * signs).astype(np.float32)

    documents = some(rows)
    documents = documents[generator.integers(0, rows, rows)] if draw(st.booleans()) else documents
    places = sp.csr_matrix(
        (np.ones(rows, np.float32), (np.sort(generator.choice(150_000, rows, replace=False)), np.arange(rows))),
        (150_000, rows),
    )
    return (places @ sp.csr_matrix(documents)).tocsr(), sp.csr_matrix(some(5))


@given(uneven_vectors(), st.integers(1, 30))
def test_leaving_lists_out_gives_what_full_scoring_gives(
    vectors_of_both: tuple[sp.csr_matrix, sp.csr_matrix], depth: int
) -> None:
    documents, queries = vectors_of_both
    assert_the_same(ExactIndex.build(documents), queries, depth)


@pytest.mark.parametrize("depth", [1, 10, 33, 2000])
def test_a_large_collection_is_searched_block_by_block(depth: int) -> None:
    documents = vectors(140_000, 60, 0.05, 1)  # three blocks
    documents.data[documents.data < 0.3] = 0.25  # with ties
    columns = sp.hstack([documents, sp.csr_matrix(np.full((140_000, 1), 0.125, dtype=np.float32))]).tocsr()
    index, queries = ExactIndex.build(columns), vectors(40, 61, 0.2, 2)
    assert_the_same(index, queries, depth)
    assert_the_same(index, sp.csr_matrix((3, 61), dtype=np.float32), depth)
    dense = (queries @ index.by_document().T).toarray()
    for row, scores in enumerate(index.search(queries, depth)[1]):
        np.testing.assert_allclose(scores, np.sort(dense[row])[::-1][:depth], atol=1e-5)


def test_filters_leave_the_best_of_what_passes() -> None:
    index, queries = ExactIndex.build(vectors(140_000, 60, 0.05, 1)), vectors(20, 60, 0.2, 2)
    passing = np.random.default_rng(3).random(140_000) < 0.0005
    ids, scores = index.search(queries, 50, passing)
    dense = (queries @ index.by_document()[passing].T).toarray()
    assert passing[ids[ids >= 0]].all()
    for row, of_row in enumerate(scores):
        expected = np.sort(dense[row][dense[row] > 0])[::-1][:50]
        np.testing.assert_allclose(of_row[: len(expected)], expected, atol=1e-5)
        assert not of_row[len(expected) :].any()


def test_equal_scores_and_weights_below_zero_are_ranked_too() -> None:
    index = ExactIndex.build(sp.csr_matrix(np.ones((140_000, 2), dtype=np.float32)))
    queries = sp.csr_matrix([[2.0, -1.0], [1.0, 0.0], [-1.0, 0.5], [0.0, 1.0]], dtype=np.float32)
    assert found(index, queries, 5) == [[(n, 1.0) for n in range(5)]] * 2 + [[]] + [[(n, 1.0) for n in range(5)]]
    assert_the_same(index, queries, 5)
