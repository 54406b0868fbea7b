"""Masked language modelling: which tokens are masked, what they are to be predicted as, and the batches. New tokens are
masked more often (weights ω_t of the vocabulary-transfer paper), scaled so that each text's expected share of masked
tokens is the mask rate. A batch is masked the same way whenever it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtkit.data.sequences import ByNumber, Ragged, RaggedRows
from vtkit.data.text import batches
from vtkit.encoder.truncation import MARGIN, first_tokens, padded

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IGNORED = -100  # label of a position that is not predicted
TOKENS_A_PART = 8192  # a batch of more tokens goes through the encoder in parts whose gradients are summed
SHORTEST = 4  # texts of fewer tokens (special tokens included) leave nothing to learn from and are passed over


def masking_probabilities(weights: Tensor, maskable: Tensor, mask_rate: float) -> Tensor:
    """Probability of masking each position: min(1, s·ω), with s such that a text's mean is ``mask_rate``; 0 where not
    maskable, (batch, length).

    Args:
        weights: ω of the token at each position, (batch, length), positive.
        maskable: True where a position may be masked, (batch, length).
    """
    omega = torch.where(maskable, weights, 0.0)
    wanted = mask_rate * maskable.sum(dim=1, keepdim=True).to(weights.dtype)
    probabilities = torch.zeros_like(omega)
    free = omega > 0
    while True:
        room = wanted - torch.where(free, 0.0, probabilities).sum(dim=1, keepdim=True)
        scale = room / torch.where(free, omega, 0.0).sum(dim=1, keepdim=True).clamp_min(1e-12)
        probabilities = torch.where(free, scale * omega, probabilities)
        over = free & (probabilities > 1.0)
        if not bool(over.any()):
            break
        probabilities = probabilities.clamp(max=1.0)
        free = free & ~over
    return probabilities


def emlm_labels(
    spans: NDArray[np.int64], output_spans: NDArray[np.int64], output_ids: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each input token the output token that overlaps it first (ESPLADE's extended masked language modelling);
    ``IGNORED`` where none does, (input tokens,).

    Args:
        spans: where each input token begins and ends in the text, in characters, (input tokens, 2); empty ones overlap
            nothing.
        output_spans: the same of the output tokens, in the text's order, (output tokens, 2).
        output_ids: their ids, (output tokens,).
    """
    labels = np.full(len(spans), IGNORED, dtype=np.int64)
    real = output_spans[:, 1] > output_spans[:, 0]
    output_spans, output_ids = output_spans[real], output_ids[real]
    if not len(output_ids):
        return labels
    first = np.searchsorted(np.maximum.accumulate(output_spans[:, 1]), spans[:, 0], side="right")
    reached = np.minimum(first, len(output_ids) - 1)
    overlaps = (first < len(output_ids)) & (output_spans[reached, 0] < spans[:, 1]) & (spans[:, 1] > spans[:, 0])
    labels[overlaps] = output_ids[reached[overlaps]]
    return labels


class TokenizedTexts(NamedTuple):
    """The texts that are long enough, as an encoder reads them."""

    kept: list[int]  # which texts they are
    token_ids: Ragged
    wanted: Ragged | None  # what each position is to be predicted as, where that is not its own token
    sizes: Ragged | None  # bytes of text that each token stands for, where they were asked for


def tokenized(
    tokenizer: PreTrainedTokenizerBase,
    output: PreTrainedTokenizerBase | None,
    texts: Iterable[str],
    max_length: int,
    *,
    sizes: bool = False,
    folder: Path | None = None,
) -> TokenizedTexts:
    """The first ``max_length`` tokens of the texts that have :data:`SHORTEST` or more.

    Args:
        folder: the numbers are mapped from files in it; None: they are held.
        output: the tokenizer that labels masked tokens, where that is another one.
        sizes: whether to tell how many bytes of UTF-8 each token stands for.
    """
    names = ("token_ids", "wanted", "sizes")
    token_ids, wanted, bytes_of = (RaggedRows(None if folder is None else folder / f"{name}.bin") for name in names)
    kept: list[int] = []
    first = 0
    for batch in batches(texts):
        read = first_tokens(tokenizer, batch, max_length, return_offsets_mapping=sizes or output is not None)
        long = [number for number, ids in enumerate(read["input_ids"]) if len(ids) >= SHORTEST]
        long_texts = [batch[number] for number in long]
        spans = [read["offset_mapping"][number] for number in long] if sizes or output is not None else []
        kept += [first + number for number in long]
        first += len(batch)
        for number in long:
            token_ids.append(read["input_ids"][number])
        for labels in [] if output is None else output_labels(output, long_texts, spans):
            wanted.append(labels)
        for text, inside in zip(long_texts, spans, strict=True) if sizes else ():
            bytes_of.append([len(text[a:b].encode()) for a, b in inside])
    return TokenizedTexts(
        kept, token_ids.whole(), None if output is None else wanted.whole(), bytes_of.whole() if sizes else None
    )


def output_labels(
    output: PreTrainedTokenizerBase, texts: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]]
) -> list[list[int]]:
    """The output tokens that each input token of ``texts`` is to predict; empty where the output vocabulary has no
    token."""
    ends = [max((end for _, end in own), default=0) for own in spans]
    read = [text[: end + MARGIN] for text, end in zip(texts, ends, strict=True)]
    written = output(read, add_special_tokens=False, return_offsets_mapping=True)
    labels = []
    for own, ids, offsets in zip(spans, written["input_ids"], written["offset_mapping"], strict=True):
        of_text = emlm_labels(
            np.asarray(own, dtype=np.int64).reshape(-1, 2),
            np.asarray(offsets, dtype=np.int64).reshape(-1, 2),
            np.asarray(ids, dtype=np.int64),
        )
        of_text[np.isin(of_text, output.all_special_ids)] = IGNORED
        labels.append(of_text.tolist())
    return labels


def similar_lengths_together(order: np.ndarray, lengths: np.ndarray, batch_size: int, seed: int) -> list[np.ndarray]:
    """Batches of ``order``: sorted by length inside windows of 32 batches, the batches then shuffled back."""
    batches: list[np.ndarray] = []
    window = 32 * batch_size
    for number, start in enumerate(range(0, len(order), window)):
        part = order[start : start + window]
        part = part[np.argsort(lengths[part], kind="stable")]
        rows = [part[i : i + batch_size] for i in range(0, len(part), batch_size)]
        batches.extend(rows[i] for i in np.random.default_rng([seed, 1, number]).permutation(len(rows)))
    return batches


@dataclass
class MaskedBatches(ByNumber[dict[str, Tensor]]):
    """Masked batches; the n-th is the same whenever and however often it is asked for."""

    token_ids: Ragged
    batches: list[np.ndarray]
    weights: Tensor
    """ω of every token that is predicted, (vocabulary,). One of weight 0 (a masked dimension) never is; its positions
    do not count for the mask rate, and are read as they are."""

    special_ids: Tensor  # never masked and never put in at random
    mask_id: int
    padding_id: int
    mask_rate: float
    seed: int
    wanted: Ragged | None = None  # what each position is to be predicted as, where that is not its own token
    teacher_ids: Ragged | None = None  # the texts as a teacher reads them; then nothing is masked
    teacher_padding_id: int = 0

    @property
    def labels(self) -> Ragged:
        """The tokens that each position is to predict."""
        return self.token_ids if self.wanted is None else self.wanted

    def __len__(self) -> int:
        return len(self.batches)

    def item(self, number: int) -> dict[str, Tensor]:
        """The n-th batch."""
        rows = self.batches[number]
        input_ids, attention_mask = padded([self.token_ids[row] for row in rows], self.padding_id)
        batch = {"input_ids": input_ids, "attention_mask": attention_mask}
        if self.teacher_ids is not None:
            ids, mask = padded([self.teacher_ids[row] for row in rows], self.teacher_padding_id)
            return batch | {"teacher_ids": ids, "teacher_mask": mask}
        targets = input_ids if self.wanted is None else padded([self.wanted[row] for row in rows], IGNORED)[0]
        maskable = attention_mask.bool() & ~torch.isin(input_ids, self.special_ids) & (targets != IGNORED)
        generator = torch.Generator().manual_seed((self.seed << 32) + number)
        masked, labels = self.masked(input_ids, targets, maskable, generator)
        return batch | {"input_ids": masked, "labels": labels}

    def masked(
        self, token_ids: Tensor, targets: Tensor, maskable: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Masked input and labels: of the chosen positions 80 % become [MASK], 10 % a random token, 10 % stay.

        Args:
            token_ids: (batch, length).
            targets: what each position is to be predicted as, (batch, length).
            maskable: positions that may be masked if their targets have a weight, (batch, length) bool.

        Returns:
            Input ids and labels, (batch, length) both; labels are ``IGNORED`` where nothing is predicted.
        """
        weights = self.weights[targets.clamp(min=0)]
        probabilities = masking_probabilities(weights, maskable & (weights > 0), self.mask_rate)
        draw = torch.rand(token_ids.shape, generator=generator)
        chosen = draw < probabilities
        labels = torch.where(chosen, targets, IGNORED)
        fate = torch.rand(token_ids.shape, generator=generator)
        ordinary = torch.ones(len(self.weights), dtype=torch.bool)
        ordinary[self.special_ids] = False
        candidates = ordinary.nonzero().flatten()
        random_ids = candidates[torch.randint(len(candidates), token_ids.shape, generator=generator)]
        masked = torch.where(chosen & (fate < 0.8), self.mask_id, token_ids)
        masked = torch.where(chosen & (fate >= 0.8) & (fate < 0.9), random_ids, masked)
        return masked, labels


def parts(batch: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """``batch`` in parts of at most :data:`TOKENS_A_PART` tokens, each as long as its longest text."""
    size = max(1, TOKENS_A_PART // batch["input_ids"].shape[1])
    whole = []
    for tensors in zip(*(torch.split(tensor, size) for tensor in batch.values()), strict=True):
        part = dict(zip(batch, tensors, strict=True))
        longest = {name: int(mask.sum(dim=1).max()) for name, mask in part.items() if name.endswith("mask")}
        for name, tensor in part.items():
            part[name] = tensor[:, : longest["teacher_mask" if name.startswith("teacher") else "attention_mask"]]
        whole.append(part)
    return whole
