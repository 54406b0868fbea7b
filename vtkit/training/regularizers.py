"""Penalties that keep vectors sparse, and the schedule by which they come in."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, cat

from vtkit.training.objective import Batch, Term


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


def flops_terms(queries: float | None, documents: float, ramp_steps: int) -> list[Term]:
    """λ_q FLOPS(queries) + λ_d FLOPS(documents), both under a quadratic ramp.

    The document term is over everything in a batch that a collection could hold: positives, hard negatives and target
    sides of sentence pairs.

    Args:
        queries: λ_q; None where a batch has no queries of its own.
        documents: λ_d.
        ramp_steps: step at which the penalties have their full strength.
    """
    terms = [Term("document_flops", lambda batch: flops(_documents(batch)), quadratic_ramp(documents, ramp_steps))]
    if queries is not None:
        terms.insert(0, Term("query_flops", lambda batch: flops(batch.queries), quadratic_ramp(queries, ramp_steps)))
    return terms


def _documents(batch: Batch) -> Tensor:
    if batch.sentences is None or batch.sentences is batch.documents:
        return batch.documents
    return cat([batch.documents, batch.sentences])
