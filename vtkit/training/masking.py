"""Overlap-aware masking, in which new tokens are masked more often than those the encoder already knows; and the labels
of masked tokens where the output vocabulary is another one.

The vocabulary-transfer paper masks with probability proportional to ω_t, 1 for overlapping tokens and λ for
new ones, and does not say how the overall rate is kept. Here each text's probabilities are scaled so that
the *expected* share of masked tokens is the mask rate, clipped at 1 (what the clip takes is spread over the others).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IGNORED = -100
"""Label of a position that is not predicted."""


def masking_probabilities(weights: Tensor, maskable: Tensor, mask_rate: float) -> Tensor:
    """Probability of masking each position: min(1, s·ω), with s such that a text's mean is ``mask_rate``.

    Args:
        weights: ω of the token at each position, (batch, length), positive.
        maskable: True where a position may be masked (neither padding nor special), (batch, length).
        mask_rate: expected share of the maskable positions of each text.

    Returns:
        (batch, length), 0 where not maskable.
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


def mask_tokens(
    token_ids: Tensor,
    attention_mask: Tensor,
    token_weights: Tensor,
    special_ids: Tensor,
    mask_id: int,
    mask_rate: float,
    generator: torch.Generator,
    wanted: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Masked input and labels: of the chosen positions 80 % become [MASK], 10 % a random token, 10 % stay.

    Args:
        token_ids: (batch, length).
        attention_mask: 1 for tokens, (batch, length).
        token_weights: ω of every token of the vocabulary that is predicted, (vocabulary,). A token of weight 0 is never
            predicted (a masked dimension); its positions do not count for the mask rate, and are read as they are.
        special_ids: ids that are never masked and never put in at random.
        mask_id: id of the mask token.
        mask_rate: expected share of the tokens of each text.
        generator: where the randomness comes from.
        wanted: what each position is to be predicted as, where that is not its own token (:func:`emlm_labels`), (batch,
            length); positions that are ``IGNORED`` there are not masked.

    Returns:
        Input ids and labels, (batch, length) both; labels are ``IGNORED`` where nothing is predicted.
    """
    maskable = attention_mask.bool() & ~torch.isin(token_ids, special_ids)
    if wanted is not None:
        maskable &= wanted != IGNORED
    targets = token_ids if wanted is None else wanted
    weights = token_weights[targets.clamp(min=0)]
    maskable &= weights > 0
    probabilities = masking_probabilities(weights, maskable, mask_rate)
    draw = torch.rand(token_ids.shape, generator=generator)
    chosen = draw < probabilities
    labels = torch.where(chosen, targets, IGNORED)
    fate = torch.rand(token_ids.shape, generator=generator)
    ordinary = torch.ones(len(token_weights), dtype=torch.bool)
    ordinary[special_ids] = False
    candidates = ordinary.nonzero().flatten()
    random_ids = candidates[torch.randint(len(candidates), token_ids.shape, generator=generator)]
    masked = torch.where(chosen & (fate < 0.8), mask_id, token_ids)
    masked = torch.where(chosen & (fate >= 0.8) & (fate < 0.9), random_ids, masked)
    return masked, labels


def emlm_labels(
    spans: NDArray[np.int64], output_spans: NDArray[np.int64], output_ids: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each input token the output token that overlaps it first (ESPLADE's extended masked language modelling).

    Args:
        spans: where each input token begins and ends in the text, in characters, (input tokens, 2); empty spans, as
            special tokens have, overlap nothing.
        output_spans: the same of the output tokens, in the text's order, (output tokens, 2).
        output_ids: their ids, (output tokens,).

    Returns:
        (input tokens,), ``IGNORED`` where no output token overlaps.
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
