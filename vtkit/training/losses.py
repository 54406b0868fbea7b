"""Losses over the term weights of queries and documents: one function each, with its equation."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def info_nce(queries: Tensor, documents: Tensor, scale: float = 1.0) -> Tensor:
    """InfoNCE with in-batch negatives: mean_i -log softmax_j(scale · q_i · d_j)[i].

    van den Oord et al. (2018, arXiv:1807.03748). Scores are dot products of term weights.

    Args:
        queries: (n, vocabulary).
        documents: (n + m, vocabulary): the i-th is relevant to the i-th query, all others are its
            negatives; the m last are hard negatives of some query.
        scale: inverse temperature.

    Returns:
        Scalar, in nats.
    """
    scores = scale * (queries @ documents.t())
    return nn.functional.cross_entropy(scores, torch.arange(len(queries), device=scores.device))
