"""The paired randomisation test against all exchanges counted out, and against scipy."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test

from vtkit.evaluation.measures.significance import holm, paired_randomization

values = st.integers(0, 4).map(lambda quarter: quarter / 4)
pairs = st.lists(st.tuples(values, values), min_size=1, max_size=9)


def named(numbers: list[float]) -> dict[str, float]:
    return {f"q{place}": number for place, number in enumerate(numbers)}


@given(pairs)
def test_few_queries_give_the_share_of_all_exchanges(both: list[tuple[float, float]]) -> None:
    differences = [a - b for a, b in both]
    observed = abs(sum(differences))
    exchanges = itertools.product((1, -1), repeat=len(both))
    sums = [abs(sum(sign * d for sign, d in zip(signs, differences, strict=True))) for signs in exchanges]
    wanted = sum(total >= observed for total in sums) / len(sums)
    a, b = named([a for a, _ in both]), named([b for _, b in both])
    assert paired_randomization(a, b) == pytest.approx(wanted)
    assert paired_randomization(b, a) == pytest.approx(wanted)


def test_many_queries_agree_with_scipy() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.uniform(size=80), generator.uniform(size=80) - 0.08
    reference = permutation_test(
        (a, b), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=20_000, rng=1
    )
    p = paired_randomization(named(a.tolist()), named(b.tolist()), seed=3)
    assert p == pytest.approx(reference.pvalue, abs=0.015)
    assert p == paired_randomization(named(a.tolist()), named(b.tolist()), seed=3)


def test_equal_systems_differ_by_chance_and_very_different_ones_do_not() -> None:
    same = named([0.5] * 50)
    assert paired_randomization(same, same) == 1.0
    assert paired_randomization(same, named([0.1] * 50)) == pytest.approx(1 / 10_001)
    with pytest.raises(ValueError, match="same queries"):
        paired_randomization(same, named([0.5] * 49))
    with pytest.raises(ValueError, match="at least one"):
        paired_randomization({}, {})


def test_holms_correction_by_hand() -> None:
    """Three claims: the smallest p times 3, the next times 2, the last as it is, and none below one before it."""
    assert holm({"a": 0.04, "b": 0.01, "c": 0.03}) == pytest.approx({"b": 0.03, "c": 0.06, "a": 0.06})
    assert holm({"a": 0.7, "b": 0.6}) == {"b": 1.0, "a": 1.0}
    assert holm({"one": 0.02}) == {"one": 0.02}
    assert holm({}) == {}
