"""Dense peers: embedders that could be used instead, judged beside the run's own models."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

from vtkit.data.collections import load_retrieval
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.trec import Run, read_trec, to_run
from vtkit.encoder.checkpoint import load_encoder
from vtkit.evaluation.fusion import ENCODER_WEIGHT, above_last, deviation, weighted_sum
from vtkit.evaluation.results import read_per_query
from vtkit.pipeline.folder import report_of, run_name
from vtkit.pipeline.plan import Plan
from vtkit.pipeline.run import run
from vtkit.pipeline.steps.evaluate_systems import peers_of
from vtkit.pipeline.store import Store
from vtkit.recipe.load import load_recipe
from vtkit.report.verdict import verdict
from vtkit.search.bm25 import Bm25
from vtkit.search.dense import nearest_documents
from vtkit.search.measures.effectiveness import evaluate
from vtkit.search.measures.significance import holm, paired_randomization
from vtkit.system.errors import DataError, RecipeError


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dense") / "tiny-e5"
    return tiny.dense(folder, prompts={"query": "apple amber ", "document": "river "})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, embedder: Path) -> Path:
    """The folder of a run with a peer, over a collection that has training queries."""
    folder = tmp_path_factory.mktemp("run")
    found = tiny.collection(120)
    tiny.finished_run(folder, found)
    tiny.add_training_queries(folder / "collection", found)
    return run(folder / "tiny.toml", [f"evaluate.peers=['{embedder}']"], runs=folder / "runs", threads=1)


def made_by(finished: Path, step: str) -> Path:
    steps = json.loads((finished / "run.json").read_text("utf-8"))["steps"]
    return finished.parent / "artifacts" / str(steps[step])


vectors = st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=1, max_size=12)


@given(vectors, vectors, st.integers(1, 15), st.integers(1, 30))
def test_dense_search_ranks_every_document_by_its_score_and_equal_ones_as_they_come(
    queries: list[list[int]], documents: list[list[int]], depth: int, at_once: int
) -> None:
    left, right = np.array(queries, dtype=np.float32), np.array(documents, dtype=np.float32)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("vtkit.search.dense.SCORES_AT_ONCE", at_once)
        ids, scores = nearest_documents(left, right, depth, lambda some, all_: some @ all_.T)
    for query, row, row_scores in zip(left, ids, scores, strict=True):
        expected = sorted(range(len(right)), key=lambda at: (-float(query @ right[at]), at))[:depth]
        assert row.tolist() == expected
        assert row_scores.tolist() == [float(query @ right[at]) for at in expected]


def test_a_document_that_a_dense_list_does_not_hold_counts_as_its_last() -> None:
    dense = {"q": [("a", 0.9), ("b", 0.8)]}
    assert above_last(dense)["q"] == [("a", pytest.approx(0.1)), ("b", 0)]
    assert above_last({"q": []}) == {"q": []}
    lexical = {"q": [("c", 2.0), ("b", 1.0)]}
    deviations = deviation(above_last(dense)), deviation(lexical)
    summed = weighted_sum(above_last(dense), lexical, 3, 0.1, deviations)
    assert [document for document, _ in summed["q"]] == ["c", "b", "a"]


def ranked_by(embedder: Path, collection: RetrievalSet) -> Run:
    """All documents for each query, as the library alone ranks them."""
    model = SentenceTransformer(str(embedder), device="cpu")
    scores = model.similarity(
        model.encode_query([query.text for query in collection.queries]),
        model.encode_document([document.contents for document in collection.documents]),
    ).numpy()
    ids = np.argsort(-scores, axis=1, kind="stable")
    query_ids, document_ids = [q.id for q in collection.queries], [d.id for d in collection.documents]
    return to_run(query_ids, document_ids, ids.astype(np.int32), np.take_along_axis(scores, ids, axis=1))


def test_a_peer_is_judged_alone_and_summed_with_bm25(finished: Path, embedder: Path) -> None:
    judged = {path.name.removesuffix(".trec.gz") for path in (finished / "trec" / "collection").iterdir()}
    assert judged == {"source", "transfer", "bm25", "bm25-words", "hybrid", "peer-tiny-e5", "hybrid-peer-tiny-e5"}
    collection = load_retrieval(finished.parents[1] / "collection", "test")
    expected = ranked_by(embedder, collection)
    found = read_trec(finished / "trec" / "collection" / "peer-tiny-e5.trec.gz")
    for query, results in found.items():
        assert dict(results) == pytest.approx(dict(expected[query]), abs=1e-5)
    report = report_of(finished)
    (on_set,) = report.results
    rows = {row.system: row for row in on_set.rows}
    alone, both = rows["tiny-e5 (dense)"], rows["tiny-e5 (dense) + BM25"]
    assert alone.measures["nDCG@10"] == pytest.approx(evaluate(found, collection.qrels, ["nDCG@10"])["nDCG@10"])
    assert [row.system for row in on_set.rows if row.peer] == ["tiny-e5 (dense)", "tiny-e5 (dense) + BM25"]
    assert alone.p_value_vs_bm25 is not None
    assert both.p_value_vs_bm25 is not None
    bm25 = read_trec(finished / "trec" / "collection" / "bm25.trec.gz")
    summed = weighted_sum(above_last(found), bm25, 1000, both.fusion.weight, both.fusion.deviations)
    written = read_trec(finished / "trec" / "collection" / "hybrid-peer-tiny-e5.trec.gz")
    for query, results in summed.items():
        assert dict(written[query]) == pytest.approx(dict(results), abs=1e-5)


def test_one_test_is_planned_others_explore_and_embedders_are_compared_with_the_planned_row(finished: Path) -> None:
    """On a single set the planned p stands uncorrected; those of embedder and sum against it are corrected together."""
    (on_set,) = report_of(finished).results
    rows = {row.system: row for row in on_set.rows}
    names = {"source": "source", "transfer": "transfer", "transfer + BM25": "hybrid",
             "tiny-e5 (dense)": "peer:tiny-e5", "tiny-e5 (dense) + BM25": "hybrid-peer:tiny-e5"}  # fmt: skip
    values = {
        name: read_per_query(made_by(finished, f"evaluate:{name}") / "collection")["nDCG@10"]
        for name in (*names.values(), "bm25", "bm25-words")
    }
    better = max((values["bm25"], values["bm25-words"]), key=lambda of: sum(of.values()))
    raw = {row: paired_randomization(values[name], better) for row, name in names.items()}
    assert {row: rows[row].p_value_vs_bm25 for row in names} == pytest.approx(raw)
    assert on_set.planned == rows["transfer"]
    peers = [row for row in names if rows[row].peer]
    beside = holm({row: paired_randomization(values[names[row]], values["transfer"]) for row in peers})
    assert {row.system: row.p_value_vs_planned for row in on_set.rows if row.p_value_vs_planned is not None} == beside
    assert report_of(finished).source_p_value == pytest.approx(
        paired_randomization(values["source"], values["transfer"])
    )


def test_the_weight_of_a_peers_sum_is_chosen_as_the_models_is(finished: Path, embedder: Path) -> None:
    """On the same training queries, by what the peer finds for them."""
    report = report_of(finished)
    rows = {row.system: row for row in report.results[0].rows}
    both, own = rows["tiny-e5 (dense) + BM25"], rows["transfer + BM25"]
    assert both.fusion.kind == own.fusion.kind == "other judged queries"
    assert both.fusion.queries == own.fusion.queries
    assert both.fusion.snippets is not None
    curve = dict(both.fusion.curve)
    assert both.fusion.contradicted or both.fusion.weight == both.fusion.chosen
    training = load_retrieval(finished.parents[1] / "collection", "train")
    found = above_last(ranked_by(embedder, training))
    assert found.keys() == {query.id for query in training.queries}
    bm25 = Bm25.build((document.contents for document in training.documents), "en")
    lexical = to_run(
        [query.id for query in training.queries],
        [document.id for document in training.documents],
        *bm25.search([query.text for query in training.queries], 1000),
    )
    assert both.fusion.deviations == pytest.approx((deviation(found), deviation(lexical)), rel=1e-4)
    summed = weighted_sum(found, lexical, 1000, 0.4, both.fusion.deviations)
    assert curve[0.4] == pytest.approx(evaluate(summed, training.qrels, ["nDCG@10"])["nDCG@10"], abs=1e-6)
    assert ENCODER_WEIGHT in curve
    assert dict(own.fusion.curve)[0.0] == pytest.approx(curve[0.0])  # BM25 alone


def test_pages_show_a_peer_and_the_verdict_stays_with_the_runs_own_model(finished: Path) -> None:
    report = report_of(finished)
    (standing,) = report.judged
    assert standing.final.system == "transfer"
    best = max((row for row in report.results[0].rows if row.peer), key=lambda row: float(row.measures["nDCG@10"] or 0))
    assert best in standing.peers
    assert f"{best.label} {best.measures['nDCG@10']:.3f}" in verdict(report)
    cost = report.results[0].rows[[row.role for row in report.results[0].rows].index("peer")].search_cost
    assert cost.index_bytes == 120 * 32 * 4
    body, pooler = tiny.model().base_model, 32 * 32 + 32  # of these, the second is made up by the library
    assert cost.parameters == sum(weight.numel() for weight in body.parameters()) + pooler
    assert 0 < cost.query_ms <= cost.query_ms_p99
    assert report.cost.parameters == sum(
        weight.numel() for weight in load_encoder(str(finished / "model")).parameters()
    )
    assert f"{cost.parameters:,}" in (finished / "report.md").read_text("utf-8")


def test_another_peer_leaves_what_is_done_and_peers_of_one_name_are_told_apart(finished: Path, embedder: Path) -> None:
    recipe, store = finished.parents[1] / "tiny.toml", Store(finished.parent / "artifacts")

    def keys(*overrides: str) -> dict[str, str]:
        steps = Plan(load_recipe(recipe, overrides).recipe, store).steps
        return {name: step.dependencies.key for name, step in steps.items()}

    one = keys(f"evaluate.peers=['{embedder}']")
    two = keys(f"evaluate.peers=['org/other', '{embedder}']")
    assert two.keys() - one.keys() == {"evaluate:peer:other", "evaluate:hybrid-peer:other"}
    assert {name for name in one if two[name] != one[name]} == {"report"}
    assert keys().keys() == one.keys() - {"evaluate:peer:tiny-e5", "evaluate:hybrid-peer:tiny-e5"}
    alone = keys(f"evaluate.peers=['{embedder}']", "evaluate.bm25=false")
    assert "evaluate:peer:tiny-e5" in alone
    assert "evaluate:hybrid-peer:tiny-e5" not in alone
    named = ["one/e5", "two/e5", "three/.-.", "four/a b:c", "x/" + "y" * 90]
    several = load_recipe(recipe, [f"evaluate.peers={named}"]).recipe
    assert list(peers_of(several)) == ["e5", "e5-2", "embedder", "a-b-c", "y" * 60]
    assert run_name("evaluate:hybrid-peer:e5") == "hybrid-peer-e5"


def test_a_peer_that_cannot_be_had_or_is_none_is_refused(finished: Path, tmp_path: Path) -> None:
    recipe = finished.parents[1] / "tiny.toml"
    with pytest.raises(RecipeError, match=r"evaluate\.peers: .*nowhere does not exist"):
        run(recipe, [f"evaluate.peers=['{tmp_path}/nowhere']"], runs=tmp_path, threads=1)
    with pytest.raises(RecipeError, match=r"evaluate\.peers: .* is listed twice: each peer is evaluated once"):
        load_recipe(recipe, ["evaluate.peers=['one/e5', 'one/e5']"])
    sparse = finished.parents[1] / "encoder"
    with pytest.raises(DataError, match=r"evaluate\.peers = .*encoder is a sparse encoder"):
        run(recipe, [f"evaluate.peers=['{sparse}']"], runs=finished.parent, threads=1)
