"""Records of complete folders: each damaged file is noticed, and unchanged ones are not read again."""

import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
from command_line import invoke, succeeds
from hypothesis import given
from hypothesis import strategies as st
from support import flip

import vtkit
from vtkit.search.engine import open_index
from vtkit.search.segments import Manifest, generation_of
from vtkit.settings.index import IndexSection
from vtkit.system import checksums
from vtkit.system.checksums import VERIFIED, files_of, read_record, verify, verify_part, write_record
from vtkit.system.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A complete folder with files of its own, one below, one elsewhere and one that people edit."""
    whole = tmp_path / "whole"
    (whole / "model").mkdir(parents=True)
    (whole / "model" / "weights").write_bytes(bytes(range(256)))
    (whole / "model" / "README.md").write_text("card")
    (whole / "terms.json").write_text('["a", "b"]')
    (tmp_path / "elsewhere").write_text("tokenizer")
    write_record(whole / "run.json", {"length": 64}, [*files_of(whole), tmp_path / "elsewhere"])
    return whole


def test_a_whole_folder_is_believed_and_its_entries_are_returned(folder: Path) -> None:
    assert verify(folder / "run.json")["length"] == 64
    assert set(read_record(folder / "run.json")["outputs"]) == {
        "model/weights",
        "terms.json",
        str(folder.parent / "elsewhere"),
    }
    (folder / "model" / "README.md").write_text("edited by its owner")
    verify(folder / "run.json", fully=True)


@given(st.sampled_from(["model/weights", "terms.json", "../elsewhere"]), st.integers(0, 2**16), st.integers(0, 7))
def test_each_flipped_bit_is_noticed_in_its_file(folder_of_all: Path, name: str, place: int, bit: int) -> None:
    path = (folder_of_all / name).resolve()
    raw = path.read_bytes()
    flip(path, place % len(raw), bit)
    with pytest.raises(DataError, match=rf"{path.name} is damaged: its checksum does not match. Run the recipe"):
        verify(folder_of_all / "run.json")
    path.write_bytes(raw)
    verify(folder_of_all / "run.json")


@given(st.integers(0, 2**16), st.integers(0, 7))
def test_a_flipped_bit_in_a_record_is_noticed_or_changes_nothing(folder_of_all: Path, place: int, bit: int) -> None:
    record = folder_of_all / "run.json"
    raw = record.read_bytes()
    flip(record, place % len(raw), bit)
    said = ""
    try:
        same = verify(record) == json.loads(raw)  # white space
    except DataError as error:
        same, said = False, str(error)
    record.write_bytes(raw)
    assert same or "run.json is damaged" in said


@pytest.fixture(scope="module")
def folder_of_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder.__wrapped__(tmp_path_factory.mktemp("all"))  # type: ignore[attr-defined,no-any-return]


def test_all_damage_is_named_at_once(folder: Path) -> None:
    (folder / "terms.json").unlink()
    (folder / "model" / "weights").write_bytes(b"short")
    with pytest.raises(DataError) as error:
        verify(folder / "run.json")
    said = str(error.value)
    assert "terms.json is missing." in said
    assert "weights is damaged: it has 5 bytes, not 256." in said
    with pytest.raises(DataError, match=r"terms\.json is missing"):
        verify(folder / "run.json", "terms.json")
    verify(folder / "run.json", str(folder.parent / "elsewhere"))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read in full."""
    names: list[str] = []
    digest = checksums.file_digest

    def noted(path: Path) -> str:
        names.append(path.name)
        return digest(path)

    monkeypatch.setattr(checksums, "file_digest", noted)
    return names


def test_a_file_is_read_again_only_after_a_change(folder: Path, read: list[str]) -> None:
    verify(folder / "run.json")
    assert read == []  # writing the record was the first full comparison
    os.utime(folder / "terms.json", (1, 1))
    verify(folder / "run.json")
    verify(folder / "run.json")
    assert read == ["terms.json"]
    verify(folder / "run.json", fully=True)
    assert len(read) == 4


def test_a_copy_is_read_once_even_if_its_times_are_those_of_the_original(folder: Path, read: list[str]) -> None:
    copied = Path(shutil.copytree(folder, folder.parent / "copied"))
    flip(copied / "model" / "weights", 9)
    os.utime(copied / "model" / "weights", ns=((folder / "model" / "weights").stat().st_mtime_ns,) * 2)
    with pytest.raises(DataError, match="weights is damaged"):
        verify(copied / "run.json")
    flip(copied / "model" / "weights", 9)
    read.clear()
    verify(copied / "run.json")
    verify(copied / "run.json")
    assert sorted(read) == ["terms.json", "weights"]


def test_a_read_only_folder_is_read_each_time_up_to_a_size(
    folder: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / VERIFIED).unlink()
    (folder / VERIFIED / "taken").mkdir(parents=True)  # nothing can be written there, by root neither
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    verify(folder / "run.json")
    verify(folder / "run.json")
    assert len(read) == 6
    monkeypatch.setattr(checksums, "MOST_READ_AGAIN", 200)
    verify(folder / "run.json")
    assert len(read) == 6
    verify(folder / "run.json", fully=True)
    assert len(read) == 9


def test_records_of_older_versions_and_files_of_other_programs_are_taken_as_they_are(folder: Path) -> None:
    (folder / "run.json").write_text('{"length": 4}')
    assert verify(folder / "run.json") == {"length": 4}
    for other in ("[]", "{", '{"outputs": {"terms.json": {}}}'):
        (folder / "manifest.json").write_text(other)
        verify_part(folder / "terms.json")


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of few documents beside BM25, the model that it belongs to, and the vectors."""
    root = tmp_path_factory.mktemp("indexed")
    vtkit.save_encoder(tiny.encoder(root / "made"), root / "encoder")
    documents = tiny.write_collection(root / "beir", tiny.collection(40))
    vtkit.encode_texts(root / "encoder", documents, root / "vectors")
    vtkit.index_vectors(root / "vectors", root / "index", language="en", lexical="bm25")
    return root


def test_every_file_that_a_search_of_an_index_reads_is_compared(indexed: Path) -> None:
    before = found(indexed / "index")
    draw = random.Random(0)
    names = [path for place in ("index", "encoder") for path in files_of(indexed / place)]
    assert {"terms.json", "entries.npy", "index.json", "model.safetensors"} <= {p.name for p in names}
    for path in names:
        raw = path.read_bytes()
        flip(path, draw.randrange(len(raw)), draw.randrange(8))
        noticed = False
        try:
            noticed = found(indexed / "index") == before  # white space, or a file that no search reads
        except DataError as error:
            noticed = str(path.name) in str(error)
        path.write_bytes(raw)
        assert noticed, path
    assert found(indexed / "index") == before


def found(index: Path) -> list[tuple[str, float]]:
    return [(each.id, each.score) for each in vtkit.search_run(index, "maple river", top=3)[0]]


def test_check_reads_everything_and_names_damage(indexed: Path, tmp_path: Path) -> None:
    done = succeeds("check", indexed / "index")
    assert done.stdout.count("as they were written") == 2  # of the index and its segment
    whole = Path(shutil.copytree(indexed / "index", tmp_path / "index"))
    succeeds("check", whole)
    copied = generation_of(whole)
    times = (copied / "terms.json").stat()
    flip(copied / "terms.json", 3)
    os.utime(copied / "terms.json", ns=(times.st_atime_ns, times.st_mtime_ns))
    verify(whole / "index.json")  # by size and time it is the same
    refused = invoke("check", whole).exception
    assert "terms.json is damaged: its checksum does not match. Make the index again" in str(refused)
    assert "vtkit build" in str(refused)
    assert "no checksums" in str(invoke("check", indexed / "beir").exception)


def test_weights_that_are_no_numbers_are_refused_without_checksums_too(indexed: Path, tmp_path: Path) -> None:
    """As in an index of an older version."""
    whole = Path(shutil.copytree(indexed / "index", tmp_path / "index"))
    copied, record = generation_of(whole), json.loads((whole / "index.json").read_text())
    del record["outputs"], record["manifest_sha256"]
    (whole / "index.json").write_text(json.dumps(record))
    weights = np.load(copied / "postings" / "largest.npy")
    weights[3] = np.nan
    np.save(copied / "postings" / "largest.npy", weights)
    assert Manifest.load(whole).documents == 40
    verify(whole / "index.json")
    with pytest.raises(DataError, match="its files do not match each other"):
        open_index(IndexSection(), copied / "postings")
