"""The weight of an encoder beside BM25 where no judgements say so."""

from __future__ import annotations

import numpy as np
import pytest

from vtkit.checks.probe import Probe
from vtkit.checks.probed_weight import own_reciprocal_ranks, probed_weight
from vtkit.data.trec import Run, to_run
from vtkit.search.hybrid import CAUTIOUS_WEIGHT, ENCODER_WEIGHT

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


def test_an_encoder_that_helps_has_the_usual_weight() -> None:
    found = probed_weight(probe(), found_by(PAIRS, own=1.0, noise=1.0), language="en", analysis="words")
    assert found is not None
    assert found.weight == ENCODER_WEIGHT
    value, p = next((value, p) for weight, value, p in found.curve if weight == ENCODER_WEIGHT)
    assert value > found.bm25
    assert p < 0.05
    assert not found.contradicts(ENCODER_WEIGHT)
    assert found.pairs == PAIRS
    assert f"{PAIRS} spans find" in found.words


@pytest.mark.parametrize("seed", range(3))
def test_an_encoder_that_knows_nothing_has_the_cautious_one(seed: int) -> None:
    found = probed_weight(probe(), found_by(PAIRS, own=0.0, noise=1.0, seed=seed), language="en", analysis="words")
    assert found is not None
    assert found.weight == CAUTIOUS_WEIGHT
    assert found.contradicts(1.0)


def test_too_few_pairs_tell_nothing() -> None:
    assert probed_weight(probe(10), found_by(10, own=1.0, noise=1.0), language="en", analysis="words") is None


def test_ranks_by_hand() -> None:
    run = {
        "a": [("a", 3.0), ("b", 2.0)],  # first
        "b": [("a", 3.0), ("c", 2.0), ("b", 2.0)],  # second and third together
        "c": [("a", 1.0)],  # not found
    }
    assert own_reciprocal_ranks(run, ["a", "b", "c", "d"]).tolist() == pytest.approx([1, (1 / 2 + 1 / 3) / 2, 0, 0])
