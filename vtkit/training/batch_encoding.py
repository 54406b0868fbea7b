"""How the texts of a batch become term weights: in groups of similar length, each with a dropout of its own seed.

The seed makes a group's vectors the same whenever they are computed, also a second time in the backward pass.

Gradient caching (Gao et al. 2021, arXiv:2101.06983): the vectors of all groups are computed without what their backward
pass needs, the loss of the whole batch gives the gradient by the vectors, and each group is computed once more just
before its own backward pass. So one group's activations are held at a time, and losses and gradients are those of the
whole batch. torch's checkpointing, a checkpoint for each group, is this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from sentence_transformers import SparseEncoder
from torch import Tensor
from torch.utils.checkpoint import checkpoint

TEXTS_A_GROUP = 8
"""Texts that go through the encoder together, at least; small groups of similar length waste little on padding."""

TOKENS_A_GROUP = 1024
"""Short texts come in larger groups, up to so many tokens: every group reads and casts all weights once more."""


@dataclass(frozen=True)
class Group:
    """Texts that go through the encoder together."""

    features: dict[str, Tensor]  # as the tokenizer gives them, (texts, length) each
    seed: int  # of the dropout


def encode_groups(model: SparseEncoder, groups: Sequence[Group], again: bool) -> list[Tensor]:
    """The term weights of each group, (texts, vocabulary) float32.

    Args:
        again: hold no activations: each group is computed once more in the backward pass.
    """
    if again and torch.is_grad_enabled():
        return [checkpoint(_vectors, model, group, use_reentrant=False, preserve_rng_state=False) for group in groups]
    return [_vectors(model, group) for group in groups]


def term_weights_of(
    model: SparseEncoder, columns: Sequence[dict[str, Tensor]], texts_at_once: int | None = None
) -> list[Tensor]:
    """The term weights of each column of a batch, (texts, vocabulary).

    Args:
        texts_at_once: texts whose activations are held at a time; None: all of them.
    """
    grouped = [list(_groups(column, texts_at_once or TEXTS_A_GROUP)) for column in columns]
    every = [group for groups in grouped for _, group in groups]
    vectors = iter(encode_groups(model, every, again=texts_at_once is not None))
    weights = []
    for groups in grouped:
        order = torch.cat([rows for rows, _ in groups])
        weights.append(torch.cat([next(vectors) for _ in groups])[torch.argsort(order)])
    return weights


def _groups(column: dict[str, Tensor], texts: int) -> Iterator[tuple[Tensor, Group]]:
    """The texts of a column in groups of similar length, and which rows they are: padding all of them to the longest
    nearly doubles the tokens of real collections."""
    lengths = column["attention_mask"].sum(dim=1)
    for rows in _by_length(torch.argsort(lengths, stable=True), lengths, texts):
        longest = int(lengths[rows[-1]])
        features = {name: tensor[rows, :longest] for name, tensor in column.items()}
        yield rows, Group(features, int(torch.randint(2**62, ())))


def _by_length(order: Tensor, lengths: Tensor, least: int) -> Iterator[Tensor]:
    """``order``, by rising length, in groups of ``least`` texts, or of more with ``TOKENS_A_GROUP`` tokens."""
    start = 0
    for stop in range(1, len(order) + 1):
        if stop < len(order):
            texts = stop + 1 - start
            if texts <= least or texts * int(lengths[order[stop]]) <= TOKENS_A_GROUP:
                continue
        yield order[start:stop]
        start = stop


def _vectors(model: SparseEncoder, group: Group) -> Tensor:
    device = model.device
    with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=model.training):
        if model.training:
            torch.manual_seed(group.seed)
        vectors: Tensor = model(dict(group.features))["sentence_embedding"]
        return vectors.float()
