"""Fine-tuning of the sparse vectors, through sentence-transformers' ``SparseEncoderTrainer`` and the streaming head."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SparseEncoder, SparseEncoderTrainer, SparseEncoderTrainingArguments
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch.utils.data import SequentialSampler

from vtkit import console
from vtkit.data.retrieval import RetrievalSet
from vtkit.encoder.sides import prompt_of
from vtkit.encoder.sparse_head import streaming
from vtkit.encoder.truncation import shortened
from vtkit.recipe.sections import FinetuneSection
from vtkit.training.gates import CollapseGate
from vtkit.training.losses import info_nce
from vtkit.training.objective import Objective, Term
from vtkit.training.pairs import training_batches
from vtkit.training.regularizers import flops, quadratic_ramp
from vtkit.training.resuming import Progress, curve, train, trainer_settings


def finetune(
    encoder: SparseEncoder,
    data: RetrievalSet,
    section: FinetuneSection,
    language: str,
    seed: int,
    folder: Path,
) -> dict[str, list[float]]:
    """Train ``encoder`` in place on ``data``'s judged pairs.

    Args:
        encoder: changed in place.
        data: queries with their relevant documents (judgements above 0).
        section: settings.
        language: for BM25, where hard negatives are asked for.
        seed: of the order, the hard negatives and the dropout.
        folder: where checkpoints are kept and looked for.

    Returns:
        The curves: ``steps``, ``loss``, ``contrastive``, ``query_flops``, ``document_flops`` (the penalties as added),
        ``query_dimensions``, ``document_dimensions`` (mean active dimensions).

    Raises:
        DataError: too few pairs for one batch, or too few whose documents are not relevant to each other's queries.
        CollapseError: a collapse gate stopped the run.
    """
    batches = training_batches(data, section, language, seed)
    steps = len(batches)
    rows = [example for batch in batches for example in batch]
    columns = {
        "query": [data.queries[row.query].text for row in rows],
        "document": [data.documents[row.positive].contents for row in rows],
    }
    for number in range(section.hard_negatives):
        columns[f"negative_{number + 1}"] = [data.documents[row.negatives[number]].contents for row in rows]

    arguments = SparseEncoderTrainingArguments(
        **trainer_settings(folder, steps=steps, seed=seed, checkpoint_every=section.checkpoint_every),
        per_device_train_batch_size=section.batch_size,
        learning_rate=section.learning_rate,
        weight_decay=section.weight_decay,
        lr_scheduler_type="linear",
        warmup_steps=round(section.warmup * steps),
        batch_sampler=_in_sequence,
    )
    torch.manual_seed(seed)
    with console.progress("fine-tuning", total=steps) as bar, streaming(encoder):
        ramp_steps = max(1, round(section.ramp * steps))
        objective = Objective(
            encoder,
            objective_terms(section, ramp_steps),
            step=lambda: trainer.state.global_step,
            gate=CollapseGate(encoder[0].auto_model.config.vocab_size, ramp_ends=ramp_steps),
        )
        trainer = _Trainer(
            model=encoder,
            args=arguments,
            train_dataset=Dataset.from_dict(columns),
            loss=objective,
            callbacks=[Progress(bar)],
        )
        trainer.data_collator = _Collator(encoder, section.query_length, section.document_length)
        history = train(trainer, folder)
    encoder.eval()
    return curve(history, *objective.curves)


def objective_terms(section: FinetuneSection, ramp_steps: int) -> tuple[Term, ...]:
    """InfoNCE plus λ_q FLOPS(queries) + λ_d FLOPS(documents), both penalties under a quadratic ramp.

    The document term is the penalty over all documents of the batch, positives and negatives together.

    Args:
        section: settings.
        ramp_steps: step at which the penalties have their full strength.
    """
    query_ramp = quadratic_ramp(section.query_flops, ramp_steps)
    document_ramp = quadratic_ramp(section.document_flops, ramp_steps)
    return (
        Term("contrastive", lambda batch: info_nce(batch.queries, batch.documents, section.scale)),
        Term("query_flops", lambda batch: flops(batch.queries), query_ramp),
        Term("document_flops", lambda batch: flops(batch.documents), document_ramp),
    )


def _in_sequence(dataset: Dataset, **settings: Any) -> DefaultBatchSampler:
    return DefaultBatchSampler(SequentialSampler(dataset), **settings)


class _Trainer(SparseEncoderTrainer):  # type: ignore[misc]
    """The library's trainer; its log carries the active dimensions beside the loss, and no model card is drafted."""

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """None: the library's model card shows examples of the training texts, and vtkit writes a card of its own."""

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs = {**logs, **self.loss.take_active_dimensions()}
        super().log(logs, start_time)


@dataclass
class _Collator:
    """Tokenised columns: queries and documents have prompts, and are cut at lengths, of their own."""

    encoder: SparseEncoder
    query_length: int
    document_length: int
    valid_label_columns: tuple[str, ...] = ()

    def __call__(self, rows: list[dict[str, str]]) -> dict[str, Any]:
        tokenizer = self.encoder.tokenizer
        longest = self.encoder.max_seq_length
        batch: dict[str, Any] = {}
        for column in rows[0]:
            length = self.query_length if column == "query" else self.document_length
            prompt = prompt_of(self.encoder, "query" if column == "query" else "document")
            length = min(length, longest or length)
            features = tokenizer(
                shortened(tokenizer, [prompt + row[column] for row in rows], length),
                truncation=True,
                max_length=length,
                padding=True,
                padding_side="right",  # the loss cuts groups of shorter texts at their longest
                return_tensors="pt",
                return_token_type_ids=False,
            )
            batch.update({f"{column}_{name}": tensor for name, tensor in features.items()})
        return batch
