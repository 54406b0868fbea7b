"""Cost of sparse vectors against counting it out, and measures of runs against their definitions."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test, t
from support import refused

from vtkit.data.trec import Run
from vtkit.evaluation.results import Role, SetResults, SystemResult
from vtkit.pipeline.steps.write_report import with_tests
from vtkit.report.data import ReportData
from vtkit.report.diagnosis import diagnose
from vtkit.report.verdict import recommendation
from vtkit.search.exact import ExactIndex
from vtkit.search.maxscore import maxscore_operations, query_cost
from vtkit.search.measures.cost import activation_shares, active_dimensions, flops
from vtkit.search.measures.effectiveness import evaluate, per_query, validate_measures
from vtkit.search.measures.significance import (
    difference,
    holm,
    paired_randomization,
    paired_randomization_over_sets,
    paired_t,
)
from vtkit.system.errors import RecipeError


def index_of(lists: dict[int, dict[int, float]], documents: int) -> ExactIndex:
    """The index with these lists: term -> document -> weight."""
    matrix = np.zeros((documents, max(lists) + 1))
    for term, of_term in lists.items():
        for document, weight in of_term.items():
            matrix[document, term] = weight
    return ExactIndex.build(sp.csr_matrix(matrix))


def test_operations_of_maxscore_by_hand() -> None:
    """A in documents 0 to 3 at 1, b in 1 at 5 and in 3 at 4; the best document of the query a + b.

    Document 0: a is read (1 SCORE, 1 NEXT) and enters the heap with 1. A document with nothing but a reaches no more,
    so from here on a is looked up only. Document 1: b is read (SCORE, NEXT), a looked up (NEXT-GEQ) and found (SCORE);
    6 enters the heap. No document can have more than 1 + 5, so the search ends.
    """
    index = index_of({0: {0: 1, 1: 1, 2: 1, 3: 1}, 1: {1: 5, 3: 4}}, 4)
    assert maxscore_operations(index.by_document().tocsc(), sp.csr_matrix([[1.0, 1.0]]), 1).tolist() == [[3, 2, 2, 1]]
    cost = query_cost(index, sp.csr_matrix([[1.0, 1.0], [0.0, 2.0]]))
    assert (cost.queries, cost.postings, cost.lists) == (2, (6 + 2) / 2, 1.5)
    assert (cost.list_lengths[0], cost.list_lengths[-1]) == (2, 4)
    assert (cost.list_maxima[0], cost.list_maxima[5], cost.list_maxima[-1]) == (1, 3, 5)
    assert cost.index_bytes == 3 * 8 + 2 * (4 + 8 + 4 + 4) + 6 * 4  # of terms, lists and postings
    assert 0 < cost.median_ms <= cost.p99_ms


@given(st.integers(0, 2**20), st.integers(1, 12))
def test_maxscore_reads_no_posting_twice_and_all_of_them_where_everything_is_wanted(seed: int, depth: int) -> None:
    random = np.random.default_rng(seed)
    documents = random.random((12, 6)) * (random.random((12, 6)) < 0.5)
    query = random.random((1, 6)) * (random.random((1, 6)) < 0.7)
    counted = maxscore_operations(sp.csc_matrix(documents, dtype=np.float32), sp.csr_matrix(query), depth)
    score, insert, following, jumps = counted[0].tolist()
    postings = int((documents[:, query[0] > 0] > 0).sum())
    matching = int(((documents @ query[0]) > 0).sum())
    assert following <= score <= following + jumps
    assert score <= postings
    assert min(depth, matching) <= insert <= matching
    if depth == 12:
        assert (score, insert, following, jumps) == (postings, matching, postings, 0)


@st.composite
def two_matrices(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    columns = draw(st.integers(1, 5))
    row = st.lists(st.sampled_from([0.0, 0.0, 0.5, 2.0]), min_size=columns, max_size=columns)
    rows = st.lists(row, min_size=1, max_size=6)
    return np.array(draw(rows)), np.array(draw(rows))


@given(two_matrices())
def test_flops_is_the_mean_number_of_shared_terms_over_all_pairs(matrices: tuple[np.ndarray, np.ndarray]) -> None:
    queries, documents = matrices
    shared = [np.count_nonzero(query * document) for query in queries for document in documents]
    assert flops(
        activation_shares(sp.csr_matrix(queries)), activation_shares(sp.csr_matrix(documents))
    ) == pytest.approx(np.mean(shared))


@given(two_matrices())
def test_active_dimensions_is_the_mean_number_of_weights(matrices: tuple[np.ndarray, np.ndarray]) -> None:
    assert active_dimensions(sp.csr_matrix(matrices[0])) == pytest.approx((matrices[0] != 0).sum(axis=1).mean())


def test_stored_zeros_are_not_active_and_no_vectors_cost_nothing() -> None:
    zeros = sp.csr_matrix((np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
    empty = sp.csr_matrix((0, 3))
    assert (active_dimensions(zeros), flops(activation_shares(zeros), activation_shares(zeros))) == (1.0, 1.0)
    assert (active_dimensions(empty), flops(activation_shares(empty), activation_shares(zeros))) == (0.0, 0.0)


MEASURES = ("nDCG@10", "R@5", "RR@10")
documents = st.sampled_from([f"d{number}" for number in range(15)])
queries = st.sampled_from(["q1", "q2", "q3"])
runs = st.dictionaries(queries, st.lists(documents, unique=True).map(lambda ids: [(d, 1.0) for d in ids]))
judgements = st.dictionaries(queries, st.dictionaries(documents, st.integers(0, 3), min_size=1), min_size=1)


def by_definition(results: list[str], judged: dict[str, int]) -> dict[str, float]:
    """nDCG@10 with gains as graded, R@5 and RR@10 of one query."""
    relevant = {document for document, grade in judged.items() if grade > 0}
    gains = [judged.get(document, 0) / math.log2(rank + 2) for rank, document in enumerate(results[:10])]
    ideal = [grade / math.log2(rank + 2) for rank, grade in enumerate(sorted(judged.values(), reverse=True)[:10])]
    first = next((rank for rank, document in enumerate(results[:10], 1) if document in relevant), 0)
    return {
        "nDCG@10": sum(gains) / sum(ideal) if sum(ideal) else 0.0,
        "R@5": len(relevant & set(results[:5])) / len(relevant) if relevant else 0.0,
        "RR@10": 1 / first if first else 0.0,
    }


@given(runs, judgements)
def test_values_are_those_of_the_definitions_for_every_judged_query(run: Run, qrels: dict[str, dict[str, int]]) -> None:
    values = per_query(run, qrels, MEASURES)
    for query, judged in qrels.items():
        wanted = by_definition([document for document, _ in run.get(query, [])], judged)
        assert {name: values[name][query] for name in MEASURES} == pytest.approx(wanted, abs=1e-9)
    means = evaluate(run, qrels, MEASURES)
    for name in MEASURES:
        assert values[name].keys() == qrels.keys()
        assert means[name] == pytest.approx(sum(values[name].values()) / len(qrels))


def test_equal_scores_keep_the_order_of_the_run_in_every_measure() -> None:
    qrels = {"q": {"b": 1}}
    for order in (["a", "b", "c"], ["c", "b", "a"]):  # ir_measures alone breaks the tie by name, both ways
        assert evaluate({"q": [(document, 1.0) for document in order]}, qrels, MEASURES) == pytest.approx(
            {"nDCG@10": 1 / math.log2(3), "R@5": 1.0, "RR@10": 0.5}
        )


def test_a_query_without_results_counts_as_nothing_found() -> None:
    qrels = {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}, "q4": {"a": 1}}
    run: Run = {"q1": [("a", 1.0)], "q2": [], "not judged": [("a", 1.0)]}
    assert evaluate(run, qrels, MEASURES) == dict.fromkeys(MEASURES, 0.25)
    assert evaluate({}, qrels, MEASURES) == dict.fromkeys(MEASURES, 0.0)
    refused(ValueError, "no query is judged", evaluate, run, {}, MEASURES)


def test_two_names_of_one_measure_both_get_their_value() -> None:
    assert evaluate({"q": [("a", 1.0)]}, {"q": {"a": 1}}, ["RR@10", "MRR@10"]) == {"RR@10": 1.0, "MRR@10": 1.0}


def test_names_that_are_no_measure_are_all_listed() -> None:
    validate_measures(["nDCG@10", "R@100", "RR@10", "AP", "Success@5", "P(rel=2)@3"])
    with pytest.raises(RecipeError) as error:
        validate_measures(["nDCG@10", "nDGC@10", "R@many", "alpha_nDCG@10", "__import__('os')"])
    for name in ("nDGC@10", "R@many", "alpha_nDCG@10", "__import__"):
        assert name in str(error.value)
    assert "'nDCG@10'" not in str(error.value)


# The paired randomisation test against all exchanges counted out, and against scipy.


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
    refused(ValueError, "at least one", paired_randomization, {}, {})


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
                SystemResult(
                    role=role, system=model, measures={"nDCG@10": float(np.mean(list(of_set[model].values())))}
                )
                for model, role in roles.items()
            )
            results.append(SetResults(set=f"s{number}", rows=tuple(rows), queries=queries))
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
