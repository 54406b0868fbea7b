"""Fine-tuning of the sparse vectors, through sentence-transformers' ``SparseEncoderTrainer`` and the streaming head."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
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
from vtkit.errors import DataError
from vtkit.recipe.sections import FinetuneSection
from vtkit.training.gates import CollapseGate
from vtkit.training.losses import ContrastiveWithFlops
from vtkit.training.resuming import Progress, curve, train, trainer_settings

FRUITLESS_PASSES = 20
"""Passes over the pairs, each in another order, after which it is given up to find a full batch."""

HARD_NEGATIVES_FROM = 50
"""Hard negatives are drawn from this many of the best BM25 results that are not judged relevant."""


@dataclass(frozen=True)
class Example:
    """One training row by number: a query, a relevant document, and hard negatives."""

    query: int
    positive: int
    negatives: tuple[int, ...]


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
        loss = ContrastiveWithFlops(
            encoder,
            step=lambda: trainer.state.global_step,
            ramp_steps=ramp_steps,
            query_flops=section.query_flops,
            document_flops=section.document_flops,
            scale=section.scale,
            gate=CollapseGate(encoder[0].auto_model.config.vocab_size, ramp_ends=ramp_steps),
        )
        trainer = _Trainer(
            model=encoder,
            args=arguments,
            train_dataset=Dataset.from_dict(columns),
            loss=loss,
            callbacks=[Progress(bar)],
        )
        trainer.data_collator = _Collator(encoder, section.query_length, section.document_length)
        history = train(trainer, folder)
    encoder.eval()
    return curve(
        history, "loss", "contrastive", "query_flops", "document_flops", "query_dimensions", "document_dimensions"
    )


def training_batches(data: RetrievalSet, section: FinetuneSection, language: str, seed: int) -> list[list[Example]]:
    """The batches of a whole run, in order; no batch has a document that is relevant to another of its queries.

    A document relevant to two queries of one batch would be a negative of one of them although it is
    relevant: such a pair waits for a later batch.
    """
    number = {document.id: i for i, document in enumerate(data.documents)}
    relevant = [
        {number[name] for name, grade in data.qrels.get(query.id, {}).items() if grade > 0} for query in data.queries
    ]
    pairs = [(query, document) for query, documents in enumerate(relevant) for document in sorted(documents)]
    if len(pairs) < section.batch_size:
        raise DataError(
            f"finetune.data has {len(pairs)} relevant pairs in split {section.split}, fewer than one batch of "
            f"{section.batch_size}. Lower finetune.batch_size or give more data."
        )
    steps = section.steps or max(1, round(section.epochs * len(pairs) / section.batch_size))
    candidates = _bm25_candidates(data, relevant, language) if section.hard_negatives else None

    batches: list[list[Example]] = []
    waiting: list[tuple[int, int]] = []
    epoch = fruitless = 0
    while len(batches) < steps:
        shuffled = np.random.default_rng([seed, epoch]).permutation(len(pairs))
        stream = deque(waiting + [pairs[i] for i in shuffled])
        made = len(batches)
        while len(batches) < steps:
            batch, wanted = _next_batch(stream, relevant, section.batch_size)
            if len(batch) < section.batch_size:
                stream.extendleft(reversed(batch))
                break
            draw = np.random.default_rng([seed, 2, len(batches)])
            batches.append([_example(pair, wanted, candidates, section.hard_negatives, draw) for pair in batch])
        epoch += 1
        if len(batches) > made:
            fruitless, waiting = 0, list(stream)[: len(pairs)]
            continue
        # The pair that waited longest fits into no full batch: let the next pass begin with others.
        fruitless, waiting = fruitless + 1, []
        if fruitless == FRUITLESS_PASSES:
            raise DataError(
                f"finetune.data: no {section.batch_size} queries have documents of their own. "
                "Lower finetune.batch_size."
            )
    return batches


def _next_batch(
    stream: deque[tuple[int, int]], relevant: Sequence[set[int]], size: int
) -> tuple[list[tuple[int, int]], set[int]]:
    """The first ``size`` pairs of ``stream`` that can stand in one batch, taken out of it; and all documents that are
    relevant to their queries. Fewer where the stream holds no more."""
    batch: list[tuple[int, int]] = []
    passed: list[tuple[int, int]] = []
    documents, wanted = set[int](), set[int]()
    while stream and len(batch) < size:
        query, document = stream.popleft()
        if document in wanted or relevant[query] & documents:
            passed.append((query, document))
            continue
        batch.append((query, document))
        documents.add(document)
        wanted |= relevant[query]
    stream.extendleft(reversed(passed))
    return batch, wanted


def _example(
    pair: tuple[int, int],
    relevant_in_batch: set[int],
    candidates: np.ndarray | None,
    wanted: int,
    draw: np.random.Generator,
) -> Example:
    """Hard negatives must not be relevant to any query of the batch: every document is scored with every query."""
    if candidates is None:
        return Example(*pair, negatives=())
    pool = [int(i) for i in candidates[pair[0]] if i >= 0 and int(i) not in relevant_in_batch]
    if len(pool) < wanted:
        raise DataError(
            f"finetune.hard_negatives is {wanted}, but BM25 finds only {len(pool)} documents that are not relevant for "
            "one of the queries. Lower it."
        )
    return Example(*pair, negatives=tuple(int(i) for i in draw.choice(pool, size=wanted, replace=False)))


def _bm25_candidates(data: RetrievalSet, relevant: Sequence[set[int]], language: str) -> np.ndarray:
    """The best BM25 results of each query without the relevant ones, (queries, HARD_NEGATIVES_FROM), padded -1."""
    from vtkit.search.bm25 import Bm25

    index = Bm25.build((document.contents for document in data.documents), language)
    most = max((len(documents) for documents in relevant), default=0)
    found, _ = index.search([query.text for query in data.queries], HARD_NEGATIVES_FROM + most)
    candidates = np.full((len(data.queries), HARD_NEGATIVES_FROM), -1, dtype=np.int64)
    everything = np.arange(len(data.documents))
    for row, documents in enumerate(found):
        kept = [int(i) for i in documents if i >= 0 and int(i) not in relevant[row]][:HARD_NEGATIVES_FROM]
        if len(kept) < HARD_NEGATIVES_FROM:  # a query that matches too little: fill up with any other documents
            filler = np.random.default_rng([3, row]).permutation(everything)[: 4 * HARD_NEGATIVES_FROM]
            kept += [int(i) for i in filler if int(i) not in relevant[row] and int(i) not in kept]
        candidates[row, : min(len(kept), HARD_NEGATIVES_FROM)] = kept[:HARD_NEGATIVES_FROM]
    return candidates


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
