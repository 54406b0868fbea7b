"""Exact search against brute force, its order of equal scores, and what is said about a damaged index."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from vtkit.search import exact, pruning
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


@pytest.mark.parametrize("prune", [False, True])
@given(small_matrices(), st.integers(1, 15))
def test_search_equals_brute_force_with_ties(prune: bool, matrices: tuple[np.ndarray, np.ndarray], depth: int) -> None:
    queries, documents = matrices  # whole numbers: sums are exact, and ties are many
    with pruned() if prune else nullcontext():
        index = ExactIndex.build(sp.csr_matrix(documents, dtype=np.float32))
        # there are no bounds where weights may be negative
        assert (index.frequent is None) == (not prune or bool((documents < 0).any()))
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
    assert len(index.documents) == 2
    assert untidy.nnz == 4  # the matrix handed over stays as it was


def test_a_saved_index_answers_as_the_built_one_pruned_too(tmp_path: Path) -> None:
    for documents in (300, 20_000):
        index, queries = ExactIndex.build(vectors(documents, 30, 0.2, 5)), vectors(9, 30, 0.3, 6)
        index.save(tmp_path / str(documents))
        loaded = ExactIndex.load(tmp_path / str(documents))
        assert (loaded.document_count, loaded.vocabulary) == (documents, 30)
        assert all((a == b).all() for a, b in zip(loaded.search(queries, 7), index.search(queries, 7), strict=True))
    assert pruned_queries(loaded, queries, 7) == 9


def replaced(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], object]:
    """A damage: ``change`` of the array in ``name.npy``."""
    return lambda folder: np.save(folder / f"{name}.npy", change(np.load(folder / f"{name}.npy")), allow_pickle=True)


def without_a_number(folder: Path) -> None:
    counts = json.loads((folder / "postings.json").read_text())
    (folder / "postings.json").write_text(json.dumps(counts | {"frequent": "five"}))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda folder: os.truncate(folder / "documents.npy", (folder / "documents.npy").stat().st_size - 40),
    "swap": lambda folder: shutil.copy(folder / "weights.npy", folder / "documents.npy"),
    "missing": lambda folder: (folder / "documents.npy").unlink(),
    "facts": lambda folder: (folder / "postings.json").write_text('{"documents": 50'),
    "number": replaced("documents", lambda numbers: np.where(np.arange(len(numbers)) == 3, np.int32(20_000), numbers)),
    "pickle": replaced("documents", lambda numbers: np.array([{}], dtype=object)),
    "frequent terms": replaced("frequent_terms", lambda terms: terms + np.int32(1)),
    "frequent rows": replaced("frequent_rows", lambda rows: rows[:-1]),
    "frequent steps": replaced("frequent_steps", lambda steps: steps * np.float32(np.nan)),
    "frequent narrow": replaced("frequent_rows", lambda rows: rows[:, :-1]),
    "frequent missing": lambda folder: (folder / "frequent_rows.npy").unlink(),
    "frequent count": without_a_number,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_refused(tmp_path: Path, damage: str) -> None:
    ExactIndex.build(vectors(20_000, 5, 0.5, 1)).save(tmp_path)
    ExactIndex.load(tmp_path)
    DAMAGES[damage](tmp_path)
    with pytest.raises(DataError, match="Rebuild"):
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


@contextmanager
def pruned() -> Iterator[None]:
    """Collections of any size, and any depth, are pruned."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning, "LEAST_DOCUMENTS", 0)
        patch.setattr(exact, "DOCUMENTS_A_RESULT", 0)
        yield


def test_weights_of_frequent_terms_are_rounded_up() -> None:
    """Else a document's bound could be below its score."""
    documents = np.zeros((20, 3), dtype=np.float32)
    documents[:4, 1] = [255.0, 0.5, 1.0, 1.25]
    documents[7, 2] = 1.0  # one document of twenty: not frequent
    with pruned():
        frequent = ExactIndex.build(sp.csr_matrix(documents)).frequent
    assert (frequent.terms.tolist(), frequent.steps.tolist()) == ([1], [1.0])
    assert frequent.rows[0].tolist() == [255, 1, 1, 2] + [0] * 16


def everything_scored(index: ExactIndex) -> ExactIndex:
    return replace(index, frequent=None)


def assert_the_same(index: ExactIndex, queries: sp.csr_matrix, depth: int) -> None:
    expected = everything_scored(index).search(queries, depth)
    for ours, theirs in zip(index.search(queries, depth), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@st.composite
def uneven_vectors(draw: st.DrawFn) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Weights over many orders of magnitude, terms from rare to everywhere, equal rows: what bounds stumble over."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, columns = draw(st.integers(1, 200)), draw(st.integers(1, 20))
    spread = draw(st.sampled_from([0.0, 1.0, 10.0, 44.0]))

    def some(count: int) -> np.ndarray:
        there = generator.random((count, columns)) < generator.random(columns) ** draw(st.sampled_from([0, 1, 4]))
        return (10 ** (generator.random((count, columns)) * -spread) * there).astype(np.float32)

    documents = some(rows)
    documents = documents[generator.integers(0, rows, rows)] if draw(st.booleans()) else documents
    return sp.csr_matrix(documents), sp.csr_matrix(some(5))


@given(uneven_vectors(), st.integers(1, 30))
def test_pruning_gives_what_full_scoring_gives(
    vectors_of_both: tuple[sp.csr_matrix, sp.csr_matrix], depth: int
) -> None:
    documents, queries = vectors_of_both
    with pruned():
        assert_the_same(ExactIndex.build(documents), queries, depth)


@pytest.mark.parametrize("depth", [1, 10, 33])
def test_a_large_collection_is_pruned_window_by_window(depth: int) -> None:
    documents = vectors(70_000, 60, 0.05, 1)  # three windows
    documents.data[documents.data < 0.3] = 0.25  # with ties
    columns = sp.hstack([documents, sp.csr_matrix(np.full((70_000, 1), 0.125, dtype=np.float32))]).tocsr()
    index, queries = ExactIndex.build(columns), vectors(40, 61, 0.2, 2)
    assert 0 < len(index.frequent.terms) < 61
    assert pruned_queries(index, queries, depth) > 0.9 * 40
    assert_the_same(index, queries, depth)
    assert_the_same(index, sp.csr_matrix((3, 61), dtype=np.float32), depth)


def test_what_pruning_cannot_answer_is_scored_whole() -> None:
    documents = sp.csr_matrix(np.ones((70_000, 2), dtype=np.float32))  # every score is equal
    index = ExactIndex.build(documents)
    negative = sp.csr_matrix([[2.0, -1.0], [1.0, 0.0], [-1.0, 0.5], [0.0, 1.0]], dtype=np.float32)
    assert pruned_queries(index, negative, 5) == 0
    assert found(index, negative, 5) == [[(n, 1.0) for n in range(5)]] * 2 + [[]] + [[(n, 1.0) for n in range(5)]]


def test_small_collections_and_deep_rankings_are_scored_whole() -> None:
    assert ExactIndex.build(vectors(pruning.LEAST_DOCUMENTS - 1, 5, 0.5, 1)).frequent is None
    index = ExactIndex.build(vectors(pruning.LEAST_DOCUMENTS, 5, 0.5, 1))
    assert index.frequent is not None
    assert pruned_queries(index, vectors(1, 5, 0.9, 2), 11) == 0
    assert pruned_queries(index, vectors(1, 5, 0.9, 2), 10) == 1


def pruned_queries(index: ExactIndex, queries: sp.csr_matrix, depth: int) -> int:
    """The number of queries that a search answers by pruning."""
    counts: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "search_lists", lambda *arguments: counts.append(pruning.search_lists(*arguments)))
        index.search(queries, depth)
    return sum(counts)
