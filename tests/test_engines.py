"""Every search engine behind the one interface: its results by their definition, what it explains, what it counts."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from test_import_floors import MODULES, imports_in, module_name

from vtkit.measures.cost import activation_shares, active_dimensions
from vtkit.measures.sparsity import DocumentFrequencies, Histogram
from vtkit.recipe.sections import Engine
from vtkit.search.engine import Index, build_index, open_index

ENGINES: tuple[Engine, ...] = get_args(Engine)
each_engine = pytest.mark.parametrize("engine", ENGINES)


def vectors(rows: int, columns: int, seed: int) -> sp.csr_matrix:
    """Small whole weights, so that sums are exact in any order and many scores are equal."""
    generator = np.random.default_rng(seed)
    return sp.csr_matrix(
        generator.integers(1, 5, (rows, columns)) * (generator.random((rows, columns)) < 0.3), dtype="f4"
    )


@pytest.fixture(params=["as built", "opened again"])
def index(request: pytest.FixtureRequest, tmp_path: Path, engine: Engine) -> Index:
    built = build_index(engine, vectors(40, 25, 1), tmp_path / "index")
    return built if request.param == "as built" else open_index(engine, tmp_path / "index")


@each_engine
def test_results_are_the_largest_dot_products(index: Index) -> None:
    queries = vectors(6, 25, 2)
    ids, scores = index.search(queries, 10)
    for query, row in enumerate((queries @ vectors(40, 25, 1).T).toarray().tolist()):
        best = sorted((-score, number) for number, score in enumerate(row) if score > 0)[:10]
        found = [(-score, number) for number, score in zip(ids[query], scores[query], strict=True) if number >= 0]
        assert found == best
    assert (ids >= 0).any()
    with pytest.raises(ValueError, match="dimensions"):
        index.search(vectors(1, 24, 2), 10)


@each_engine
def test_contributions_are_the_products_that_make_the_score(index: Index) -> None:
    documents, queries = vectors(40, 25, 1).toarray(), vectors(6, 25, 2)
    ids, scores = index.search(queries, 40)
    for row in range(6):
        query = queries[row].toarray()[0]
        for number, score in zip(ids[row], scores[row], strict=True):
            if number >= 0:
                found = index.explain(queries[row], int(number))
                assert found.products.sum() == score
                assert set(found.dimensions.tolist()) == set(np.flatnonzero(query * documents[number]).tolist())
                assert found.query_weights.tolist() == query[found.dimensions].tolist()
                assert found.document_weights.tolist() == documents[number][found.dimensions].tolist()


@each_engine
def test_what_a_query_and_a_document_do_not_share_explains_nothing(tmp_path: Path, engine: Engine) -> None:
    index = build_index(engine, sp.csr_matrix([[1.0, 0, 2], [0, 3, 0]], dtype=np.float32), tmp_path)
    query = sp.csr_matrix([[2.0, 0, 0.5]], dtype=np.float32)
    assert index.explain(query, 0).products.tolist() == [2.0, 1.0]
    assert index.explain(query, 1).products.tolist() == []
    for bad, number in ((query, 2), (query, -1), (sp.csr_matrix((1, 4)), 0), (sp.csr_matrix((2, 3)), 0)):
        with pytest.raises(ValueError, match=r"no document|dimensions|one query"):
            index.explain(bad, number)


@each_engine
@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 99))
def test_info_counts_what_was_indexed(
    tmp_path_factory: pytest.TempPathFactory, engine: Engine, rows: int, columns: int, seed: int
) -> None:
    documents = vectors(rows, columns, seed)
    info = build_index(engine, documents, tmp_path_factory.mktemp("index")).info
    active = documents.toarray() != 0
    assert (info.documents, info.vocabulary, info.postings) == (rows, columns, active.sum())
    assert info.document_frequencies.tolist() == active.sum(axis=0).tolist()
    assert info.document_sizes.tolist() == active.sum(axis=1).tolist()
    assert info.mean_size == active_dimensions(documents)
    assert info.activation_shares.tolist() == activation_shares(documents).tolist()
    assert info.dead_dimensions == (~active.any(axis=0)).mean()
    assert sum(info.histogram(4).counts) == rows


@each_engine
def test_info_by_eye(tmp_path: Path, engine: Engine) -> None:
    documents = sp.csr_matrix([[1, 1, 0, 0], [1, 0, 2, 0], [1, 1, 1, 0], [1, 0, 0, 0]], dtype=np.float32)
    info = build_index(engine, documents, tmp_path).info
    assert info.frequencies() == DocumentFrequencies(largest=1.0, median=0.5)
    assert (info.mean_size, info.dead_dimensions) == (2.0, 0.25)
    assert info.histogram(2) == Histogram(edges=(1.0, 2.0, 3.0), counts=(1, 3))
    empty = build_index(engine, sp.csr_matrix((2, 3), dtype=np.float32), tmp_path / "empty").info
    assert (empty.frequencies(), empty.mean_size) == (DocumentFrequencies(0.0, 0.0), 0.0)


def test_engines_are_known_to_the_search_folder_only() -> None:
    for path in MODULES:
        module = module_name(path)
        if module and not module.startswith("search."):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = set(imports_in(tree, module, when_imported=False))
            assert not any(name.startswith("vtkit.search.exact") for name in names), module
