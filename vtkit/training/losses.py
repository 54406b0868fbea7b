"""Losses over the term weights of queries and documents: one function each, with its equation. Those that recipes name
have their names in :data:`vtkit.settings.finetune.LOSSES`."""

import torch
from torch import Tensor, nn

LISTWISE_TEMPERATURE = 0.25
"""Divides a teacher's scores, in standard deviations of its scores of a query, inside their softmax."""


def infonce(scores: Tensor, scale: float = 1.0, repeated: Tensor | None = None) -> Tensor:
    """InfoNCE with in-batch negatives (van den Oord et al. 2018, arXiv:1807.03748): mean_i -log softmax_j(scale ·
    s_ij)[i].

    Args:
        scores: (n, n + m): the i-th document is relevant to the i-th query, all others are its negatives.
        scale: inverse temperature.
        repeated: (n, n + m), True where a document is relevant to the query but not its own: no part in the softmax.

    Returns:
        Scalar, in nats.
    """
    scores = scale * scores
    if repeated is not None:
        scores = scores.masked_fill(repeated, -torch.inf)
    return nn.functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


def own_candidates(scores: Tensor) -> Tensor:
    """Each query's scores of its own documents, its relevant one first, (n, c), among ``scores``, (n, c · n): documents
    i, n + i, 2n + i, … are the i-th query's own."""
    queries = len(scores)
    return scores.view(queries, -1, queries).diagonal(dim1=0, dim2=2).t()


def margin_mse(student: Tensor, teacher: Tensor) -> Tensor:
    """mean_ik ((s_i0 - s_ik) - (t_i0 - t_ik))², k from 1 (Hofstätter et al. 2020, arXiv:2010.02666).

    Args:
        student: scores of each query's own documents, the relevant one first, (queries, documents), two or more.
        teacher: the same; no gradient.

    Returns:
        Scalar, in squared units of the scores.
    """
    return nn.functional.mse_loss(student[:, :1] - student[:, 1:], teacher[:, :1] - teacher[:, 1:])


def kl(student: Tensor, teacher: Tensor) -> Tensor:
    """mean_i KL(p_i ‖ q_i), p_i the softmax of the teacher's scores of the query's own documents and q_i that of the
    student's (Lin et al. 2020, arXiv:2010.11386); a scalar, in nats.

    Args:
        student: scores, (queries, documents).
        teacher: the same; no gradient.
    """
    log_p = nn.functional.log_softmax(teacher, dim=1)
    log_q = nn.functional.log_softmax(student, dim=1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=1).mean()


def symmetric_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """mean_i KL(p_i ‖ q_i) + KL(q_i ‖ p_i), Jeffreys' divergence, p and q the softmax of the rows of ``teacher`` and
    ``student``, each divided by ``temperature``; a scalar, in nats.

    Args:
        student: scores, (queries, documents).
        teacher: the same; no gradient.
    """
    log_q = nn.functional.log_softmax(student / temperature, dim=1)
    log_p = nn.functional.log_softmax(teacher / temperature, dim=1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=1).mean()


def listwise(student: Tensor, teacher: Tensor, temperature: float = LISTWISE_TEMPERATURE) -> Tensor:
    """mean_i KL(p_i ‖ q_i), q_i the softmax of the student's scores and p_i that of the teacher's in standard
    deviations of its scores of the query, divided by ``temperature``; a scalar, in nats.

    Args:
        student: scores, (queries, documents).
        teacher: the same, NaN where it was not asked: no part in either softmax. A query whose scores are all equal
            counts 0.
    """
    scaled = standardized(teacher)
    scored = ~scaled.isnan()
    tells = (scaled.nan_to_num() != 0).any(dim=1)
    log_p = nn.functional.log_softmax((scaled / temperature).masked_fill(~scored, -torch.inf), dim=1)
    log_q = nn.functional.log_softmax(student.masked_fill(~scored, -torch.inf), dim=1)
    divergence = torch.where(scored, log_p.exp() * (log_p - log_q), 0.0).sum(dim=1)
    return torch.where(tells, divergence, 0.0).mean()


def standardized(scores: Tensor) -> Tensor:
    """(s_ij - mean_j s_ij) / deviation_j s_ij of ``scores``, (queries, documents), over the documents j that a teacher
    was asked about, NaN for the others; 0 where all are equal."""
    scored = ~scores.isnan()
    count = scored.sum(dim=1, keepdim=True).clamp(min=1)
    filled = torch.where(scored, scores, 0.0)
    centred = torch.where(scored, filled - filled.sum(dim=1, keepdim=True) / count, 0.0)
    deviation = (centred.square().sum(dim=1, keepdim=True) / count).sqrt()
    tells = deviation > 1e-6 * filled.abs().amax(dim=1, keepdim=True)
    return torch.where(tells, centred / deviation.clamp(min=1e-12), 0.0).masked_fill(~scored, torch.nan)
