"""Every training, interrupted between two checkpoints: it ends in the weights and curves of an undisturbed one."""

from pathlib import Path
from typing import Any

import pytest
from joint_training import TRAININGS, start
from sentence_transformers import SparseEncoder
from tiny import resumed

from vtkit.training import mlm, sparse_trainer
from vtkit.training.document_expansion import tilde

LOOPS = {"masked tokens": mlm, "vectors": mlm, "TILDE": tilde}
"""Modules with a training loop of their own."""


@pytest.mark.parametrize("name", TRAININGS)
def test_an_interrupted_training_ends_in_the_weights_of_an_undisturbed_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tilde, "CHECKPOINT_EVERY", 4)

    def train(folder: Path) -> tuple[SparseEncoder, Any]:
        ours = start(name, folder / "start", dropout=0.1)
        return ours, TRAININGS[name](ours, folder / "checkpoints")

    moments = (5, 5) if name == "every loss" else (5,)  # in each of its trainings
    _, curves = resumed(tmp_path, LOOPS.get(name, sparse_trainer), train, *moments)
    assert all(curves.values())
