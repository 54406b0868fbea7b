"""How much an encoder weighs beside BM25 where no judgements say so: by probe pairs out of the documents."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.sampling import draw
from vtkit.data.trec import Run
from vtkit.evaluation.balance import WEIGHTS, ProbedWeight, deviation, weighted_sum
from vtkit.evaluation.measures.significance import paired_randomization
from vtkit.evaluation.probe import FEWEST_PAIRS, Probe, bm25_run, by_number, names_of, own_reciprocal_ranks, probe_of
from vtkit.evaluation.systems import System
from vtkit.settings.analysers import Analysis

PAIRS = 500  # probe pairs at most: with 300 a difference of .01 was not told from chance (docs/log.md)

RATIOS = (0.5, 0.9)
"""Mean reciprocal rank of spans by the encoder over that by BM25: up to the first the encoder weighs the smaller of
these, which hardly changes BM25's ranking, from the second on the larger, and between them in proportion ..."""

RATIO_WEIGHTS = (0.05, 0.5)
"""... chosen for little loss against the best weight, and for none against BM25 (docs/evaluation.md)."""


def probed_by_spans(
    collection: RetrievalSet,
    system_over: Callable[[RetrievalSet], System],
    seed: int,
    language: str,
    analysis: Analysis,
) -> ProbedWeight | None:
    """:func:`probed_weight` of a system, by spans of the documents of ``collection``.

    Args:
        system_over: the system over the documents of a probe.
    """
    contents = (document.contents for document in collection.documents)
    probe = probe_of(draw(contents, PAIRS, seed), PAIRS, seed)
    if not probe.queries:
        return None
    asked = RetrievalSet(
        f"spans of {collection.name}",
        [Document(str(number), "", text) for number, text in enumerate(probe.documents)],
        [Query(str(number), text) for number, text in enumerate(probe.queries)],
        {},
    )
    run = system_over(asked).rank(asked, len(probe.documents)).run
    return probed_weight(probe, run, language, analysis)


def probed_weight(probe: Probe, encoder: Run, language: str, analysis: Analysis) -> ProbedWeight | None:
    """The weight by how well the encoder finds the documents of spans, in comparison with BM25 (:data:`RATIOS`).

    The weight at which the sum finds *spans* best is no guide, since spans repeat the words of their documents and so
    favour BM25. How far an encoder lies behind BM25 on them tells one that helps from one that does not. An encoder
    that adds nothing to BM25 on spans at any weight has the smallest of :data:`RATIO_WEIGHTS`.

    Args:
        encoder: what it finds for the queries of ``probe`` among its documents, all called by their numbers.
        language, analysis: of BM25.

    Returns:
        None where there are too few pairs to tell.
    """
    count = len(probe.queries)
    if count < FEWEST_PAIRS:
        return None
    names, bm25 = names_of(probe), bm25_run(probe, language, analysis)
    deviations = deviation(encoder), deviation(bm25)
    alone = own_reciprocal_ranks(bm25, names)
    curve = []
    for weight in WEIGHTS:
        both = own_reciprocal_ranks(weighted_sum(encoder, bm25, count, weight, deviations), names)
        curve.append((weight, float(both.mean()), paired_randomization(by_number(both), by_number(alone))))
    helps = any(found > curve[0][1] for _, found, _ in curve[1:])
    ratio = curve[-1][1] / max(curve[0][1], 1e-9) if helps else 0.0
    return ProbedWeight(round(float(np.interp(ratio, RATIOS, RATIO_WEIGHTS)), 2), tuple(curve), count)
