"""Two systems' runs made into one ranking: an encoder's and BM25's, on one scale."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vtkit.data.trec import Run
from vtkit.search.measures.significance import CHANCE
from vtkit.system.results import Result

ENCODER_WEIGHT = 0.2
"""Share of the encoder in the sum where neither training queries nor spans of documents say anything."""

WEIGHTS = tuple(tenth / 10 for tenth in range(11))
"""What is tried where there are training queries: from BM25 alone to the encoder alone."""

WEIGHT_QUERIES = 1000
"""Training queries, at most, that choose the weight of the sum with BM25, sampled with the seed ..."""

FEWEST_WEIGHT_QUERIES = 50  # ... and fewer than these choose nothing: it would be chance


RATIOS = (0.5, 0.9)
"""Mean reciprocal rank of spans by the encoder over that by BM25: up to the first the encoder weighs the smaller of
these, which hardly changes BM25's ranking, from the second on the larger, and between them in proportion ..."""

RATIO_WEIGHTS = (0.05, 0.5)
"""... chosen for little loss against the best weight, and for none against BM25 (docs/evaluation.md)."""


TELLING = 0.1
"""By how much encoder or BM25 must be above the mean reciprocal rank of a random order: spans of forms, or of texts
that are all alike, find no document, and the ratio of two such ranks is noise."""


@dataclass(frozen=True)
class ProbedWeight(Result):
    """The weight of an encoder that spans of documents choose (:mod:`vtkit.evaluation.probe`)."""

    weight: float
    curve: tuple[tuple[float, float, float], ...]
    """Each of :data:`WEIGHTS` with the mean reciprocal rank of a span's own document by the sum, and p of the
    difference from BM25 alone."""

    pairs: int
    language: str = ""  # of the documents, an ISO 639 code, or several
    noise: bool = False  # whether spans tell no documents apart (TELLING), so that they choose no weight

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
        by_encoder = f"{self.pairs} spans find their own document with a mean reciprocal rank of {self.encoder:.3f}"
        found = f"{by_encoder} by the encoder, {self.bm25:.3f} by BM25"
        if self.noise:
            return f"a small weight, since spans hardly tell these documents apart: {found}"
        if self.encoder < RATIOS[1] * self.bm25 and self.curve[-1][2] < CHANCE:
            return f"{found}: the encoder finds spans worse than BM25; does it know the language {self.language!r}?"
        return found

    def contradiction(self, weight: float) -> str:
        """A clause which says that the sum with ``weight``, one of :data:`WEIGHTS`, finds less than BM25 alone."""
        found, p = next((found, p) for other, found, p in self.curve if other == weight)
        return (
            f"{self.pairs} spans find their own document with a mean reciprocal rank of {found:.3f} by the sum with "
            f"{weight:g}, {self.bm25:.3f} by BM25, p = {p:.3f}"
        )

    def contradicts(self, weight: float) -> bool:
        """Whether the sum with ``weight``, one of :data:`WEIGHTS`, finds less than BM25 alone, beyond chance."""
        return not self.noise and any(at == weight and found < self.bm25 and p < CHANCE for at, found, p in self.curve)


@dataclass(frozen=True)
class Balance(Result):
    """The weights that put the scores of encoder and BM25 on one scale. They do not depend on the evaluated queries."""

    weight: float  # w, of the encoder, between 0 (BM25 alone) and 1
    encoder_deviation: float  # σ of deviation, and so `bm25_deviation`
    bm25_deviation: float
    queries: int  # how many queries these were measured on ...
    judged: bool
    """... and whether they were training queries, which also chose the weight; otherwise ``probed`` says what the
    weight goes by."""

    curve: tuple[tuple[float, float], ...] = ()  # weight -> first measure on the training queries ...
    chosen: float | None = None  # ... and the weight that these choose (chosen_weight)
    probed: ProbedWeight | None = None  # what spans of the documents say of the weight; None where there are too few
    logged: bool = False
    """Whether queries without judgements were queries of users (``index.query_log``); otherwise spans of documents."""

    @property
    def measured_on(self) -> str:
        """The queries that the deviations were measured on, in words."""
        kind = "other judged queries" if self.judged else "queries of the log" if self.logged else "spans of documents"
        return f"{self.queries:,} {kind}"

    @property
    def deviations(self) -> tuple[float, float]:
        return self.encoder_deviation, self.bm25_deviation

    @property
    def contradicted(self) -> bool:
        """Whether spans refused the weight that the training queries chose."""
        return self.chosen is not None and self.weight != self.chosen

    @property
    def words(self) -> str:
        if not self.judged:
            return "a fixed weight" if self.probed is None else self.probed.words
        if not self.contradicted:
            return "chosen on other judged queries"
        assert self.probed is not None
        assert self.chosen is not None
        return (
            f"the other judged queries would choose {self.chosen:g}, but {self.probed.contradiction(self.chosen)}, so "
            "the smaller weight is used: the encoder may have been trained on these queries"
        )


def balance(
    encoder: Run,
    bm25: Run,
    depth: int,
    probed: ProbedWeight | None,
    judge: Callable[[Run], Mapping[str, float]] | None = None,
) -> Balance:
    """The balance of two rankings, measured on queries that are not evaluated.

    Training queries choose the weight (:func:`chosen_weight`) unless spans contradict it: an encoder that was trained
    on these queries finds their documents better than any others. Then, and without training queries, the weight is
    that of ``probed``, else ENCODER_WEIGHT.

    Args:
        encoder, bm25: what both find for training queries, or for spans of documents.
        judge: the measure of each training query in a run; None where the queries are not judged.
    """
    deviations = deviation(encoder), deviation(bm25)
    expected = ENCODER_WEIGHT if probed is None else probed.weight
    if judge is None:
        return Balance(expected, *deviations, len(bm25), judged=False, probed=probed)
    values = {}
    for weight in WEIGHTS:
        by_query = judge(weighted_sum(encoder, bm25, depth, weight, deviations))
        values[weight] = np.array([by_query[query] for query in sorted(by_query)])
    chosen = chosen_weight(values, expected)
    refused = probed is not None and probed.contradicts(chosen)
    weight = min(chosen, expected) if refused else chosen
    curve = tuple((weight, float(found.mean())) for weight, found in values.items())
    return Balance(weight, *deviations, len(bm25), True, curve, chosen, probed)


def weighted_sum(encoder: Run, bm25: Run, depth: int, weight: float, deviations: tuple[float, float]) -> Run:
    """S = w · S_encoder / σ_encoder + (1 − w) · S_BM25 / σ_BM25 over the union of both lists.

    σ is one number a system, known before any query is asked (:func:`balance`), so that the sum is a fixed linear
    combination of the two scores, which any engine can compute, and a query's results depend on no other query. CAI
    (arXiv:2211.03988) adds the scores as they are, which leaves the balance to the scale
    that a model happens to have. A document that only one list holds has 0 for the other: it scored below that
    list's last. A list that weighs nothing adds no documents: with w = 0 the sum is BM25's ranking, ties included.

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
