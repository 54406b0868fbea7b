"""Adaptation: masked-language-model training in the new vocabulary, by default with a frozen transformer.

The vocabulary-transfer paper trains the input embeddings, the tied decoder and its bias, and masks new
tokens more often (:mod:`vtkit.training.masking`). Only masked positions are projected onto the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler, SequentialSampler
from transformers import Trainer, TrainingArguments

from vtkit import console
from vtkit.encoder.families import mlm_head
from vtkit.encoder.sparse_head import without_decoder
from vtkit.errors import CollapseError, DataError
from vtkit.recipe.sections import AdaptSection
from vtkit.training.masking import IGNORED, mask_tokens
from vtkit.training.resuming import Progress, curve, fixed_order, train, trainer_settings

SHORTEST = 4
"""Texts of fewer tokens (special tokens included) leave nothing to learn from and are passed over."""


def adapt(
    encoder: SparseEncoder,
    texts: Sequence[str],
    new_tokens: np.ndarray,
    section: AdaptSection,
    seed: int,
    folder: Path,
) -> dict[str, list[float]]:
    """Train ``encoder``'s masked language model in place on ``texts``.

    Args:
        encoder: changed in place.
        texts: training texts.
        new_tokens: ids of the tokens that did not come from the source unchanged, weighted ``new_token_weight``.
        section: settings.
        seed: of the order, the masks and the dropout.
        folder: where checkpoints are kept and looked for.

    Returns:
        The curve: ``steps`` and ``loss`` (nats a masked token).

    Raises:
        DataError: no text is long enough.
        CollapseError: the loss is not finite.
    """
    tokenizer, model = encoder.tokenizer, encoder[0].auto_model
    length = min(section.max_length, encoder.max_seq_length or section.max_length)
    token_ids = tokenizer(list(texts), truncation=True, max_length=length)["input_ids"]
    token_ids = [ids for ids in token_ids if len(ids) >= SHORTEST]
    if not token_ids:
        raise DataError(f"adapt.corpus: none of its {len(texts)} texts has {SHORTEST} tokens or more")

    head = mlm_head(model)
    weights = torch.ones(model.config.vocab_size)
    weights[torch.as_tensor(new_tokens, dtype=torch.long)] = section.new_token_weight
    order = fixed_order(len(token_ids), section.steps * section.batch_size, seed)
    batches = _Batches(
        token_ids,
        _similar_lengths_together(order, [len(ids) for ids in token_ids], section.batch_size, seed),
        weights,
        torch.tensor(sorted(set(tokenizer.all_special_ids))),
        tokenizer.mask_token_id,
        tokenizer.pad_token_id,
        section.mask_rate,
        seed,
    )
    learning = {id(head.embeddings.weight), id(head.decoder.weight), id(head.decoder.bias)}
    for parameter in model.parameters():
        parameter.requires_grad_(section.train == "all" or id(parameter) in learning)

    arguments = TrainingArguments(
        **trainer_settings(folder, steps=section.steps, seed=seed, checkpoint_every=section.checkpoint_every),
        per_device_train_batch_size=1,
        learning_rate=section.learning_rate,
        weight_decay=section.weight_decay,
        lr_scheduler_type="cosine",
        warmup_steps=round(section.warmup * section.steps),
    )
    torch.manual_seed(seed)
    with console.progress("adapting", total=section.steps) as bar:
        trainer = _MaskedTrainer(
            model=model, args=arguments, train_dataset=batches, data_collator=_only, callbacks=[Progress(bar)]
        )
        history = train(trainer, folder)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    model.eval()
    return curve(history, "loss")


def _similar_lengths_together(
    order: np.ndarray, lengths: Sequence[int], batch_size: int, seed: int
) -> list[np.ndarray]:
    """Batches of ``order``: sorted by length inside windows of 32 batches, the batches then shuffled back."""
    batches: list[np.ndarray] = []
    window = 32 * batch_size
    for number, start in enumerate(range(0, len(order), window)):
        part = order[start : start + window]
        part = part[np.argsort([lengths[i] for i in part], kind="stable")]
        rows = [part[i : i + batch_size] for i in range(0, len(part), batch_size)]
        batches.extend(rows[i] for i in np.random.default_rng([seed, 1, number]).permutation(len(rows)))
    return batches


@dataclass
class _Batches(Dataset):  # type: ignore[type-arg]
    """Masked batches; the n-th is the same whenever and however often it is asked for."""

    token_ids: list[list[int]]
    batches: list[np.ndarray]
    weights: Tensor
    special_ids: Tensor
    mask_id: int
    padding_id: int
    mask_rate: float
    seed: int

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        rows = [torch.tensor(self.token_ids[i]) for i in self.batches[number]]
        input_ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.padding_id)
        lengths = torch.tensor([len(row) for row in rows])
        attention_mask = (torch.arange(input_ids.shape[1]) < lengths[:, None]).long()
        generator = torch.Generator().manual_seed((self.seed << 32) + number)
        masked, labels = mask_tokens(
            input_ids, attention_mask, self.weights, self.special_ids, self.mask_id, self.mask_rate, generator
        )
        return {"input_ids": masked, "attention_mask": attention_mask, "labels": labels}


def _only(batches: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The data set's items are whole batches already."""
    (batch,) = batches
    return batch


class _MaskedTrainer(Trainer):  # type: ignore[misc]
    """The library's trainer over :class:`_Batches`: in sequence, and projecting masked positions only."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return SequentialSampler(self.train_dataset)

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Tensor:
        decoder = mlm_head(self.model).decoder
        with without_decoder(decoder):
            hidden: Tensor = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        labels = inputs["labels"]
        predicted = labels != IGNORED
        if not bool(predicted.any()):
            return torch.zeros((), requires_grad=True)
        logits = nn.functional.linear(hidden[predicted], decoder.weight, decoder.bias)
        loss = nn.functional.cross_entropy(logits.float(), labels[predicted])
        if not bool(torch.isfinite(loss)):
            raise CollapseError(
                f"adaptation step {self.state.global_step}: the loss is {loss.item()}. Lower adapt.learning_rate."
            )
        return loss
