"""The fusion of two rankings, an encoder's and BM25's, on one scale, and the weight of the encoder in it."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from vtkit.data.synthetic_queries import SnippetPairs
from vtkit.data.trec import Run
from vtkit.search.measures.significance import CHANCE, paired_randomization
from vtkit.system.results import Result

ENCODER_WEIGHT = 0.2
"""Share of the encoder in the sum where neither training queries nor snippets of documents say anything."""

WEIGHTS = tuple(tenth / 10 for tenth in range(11))
"""What is tried where there are training queries: from BM25 alone to the encoder alone."""

RATIOS = (0.5, 0.9)
"""Mean reciprocal rank of snippets by the encoder over that by BM25: up to the first the encoder weighs the smaller of
:data:`RATIO_WEIGHTS`, which hardly changes BM25's ranking, from the second on the larger, and between them in
proportion."""

RATIO_WEIGHTS = (0.05, 0.5)
"""Chosen for little loss against the best weight, and for none against BM25 (docs/evaluation.md)."""

TELLING = 0.1
"""By how much encoder or BM25 must be above the mean reciprocal rank of a random order: snippets of forms, or of texts
that are all alike, find no document, and the ratio of two such ranks is noise."""


@dataclass(frozen=True)
class SnippetWeight(Result):
    """The weight of an encoder beside BM25 that snippets of documents choose."""

    weight: float
    curve: tuple[tuple[float, float, float], ...]
    """Each of :data:`WEIGHTS` with the mean reciprocal rank of a snippet's own document by the sum, and p of the
    difference from BM25 alone."""

    pairs: int
    language: str = ""  # of the documents, an ISO 639 code, or several
    noise: bool = False  # whether snippets tell no documents apart (TELLING), so that they choose no weight

    @classmethod
    def of(cls, pairs: SnippetPairs, encoder: Run, bm25: Run, language: str) -> Self:
        """Turn the ratio of two systems' results for snippets into a weight, by :data:`RATIOS`.

        The weight at which the sum finds *snippets* best is no guide, since snippets repeat the words of their
        documents and so favour BM25. How far an encoder lies behind BM25 on them tells one that helps from one that
        does not. An encoder that adds nothing to BM25 on snippets at any weight has the smallest of
        :data:`RATIO_WEIGHTS`. If snippets tell no documents apart, no encoder has more than :data:`ENCODER_WEIGHT`.

        Args:
            encoder, bm25: what both find among the documents of ``pairs``, which are called by their numbers.
            language: of BM25.
        """
        count, deviations, alone = len(pairs), (deviation(encoder), deviation(bm25)), pairs.reciprocal_ranks(bm25)
        curve = []
        for weight in WEIGHTS:
            both = pairs.reciprocal_ranks(weighted_sum(encoder, bm25, count, weight, deviations))
            p = paired_randomization(dict(enumerate(both)), dict(enumerate(alone)))
            curve.append((weight, float(both.mean()), p))
        by_bm25, by_encoder = curve[0][1], curve[-1][1]
        ratio = by_encoder / max(by_bm25, 1e-9) if any(found > by_bm25 for _, found, _ in curve[1:]) else 0.0
        noise = max(by_bm25, by_encoder) < float(np.mean(1 / np.arange(1, count + 1))) + TELLING
        chosen = round(float(np.interp(ratio, RATIOS, RATIO_WEIGHTS)), 2)
        return cls(ENCODER_WEIGHT if noise and ratio > RATIOS[0] else chosen, tuple(curve), count, language, noise)

    @property
    def bm25(self) -> float:
        """Mean reciprocal rank by BM25 alone."""
        return self.curve[0][1]

    @property
    def encoder(self) -> float:
        """Mean reciprocal rank by the encoder alone."""
        return self.curve[-1][1]

    @property
    def words(self) -> str:
        by_encoder = f"{self.pairs} snippets find their own document with a mean reciprocal rank of {self.encoder:.3f}"
        found = f"{by_encoder} by the encoder, {self.bm25:.3f} by BM25"
        if self.noise:
            return f"a small weight, since snippets hardly tell these documents apart: {found}"
        if self.encoder < RATIOS[1] * self.bm25 and self.curve[-1][2] < CHANCE:
            return f"{found}: the encoder finds snippets worse than BM25; does it know the language {self.language!r}?"
        return found

    def contradiction(self, weight: float) -> str:
        """A clause which says that the sum with ``weight``, one of :data:`WEIGHTS`, finds less than BM25 alone, beyond
        chance; empty if it does not."""
        found, p = next((found, p) for other, found, p in self.curve if other == weight)
        if self.noise or found >= self.bm25 or p >= CHANCE:
            return ""
        return (
            f"{self.pairs} snippets find their own document with a mean reciprocal rank of {found:.3f} by the sum with "
            f"{weight:g}, {self.bm25:.3f} by BM25, p = {p:.3f}"
        )


Kind = Literal["other judged queries", "queries of the log", "snippets"]
"""Training queries, which choose the weight; queries of users (``index.query_log``) or random snippets of documents,
which have no judgements."""


@dataclass(frozen=True)
class FusionWeight(Result):
    """The weight of an encoder beside BM25, and what puts their scores on one scale. Neither depends on the evaluated
    queries."""

    weight: float  # w, of the encoder, between 0 (BM25 alone) and 1
    deviations: tuple[float, float]  # σ of encoder and BM25 (deviation)
    queries: int  # number of queries that these were measured on ...
    kind: Kind  # ... and what they are
    snippets: SnippetWeight | None = None  # the weight that snippets choose; None if there are too few
    curve: tuple[tuple[float, float], ...] = ()  # weight -> first measure on the training queries ...
    chosen: float | None = None  # ... and the weight that these choose (chosen_weight)

    @classmethod
    def of(
        cls,
        encoder: Run,
        bm25: Run,
        depth: int,
        kind: Kind,
        snippets: SnippetWeight | None,
        judge: Callable[[Run], Mapping[str, float]] | None = None,
    ) -> Self:
        """The weight of a ranking beside BM25's, measured on queries that are not evaluated.

        Training queries choose the weight (:func:`chosen_weight`) unless snippets contradict it: an encoder that was
        trained on these queries finds their documents better than any others. Then, and without training queries, the
        weight is that of ``snippets``, else :data:`ENCODER_WEIGHT`.

        Args:
            encoder, bm25: what both find for queries of this ``kind``.
            judge: the measure of each training query in a run; None where the queries are not judged.
        """
        expected = ENCODER_WEIGHT if snippets is None else snippets.weight
        alone = cls(expected, (deviation(encoder), deviation(bm25)), len(bm25), kind, snippets)
        if judge is None:
            return alone
        values = {}
        for weight in WEIGHTS:
            by_query = judge(weighted_sum(encoder, bm25, depth, weight, alone.deviations))
            values[weight] = np.array([by_query[query] for query in sorted(by_query)])
        chosen = chosen_weight(values, expected)
        refused = snippets is not None and snippets.contradiction(chosen)
        curve = tuple((weight, float(found.mean())) for weight, found in values.items())
        return replace(alone, weight=min(chosen, expected) if refused else chosen, curve=curve, chosen=chosen)

    @property
    def contradicted(self) -> bool:
        """Whether snippets refused the weight that the training queries chose."""
        return self.chosen is not None and self.weight != self.chosen

    @property
    def words(self) -> str:
        if self.chosen is None:
            return "a fixed weight" if self.snippets is None else self.snippets.words
        if self.snippets is None or not self.contradicted:
            return "chosen on other judged queries"
        return (
            f"the other judged queries would choose {self.chosen:g}, but {self.snippets.contradiction(self.chosen)}, "
            "so the smaller weight is used: the encoder may have been trained on them"
        )


def weighted_sum(encoder: Run, bm25: Run, depth: int, weight: float, deviations: tuple[float, float]) -> Run:
    """S = w · S_encoder / σ_encoder + (1 − w) · S_BM25 / σ_BM25 over the union of both lists.

    σ is one number a system, known before any query is asked (:class:`FusionWeight`), so that the sum is a fixed linear
    combination of the two scores, which any engine can compute, and a query's results depend on no other query. CAI
    (arXiv:2211.03988) adds the scores as they are, which leaves the weight to the scale that a model happens to have.
    A document that only one list holds has 0 for the other: it scored below that list's last. A list that weighs
    nothing adds no documents: with w = 0 the sum is BM25's ranking, ties included.

    Args:
        encoder, bm25: the runs; the result has the queries of both.
        weight: w, between 0 (BM25 alone) and 1.
        deviations: σ_encoder and σ_BM25.
    """
    of_encoder, of_bm25 = weight / deviations[0], (1 - weight) / deviations[1]
    encoder, bm25 = encoder if of_encoder else {q: [] for q in encoder}, bm25 if of_bm25 else {q: [] for q in bm25}
    return combined(encoder, bm25, depth, lambda own, words: of_encoder * own + of_bm25 * words)


def combined(encoder: Run, bm25: Run, depth: int, score: Callable[[float, float], float]) -> Run:
    """``score(S_encoder, S_BM25)`` over the union of both lists, where a score that a list lacks is 0. Equal scores
    keep the order in which documents come, the encoder's first."""
    joined: Run = {}
    for query in {**encoder, **bm25}:
        own, words = dict(encoder.get(query, [])), dict(bm25.get(query, []))
        scores = {document: score(own.get(document, 0.0), words.get(document, 0.0)) for document in own | words}
        joined[query] = sorted(scores.items(), key=lambda result: -result[1])[:depth]
    return joined


AS_THEY_ARE: Mapping[str, Callable[[float, float], float]] = {"raw": operator.add, "max": max, "product": operator.mul}
"""Combinations of scores as they are. ``raw``: CAI's Hybrid (arXiv:2211.03988, eq. 8 and 9). ``product``: LaPraDoR's
(arXiv:2203.06169). ``max``: the larger score, which neither CAI's text nor its code has. The BM25 of these papers is
over words, with b = 0.4."""


def above_last(run: Run) -> Run:
    """Each score less the last of its list: a dense document that a list lacks then counts in a sum as its last."""
    return {query: [(name, score - results[-1][1]) for name, score in results] for query, results in run.items()}


def chosen_weight(values: Mapping[float, npt.NDArray[np.float64]], expected: float) -> float:
    """The weight nearest to ``expected`` among those that are not significantly worse than the best.

    Not told from it: the mean difference over the queries is at most its standard error. This is the
    one-standard-error rule of model selection (Breiman et al., Classification and Regression Trees, 1984). On some
    hundred queries the curve is flat and its highest point chance, while ``expected`` is known without them.

    Args:
        values: weight -> the measure of each query.
        expected: the weight that would be taken without judgements.
    """
    best = max(values, key=lambda weight: (round(float(values[weight].mean()), 9), -abs(weight - expected)))

    def told_apart(weight: float) -> bool:
        difference = values[best] - values[weight]
        return float(difference.mean()) > float(difference.std(ddof=1)) / math.sqrt(len(difference)) + 1e-12

    return min((weight for weight in values if not told_apart(weight)), key=lambda weight: abs(weight - expected))


def deviation(run: Run) -> float:
    """The mean, over the queries with results, of the standard deviation of a query's scores; 1 if that is 0."""
    deviations = []
    for results in run.values():
        if results:
            mean = math.fsum(score for _, score in results) / len(results)
            deviations.append(math.sqrt(math.fsum((score - mean) ** 2 for _, score in results) / len(results)))
    return (math.fsum(deviations) / len(deviations) if deviations else 0.0) or 1.0
