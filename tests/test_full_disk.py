"""A disk that fills up, at every stage: one message, nothing lost, and the same command ends in the same numbers."""

import errno
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from tiny import TOKENS, add_training_queries, collection, model, shuffled, texts, tokenizer, write_collection

from vtkit.cli import main
from vtkit.pipeline.run import run
from vtkit.system.checksums import VERIFIED
from vtkit.system.errors import MachineError, VtkitError, machine_errors, machine_failure
from vtkit.system.outputs import write_atomically


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe with every kind of stage, over a tiny encoder and collection."""
    folder = tmp_path_factory.mktemp("recipe")
    model().save_pretrained(folder / "source")
    tokenizer().save_pretrained(str(folder / "source"))
    tokenizer(shuffled(3)).save_pretrained(str(folder / "target"))
    judged = collection(40)
    add_training_queries(write_collection(folder / "set", judged), judged)
    (folder / "corpus.txt").write_text("\n".join(texts(80)))
    (folder / "tiny.toml").write_text(RECIPE)
    return folder / "tiny.toml"


RECIPE = """
[recipe]
name = "tiny"
language = "en"
[source]
model = "source"
[vocabulary]
kind = "existing"
tokenizer = "target"
[transfer]
method = "mean"
bias.method = "mixture"
[adapt]
corpus = ["corpus.txt"]
steps = 4
batch_size = 4
max_length = 16
checkpoint_every = 2
[finetune]
data = "set"
steps = 4
batch_size = 4
hard_negatives = 0
document_length = 16
checkpoint_every = 2
[index]
document_length = 16
[evaluate]
sets = ["set"]
models = ["finetune"]
"""


Numbers = tuple[object, dict[str, bytes]]


def numbers(runs: Path) -> Numbers:
    report = json.loads((runs / "tiny" / "report.json").read_text("utf-8"))
    model_files = {path.name: path.read_bytes() for path in (runs / "tiny" / "model").glob("*.safetensors")}
    return report["results"], model_files


@pytest.fixture(scope="module")
def undisturbed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Numbers:
    runs = tmp_path_factory.mktemp("undisturbed")
    run(recipe, runs=runs, threads=1)
    return numbers(runs)


def messages(recipe: Path, runs: Path, limits: Iterable[AbstractContextManager[None]]) -> list[str]:
    """What runs say that stop at different stages, each within one of ``limits``, before one without ends well."""
    stopped: dict[int, str] = {}
    for limit in limits:
        with limit:
            try:
                run(recipe, runs=runs, threads=1)
            except VtkitError as error:
                stopped[len(list((runs / "artifacts").glob("*-*/manifest.json")))] = str(error)
    assert len(stopped) >= 3
    run(recipe, runs=runs, threads=1)
    return list(stopped.values())


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may grow beyond ``size`` bytes (Python ignores the signal, so writing fails with an error)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_files_that_may_not_grow_stop_each_stage_and_it_goes_on(
    recipe: Path, undisturbed: Numbers, tmp_path: Path
) -> None:
    for message in messages(recipe, tmp_path, map(largest_file, (200, 2_000, 6_000, 12_000, 30_000, 60_000, 120_000))):
        assert "file too large" in message or "no space left" in message
        assert "run the same command again" in message
    assert numbers(tmp_path) == undisturbed
    hidden = {path.name for path in tmp_path.rglob(".*") if path.is_file() and path.suffix != ".lock"}
    assert hidden <= {".lock", VERIFIED}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here (it needs root); the test above limits files instead")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def leaving(kilobytes: int, disk: Path) -> Iterator[None]:
    """So much room on ``disk``, of 4 MB."""
    used = sum(path.stat().st_blocks * 512 for path in disk.rglob("*"))
    (disk / "ballast").write_bytes(bytes(max(0, 4 * 2**20 - used - kilobytes * 1024)))
    yield
    (disk / "ballast").unlink()


def test_a_disk_that_fills_up_stops_each_stage_and_it_goes_on(
    recipe: Path, undisturbed: Numbers, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the run begins with room enough, and others use it up
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=10**9, used=0, free=10**9))
    rooms = (leaving(room, small_disk) for room in (10, 60, 140, 240, 400, 600, 800))
    for message in messages(recipe, small_disk / "runs", rooms):
        assert "no space left" in message or "cannot write" in message
    assert numbers(small_disk / "runs") == undisturbed


@pytest.mark.parametrize(("out", "words"), [("moved", "file too large"), ("a-file/moved", "a-file.*not a directory")])
def test_a_command_that_cannot_write_says_so_and_leaves_nothing(
    out: str, words: str, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "a-file").write_text("")
    models = [str(recipe.parent / name) for name in ("source", "target")]
    monkeypatch.setattr(sys, "argv", ["vtkit", "transfer", *models, "-m", "mean", "--out", str(tmp_path / out)])
    with largest_file(20_000), pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    assert re.search(words, capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir()] == ["a-file"]


def test_writing_atomically_without_room_leaves_what_was_there(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", "old")
    with largest_file(10), pytest.raises(OSError, match="too large"):
        write_atomically(tmp_path / "a", "new" * 100)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def _numpy(path: Path) -> None:
    with path.open("wb") as file:  # given a path, it would append a suffix
        np.save(file, np.zeros(100_000))


WRITERS: dict[str, Callable[[Path], object]] = {
    "torch": lambda path: torch.save({"a": torch.zeros(100_000)}, path),
    "safetensors": lambda path: save_file({"a": torch.zeros(100_000)}, path),
    "numpy": _numpy,
    "parquet": lambda path: pq.write_table(pa.table({"a": [os.urandom(100) for _ in range(2000)]}), path),
    "tokenizer": lambda path: tokenizer(TOKENS).backend_tokenizer.save(str(path)),
    "text": lambda path: path.write_text("line\n" * 20_000),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_library_that_writes_is_understood(writer: str, tmp_path: Path) -> None:
    asked = pytest.raises(MachineError, match=r"run the same command again\. Kept\.")
    with largest_file(1000), asked as caught, machine_errors(tmp_path, " Kept."):
        WRITERS[writer](tmp_path / "file")
    assert str(tmp_path) in str(caught.value)
    (tmp_path / "full").symlink_to("/dev/full")
    if writer != "safetensors" and Path("/dev/full").exists():  # it replaces the link
        with pytest.raises(MachineError, match="no space left"), machine_errors(tmp_path):
            WRITERS[writer](tmp_path / "full")


def test_other_refusals_of_the_machine_name_the_place_and_defects_are_none() -> None:
    for number, words in {
        errno.EACCES: "permission denied",
        errno.EROFS: "read-only",
        errno.ENAMETOOLONG: "too long",
        errno.ENOTDIR: "not a directory",
        errno.EDQUOT: "quota",
        errno.EMFILE: "too many open files",
        errno.EIO: "input/output error",
    }.items():
        error = OSError(number, os.strerror(number), "/some/place")
        wrapped = ValueError("by a library")
        wrapped.__cause__ = error
        said = str(machine_failure(error))
        assert said.startswith("/some/place: ")
        assert words in said
        assert str(machine_failure(wrapped)) == said
    for defect in (KeyError("a"), ValueError("b"), FileNotFoundError(2, "x"), RuntimeError("shapes do not fit")):
        assert machine_failure(defect) is None


def test_a_compiled_module_that_loses_its_error_has_too_little_memory() -> None:
    for text in ("error return without exception set", "<function f> returned NULL without setting an exception"):
        assert "too little memory" in str(machine_failure(SystemError(text)))
    assert machine_failure(SystemError("bad argument to internal function")) is None


@pytest.mark.parametrize("place", ["a-file", "a-file/deeper", "x" * 300])
def test_a_runs_folder_that_cannot_be_is_a_message(place: str, recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("")
    with pytest.raises(VtkitError, match=r"cannot write to .*Name another folder with --runs"):
        run(recipe, runs=tmp_path / place, threads=1)
