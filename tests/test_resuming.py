"""Every training, interrupted between two checkpoints: it ends in the weights and curves of an undisturbed one."""

from pathlib import Path
from typing import Any

import pytest
from joint_training import TRAININGS, starts
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
        ours = starts(folder / "starts", dropout=0.1)[name]
        return ours, TRAININGS[name](ours, folder / "checkpoints")

    _, curves = resumed(tmp_path, LOOPS.get(name, sparse_trainer), train, 5)
    assert all(curves.values())
