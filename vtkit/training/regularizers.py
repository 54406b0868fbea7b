"""Penalties that keep vectors sparse, and the schedule by which they come in."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def flops(weights: Tensor) -> Tensor:
    """Expected cost of scoring: the squared mean activation of each term, summed over terms.

    The smooth FLOPS relaxation of Paria et al. (2020, arXiv:2004.05665), as SPLADE uses it:
    ``sum_j (mean_i w_ij)^2``.

    Args:
        weights: non-negative term weights of the queries or of the documents of a batch, (batch, vocabulary).

    Returns:
        Scalar, in squared weight units; it grows with the vocabulary, so a penalty strength
        tuned for one vocabulary size does not carry over to another.
    """
    return weights.mean(dim=0).square().sum()


def quadratic_ramp(strength: float, ramp_steps: int) -> Callable[[int], float]:
    """λ(t) = λ · min(1, t/T)², SPLADE's schedule, with λ = ``strength`` and T = ``ramp_steps``."""
    return lambda step: strength * min(1.0, step / max(ramp_steps, 1)) ** 2
