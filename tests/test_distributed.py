"""Training by two real processes, which torchrun starts: the weights of one, and a recipe from end to end."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import socket
from typing import Any

import command_line
import numpy as np
import pytest
import torch
from joint_training import TRAININGS, start, trained
from safetensors import safe_open
from sentence_transformers import SparseEncoder
from tiny import SCRATCH, collection, resumed, texts, tokenizer, write_collection

from vtkit.settings.expand_documents import ExpandDocumentsSection
from vtkit.system import distributed
from vtkit.system.errors import DataError
from vtkit.training import mlm, sparse_trainer
from vtkit.training.document_expansion import tilde
from vtkit.training.resuming import shares

ROOT = Path(__file__).resolve().parents[1]


ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def launch(*command: str) -> subprocess.CompletedProcess[str]:
    """``command`` in two processes under torchrun on this machine's processor."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run([*launcher, *command], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def as_launched(*arguments: str) -> list[subprocess.CompletedProcess[str]]:
    """``vtkit ARGUMENTS`` in two processes as torchrun would start them, without the seconds of its imports."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = ENVIRONMENT | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    command_line.start_server()  # once, before the threads that would
    with ThreadPoolExecutor() as pool:
        calls = [
            pool.submit(command_line.call, ROOT, arguments, environment | {"RANK": rank, "LOCAL_RANK": rank})
            for rank in "01"
        ]
        return [call.result() for call in calls]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the weights that two processes trained."""
    folder = tmp_path_factory.mktemp("together")
    program = f"from joint_training import keep; keep({str(folder)!r})"
    for done in as_launched("-c", program):
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", TRAININGS)
def test_two_processes_train_the_weights_of_one(name: str, together: Path, tmp_path: Path) -> None:
    alone, curves = trained(name, start(name, tmp_path / "start"), tmp_path)
    with safe_open(together / f"{name}.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(alone)
        for key, weight in alone.items():
            if key.endswith("key.bias"):  # no softmax depends on it: its gradient is what rounding leaves
                continue
            assert float((file.get_tensor(key) - weight).abs().max()) < 1e-5, key
        joint = json.loads(file.metadata()["curves"])
    assert joint.keys() == curves.keys()
    for curve, values in curves.items():
        np.testing.assert_allclose(joint[curve], values, rtol=1e-3, atol=2e-4, err_msg=curve)


RECIPE = f"""
[recipe]
name = "launched"
{SCRATCH}
[vocabulary]
kind = "existing"
tokenizer = "./tokens"
[adapt]
corpus = ["./texts.txt"]
objective = "mlm"
batch_size = 8
steps = 2
[finetune]
data = "./collection"
batch_size = 12
steps = 2
trainings = 2
split = "test"
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    tokenizer().save_pretrained(str(tmp_path / "tokens"))
    write_collection(tmp_path / "collection", collection(48, seed=4))
    (tmp_path / "texts.txt").write_text("\n".join(texts(60, seed=2)), "utf-8")
    file = tmp_path / "launched.toml"
    file.write_text(RECIPE, "utf-8")
    return file


def vtkit(recipe: Path, *options: str) -> tuple[str, ...]:
    return "run", str(recipe), "--runs", str(recipe.parent / "runs"), *options


LEAVES = """
import atexit, sys
import torch
from vtkit.cli import main
atexit.register(lambda: sys.stderr.write(f"connected at the end: {torch.distributed.is_initialized()}\\n"))
main()
"""


def test_a_recipe_runs_under_torchrun_and_says_everything_once(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text(LEAVES, "utf-8")
    done = launch(str(tmp_path / "leaves.py"), *vtkit(recipe, "--until", "finetune"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("connected at the end: False") == 2  # or threads of gloo can abort a process that ends
    assert done.stderr.count("2 processes train together") == 2  # adapt and finetune
    assert done.stderr.count("] transfer") == done.stderr.count("training 2 of 2") == 1
    assert done.stderr.count("stopped after finetune.") == 1
    assert list((recipe.parent / "runs" / "artifacts").glob("finetune-*/model/model.safetensors"))
    again = command_line.call(tmp_path, vtkit(recipe, "--until", "finetune"), os.environ)
    assert "plan: 0 of " in again.stderr  # how many processes trained is no part of a key


def test_a_batch_that_cannot_be_divided_is_one_message(recipe: Path) -> None:
    done = launch("-m", "vtkit", *vtkit(recipe, "--set", "adapt.batch_size=7"))
    assert done.returncode == 1
    assert done.stderr.count("error: a batch of 7 cannot be divided") == 1


def test_other_commands_are_done_by_one_process(recipe: Path) -> None:
    main, other = as_launched("recipe", "show", str(recipe))
    assert main.returncode == other.returncode == 0, main.stderr + other.stderr
    assert (main.stdout + other.stdout).count('name = "launched"') == 1


def test_processes_share_the_work_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [{"input_ids": torch.arange(6).reshape(3, 2)}, {"input_ids": torch.arange(6, 12).reshape(3, 2)}]
    monkeypatch.setenv("WORLD_SIZE", "2")
    parts = shares(batches)
    assert [parts[number]["input_ids"].tolist() for number in range(len(parts))] == [
        [[0, 1], [4, 5]], [[2, 3]], [[6, 7], [10, 11]], [[8, 9]],
    ]  # fmt: skip
    with pytest.raises(DataError, match="a batch of 3 cannot be divided"):
        distributed.own_share(3)
    with distributed.alone():
        assert distributed.own_share(3) == 3
        assert distributed.by_main(lambda: 4) == 4


# Every training, interrupted between two checkpoints: it ends in the weights and curves of an undisturbed one.


LOOPS = {"masked tokens": mlm, "vectors": mlm, "TILDE": tilde}
"""Modules with a training loop of their own."""


@pytest.mark.parametrize("name", TRAININGS)
def test_an_interrupted_training_ends_in_the_weights_of_an_undisturbed_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExpandDocumentsSection, "checkpoint_every", 4)

    def train(folder: Path) -> tuple[SparseEncoder, Any]:
        ours = start(name, folder / "start", dropout=0.1)
        return ours, TRAININGS[name](ours, folder / "checkpoints")

    moments = (5, 5) if name == "every loss" else (5,)  # in each of its trainings
    _, curves = resumed(tmp_path, LOOPS.get(name, sparse_trainer), train, *moments)
    assert all(curves.values())
