"""Sparse vectors on disk: they come back as they were, and damage is found before anything reads outside of them."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from vtkit.search.stored_vectors import read_vectors, write_vectors
from vtkit.system.errors import DataError


@given(st.integers(0, 12), st.integers(1, 9), st.integers(0, 99))
def test_vectors_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, rows: int, columns: int, seed: int
) -> None:
    vectors = sp.random(rows, columns, 0.3, "csr", dtype=np.float32, random_state=seed)
    folder = tmp_path_factory.mktemp("stored") / "vectors"
    write_vectors(vectors, folder)
    found = read_vectors(folder)
    assert (found.shape, found.dtype) == (vectors.shape, np.float32)
    assert (found != vectors).nnz == 0


DAMAGE = {
    "a file is missing": lambda folder: (folder / "data.npy").unlink(),
    "the width is missing": lambda folder: (folder / "width.npy").unlink(),
    "cut short": lambda folder: (folder / "indices.npy").write_bytes((folder / "indices.npy").read_bytes()[:-3]),
    "no array": lambda folder: (folder / "indptr.npy").write_bytes(b"nonsense"),
    "another type": lambda folder: np.save(folder / "data.npy", np.ones(3)),
    "a dimension outside": lambda folder: np.save(folder / "indices.npy", np.array([0, 9, 1], dtype=np.int32)),
    "rows out of order": lambda folder: np.save(folder / "indptr.npy", np.array([0, 3, 2, 3])),
    "rows beyond the end": lambda folder: np.save(folder / "indptr.npy", np.array([0, 1, 2, 4])),
    "nothing at all": lambda folder: np.save(folder / "indptr.npy", np.array([], dtype=np.int64)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named_with_what_to_do(tmp_path: Path, damage: str) -> None:
    write_vectors(sp.csr_matrix(np.eye(3, 4, dtype=np.float32)), tmp_path / "vectors")
    DAMAGE[damage](tmp_path / "vectors")
    with pytest.raises(DataError, match=r"(missing|damaged).*vtkit run RECIPE"):
        read_vectors(tmp_path / "vectors")
