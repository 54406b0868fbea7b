"""Curves for TensorBoard and Weights & Biases while training goes on, in a folder beside the checkpoints, which
outlives a kill and which the stage keeps (:func:`keep`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtkit.data.hub import downloads_allowed
from vtkit.settings.recipe import Reporter
from vtkit.system import distributed
from vtkit.system.errors import MissingExtra

if TYPE_CHECKING:
    from transformers import TrainerCallback

CURVES = "curves"  # folder of what they write


def require(reporters: Sequence[Reporter]) -> None:
    """Refuse (MissingExtra) ``reporters`` whose packages are not installed."""
    for name in reporters:
        if find_spec(name) is None:
            raise MissingExtra(f'report.training = ["{name}"]', name, name)


def callbacks(reporters: Sequence[Reporter], folder: Path) -> list[TrainerCallback]:
    """The trainer's callbacks of ``reporters``, which write below ``folder``; only the main process has any. Weights &
    Biases works offline unless downloads are allowed, or WANDB_MODE says otherwise."""
    reporting: list[TrainerCallback] = []
    for name in reporters if distributed.is_main() else ():
        place = folder / CURVES / name
        place.mkdir(parents=True, exist_ok=True)
        if name == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter
            from transformers.integrations import TensorBoardCallback

            reporting.append(TensorBoardCallback(SummaryWriter(str(place))))
        else:
            reporting.append(_weights_and_biases(place))
    return reporting


def _weights_and_biases(folder: Path) -> TrainerCallback:
    import wandb
    from transformers import TrainerControl, TrainerState, TrainingArguments
    from transformers.integrations import WandbCallback

    class OneRun(WandbCallback):  # type: ignore[misc]
        """A run of its own for each training, where the library would go on with one of an earlier training."""

        def setup(self, args: TrainingArguments, state: TrainerState, model: Any, **others: Any) -> None:
            wandb.init(
                project=os.environ.get("WANDB_PROJECT", "vtkit"),
                dir=folder,
                mode=None if downloads_allowed() or "WANDB_MODE" in os.environ else "offline",
                settings=wandb.Settings(silent=True),
            )
            super().setup(args, state, model, **others)

        def on_train_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
        ) -> None:
            super().on_train_end(args, state, control, **others)
            wandb.finish()

    return OneRun()


def keep(checkpoints: Path, out: Path) -> None:
    """Move what was written from beside the checkpoints, which are removed, into a stage's output; of several
    trainings each has a folder there."""
    for curves in sorted(checkpoints.rglob(CURVES)):
        place = out / CURVES / curves.parent.relative_to(checkpoints)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(curves, place)
