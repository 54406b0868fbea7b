"""Losses of fine-tuning, as modules for ``SparseEncoderTrainer``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from sentence_transformers import SparseEncoder
from torch import Tensor, nn

from vtkit.training.gates import CollapseGate, LossGate
from vtkit.training.regularizers import flops, quadratic_ramp

TEXTS_A_GROUP = 8
"""Texts that go through the encoder together; small groups of similar length waste little on padding."""


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


class ContrastiveWithFlops(nn.Module):
    """InfoNCE plus λ_q FLOPS(queries) + λ_d FLOPS(documents), both penalties under a quadratic ramp.

    The document term is the penalty over all documents of the batch, positives and negatives together.
    Columns of the training data: query, document, and any number of hard negatives.

    Args:
        model: the encoder; its forward gives term weights.
        step: tells the current optimiser step (the trainer's own counter, so that it is in the checkpoint).
        ramp_steps: step at which the penalties have their full strength.
        query_flops: λ_q.
        document_flops: λ_d.
        scale: see :func:`info_nce`.
        gate: sees every batch and stops a collapsed run.
    """

    def __init__(
        self,
        model: SparseEncoder,
        *,
        step: Callable[[], int],
        ramp_steps: int,
        query_flops: float,
        document_flops: float,
        scale: float,
        gate: CollapseGate,
    ) -> None:
        super().__init__()
        self.model = model
        self.step, self.ramp_steps = step, ramp_steps
        self.query_flops, self.document_flops, self.scale = query_flops, document_flops, scale
        self.gate = gate
        self.explosion = LossGate("fine-tuning", "Lower finetune.learning_rate or finetune.scale.")
        self._active: list[tuple[float, float]] = []

    def forward(self, features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> dict[str, Tensor]:
        queries, *columns = [self._term_weights(column) for column in features]
        documents = torch.cat(columns)
        ramp = quadratic_ramp(self.step(), self.ramp_steps)
        loss = {
            "contrastive": info_nce(queries, documents, self.scale),
            "query_flops": ramp * self.query_flops * flops(queries),
            "document_flops": ramp * self.document_flops * flops(documents),
        }
        with torch.no_grad():
            total = torch.stack(list(loss.values())).sum()
            self.explosion(self.step(), loss["contrastive"])
            self.gate(self.step(), queries, documents, queries @ documents.t(), total)
            self._active.append((_mean_active(queries), _mean_active(documents)))
        return loss

    def _term_weights(self, features: dict[str, Tensor]) -> Tensor:
        """The column's term weights, computed in groups of similar length: padding a whole batch to its longest
        text nearly doubles the tokens of real collections."""
        lengths = features["attention_mask"].sum(dim=1)
        order = torch.argsort(lengths, stable=True)
        groups = []
        for rows in torch.split(order, TEXTS_A_GROUP):
            longest = int(lengths[rows[-1]])
            group = {name: tensor[rows, :longest] for name, tensor in features.items()}
            groups.append(self.model(group)["sentence_embedding"].float())
        return torch.cat(groups)[torch.argsort(order)]

    def take_active_dimensions(self) -> dict[str, float]:
        """Mean active dimensions of the batches since the last call, for the training log."""
        seen, self._active = self._active, []
        if not seen:
            return {}
        queries, documents = zip(*seen, strict=True)
        return {
            "query_dimensions": round(sum(queries) / len(seen), 2),
            "document_dimensions": round(sum(documents) / len(seen), 2),
        }


def _mean_active(vectors: Tensor) -> float:
    return float((vectors > 0).sum(dim=1).float().mean())
