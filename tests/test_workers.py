"""Training over two real processes: the steps of one, and what happens when a process ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from test_adapt_vectors import TEXTS
from test_finetuning import EVERYTHING, trained
from test_query_encoders import table_of
from test_query_encoders import trained as with_table
from test_unicoil import trained as unicoil
from tiny import SCRATCH, collection, encoder, interrupted_at, same, tokenizer, weights, write_collection

from vtkit import launch, processes
from vtkit.errors import VtkitError
from vtkit.launch import Launch, launched
from vtkit.recipe.sections import AdaptSection
from vtkit.search import sharded_encoding
from vtkit.search.sharded_encoding import encode_to_disk
from vtkit.search.stored_vectors import read_vectors
from vtkit.training import sparse_trainer, workers
from vtkit.training.adapt import adapt_vectors
from vtkit.training.batch_encoding import Group

ROOT = Path(__file__).resolve().parents[1]
WORK = "from vtkit.__main__ import main; main()"


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **more}


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Makes this process the first of two, and starts the other with a program."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started: list[subprocess.Popen[str]] = []

    def start(program: str = WORK) -> subprocess.Popen[str]:
        place = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        other = subprocess.Popen(
            [sys.executable, "-c", program], cwd=ROOT, env=environment(**place), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        started.append(other)
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            monkeypatch.setenv(name, place[name])
        monkeypatch.setattr(launch, "_taken", Launch(0, 2))
        return other

    yield start
    for other in started:
        with suppress(ProcessLookupError):
            other.kill()
        other.wait()
        assert other.stdout is not None
        other.stdout.close()
    processes._store.cache_clear()
    processes._told = 0


SETTINGS: dict[str, Any] = {**EVERYTHING, "steps": 12, "hard_negatives": 2}


def adapted(folder: Path) -> dict[str, list[float]]:
    section = AdaptSection(objective="crop", steps=6, batch_size=8, learning_rate=1e-3)
    return adapt_vectors(encoder(folder), ["crop"], TEXTS, section, "en", 3, folder / "checkpoints")


def assert_close(found: dict[str, list[float]], wanted: dict[str, list[float]]) -> None:
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=0.02, err_msg=name)


def test_two_processes_train_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Callable[..., subprocess.Popen[str]]
) -> None:
    alone, its_curves = trained(tmp_path / "alone", **SETTINGS)
    crops = adapted(tmp_path / "crops")
    other = begin()
    together, curves = trained(tmp_path / "together", **SETTINGS)  # with dropout
    assert_close(curves, its_curves)
    for name, tensor in weights(together).items():
        if name.endswith("key.bias"):  # which no softmax depends on: its gradient is what rounding leaves
            continue
        assert torch.linalg.vector_norm(tensor - weights(alone)[name]) < 0.04 * torch.linalg.vector_norm(tensor), name
    assert not same(weights(together), weights(alone))  # gradients are summed in another order

    assert_close(adapted(tmp_path / "both"), crops)

    monkeypatch.setattr(sparse_trainer, "Progress", interrupted_at(11))
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "again", **SETTINGS)
    monkeypatch.setattr(sparse_trainer, "Progress", sparse_trainer.Progress.__mro__[1])
    again, curves_again = trained(tmp_path / "again", **SETTINGS)
    assert curves_again == curves
    assert same(weights(again), weights(together))

    processes.dismiss()
    assert other.wait(60) == 0
    assert other.stdout is not None
    assert other.stdout.read() == ""


def test_two_processes_train_a_query_table_as_one(tmp_path: Path, begin: Callable[..., subprocess.Popen[str]]) -> None:
    """The table is the first process's own: the others encode documents only."""
    alone, its_curves = with_table(tmp_path / "alone", "learned", steps=6)
    other = begin()
    together, curves = with_table(tmp_path / "together", "learned", steps=6)
    assert_close(curves, its_curves)
    torch.testing.assert_close(table_of(together).weight, table_of(alone).weight, rtol=1e-2, atol=1e-3)
    processes.dismiss()
    assert other.wait(60) == 0


def test_two_processes_train_a_unicoil_encoder_as_one(
    tmp_path: Path, begin: Callable[..., subprocess.Popen[str]]
) -> None:
    alone, its_curves = unicoil(tmp_path / "alone", steps=6)
    other = begin()
    together, curves = unicoil(tmp_path / "together", steps=6)
    assert_close(curves, its_curves)
    for name in ("weight", "bias"):
        torch.testing.assert_close(
            getattr(together[1].linear, name), getattr(alone[1].linear, name), rtol=1e-2, atol=1e-3
        )
    processes.dismiss()
    assert other.wait(60) == 0


def test_a_process_that_is_killed_ends_the_run_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Callable[..., subprocess.Popen[str]]
) -> None:
    other = begin()

    class Killing(sparse_trainer.Progress):
        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            super().on_step_end(args, state, control, **rest)
            other.kill()

    monkeypatch.setattr(processes, "REASON_SECONDS", 0.2)
    monkeypatch.setattr(sparse_trainer, "Progress", Killing)
    with pytest.raises(VtkitError, match=r"one of the 2 processes of this launch has ended without a word"):
        trained(tmp_path)
    assert other.wait(60) == -signal.SIGKILL


FAILING = """
from vtkit import processes
from vtkit.errors import VtkitError
from vtkit.training import workers
def fails(*_):
    raise VtkitError("no room for the vectors. Make room.")
processes.REASON_SECONDS = 0.2
workers.encode_groups = fails
"""


def to_disk(folder: Path) -> sp.csr_matrix:
    """Vectors of 23 texts, encoded in shards of 4."""
    texts, model = [f"the river of stone {number}" for number in range(23)], encoder(folder / "work")
    encode_to_disk(model, texts, "document", 16, folder / "vectors", folder / "shards", made_from={}, keep=0.9)
    return read_vectors(folder / "vectors")


def test_two_processes_encode_what_one_encodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Callable[..., subprocess.Popen[str]]
) -> None:
    monkeypatch.setattr(sharded_encoding, "TEXTS_A_SHARD", 4)
    alone = to_disk(tmp_path / "alone")
    other = begin()
    together = to_disk(tmp_path / "together")
    assert abs(together - alone).max() == 0
    again = to_disk(tmp_path / "again")  # the other process is asked a second time
    assert abs(again - alone).max() == 0
    processes.dismiss()
    assert other.wait(60) == 0
    assert other.stdout is not None
    assert other.stdout.read() == ""


def test_encoding_goes_on_alone_from_the_shards_that_were_there_when_another_process_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Callable[..., subprocess.Popen[str]]
) -> None:
    monkeypatch.setattr(sharded_encoding, "TEXTS_A_SHARD", 4)
    other, write, written = begin(), sharded_encoding.write_vectors, list[Path]()

    def kill_at_the_fourth(vectors: sp.csr_matrix, folder: Path) -> None:
        write(vectors, folder)
        written.append(folder)
        if len(written) == 4:
            other.kill()
            other.wait()

    monkeypatch.setattr(sharded_encoding, "write_vectors", kill_at_the_fourth)
    with pytest.raises(VtkitError, match="has ended without a word"):
        to_disk(tmp_path)
    assert len(list((tmp_path / "shards").iterdir())) == 4
    monkeypatch.setattr(launch, "_taken", launch.alone)
    shutil.rmtree(tmp_path / "work")
    found = to_disk(tmp_path)
    assert found.shape[0] == 23
    assert len(written) == 6  # 23 texts are 6 shards, of which 2 were missing


def test_what_another_process_says_is_said_once_by_the_first(
    tmp_path: Path, begin: Callable[..., subprocess.Popen[str]]
) -> None:
    other = begin(FAILING + WORK)
    with pytest.raises(VtkitError, match=r"^no room for the vectors\. Make room\.$"):
        trained(tmp_path)
    assert other.wait(60) == 1
    assert other.stdout is not None
    assert other.stdout.read() == ""


RECIPE = (
    """
[recipe]
name = "launched"
"""
    + SCRATCH
    + """
[vocabulary]
kind = "existing"
tokenizer = "./tokens"
[finetune]
data = "./collection"
batch_size = 12
steps = 10
trainings = 2
split = "test"
"""
)


def test_a_recipe_runs_under_torchrun_and_says_everything_once(tmp_path: Path) -> None:
    tokenizer().save_pretrained(str(tmp_path / "tokens"))
    write_collection(tmp_path / "collection", collection(48, seed=4))
    recipe = tmp_path / "launched.toml"
    recipe.write_text(RECIPE, "utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "vtkit"]
    command = [*launcher, "run", str(recipe), "--runs", str(tmp_path / "runs"), "--until", "finetune"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("finetune: not made yet") == done.stderr.count("stopped after finetune, as asked") == 1
    assert done.stderr.count("training 2 of 2") == 1
    assert list((tmp_path / "runs" / "artifacts").glob("finetune-*/model/model.safetensors"))


def test_the_place_among_processes_is_taken_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "3"), ("MASTER_ADDR", "here")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(launch, "_taken", None)
    assert launched() == Launch(1, 3)
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & os.environ.keys()
    assert launched() == Launch(1, 3)
    monkeypatch.setattr(launch, "_taken", None)
    assert launched() == Launch(0, 1)


def test_groups_are_shared_out_by_their_tokens() -> None:
    groups = [Group({"input_ids": torch.zeros(1, tokens)}, 0) for tokens in (2, 9, 4, 5, 1)]
    assert workers._shares(groups, 2) == [[1, 0], [3, 2, 4]]  # 11 and 10 tokens
    assert workers._shares(groups, 1) == [[1, 3, 2, 0, 4]]
