"""Training of the sparse vectors, through sentence-transformers' ``SparseEncoderTrainer`` and the streaming head."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SparseEncoder, SparseEncoderTrainer, SparseEncoderTrainingArguments
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch import nn
from torch.utils.data import SequentialSampler

from vtkit.encoder.asymmetric import query_table
from vtkit.encoder.kernels.sparse_head import streaming
from vtkit.encoder.sides import Side, prompt_of, tokenizer_of
from vtkit.encoder.truncation import TEXTS_LOOKED_AT, share_cut, shortened
from vtkit.system import console, distributed
from vtkit.training import reporting
from vtkit.training.objective import Objective
from vtkit.training.resuming import JointSteps, Progress, TrainingRun, curve, train
from vtkit.training.validation import EarlyStopping

TABLE = r"^table\."  # names of the parameters of a query table, in an objective
TABLE_LEARNING_RATE = 1e-2
"""Peak learning rate of a query table's weights, which start at up to 10; the schedule is the encoder's."""


def train_vectors(
    encoder: SparseEncoder,
    columns: Mapping[str, Sequence[str]],
    lengths: tuple[int, int],
    objective: Callable[[Callable[[], int]], Objective],
    settings: Mapping[str, Any],
    run: TrainingRun,
    description: str,
) -> dict[str, list[float]]:
    """Train ``encoder`` in place on texts in the order they are given; parameters that need no gradient stay.

    Args:
        columns: texts, steps times batch size in each column, as :class:`Objective` takes them.
        lengths: tokens that queries, and all other texts, are cut at.
        objective: makes what is minimised out of a function that tells the current step.
        settings: of :func:`vtkit.training.resuming.trainer_settings`.

    Returns:
        The curves: ``steps`` and those of :attr:`Objective.curves`.
    """
    rows, steps = len(next(iter(columns.values()))), settings["max_steps"]
    own_batch = distributed.own_share(rows // steps)
    _say_what_is_cut(encoder, columns, lengths)
    torch.manual_seed(run.seed)
    with console.progress(description, total=steps) as bar, streaming(encoder):
        loss = objective(lambda: trainer.state.global_step)
        stopping = None
        if run.validation is not None:
            stopping = EarlyStopping(run.validation, loss, lengths, steps, run.folder, bar)
            loss.state["validation"] = stopping.state
        tables = [] if loss.table is None or not loss.table.trained else [loss.table]
        trainer = _Trainer(
            model=encoder,
            args=SparseEncoderTrainingArguments(
                **settings,
                per_device_train_batch_size=own_batch,
                batch_sampler=_in_sequence,
                dataloader_drop_last=True,  # of several processes; there is no last batch
                learning_rate_mapping={TABLE: TABLE_LEARNING_RATE} if tables else {},
            ),
            train_dataset=Dataset.from_dict({"row": np.arange(rows, dtype=np.int32)}),
            loss=loss,
            callbacks=[
                *tables,
                *reporting.callbacks(run.report_to, run.folder),
                *([] if stopping is None else [stopping]),
                Progress(bar, [term.name for term in loss.terms], loss.state),  # the last, since it marks a checkpoint
            ],
        )
        trainer.data_collator = Collator(encoder, columns, lengths)
        history = train(trainer, run.folder)
        if stopping is not None:
            stopping.finish()
    for missed in filter(None, (target.missed() for target in loss.targets.values())):
        console.warn(missed)
    encoder.eval()
    return curve(history, *loss.curves)


def _say_what_is_cut(encoder: SparseEncoder, columns: Mapping[str, Sequence[str]], lengths: tuple[int, int]) -> None:
    """The share of each column's texts that are longer than what is read of them."""
    for column, texts in columns.items():
        if column.startswith("negative"):
            continue  # documents like the others
        side: Side = "query" if column == "query" else "document"
        tokenizer, length = tokenizer_of(encoder, side), lengths[side == "document"]
        share = share_cut(tokenizer, texts[:TEXTS_LOOKED_AT], length, prompt_of(encoder, side))  # in random order
        if share == 1:
            console.warn(
                f"every sampled {column} is longer than the {length} tokens that training reads, so no end "
                "of one is seen. Raise the length in the recipe if that matters."
            )
        elif share > 0:
            console.say(f"  {share:.0%} of the texts in {column} are cut at {length} tokens")


def _in_sequence(dataset: Dataset, **settings: Any) -> DefaultBatchSampler:
    return DefaultBatchSampler(SequentialSampler(dataset), **settings)


class _Trainer(JointSteps, SparseEncoderTrainer):  # type: ignore[misc]
    """The library's trainer; its log carries the active dimensions beside the loss, and no model card is drafted."""

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """None: the library's model card shows examples of the training texts, and vtkit writes a card of its own."""

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Without a query table's: a step changes a few of its rows, and all others would shrink."""
        return [name for name in super().get_decay_parameter_names(model) if not re.match(TABLE, name)]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs = {**logs, **self.loss.take_active_dimensions()}
        super().log(logs, start_time)


@dataclass
class Collator:
    """Tokenised columns: queries and documents have prompts, and are cut at lengths, of their own."""

    encoder: SparseEncoder
    columns: Mapping[str, Sequence[str]]  # the texts
    lengths: tuple[int, int]  # tokens that queries, and all other texts, are cut at
    valid_label_columns: Sequence[str] = ()

    def __call__(self, rows: list[dict[str, int]]) -> dict[str, Any]:
        """The texts of a batch: ``rows`` names their row of the columns, under ``row``."""
        batch: dict[str, Any] = {}
        for column, texts in self.columns.items():
            side: Side = "query" if column == "query" else "document"
            looked_up = side == "query" and query_table(self.encoder) is not None
            tokenizer, prompt = tokenizer_of(self.encoder, side), prompt_of(self.encoder, side)
            longest = tokenizer.model_max_length if looked_up else self.encoder.max_seq_length
            length = self.lengths[side == "document"]
            length = min(length, longest or length)
            features = tokenizer(
                shortened(tokenizer, [prompt + texts[row["row"]] for row in rows], length),
                truncation=True,
                max_length=length,
                add_special_tokens=not looked_up,
                padding=True,
                padding_side="right",  # the loss cuts groups of shorter texts at their longest
                return_tensors="pt",
                return_token_type_ids=False,
            )
            batch.update({f"{column}_{name}": tensor for name, tensor in features.items()})
        return batch
