"""The weight of an encoder beside BM25 where no judgements say so."""

import numpy as np
import pytest

from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.trec import Run, to_run
from vtkit.evaluation.balance import FEWEST_WEIGHT_QUERIES, WEIGHTS, deviation
from vtkit.evaluation.balancing import balance_of, balancing_queries
from vtkit.evaluation.probe import RATIO_WEIGHTS, RATIOS, Probe, probed_weight
from vtkit.evaluation.systems import Bm25System

WORDS = ["river", "stone", "oak", "lamp", "cloud", "glass", "wheel", "salt"]
PAIRS = 80


def probe(pairs: int = PAIRS) -> Probe:
    """Documents whose query has a word that a tenth of them share, so that BM25 finds the right tenth and no more."""
    draw = np.random.default_rng(3)
    topics = [f"topic{number % 8}" for number in range(pairs)]
    documents = [f"{topic} {' '.join(draw.choice(WORDS, 5))}" for topic in topics]
    return Probe([f"{topic} unheard of" for topic in topics], documents)


def found_by(pairs: int, own: float, noise: float, seed: int = 1) -> Run:
    """The run of an encoder that gives a query's own document ``own`` and all documents noise."""
    draw = np.random.default_rng(seed)
    scores = own * np.eye(pairs) + noise * draw.random((pairs, pairs))
    order = np.argsort(-scores, axis=1)
    names = [str(number) for number in range(pairs)]
    return to_run(names, names, order, np.take_along_axis(scores, order, axis=1))


def test_the_weight_goes_by_how_far_the_encoder_lies_behind_bm25_on_spans() -> None:
    """In proportion between 0.5 and 0.8 of BM25's mean reciprocal rank, and never more than at 0.8."""
    found = [
        probed_weight(probe(), found_by(PAIRS, own, 1.0), language="en", analysis="words") for own in (0, 0.5, 0.6, 2)
    ]
    ratios = []
    for each in found:
        assert [weight for weight, _, _ in each.curve] == list(WEIGHTS)
        ratios.append(each.encoder / each.bm25)
        share = min(max((ratios[-1] - RATIOS[0]) / (RATIOS[1] - RATIOS[0]), 0), 1)
        assert each.weight == round(RATIO_WEIGHTS[0] + share * (RATIO_WEIGHTS[1] - RATIO_WEIGHTS[0]), 2)
        assert f"{PAIRS} spans find" in each.words
    assert ratios == sorted(ratios)
    assert ratios[0] < RATIOS[0]
    assert RATIOS[1] < ratios[-1]
    assert [each.weight for each in found if each is not None][:: len(found) - 1] == list(RATIO_WEIGHTS)


def test_an_encoder_that_adds_nothing_to_bm25_at_any_weight_hardly_changes_its_ranking() -> None:
    """BM25 finds every span's document, the encoder most of them: r is .8, and the sum has only something to lose."""
    names = [f"name{number}" for number in range(PAIRS)]
    pairs = Probe(names, [f"{name} stone" for name in names])
    found = probed_weight(pairs, found_by(PAIRS, 1.0, 1.2), language="en", analysis="words")
    assert found.bm25 == 1.0
    assert found.encoder / found.bm25 > 0.7
    assert found.weight == RATIO_WEIGHTS[0]


@pytest.mark.parametrize("seed", range(3))
def test_an_encoder_that_knows_nothing_hardly_changes_bm25s_ranking(seed: int) -> None:
    found = probed_weight(probe(), found_by(PAIRS, 0.0, 1.0, seed), language="en", analysis="words")
    assert found.weight == RATIO_WEIGHTS[0]
    assert found.contradicts(1.0)
    assert not found.contradicts(0.0)
    few = probed_weight(probe(10), found_by(10, own=1.0, noise=1.0), language="en", analysis="words")
    assert few is None  # too few pairs tell nothing


def small_collection() -> RetrievalSet:
    """Eighty documents of eight words, and one query that is evaluated."""
    documents = [Document(str(number), "", text) for number, text in enumerate(probe().documents)]
    return RetrievalSet("small", documents, [Query("q", "river stone")], {"q": {"0": 1}})


def test_scores_are_brought_to_one_scale_on_the_queries_of_a_log() -> None:
    collection, log = small_collection(), [f"{' '.join(WORDS)} topic{number}" for number in range(60)]
    balancing = balancing_queries(collection, None, seed=1, log=[*log, *log, "river stone"])
    assert balancing.logged
    assert not balancing.judged
    assert sorted(balancing.texts) == sorted(log)  # once each, without the one that is evaluated
    words, full = (Bm25System.over(collection, "en", analysis) for analysis in ("words", "full"))
    found = balance_of(full, words, balancing, 10, "nDCG@10", None)
    expected = [deviation(system.rank(balancing.asked, 10).run) for system in (full, words)]
    assert [found.encoder_deviation, found.bm25_deviation] == expected
    assert found.measured_on == "60 queries of the log"
    short = [f"salt {number}" for number in range(FEWEST_WEIGHT_QUERIES - 1)]  # which leaves the scale to spans
    balancing = balancing_queries(collection, None, seed=1, log=[*short, "river stone"])
    assert not balancing.logged
    assert balancing.texts == balancing_queries(collection, None, seed=1).texts
