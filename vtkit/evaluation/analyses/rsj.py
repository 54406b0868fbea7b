"""Whether a system weighs query terms as the judgements say (Robertson Spärck Jones weights, CAI figure 2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from vtkit.system.results import Result

RETRIEVED = 100  # K: first results that stand in for the relevant documents in the estimated weight
HIGH_RSJ = 75  # percentile of all RSJ weights from which one counts as high; IDF is split at its median


@dataclass(frozen=True)
class GroupGap(Result):
    """ΔRSJ of one group of query terms."""

    terms: int  # pairs of a query and one of its terms
    mean: float | None
    """Mean ΔRSJ: below 0 the system gives these terms too little weight, above 0 too much. None without terms."""

    deviation: float | None


@dataclass(frozen=True)
class RsjGap(Result):
    """ΔRSJ of a system by groups of terms."""

    high_rsj_high_idf: GroupGap
    """Rare terms that tell relevant documents apart: what a change of vocabulary should help."""

    high_rsj_low_idf: GroupGap
    low_rsj_high_idf: GroupGap
    low_rsj_low_idf: GroupGap
    queries: int


def rsj_weights(presence: sp.csc_matrix, terms: NDArray[np.int64], relevant: NDArray[np.int64]) -> NDArray[np.float64]:
    """RSJ_t = log p(t|R) p(¬t|¬R) / (p(¬t|R) p(t|¬R)) of each of ``terms`` (CAI, arXiv:2211.03988, eq. 18).

    Robertson and Spärck Jones' correction of ½ keeps the weight finite: p(t|R) = (r + ½)/(R + 1) and
    p(t|¬R) = (n - r + ½)/(N - R + 1), with N documents, n of them with t, R relevant ones, r of them with t. The paper
    does not say how it avoids zeros.

    Args:
        presence: which document holds which term, (documents, terms), 1 where it does.
        terms: the query's terms.
        relevant: numbers of the relevant documents; with the first K results in their place the weight is the one
            that a system acts on (eq. 19).
    """
    chosen = presence[:, terms]
    held = np.asarray(chosen.sum(axis=0), dtype=float).ravel()
    both = np.asarray(chosen[relevant].sum(axis=0), dtype=float).ravel()
    documents = presence.shape[0]
    of_relevant = (both + 0.5) / (len(relevant) + 1)
    of_others = (held - both + 0.5) / (documents - len(relevant) + 1)
    return np.asarray(np.log(of_relevant * (1 - of_others) / ((1 - of_relevant) * of_others)))


def rsj_gap(
    presence: sp.csc_matrix,
    queries: Sequence[NDArray[np.int64]],
    relevant: Sequence[NDArray[np.int64]],
    retrieved: Sequence[NDArray[np.int64]],
) -> RsjGap:
    """ΔRSJ = estimated - true weight, by groups of terms.

    The paper's eq. 10 has the opposite sign, but its text and figure 2 read a positive value as a weight that is too
    high, as the analysis it follows does; so does this one.

    Args:
        presence: as for :func:`rsj_weights`.
        queries: the distinct terms of each query; a query without terms or without a relevant document is passed over.
        relevant: numbers of the relevant documents of each query.
        retrieved: numbers of each query's results, best first; the first :data:`RETRIEVED` count.
    """
    documents = presence.shape[0]
    frequency = np.asarray(presence.sum(axis=0), dtype=float).ravel()
    idf = np.log(documents / np.maximum(frequency, 1))
    true, estimated, rarity, counted = [np.empty(0)], [np.empty(0)], [np.empty(0)], 0
    for terms, judged, results in zip(queries, relevant, retrieved, strict=True):
        if len(terms) and len(judged) and len(results):
            counted += 1
            true.append(rsj_weights(presence, terms, judged))
            estimated.append(rsj_weights(presence, terms, results[:RETRIEVED]))
            rarity.append(idf[terms])
    weights, gap = np.concatenate(true), np.concatenate(estimated) - np.concatenate(true)
    rare = np.concatenate(rarity)
    high = weights >= np.percentile(weights, HIGH_RSJ) if len(weights) else weights > 0
    high_idf = rare >= np.median(rare) if len(rare) else rare > 0
    groups = high & high_idf, high & ~high_idf, ~high & high_idf, ~high & ~high_idf
    gaps = [
        GroupGap(len(of), float(of.mean()), float(of.std())) if len(of) else GroupGap(0, None, None)
        for of in (gap[group] for group in groups)
    ]
    return RsjGap(gaps[0], gaps[1], gaps[2], gaps[3], counted)
