"""Measures of runs against their definitions; queries without results and equal scores."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtkit.data.trec import Run
from vtkit.search.measures.effectiveness import evaluate, per_query, validate_measures
from vtkit.system.errors import RecipeError

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
    with pytest.raises(ValueError, match="no query is judged"):
        evaluate(run, {}, MEASURES)


def test_two_names_of_one_measure_both_get_their_value() -> None:
    assert evaluate({"q": [("a", 1.0)]}, {"q": {"a": 1}}, ["RR@10", "MRR@10"]) == {"RR@10": 1.0, "MRR@10": 1.0}


def test_names_that_are_no_measure_are_all_listed() -> None:
    validate_measures(["nDCG@10", "R@100", "RR@10", "AP", "Success@5", "P(rel=2)@3"])
    with pytest.raises(RecipeError) as error:
        validate_measures(["nDCG@10", "nDGC@10", "R@many", "alpha_nDCG@10", "__import__('os')"])
    for name in ("nDGC@10", "R@many", "alpha_nDCG@10", "__import__"):
        assert name in str(error.value)
    assert "'nDCG@10'" not in str(error.value)
