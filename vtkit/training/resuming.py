"""What all trainings share: settings of the library trainers, and checkpoints that survive a kill. A killed run must
end in the numbers of an undisturbed one: the order of texts is fixed before, what is random in a batch is seeded by its
place, and a checkpoint counts only once it is marked complete."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vtkit.data.sequences import Lazy
from vtkit.encoder.families import takes_autocast
from vtkit.settings.adapt import AdaptSection
from vtkit.settings.expand_documents import ExpandDocumentsSection
from vtkit.settings.finetune import SIDES, FinetuneSection
from vtkit.settings.recipe import Reporter
from vtkit.system import console, distributed
from vtkit.system.runtime import bf16_is_fast, without_notices

if TYPE_CHECKING:
    from vtkit.training.validation import Validation

COMPLETE = "vtkit-complete"
LOSS = "loss.safetensors"  # a checkpoint's file of the loss's buffers
CURVE_POINTS_EVERY = 10


@dataclass(frozen=True)
class TrainingRun:
    """How a training goes, whatever is trained."""

    seed: int
    """Of the order of the texts, of all that is drawn, and of the dropout; further trainings have the next ones."""

    folder: Path  # of checkpoints, and of what teachers and rankings keep
    language: str = ""  # of the texts, for BM25
    report_to: Sequence[Reporter] = ()  # programs that show the curves meanwhile
    validation: Validation | None = None  # by which it stops; says afterwards what came of it


def fixed_order(items: int, wanted: int, seed: int) -> np.ndarray:
    """``wanted`` indices below ``items``: shuffled passes over all of them, one after the other."""
    passes = -(-wanted // items)
    return np.concatenate(
        [np.random.default_rng([seed, epoch]).permutation(items).astype(np.int32) for epoch in range(passes)]
    )[:wanted]  # fmt: skip


def trainer_settings(
    model: Any,
    run: TrainingRun,
    section: AdaptSection | FinetuneSection | ExpandDocumentsSection,
    steps: int,
    decay: Literal["linear", "cosine"],
) -> dict[str, Any]:
    """Settings that both library trainers take. The batch builder fixes the order of the texts.

    Args:
        model: the transformer.
        decay: of the learning rate, after it has risen over the first ``section.warmup`` of the steps.
    """
    cuda = torch.cuda.is_available()
    # a checkpoint falls on a point of the curve, so that a continued run draws the same curve
    every = section.checkpoint_every
    point_every = CURVE_POINTS_EVERY if every % CURVE_POINTS_EVERY == 0 else every
    return {
        "output_dir": str(run.folder),
        "max_steps": steps,
        "learning_rate": section.learning_rate,
        "lr_scheduler_type": decay,
        "warmup_steps": round(section.warmup * steps),
        "seed": run.seed,
        "weight_decay": 0.01,
        "use_cpu": not cuda,
        "bf16": bf16_is_fast() and takes_autocast(model),
        "save_steps": every,
        "save_total_limit": 2,
        "logging_steps": min(point_every, steps),
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": cuda,
        "remove_unused_columns": False,
        "train_sampling_strategy": "sequential",
        "average_tokens_across_devices": False,
    }


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that was written to its end; what is half-written or damaged is removed."""
    complete = []
    for checkpoint in folder.glob("checkpoint-*"):
        if (checkpoint / COMPLETE).is_file():
            complete.append(checkpoint)
        else:
            shutil.rmtree(checkpoint, ignore_errors=True)
    return max(complete, key=lambda checkpoint: int(checkpoint.name.rsplit("-", 1)[1]), default=None)


def train(trainer: Any, folder: Path) -> list[dict[str, float]]:
    """Train to the end, from the last complete checkpoint where there is one; returns the log history."""
    checkpoint = distributed.by_main(lambda: last_complete_checkpoint(folder))
    if checkpoint is not None:
        console.say(f"  continuing from step {checkpoint.name.rsplit('-', 1)[1]}")
    trainer.remove_callback(PrinterCallback)
    if not distributed.is_main():  # whose dropout is not that of the main process's texts
        torch.manual_seed(trainer.args.seed + 1_000_003 * trainer.args.process_index)
    try:
        with without_notices():
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint is not None else None)
    finally:
        # mixed precision, which hides the class's own, and a mark by which a second training would go without it
        for name in ("forward", "_original_forward", "_is_accelerate_prepared"):
            trainer.model.__dict__.pop(name, None)
    return list(trainer.state.log_history)


class JointSteps:
    """Before a library trainer among the bases of a class: gradients summed over all processes
    (:mod:`vtkit.system.distributed`), and the tokens a second in the curve."""

    accelerator: Any
    optimizer: Any

    def __init__(self, *, args: TrainingArguments, **settings: Any) -> None:
        self._tokens, self._since = 0, time.monotonic()  # tokens read since the last point of the curve
        args._n_gpu = min(args.n_gpu, 1)  # with more, one process would split its batches, past the streaming head
        super().__init__(args=args, **settings)  # type: ignore[call-arg]
        # without DistributedDataParallel: a step is several passes, and gradient caching makes some of them again
        self.accelerator.prepare_model = partial(self.accelerator.prepare_model, evaluation_mode=True)

    def training_step(self, model: Any, inputs: dict[str, Tensor], *others: Any) -> Tensor:
        """The gradient of a batch, and its loss."""
        self._tokens += sum(int(tensor.sum()) for name, tensor in inputs.items() if name.endswith("attention_mask"))
        loss = self.share_step(model, inputs, *others)
        distributed.sum_gradients(weight for group in self.optimizer.param_groups for weight in group["params"])
        return loss

    def share_step(self, model: Any, *inputs: Any) -> Tensor:
        """The gradient by the share of this process, and the loss of the batch."""
        loss: Tensor = super().training_step(model, *inputs)  # type: ignore[misc]
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Put the tokens a second beside the loss: of all processes, padding left out."""
        if "loss" in logs:
            tokens, seconds = int(distributed.summed(torch.tensor(self._tokens))), time.monotonic() - self._since
            logs = {**logs, "tokens_per_second": round(tokens / max(seconds, 1e-6), 1)}
            self._tokens, self._since = 0, time.monotonic()
        super().log(logs, start_time)  # type: ignore[misc]


class SequentialTrainer(JointSteps, Trainer):  # type: ignore[misc]
    """The library's trainer over whole batches in the order they have."""

    def __init__(self, *, train_dataset: Sequence[dict[str, Tensor]], **settings: Any) -> None:
        super().__init__(train_dataset=shares(train_dataset), data_collator=lambda batches: batches[0], **settings)


def shares(batches: Sequence[dict[str, Tensor]]) -> Sequence[dict[str, Tensor]]:
    """``batches``, each in as many parts as there are processes: the trainer gives each process one of them."""
    parts = distributed.count()
    return Lazy(
        len(batches) * parts,
        lambda number: {name: rows[number % parts :: parts] for name, rows in batches[number // parts].items()},
    )


class Progress(TrainerCallback):  # type: ignore[misc]
    """vtkit's progress display over a library trainer, the buffers of the loss in each checkpoint, and the mark on
    complete checkpoints: the last callback of a trainer.

    Args:
        parts: names of what the loss is the sum of.
        kept: the buffers that a checkpoint keeps, where there are any.
    """

    def __init__(self, bar: console.Bar, parts: Sequence[str] = (), kept: nn.Module | None = None) -> None:
        self.bar, self.parts, self.kept = bar, parts, kept

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.bar.advance(state.global_step)
        if state.global_step and self.kept is not None and self.kept.state_dict():
            self.kept.load_state_dict(load_file(f"{args.output_dir}/checkpoint-{state.global_step}/{LOSS}"))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.bar.advance()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        if logs and "loss" in logs:
            self.bar.advance(0, _progress(logs, self.parts))
            console.note(f"step {state.global_step}  {logs}")

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        distributed.wait()
        if distributed.is_main():
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            if self.kept is not None and (buffers := self.kept.state_dict()):
                save_file(buffers, checkpoint / LOSS)
            (checkpoint / COMPLETE).touch()


def _progress(logs: Mapping[str, float], parts: Sequence[str] = ()) -> str:
    """Loss and its parts, active dimensions of queries and documents, λ where it is found while training, speed."""
    words = [f"loss {float(logs['loss']):.3f}"]
    if len(shown := [f"{part.replace('_', ' ')} {float(logs[part]):.3f}" for part in parts if part in logs]) > 1:
        words.append(f"({', '.join(shown)})")
    for name, form in (("dimensions", ",.0f"), ("lambda", ".1e")):
        values = [f"{logs[key]:{form}}" for side in SIDES if (key := f"{side}_{name}") in logs]
        if values:
            words.append(f"{' / '.join(values)} active" if name == "dimensions" else f"λ {' / '.join(values)}")
    if "tokens_per_second" in logs:
        words.append(f"{logs['tokens_per_second']:,.0f} tokens/s")
    return "  ".join(words)


def curve(history: list[dict[str, float]], *names: str) -> dict[str, list[float]]:
    """Training curves out of a trainer's log history: ``steps`` and one list for each name."""
    points = [entry for entry in history if "loss" in entry]
    curves = {name: [entry.get(name, 0.0) for entry in points] for name in names}
    return {"steps": [entry["step"] for entry in points], **curves}
