"""Overlap-aware masking: new tokens are masked more often than those the encoder already knows.

The vocabulary-transfer paper masks with probability proportional to ω_t, 1 for overlapping tokens and λ for
new ones, and does not say how the overall rate is kept. Here each text's probabilities are scaled so that
the *expected* share of masked tokens is the mask rate, clipped at 1 (what the clip takes is spread over the others).
"""

from __future__ import annotations

import torch
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
) -> tuple[Tensor, Tensor]:
    """Masked input and labels: of the chosen positions 80 % become [MASK], 10 % a random token, 10 % stay.

    Args:
        token_ids: (batch, length).
        attention_mask: 1 for tokens, (batch, length).
        token_weights: ω of every token of the vocabulary, (vocabulary,).
        special_ids: ids that are never masked and never put in at random.
        mask_id: id of the mask token.
        mask_rate: expected share of the tokens of each text.
        generator: where the randomness comes from.

    Returns:
        Input ids and labels, (batch, length) both; labels are ``IGNORED`` where nothing is predicted.
    """
    maskable = attention_mask.bool() & ~torch.isin(token_ids, special_ids)
    probabilities = masking_probabilities(token_weights[token_ids], maskable, mask_rate)
    draw = torch.rand(token_ids.shape, generator=generator)
    chosen = draw < probabilities
    labels = torch.where(chosen, token_ids, IGNORED)
    fate = torch.rand(token_ids.shape, generator=generator)
    ordinary = torch.ones(len(token_weights), dtype=torch.bool)
    ordinary[special_ids] = False
    candidates = ordinary.nonzero().flatten()
    random_ids = candidates[torch.randint(len(candidates), token_ids.shape, generator=generator)]
    masked = torch.where(chosen & (fate < 0.8), mask_id, token_ids)
    masked = torch.where(chosen & (fate >= 0.8) & (fate < 0.9), random_ids, masked)
    return masked, labels
