"""Runs: made from search results, written as TREC files and read again, and summed."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.synthetic_queries import SnippetPairs
from vtkit.data.trec import Run, read_trec, to_run, write_trec
from vtkit.evaluation.fusion import (
    ENCODER_WEIGHT,
    RATIO_WEIGHTS,
    RATIOS,
    WEIGHTS,
    FusionWeight,
    SnippetWeight,
    chosen_weight,
    deviation,
    weighted_sum,
)
from vtkit.evaluation.fusion_queries import (
    FEWEST_WEIGHT_QUERIES,
    FusionQueries,
    bm25_run,
    fusion_queries,
    fusion_weight,
    snippet_weight,
)
from vtkit.evaluation.systems import Bm25System
from vtkit.system.errors import DataError

names = st.text("abcäö한0#-\u00a0", min_size=1, max_size=5)
scores = st.floats(0, 1000, width=32)
results = st.dictionaries(names, scores, min_size=1, max_size=6)
runs = st.dictionaries(names, results.map(lambda found: sorted(found.items(), key=lambda each: -each[1])), max_size=4)


@given(runs)
def test_a_run_file_gives_back_the_run(tmp_path_factory: pytest.TempPathFactory, run: Run) -> None:
    path = tmp_path_factory.mktemp("run") / "run.trec.gz"
    write_trec(run, path, "vtkit")
    back = read_trec(path)
    assert back.keys() == run.keys()
    for query, results in run.items():
        assert [document for document, _ in back[query]] == [document for document, _ in results]
        assert np.array([s for _, s in back[query]], np.float32).tolist() == [s for _, s in results]


def test_a_run_file_looks_as_trec_wants_it(tmp_path: Path) -> None:
    ids = np.array([[2, 0, -1], [-1, -1, -1]], dtype=np.int32)
    values = np.array([[1.5, 0.5, 0], [0, 0, 0]], dtype=np.float32)
    run = to_run(["q1", "q2"], ["a", "b", "c"], ids, values)
    assert run == {"q1": [("c", 1.5), ("a", 0.5)], "q2": []}
    write_trec(run, tmp_path / "r", "bm25")
    written = (tmp_path / "r").read_bytes()
    assert gzip.decompress(written).decode() == "q1 Q0 c 1 1.5 bm25\nq1 Q0 a 2 0.5 bm25\n"
    write_trec(run, tmp_path / "other", "bm25")
    assert (tmp_path / "other").read_bytes() == written
    with pytest.raises(ValueError, match="one word"):
        write_trec({}, tmp_path / "r", "two words")


ODD = ("nan", "inf", "-Infinity", "high")


def test_a_run_file_is_ordered_by_score_and_its_bad_lines_named(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text("q Q0 a 1 0.5 t\nq\tQ0\tb  2 1e1 t\n\n")
    assert read_trec(path) == {"q": [("b", 10.0), ("a", 0.5)]}
    for content, complaint in (
        ("q Q0 a 1 0.5\n", "line 1: is not query"),
        *((f"q Q0 b 1 9 t\nq Q0 a 2 {odd} t\n", rf"line 2: a score is missing, NaN.*'{odd}'") for odd in ODD),
        ("q Q0 a 1 nan t\nq Q0\n", r"2 problems\n  line 1: .*\n  line 2: is not query"),
        ("q Q0 a 1 2 t\nq Q0 a 2 1 t\n", "'q' lists a document twice"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=complaint):
            read_trec(path)


SCALES = st.tuples(st.floats(0.5, 20), st.floats(0.5, 20))


@given(runs, runs, st.integers(1, 10), st.floats(0, 1), SCALES)
def test_summed_runs_hold_the_largest_sums_of_the_union(
    a: Run, b: Run, depth: int, weight: float, deviations: tuple[float, float]
) -> None:
    """Once σ was that of the run to be judged, so that each query's results depended on which others were asked."""
    joined = weighted_sum(a, b, depth, weight, deviations)
    assert joined.keys() == a.keys() | b.keys()
    for query, results in joined.items():
        first = dict(a.get(query, [])) if weight / deviations[0] else {}  # a list that weighs nothing adds nothing
        second = dict(b.get(query, [])) if (1 - weight) / deviations[1] else {}
        sums = {
            d: weight * first.get(d, 0.0) / deviations[0] + (1 - weight) * second.get(d, 0.0) / deviations[1]
            for d in first.keys() | second.keys()
        }
        assert [s for _, s in results] == pytest.approx(sorted(sums.values(), reverse=True)[:depth])
        assert all(sums[d] == pytest.approx(s) for d, s in results)
        assert len(dict(results)) == len(results)
        alone = weighted_sum(*({query: run.get(query, [])} for run in (a, b)), depth, weight, deviations)
        assert alone == {query: results}


def test_a_sum_checkable_by_eye() -> None:
    a = {"q": [("x", 4.0), ("y", 2.0)]}  # deviation 1
    b = {"q": [("z", 6.0), ("y", 2.0)], "p": []}  # deviation 2
    assert (deviation(a), deviation(b)) == (1.0, 2.0)
    assert weighted_sum(a, b, 2, 0.5, (1.0, 2.0)) == {"q": [("x", 2.0), ("y", 1.5)], "p": []}
    assert weighted_sum(a, b, 3, 0.25, (1.0, 2.0)) == {"q": [("z", 2.25), ("y", 1.25), ("x", 1.0)], "p": []}
    assert weighted_sum({}, {}, 2, 0.5, (1.0, 1.0)) == {}


def first_is_good(run: Run) -> dict[str, float]:
    """A measure: whether a query's first result is the good one."""
    return {query: float(results[0][0] == "good") for query, results in run.items()}


def on_judged(encoder: Run, bm25: Run, snippets: SnippetWeight | None = None) -> FusionWeight:
    return FusionWeight.of(encoder, bm25, 10, "other judged queries", snippets, first_is_good)


def test_the_weight_is_one_that_is_best_on_the_queries_given() -> None:
    """The encoder has the relevant document first in three of four queries, BM25 in one: more weight finds more."""
    encoder = {str(query): [("good", 3.0), ("bad", 1.0)] for query in range(3)} | {"3": [("bad", 3.0), ("good", 1.0)]}
    bm25 = {query: [("bad", 3.0), ("good", 1.0)] for query in "012"} | {"3": [("good", 3.0), ("bad", 1.0)]}
    found = on_judged(encoder, bm25)
    assert [weight for weight, _ in found.curve] == list(WEIGHTS)
    for weight, value in found.curve:
        summed = weighted_sum(encoder, bm25, 10, weight, found.deviations)
        assert value == sum(first_is_good(summed).values()) / 4
    assert [value for _, value in found.curve] == [0.25] * 5 + [0.75] * 6
    assert found.weight == ENCODER_WEIGHT  # a difference of .5 ± .5 tells nothing
    copies = [f"-{copy}" for copy in range(20)]
    many = [{q + copy: results for q, results in run.items() for copy in copies} for run in (encoder, bm25)]
    assert on_judged(*many).weight == 0.5


@given(
    values=st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=8, max_size=8), min_size=3, max_size=3),
    expected=st.floats(0, 1),
)
def test_the_chosen_weight_is_the_nearest_within_a_standard_error_of_the_best(
    values: list[list[float]], expected: float
) -> None:
    curves = dict(zip((0.0, 0.5, 1.0), map(np.array, values), strict=True))
    chosen = chosen_weight(curves, expected)
    top = max(curve.mean() for curve in curves.values())
    best = min((weight for weight, curve in curves.items() if curve.mean() == top), key=lambda w: abs(w - expected))
    for weight, curve in curves.items():
        difference = curves[best] - curve
        within = difference.mean() <= difference.std(ddof=1) / 8**0.5 + 1e-12
        if weight == chosen:
            assert within
        if within:
            assert abs(chosen - expected) <= abs(weight - expected)


def snippets_say(values: Callable[[float], float], p: float) -> SnippetWeight:
    """Snippets for which the sum with each weight reaches what ``values`` says, and which choose 0.05."""
    return SnippetWeight(0.05, tuple((weight, values(weight), p) for weight in WEIGHTS), 500)


def test_a_weight_that_snippets_contradict_is_not_taken() -> None:
    """An encoder that was trained on the training queries finds their documents, and no others."""
    encoder = {str(query): [("good", 3.0), ("bad", 1.0)] for query in range(60)}
    bm25 = {str(query): [("bad", 3.0), ("good", 1.0)] for query in range(60)}

    alone = on_judged(encoder, bm25)
    assert (alone.weight, alone.contradicted, alone.words) == (0.5, False, "chosen on other judged queries")
    lost = on_judged(encoder, bm25, snippets_say(lambda weight: 0.5 - 0.3 * weight, p=0.001))
    assert (lost.weight, lost.contradicted, lost.curve) == (0.05, True, alone.curve)
    for said in ("0.5", "500 snippets", "0.350", "0.500 by BM25", "p = 0.001", "may have been trained on them"):
        assert said in lost.words
    by_chance = on_judged(encoder, bm25, snippets_say(lambda weight: 0.5 - 0.3 * weight, p=0.2))
    found_more = on_judged(encoder, bm25, snippets_say(lambda weight: 0.5 + 0.3 * weight, p=0.001))
    assert by_chance.weight == found_more.weight == alone.weight


# The weight of an encoder beside BM25 where no judgements say so.


WORDS = ["river", "stone", "oak", "lamp", "cloud", "glass", "wheel", "salt"]
PAIRS = 80


def snippets(pairs: int = PAIRS) -> SnippetPairs:
    """Documents whose query has a word that a tenth of them share, so that BM25 finds the right tenth and no more."""
    draw = np.random.default_rng(3)
    topics = [f"topic{number % 8}" for number in range(pairs)]
    documents = [f"{topic} {' '.join(draw.choice(WORDS, 5))}" for topic in topics]
    return SnippetPairs([f"{topic} unheard of" for topic in topics], documents)


def found_by(pairs: int, own: float, noise: float, seed: int = 1) -> Run:
    """The run of an encoder that gives a query's own document ``own`` and all documents noise."""
    draw = np.random.default_rng(seed)
    scores = own * np.eye(pairs) + noise * draw.random((pairs, pairs))
    order = np.argsort(-scores, axis=1)
    names = [str(number) for number in range(pairs)]
    return to_run(names, names, order, np.take_along_axis(scores, order, axis=1))


def weight_of(pairs: SnippetPairs, encoder: Run, language: str = "en") -> SnippetWeight:
    return SnippetWeight.of(pairs, encoder, bm25_run(pairs, language, "words"), language)


def test_the_weight_goes_by_how_far_the_encoder_lies_behind_bm25_on_snippets() -> None:
    """In proportion between 0.5 and 0.8 of BM25's mean reciprocal rank, and never more than at 0.8."""
    found = [weight_of(snippets(), found_by(PAIRS, own, 1.0)) for own in (0, 0.5, 0.6, 2)]
    ratios = []
    for each in found:
        assert [weight for weight, _, _ in each.curve] == list(WEIGHTS)
        ratios.append(each.encoder / each.bm25)
        share = min(max((ratios[-1] - RATIOS[0]) / (RATIOS[1] - RATIOS[0]), 0), 1)
        assert each.weight == round(RATIO_WEIGHTS[0] + share * (RATIO_WEIGHTS[1] - RATIO_WEIGHTS[0]), 2)
        assert f"{PAIRS} snippets find" in each.words
    assert ratios == sorted(ratios)
    assert ratios[0] < RATIOS[0]
    assert RATIOS[1] < ratios[-1]
    assert [each.weight for each in found][:: len(found) - 1] == list(RATIO_WEIGHTS)


def test_an_encoder_that_lies_behind_bm25_on_snippets_is_asked_for_the_language() -> None:
    worse, as_good = (weight_of(snippets(), found_by(PAIRS, own, 1.0), language="it") for own in (0.1, 2))
    assert worse.encoder < 0.9 * worse.bm25
    assert worse.words.endswith("the encoder finds snippets worse than BM25; does it know the language 'it'?")
    assert "language" not in as_good.words


def test_snippets_that_tell_nothing_apart_choose_no_weight() -> None:
    """All documents are alike: BM25 is at chance, and the encoder's five-fold of that is hardly more."""
    alike = SnippetPairs(["a form to fill in"] * PAIRS, ["a form to fill in and to sign"] * PAIRS)
    found = weight_of(alike, found_by(PAIRS, 0.1, 1.0))
    assert found.bm25 < found.encoder < 0.16
    assert (found.noise, found.weight) == (True, ENCODER_WEIGHT)
    assert found.words.startswith("a small weight, since snippets hardly tell these documents apart: 80 snippets find")
    assert not any(found.contradiction(weight) for weight in WEIGHTS)


def test_an_encoder_that_adds_nothing_to_bm25_at_any_weight_hardly_changes_its_ranking() -> None:
    """BM25 finds every span's document, the encoder most of them: r is .8, and the sum has only something to lose."""
    names = [f"name{number}" for number in range(PAIRS)]
    pairs = SnippetPairs(names, [f"{name} stone" for name in names])
    found = weight_of(pairs, found_by(PAIRS, 1.0, 1.2))
    assert found.bm25 == 1.0
    assert found.encoder / found.bm25 > 0.7
    assert found.weight == RATIO_WEIGHTS[0]


@pytest.mark.parametrize("seed", range(3))
def test_an_encoder_that_knows_nothing_hardly_changes_bm25s_ranking(seed: int) -> None:
    found = weight_of(snippets(), found_by(PAIRS, 0.0, 1.0, seed))
    assert found.weight == RATIO_WEIGHTS[0]
    assert found.contradiction(1.0)
    assert not found.contradiction(0.0)


def test_too_few_snippets_tell_nothing() -> None:
    def over(collection: RetrievalSet) -> Bm25System:
        return Bm25System.over(collection, "en", "full")

    assert snippet_weight(snippets(19), "few", over, "en", "words") is None
    assert snippet_weight(snippets(20), "enough", over, "en", "words") is not None


def small_collection() -> RetrievalSet:
    """Eighty documents of eight words, and one query that is evaluated."""
    documents = [Document(str(number), "", text) for number, text in enumerate(snippets().documents)]
    return RetrievalSet("small", documents, [Query("q", "river stone")], {"q": {"0": 1}})


def texts(queries: FusionQueries) -> list[str]:
    return [query.text for query in queries.asked.queries]


def test_scores_are_brought_to_one_scale_on_the_queries_of_a_log() -> None:
    collection, log = small_collection(), [f"{' '.join(WORDS)} topic{number}" for number in range(60)]
    queries = fusion_queries(collection, None, seed=1, log=[*log, *log, "river stone"])
    assert queries.kind == "queries of the log"
    assert sorted(texts(queries)) == sorted(log)  # once each, without the one that is evaluated
    words, full = (Bm25System.over(collection, "en", analysis) for analysis in ("words", "full"))
    found = fusion_weight(queries, full, lambda other: Bm25System.over(other, "en", "full"), words, "nDCG@10", 10)
    assert found.deviations == tuple(deviation(system.rank(queries.asked, 10).run) for system in (full, words))
    assert (found.queries, found.kind) == (60, "queries of the log")
    short = [f"salt {number}" for number in range(FEWEST_WEIGHT_QUERIES - 1)]  # which leaves the scale to snippets
    queries = fusion_queries(collection, None, seed=1, log=[*short, "river stone"])
    assert queries.kind == "snippets"
    assert texts(queries) == texts(fusion_queries(collection, None, seed=1))
