"""Encoding to disk, shard by shard: the same vectors as at once, continued after a kill, and what pruning removes."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder
from tiny import encoder as tiny_encoder

from vtkit.data import shards
from vtkit.data.shards import Shard, write_arrays
from vtkit.encoder.documents import Removed, pruned
from vtkit.encoder.sides import encode_side
from vtkit.search import sharded_encoding
from vtkit.search.sharded_encoding import EncodeTexts, encode_to_disk, join_vectors
from vtkit.search.stored_vectors import read_vectors, write_vectors
from vtkit.system import console
from vtkit.system.errors import DataError

TEXTS = [f"the {noun} of {number} water" for number in range(4) for noun in ("iron", "gold", "")]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> SparseEncoder:
    return tiny_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "ITEMS_A_SHARD", 5)


def to_disk(
    encoder: SparseEncoder, folder: Path, texts: list[str] = TEXTS, top: int | None = None
) -> tuple[list[Shard], Removed]:
    work = EncodeTexts(encoder, side="document", max_length=16, top_dimensions=top)
    return encode_to_disk(work, texts, folder / "vectors", folder / "shards", made_from={})


def same(ours: sp.csr_matrix, theirs: sp.csr_matrix) -> bool:
    return ours.shape == theirs.shape and bool(abs(ours - theirs).max() < 1e-5)


def test_shards_hold_what_encoding_at_once_gives(encoder: SparseEncoder, tmp_path: Path) -> None:
    done, removed = to_disk(encoder, tmp_path)
    vectors = read_vectors(tmp_path / "vectors")
    assert same(vectors, encode_side(encoder, TEXTS, "document", 16))
    assert (sum(shard.items for shard in done), removed.left) == (12, vectors.nnz)
    assert not any(shard.taken_over for shard in done)
    assert not (tmp_path / "shards").exists()


def test_progress_counts_all_texts_and_not_those_of_a_shard(
    encoder: SparseEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "QUIET_SECONDS_BETWEEN_LINES", 0)
    with pytest.MonkeyPatch.context() as patched:
        killed(encoder, tmp_path, patched, after=1)
    capsys.readouterr()
    to_disk(encoder, tmp_path)
    shown = [line.split()[1].rstrip(",") for line in capsys.readouterr().err.splitlines()]
    assert shown[0] == "5/12"  # taken over
    assert shown[-1] == "12/12"
    assert len(shown) > 2
    assert all(each.endswith("/12") for each in shown)


def test_no_text_at_all_is_a_matrix_of_no_rows(encoder: SparseEncoder, tmp_path: Path) -> None:
    assert to_disk(encoder, tmp_path, [])[0] == []
    assert read_vectors(tmp_path / "vectors").shape == (0, encoder[0].auto_model.config.vocab_size)


def killed(encoder: SparseEncoder, folder: Path, monkeypatch: pytest.MonkeyPatch, after: int = 2) -> None:
    """Encode until ``after`` shards are there."""
    asked = 0

    def until(*arguments: object, **options: object) -> sp.csr_matrix:
        nonlocal asked
        asked += 1
        if asked > after:
            raise KeyboardInterrupt
        return encode_side(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(sharded_encoding, "encode_side", until)
        with pytest.raises(KeyboardInterrupt):
            to_disk(encoder, folder)
    assert not (folder / "vectors").exists()


def test_a_killed_run_goes_on_with_the_next_shard(
    encoder: SparseEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(encoder, tmp_path, monkeypatch)
    done, _ = to_disk(encoder, tmp_path)
    assert sum(shard.taken_over for shard in done) == 2
    assert same(read_vectors(tmp_path / "vectors"), encode_side(encoder, TEXTS, "document", 16))


@pytest.mark.parametrize("change", ["truncated", "record", "texts", "settings"])
def test_a_shard_that_does_not_fit_is_encoded_again(
    encoder: SparseEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    killed(encoder, tmp_path, monkeypatch)
    texts, top = TEXTS, None
    data = tmp_path / "shards" / "000000" / "data.npy"
    match change:
        case "truncated":
            data.write_bytes(data.read_bytes()[:-4])
        case "record":
            (tmp_path / "shards" / "000000" / "shard.json").write_text(json.dumps(["no record"]))
        case "texts":
            texts = ["another text", *TEXTS[1:]]
        case "settings":
            top = 3
    done, _ = to_disk(encoder, tmp_path, texts, top)
    assert sum(shard.taken_over for shard in done) == (0 if change == "settings" else 1)
    expected, _ = pruned(encode_side(encoder, texts, "document", 16), top)
    assert same(read_vectors(tmp_path / "vectors"), expected)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 99))
def test_joined_parts_are_the_parts_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, rows: list[int], seed: int
) -> None:
    parts = [sp.random(count, 6, 0.4, "csr", dtype=np.float32, random_state=seed + count) for count in rows]
    folder = tmp_path_factory.mktemp("parts")
    for number, part in enumerate(parts):
        lengths, indices = np.diff(part.indptr), part.indices.astype(np.int32)
        write_arrays(folder / str(number), {"lengths": lengths, "indices": indices, "data": part.data})
    join_vectors([Shard(folder / str(number), 1, False) for number in range(len(parts))], 6, folder / "all")
    found = read_vectors(folder / "all")
    assert found.shape == (sum(rows), 6)
    assert (found != sp.vstack(parts)).nnz == 0


@given(st.integers(1, 8), st.integers(0, 99), st.none() | st.integers(1, 6))
def test_what_is_kept_are_the_largest(rows: int, seed: int, top: int | None) -> None:
    vectors = sp.random(rows, 9, 0.6, "csr", dtype=np.float32, random_state=seed)
    vectors.eliminate_zeros()
    before = vectors.toarray()
    kept, removed = pruned(vectors, top)
    after = kept.toarray()
    assert (vectors.toarray() == before).all()
    for old, new in zip(before, after, strict=True):
        assert set(new[new > 0].tolist()) <= set(old.tolist())
        assert np.count_nonzero(new) == min(np.count_nonzero(old), top or 9)
        assert new[new > 0].min(initial=9) >= old[(old > 0) & (new == 0)].max(initial=0)
    assert removed.weights_removed == np.count_nonzero(before) - np.count_nonzero(after)
    assert removed.mass_removed == pytest.approx(before.sum() - after.sum(), abs=1e-4)


def test_pruning_by_eye() -> None:
    vectors = sp.csr_matrix(np.array([[4, 3, 2, 1], [0, 5, 0, 5]], dtype=np.float32))
    kept, removed = pruned(vectors, 2)
    assert kept.toarray().tolist() == [[4, 3, 0, 0], [0, 5, 0, 5]]
    assert (removed, removed.share_of_weights, removed.share_of_mass) == (Removed(6, 2, 20.0, 3.0), 2 / 6, 0.15)
    assert pruned(vectors, 1)[0].toarray().tolist() == [[4, 0, 0, 0], [0, 5, 0, 0]]
    assert pruned(vectors)[1] == Removed(6, 0, 20.0, 0.0)


# Sparse vectors on disk: they come back as they were, and damage is found before anything reads outside of them.


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
