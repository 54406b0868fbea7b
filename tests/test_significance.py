"""The paired randomisation test against all exchanges counted out, and against scipy."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test, t

from vtkit.evaluation.judging import Role
from vtkit.pipeline.steps.write_report import with_tests
from vtkit.report.data import ReportData, Row, SetResults
from vtkit.report.diagnosis import diagnose
from vtkit.report.verdict import recommendation
from vtkit.search.measures.significance import (
    difference,
    holm,
    paired_randomization,
    paired_randomization_over_sets,
    paired_t,
)

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


def test_over_several_sets_each_set_counts_alike() -> None:
    """One set of one query, +.1, and one of two, +.3 and −.1: .1 + .15 − .05 = .2, which half of the exchanges of signs
    reach. With every query alike it would be .3, which three quarters reach."""
    a, b = [named([0.6]), named([0.7, 0.3])], [named([0.5]), named([0.4, 0.4])]
    assert paired_randomization_over_sets(a, b) == 4 / 8
    assert paired_randomization(named([0.6, 0.7, 0.3]), named([0.5, 0.4, 0.4])) == 6 / 8


def test_differences_over_seeds_and_queries_by_hand() -> None:
    """D_q = .2, .4 (s² .02), seeds of a: means .4, .6 (s² .02), of b one: V = .02 / 2 + .02 / 2, t = .3 / √.02."""
    a = [{"q": 0.4, "r": 0.4}, {"q": 0.6, "r": 0.6}]
    found = difference(a, [{"q": 0.3, "r": 0.1}])
    assert found.mean == pytest.approx(0.3)
    freedom = 0.02**2 / (0.01**2 + 0.01**2)
    assert found.p == pytest.approx(2 * t.sf(0.3 / 0.02**0.5, freedom))
    assert found.half == pytest.approx(t.ppf(0.975, freedom) * 0.02**0.5)
    one, other = {"q": 0.4, "r": 0.4, "s": 0.1}, {"q": 0.1, "r": 0.2, "s": 0.3}
    assert difference([one], [other]).p == paired_randomization(one, other)  # of one seed nothing else is known
    assert (difference([one] * 2, [one] * 2).p, difference([one] * 2, [one] * 2).half) == (1.0, 0.0)


@pytest.mark.parametrize(("deviation", "noise"), [(0.0, 0.1), (0.02, 0.1), (0.05, 0.1), (0.2, 0.05)])
def test_without_any_difference_seeds_do_not_make_one(deviation: float, noise: float) -> None:
    """Three seeds whose means vary, 60 queries: of the means over seeds, queries alone would reject in up to 95 %."""
    draw, count, rejected, naive = np.random.default_rng(1), 400, 0, 0
    for _ in range(count):
        hard = draw.normal(0.5, 0.3, 60)
        both = hard + draw.normal(0, deviation, (2, 3, 1)) + draw.normal(0, 0.14, (2, 1, 60))
        values = [[dict(enumerate(seed)) for seed in system] for system in both + draw.normal(0, noise, (2, 3, 60))]
        rejected += difference(*values).p < 0.05
        means = [{query: sum(of[query] for of in system) / 3 for query in range(60)} for system in values]
        naive += paired_t(*means) < 0.05
    assert rejected < 0.085 * count  # three standard errors above the level
    assert deviation < 0.05 or naive > 0.2 * count


def test_holms_correction_by_hand() -> None:
    """Three claims: the smallest p times 3, the next times 2, the last as it is, and none below one before it."""
    assert holm({"a": 0.04, "b": 0.01, "c": 0.03}) == pytest.approx({"b": 0.03, "c": 0.06, "a": 0.06})
    assert holm({"a": 0.7, "b": 0.6}) == {"b": 1.0, "a": 1.0}
    assert holm({"one": 0.02}) == {"one": 0.02}
    assert holm({}) == {}


def null_rates(sets: int, queries: int, runs: int, seed: int) -> dict[str, float]:
    """How often each verdict and rule of a report fires if all systems are equally good: every query has a difficulty,
    and every system an independent error of the same distribution."""
    generator = np.random.default_rng(seed)
    roles: dict[str, Role] = {"BM25": "bm25", "source": "encoder", "transfer": "encoder", "deployed": "deployed",
                              "e5": "peer", "e5 + BM25": "peer-sum"}  # fmt: skip
    counts: Counter[str] = Counter()
    for _ in range(runs):
        results, values = [], []
        for number in range(sets):
            difficulty = generator.uniform(0.2, 0.8, queries)
            of_set = {
                model: named((difficulty + generator.normal(0, 0.2, queries)).clip(0, 1).tolist()) for model in roles
            }
            rows = (
                Row(role=role, model=model, measures={"nDCG@10": float(np.mean(list(of_set[model].values())))})
                for model, role in roles.items()
            )
            results.append(SetResults(f"s{number}", tuple(rows), queries))
            values.append(of_set)
        in_report, source = with_tests(results, values)
        report = ReportData(results=in_report, source_p_value=source)
        found = recommendation(report)
        assert found is not None
        counts[found.text.split(" the ")[0]] += 1
        counts.update(["better than BM25"] * found.text.startswith("The encoder is better than BM25"))
        counts.update(rule for rule, _ in diagnose(report))
    return {name: count / runs for name, count in counts.items()}


@pytest.mark.parametrize(("sets", "runs"), [(1, 400), (13, 120)])
def test_without_any_difference_verdicts_and_rules_fire_at_their_nominal_rate(sets: int, runs: int) -> None:
    """Tests are two-sided at .05, so each direction fires in 2.5 %. The bounds are three binomial standard errors above
    that; with 10 queries all exchanges are looked at."""
    rates = null_rates(sets, 10, runs, seed=5)
    most = 0.025 + 3 * (0.025 * 0.975 / runs) ** 0.5
    assert rates.get("Deploy", 0) + rates.get("better than BM25", 0) <= most
    assert rates.get("Do not deploy", 0) <= most
    assert rates.get("better source", 0) <= most
    assert rates.get("better embedder", 0) <= most
    assert rates.get("Deploy", 0) + rates.get("Do not deploy", 0) > 0, "a test that never fires would pass as well"
