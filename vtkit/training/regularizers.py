"""Penalties that keep vectors sparse, computed on all queries, or all documents, of a batch, and the schedule by which
they come in."""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor, nn

from vtkit.settings.finetune import FlopsDefinition

Penalty = Callable[[Tensor], Tensor]  # term weights of one side of a batch, (texts, vocabulary) -> a scalar


def flops(weights: Tensor) -> Tensor:
    """The smooth FLOPS relaxation of Paria et al. (2020, arXiv:2004.05665), as SPLADE uses it: ``sum_j (mean_i
    w_ij)^2``.

    Args:
        weights: non-negative term weights of the queries or of the documents of a batch, (batch, vocabulary).

    Returns:
        Scalar, in squared weight units; it grows with the vocabulary, and strengths do not carry over to another size.
    """
    return weights.mean(dim=0).square().sum()


def of_documents(value: Penalty, relevant: Tensor, negatives: Tensor, definition: FlopsDefinition) -> Tensor:
    """A penalty of a batch's relevant documents and hard negatives; without negatives, ``value(relevant)``.

    ``batch``: value(relevant ∪ negatives), as sentence-transformers has it. ``splade``: (value(relevant) +
    value(negatives)) / 2, as the code of SPLADE (arXiv:2107.05720). ``cai``: the sum, as the code of CAI
    (arXiv:2211.03988).

    Args:
        value: FLOPS, or the cased penalty.
        relevant: non-negative term weights, (n, vocabulary).
        negatives: those of all hard negatives, (m, vocabulary).
    """
    if definition == "batch" or not len(negatives):
        return value(torch.cat([relevant, negatives]))
    both = value(relevant) + value(negatives)
    return both / 2 if definition == "splade" else both


def l1(weights: Tensor) -> Tensor:
    """mean_i Σ_j w_ij of non-negative term weights, (batch, vocabulary): a scalar in weight units."""
    return weights.sum(dim=1).mean()


def masked_flops(weights: Tensor, dimensions: int) -> Tensor:
    """Σ_j (1/n Σ_i [ℓ₀(w_i) > t] w_ij)²: FLOPS of the texts with more than ``dimensions`` active dimensions, the mean
    still over all n texts (Shen et al. 2025, arXiv:2504.14839; t is 150 for documents). A scalar in squared weight
    units.

    Args:
        weights: non-negative term weights, (batch, vocabulary).
        dimensions: t.
    """
    longer = (weights > 0).sum(dim=1, keepdim=True) > dimensions
    return flops(weights * longer)


def df_weights(shares: Tensor, alpha: float, beta: float) -> Tensor:
    """1 / (1 + (x^(log_α 2) - 1)^β), x the share of texts that activate each dimension, (vocabulary,): 0 for none, ½ at
    α, 1 for all; a larger β is steeper."""
    return 1 / (1 + (shares.pow(log(2) / log(alpha)) - 1).clamp(min=0).pow(beta))


class DfFlops(nn.Module):
    """Σ_j (v_j · mean_i w_ij)², v_j the :func:`df_weights` of the share of texts that activate j: DF-FLOPS of Porco et
    al. (2025, arXiv:2505.15070), who count on a validation set every 100 steps. Here the shares are those of the
    training batches: their mean over the first ``memory`` steps, then an exponential mean over about as many."""

    shares: Tensor
    batches: Tensor

    def __init__(self, vocabulary: int, alpha: float = 0.1, beta: float = 10.0, memory: int = 100) -> None:
        super().__init__()
        self.alpha, self.beta, self.memory = alpha, beta, memory
        self.register_buffer("shares", torch.zeros(vocabulary))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, weights: Tensor) -> Tensor:
        """The penalty of a batch's texts, (texts, vocabulary); the shares count these first."""
        with torch.no_grad():
            self.batches += 1
            active = (weights > 0).float().mean(dim=0)
            self.shares += (active - self.shares) / self.batches.clamp(max=self.memory)
            weighing = df_weights(self.shares, self.alpha, self.beta)
        return flops(weights * weighing)


def cased(weights: Tensor, dimensions: Tensor) -> Tensor:
    """Σ_i Σ_{j in C} w_ij²: the cased regulariser of the casing study (ECIR 2026, eq. 3). A scalar in squared weight
    units; it grows with the batch, so a strength tuned for one batch size does not carry over to another.

    Args:
        weights: non-negative term weights, (batch, vocabulary).
        dimensions: C, as numbers.
    """
    return weights[:, dimensions.to(weights.device)].square().sum()


def quadratic_ramp(strength: float, ramp_steps: int) -> Callable[[int], float]:
    """λ(t) = λ · min(1, t/T)², SPLADE's schedule, with λ = ``strength`` and T = ``ramp_steps``."""
    return lambda step: strength * min(1.0, step / max(ramp_steps, 1)) ** 2
