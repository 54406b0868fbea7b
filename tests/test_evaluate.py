"""``vtkit evaluate``: any systems on any collections, with the figures of a run and of ir_measures."""

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
import tiny
import torch
from command_line import invoke
from scipy.stats import ttest_rel
from sentence_transformers import CrossEncoder, SentenceTransformer
from typer.testing import Result

import vtkit
from vtkit.data.retrieval import Query, RetrievalSet
from vtkit.data.trec import read_trec, write_trec
from vtkit.evaluation.comparison import Comparison
from vtkit.evaluation.fusion import AS_THEY_ARE, combined
from vtkit.evaluation.mteb_results import languages_in_mteb, mteb_task
from vtkit.pipeline.folder import report_of
from vtkit.search.measures.significance import bonferroni, mean_interval, paired_t
from vtkit.system.console import size
from vtkit.system.errors import RecipeError

MEASURES = ("nDCG@10", "RR@10", "R@100", "R@1000", "AP", "Judged@10")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run over ``collection``, another collection, and a model of each kind."""
    folder = tmp_path_factory.mktemp("evaluate")
    tiny.finished_run(folder, tiny.collection(60))
    tiny.write_collection(folder / "other", renamed(tiny.collection(40, seed=7)))
    tiny.dense(folder / "dense")
    tiny.cross_encoder(folder / "cross")
    return folder


def renamed(found: RetrievalSet) -> RetrievalSet:
    """``found`` under other ids."""
    documents = [type(each)(f"other-{each.id}", each.title, each.text) for each in found.documents]
    queries = [Query(f"other-{each.id}", each.text) for each in found.queries]
    qrels = {f"other-{q}": {f"other-{d}": grade for d, grade in of.items()} for q, of in found.qrels.items()}
    return RetrievalSet("other", documents, queries, qrels)


def says(*arguments: str | Path) -> Result:
    return invoke("evaluate", *arguments)


def reached(found: Comparison, system: str, collection: Path) -> dict[str, float]:
    return dict(found.result(system, str(collection)).measures)


def test_figures_are_those_of_a_run_and_of_ir_measures(place: Path, tmp_path: Path) -> None:
    run, collection, out = place / "runs" / "tiny", place / "collection", tmp_path / "out"
    found = vtkit.evaluate(
        [run, "bm25", "bm25-words", f"{run}+bm25", run / "trec" / "collection" / "hybrid.trec.gz"],
        collection, out=out,
    )  # fmt: skip
    report = report_of(run)
    rows = {row.system: row.measures for row in report.results[0].rows}
    names = {"tiny": "transfer", "bm25": "BM25", "bm25-words": "BM25 (words)", "tiny+bm25": "transfer + BM25"}
    for system, row in (names | {"hybrid.trec.gz": "transfer + BM25"}).items():
        own = reached(found, system, collection)
        assert {name: own[name] for name in rows[row]} == pytest.approx(rows[row], abs=1e-12)
        file = out / "collection" / system / "run.trec.gz"
        judged = list(ir_measures.read_trec_run(str(file)))
        qrels = [ir_measures.Qrel(query, f"d{query[1:]}", 1) for query in {entry.query_id for entry in judged}]
        theirs = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in MEASURES], qrels, judged)
        share = len(qrels) / 60  # ir_measures averages over the queries of the judgements it is given
        for measure, value in theirs.items():
            assert own[str(measure)] == pytest.approx(value * share, abs=1e-6)
    assert read_trec(out / "collection" / "tiny" / "run.trec.gz") == read_trec(
        run / "trec" / "collection" / "transfer.trec.gz"
    )
    assert Comparison.from_json(json.loads((out / "results.json").read_text("utf-8"))) == found
    values = json.loads((out / "collection" / "bm25" / "per_query.json").read_text("utf-8"))
    assert np.mean(list(values["AP"].values())) == pytest.approx(reached(found, "bm25", collection)["AP"])
    assert not (tmp_path / ".out.vectors").exists()
    assert found.baseline == "bm25", "BM25 is the baseline wherever it stands in the list"
    (line,) = re.findall(r"^\| bm25 \|.*$", (out / "report.md").read_text("utf-8"), re.M)[:1]
    assert line.endswith("| baseline | baseline |")
    assert "against bm25, two-sided" in (out / "report.md").read_text("utf-8")


def test_bm25_is_the_baseline_if_it_is_there_and_else_the_first_system(place: Path) -> None:
    dense, other = str(place / "dense"), place / "other"
    for systems, baseline in (([dense, "bm25"], "bm25"), ([dense, "bm25-words"], "bm25-words"), ([dense], "dense")):
        assert vtkit.evaluate(systems, other, language="en", measures=["RR@10"]).baseline == baseline


def test_an_embedder_and_its_sum_encode_each_document_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: Counter[str] = Counter()
    encode = SentenceTransformer.encode

    def counting(self: SentenceTransformer, inputs: list[str], **options: Any) -> Any:
        encoded.update(inputs)
        return encode(self, inputs, **options)

    monkeypatch.setattr(SentenceTransformer, "encode", counting)
    dense, collection = str(place / "dense"), tiny.collection(60)
    found = vtkit.evaluate([dense, f"{dense}+bm25"], place / "collection", language="en", measures=["RR@10"])
    assert [row.system for row in found.sets[0].rows] == ["dense", "dense+bm25"]
    assert {encoded[document.contents] for document in collection.documents} == {1}


def test_tests_are_paired_with_the_baseline_and_corrected(place: Path, tmp_path: Path) -> None:
    run, collection = place / "runs" / "tiny", place / "collection"
    found = vtkit.evaluate(
        ["bm25", run, "bm25-words"], collection, measures=["RR@10"], correction="bonferroni", language="en",
        out=tmp_path / "out",
    )  # fmt: skip
    values = {
        name: json.loads((tmp_path / "out" / "collection" / name / "per_query.json").read_text("utf-8"))["RR@10"]
        for name in ("bm25", "tiny")
    }
    tested = found.result("tiny", str(collection)).tested["RR@10"]
    assert found.result("models/tiny", str(collection)).tested["RR@10"] == tested
    expected = ttest_rel(list(values["tiny"].values()), [values["bm25"][query] for query in values["tiny"]])
    assert tested.t == pytest.approx(min(1.0, 2 * expected.pvalue))
    assert tested.difference == pytest.approx(
        np.mean(list(values["tiny"].values())) - np.mean(list(values["bm25"].values()))
    )
    assert found.result("bm25", str(collection)).tested == {}
    low, high = found.result("tiny", str(collection)).intervals["RR@10"]
    assert (low + high) / 2 == pytest.approx(reached(found, "tiny", collection)["RR@10"])


def test_interval_and_corrections_by_hand() -> None:
    """Four values 0, 0, 1, 1: mean ½, s = √⅓, t(3) = 3.18245, so ± 3.18245 · 0.57735 / 2."""
    assert mean_interval([0, 0, 1, 1]) == pytest.approx((0.5 - 0.91869, 0.5 + 0.91869), abs=1e-4)
    assert mean_interval([0.3]) == (0.3, 0.3)
    assert bonferroni({"a": 0.02, "b": 0.6}) == {"a": 0.04, "b": 1.0}
    assert paired_t({"q": 1.0, "r": 0.5}, {"q": 1.0, "r": 0.5}) == 1.0
    assert paired_t({"q": 1.0, "r": 0.5}, {"q": 0.5, "r": 0.0}) == 0.0  # by the same everywhere
    with pytest.raises(ValueError, match="same queries"):
        paired_t({"q": 1.0}, {"r": 1.0})


def test_one_that_fails_does_not_stop_the_others(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Path(shutil.copytree(place / "encoder", tmp_path / "broken"))
    (weights,) = broken.glob("*.safetensors")
    os.truncate(weights, weights.stat().st_size - 100)
    file = place / "runs" / "tiny" / "trec" / "collection" / "bm25.trec.gz"  # judged on its own collection only
    collections = [str(place / "collection"), str(place / "other")]
    on = [word for name in collections for word in ("--on", name)]
    given = [place / "encoder", broken, place / "dense", file, *on, "--out", tmp_path / "out"]
    shown = says(*given)
    assert shown.exit_code == 1
    found = Comparison.from_json(json.loads((tmp_path / "out" / "results.json").read_text("utf-8")))
    assert {(row.system, of.set) for of in found.sets for row in of.rows} == {
        *((system, name) for system in ("encoder", "dense") for name in collections),
        ("bm25.trec.gz", collections[0]),
    }
    assert [(each.system, each.collection) for each in found.failures] == [("broken", name) for name in collections]
    for name in collections:
        assert f"broken on {name}: " in shown.stderr
    shutil.rmtree(tmp_path / "out")
    monkeypatch.setattr("vtkit.search.sharded_encoding.encode_to_disk", None)  # vectors are kept for another try
    assert says(*given).exit_code == 1
    again = Comparison.from_json(json.loads((tmp_path / "out" / "results.json").read_text("utf-8")))
    assert [[row.measures for row in of.rows] for of in again.sets] == [
        [row.measures for row in of.rows] for of in found.sets
    ]


def test_what_is_wrong_is_said_before_encoding(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtkit.encoder.checkpoint.load_encoder", None)  # whatever loads one would fail
    torn = tmp_path / "torn"
    shutil.copytree(place / "collection", torn)
    (torn / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tnowhere\t1\n", "utf-8")
    strange = tmp_path / "strange.trec"
    write_trec({"q1": [("no-such-document", 1.0)]}, strange, "x")
    refused = says(
        place / "encoder", "./nothing", place / "runs" / "tiny" / "trec" / "collection" / "bm25.trec.gz", strange,
        "--on", place / "other", "--on", torn, "--measure", "nDGC@10", "--measure", "R@100000", "--baseline", "bm26",
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert isinstance(refused.exception, RecipeError)
    said = str(refused.exception)
    for complaint in (
        "'nDGC@10': no such measure",
        "cutoff must be from 1 to 1000, as many results as are ranked",
        "./nothing: not found",
        "bm25.trec.gz belongs to another collection",
        "strange.trec belongs to another collection",
        "document 'nowhere' (query 'q1') is not in corpus.jsonl",
        "baseline bm26: name one of the systems",
    ):
        assert complaint in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["strange.trec", "torn"]
    for systems, rerank, complaint in (
        (place / "cross", None, "is a cross-encoder, which cannot search"),
        ("bm25", str(place / "dense"), "rerank .*dense is not a cross-encoder"),
    ):
        with pytest.raises(RecipeError, match=complaint):
            vtkit.evaluate(systems, place / "collection", rerank=rerank, language="en")
    with pytest.raises(RecipeError, match="has no document 'no-such-document'"):
        vtkit.evaluate(strange, place / "collection")
    with pytest.raises(RecipeError, match=r"fusion_queries dev: beside 'test'.* has no judgements"):
        vtkit.evaluate("bm25", place / "collection", fusion_queries="dev", language="en")
    with pytest.raises(RecipeError, match=r"language: jp is a country: its language is ja"):
        vtkit.evaluate("bm25", place / "collection", language="jp")


def test_reranking_sorts_the_first_results_by_the_cross_encoder(place: Path, tmp_path: Path) -> None:
    collection = place / "collection"
    found = vtkit.evaluate(
        "bm25", collection, rerank=str(place / "cross"), rerank_depth=5, language="en", out=tmp_path / "out"
    )
    before, after = (
        read_trec(tmp_path / "out" / "collection" / name / "run.trec.gz") for name in ("bm25", "bm25-cross")
    )
    assert found.result("bm25 > cross", str(collection)).role == "reranked"
    data = tiny.collection(60)
    texts = {each.id: each.contents for each in data.documents} | {each.id: each.text for each in data.queries}
    model = CrossEncoder(str(place / "cross"), device="cpu", max_length=512)
    for query in list(before)[:6]:
        first = [document for document, _ in before[query][:5]]
        logits = model.predict([(texts[query], texts[name]) for name in first], show_progress_bar=False)
        expected = [first[number] for number in np.argsort(-logits, kind="stable")]
        assert [document for document, _ in after[query]] == expected + [name for name, _ in before[query][5:]]
        assert [score for _, score in after[query]] == sorted((score for _, score in after[query]), reverse=True)


def test_a_reranker_whose_scores_are_no_numbers_is_refused_with_the_pair(place: Path, tmp_path: Path) -> None:
    model = CrossEncoder(str(place / "cross"), device="cpu")
    with torch.no_grad():  # finite weights, whose products are not
        model.model.bert.pooler.dense.weight.mul_(1e6)
        model.model.classifier.weight.fill_(3e38)
    model.save_pretrained(str(tmp_path / "cross"))
    done = invoke("evaluate", "bm25", "--on", place / "collection", "--rerank", tmp_path / "cross", "--language", "en")
    assert done.exit_code == 1
    said = " ".join(done.output.split())
    assert re.search('pairs with NaN or infinity, the first query ".+" and document ".+"', said)


def test_an_index_and_a_dense_embedder_are_systems_too(place: Path, tmp_path: Path) -> None:
    collection = place / "collection"
    vtkit.encode_texts(place / "encoder", collection, tmp_path / "vectors")
    vtkit.index_vectors(tmp_path / "vectors", tmp_path / "index")
    systems = [place / "encoder", tmp_path / "index", place / "dense", f"{place / 'dense'}+bm25"]
    found = vtkit.evaluate(systems, collection, language="en")
    assert reached(found, "index", collection) == reached(found, "encoder", collection)
    assert [row.role for row in found.sets[0].rows] == ["encoder", "index", "peer", "sum"]
    fusion = found.result("dense+bm25", str(collection)).fusion
    assert fusion.kind == "snippets"
    with pytest.raises(RecipeError, match="other has 40 documents, the index 60"):
        vtkit.evaluate(tmp_path / "index", place / "other")
    with pytest.raises(RecipeError, match="only models can be summed"):
        vtkit.evaluate(f"{tmp_path / 'index'}+bm25", collection, language="en")


def test_the_index_that_a_run_deploys_is_a_row_on_the_run_s_own_collections(place: Path, tmp_path: Path) -> None:
    """With the run's precision, and with the weight that it chose on its training queries."""
    own, out = tiny.write_collection(tmp_path / "own", tiny.collection(60)), tmp_path / "out"
    tiny.add_training_queries(own, tiny.collection(60))
    changed = ["index.lexical=bm25", "index.precision=bf16", "recipe.name=one", f"evaluate.sets=['{own}']"]
    changed.append(f"evaluate.peers=['{place / 'dense'}']")
    run = vtkit.run_recipe(place / "tiny.toml", settings=changed, runs=place / "runs").folder
    found = vtkit.evaluate(
        ["bm25", run, f"{run}+bm25", place / "dense"], [own, place / "other"], baseline=str(run), out=out
    )
    rows = [(row.system, of.set.rsplit("/", 1)[-1], row.role) for of in found.sets for row in of.rows]
    assert rows == [
        ("bm25", "own", "bm25"), ("one", "own", "encoder"), ("one (deployed)", "own", "deployed"),
        ("one+bm25", "own", "sum"), ("dense", "own", "peer"),
        ("bm25", "other", "bm25"), ("one", "other", "encoder"),
        ("one+bm25", "other", "sum"), ("dense", "other", "peer"),
    ]  # fmt: skip
    for system, judged in {
        "bm25": "bm25", "one": "transfer", "one-deployed": "deployed", "one+bm25": "hybrid", "dense": "peer-dense"
    }.items():  # fmt: skip
        of_run = read_trec(run / "trec" / "own" / f"{judged}.trec.gz")
        for query, results in read_trec(out / "own" / system / "run.trec.gz").items():
            assert dict(results) == pytest.approx(dict(of_run[query]), abs=1e-7), system
    assert found.baseline == "one"
    assert "nDCG@10" in found.result("one (deployed)", str(own)).tested


def test_sums_of_the_papers_by_hand(place: Path) -> None:
    """Lists (a 3, b 1) and (b 5, c 2): sum b 6, a 3, c 2 (CAI, eq. 8); larger b 5, a 3, c 2; product b 5 (LaPraDoR)."""
    encoder, bm25 = {"q": [("a", 3.0), ("b", 1.0)]}, {"q": [("b", 5.0), ("c", 2.0)]}
    assert combined(encoder, bm25, 10, AS_THEY_ARE["raw"]) == {"q": [("b", 6.0), ("a", 3.0), ("c", 2.0)]}
    assert combined(encoder, bm25, 1, AS_THEY_ARE["raw"]) == {"q": [("b", 6.0)]}
    assert combined(encoder, bm25, 10, AS_THEY_ARE["max"]) == {"q": [("b", 5.0), ("a", 3.0), ("c", 2.0)]}
    assert combined(encoder, bm25, 10, AS_THEY_ARE["product"]) == {"q": [("b", 5.0), ("a", 0.0), ("c", 0.0)]}
    collection, encoder_name = place / "collection", str(place / "encoder")
    endings = ("", "+bm25", *(f"+bm25:{way}" for way in AS_THEY_ARE))
    names = ["bm25-words", *(f"{encoder_name}{ending}" for ending in endings)]
    found = vtkit.evaluate(names, collection, language="en", out=place / "sums")
    assert [row.role for row in found.sets[0].rows] == ["bm25", "encoder", "sum", "sum", "sum", "sum"]
    assert [row.system for row in found.sets[0].rows] == [Path(name).name for name in names]
    folders = [place / "sums" / "collection" / Path(name).name.replace(":", "-") for name in names]
    words, alone, _, *others = (read_trec(folder / "run.trec.gz") for folder in folders)
    for way, together in zip(AS_THEY_ARE, others, strict=True):  # BM25 is the papers': over words
        expected = combined(alone, words, 1000, AS_THEY_ARE[way])
        assert together.keys() == expected.keys()
        for query, results in together.items():
            assert dict(results) == pytest.approx(dict(expected[query]), abs=1e-4), way


def test_mteb_s_files_hold_its_measures_and_the_page_says_what_the_table_does(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = vtkit.evaluate(["bm25", place / "encoder"], place / "collection", language="en", out=out)
    file = out / "mteb" / "results" / "bm25" / "no_revision_available" / "collection.json"
    record = json.loads(file.read_text("utf-8"))
    assert (record["task_name"], record["mteb_version"], list(record["scores"])) == ("collection", "2.26.0", ["test"])
    (scores,) = record["scores"]["test"]
    own = reached(found, "bm25", place / "collection")
    pairs = {"ndcg_at_10": "nDCG@10", "main_score": "nDCG@10", "mrr_at_10": "RR@10", "recall_at_100": "R@100",
             "map_at_1000": "AP"}  # fmt: skip
    assert {name: scores[name] for name in pairs} == pytest.approx(
        {name: own[measure] for name, measure in pairs.items()}, abs=6e-6
    )
    assert scores["hit_rate_at_1"] == scores["precision_at_1"] == scores["recall_at_1"] == scores["accuracy"]
    assert scores["hf_subset"] == "default"
    page, words = ((out / f"report.{form}").read_text("utf-8") for form in ("html", "md"))
    for shown in (f"{own['nDCG@10']:.3f}", "p (randomisation)", "Queries won and lost", "NEXT-GEQ", "<img"):
        assert shown in page
    assert f"{own['nDCG@10']:.3f} ±" in words
    (on_set,) = found.sets
    for row in on_set.rows:
        assert row.cost is not None
        whole, documents = row.cost.index_bytes, on_set.documents
        assert f"{size(whole)} | {size(whole / documents)} |" in words
    assert "<script" not in page


def test_public_collections_have_the_names_of_mteb_s_tasks() -> None:
    for name, task, subset in (
        ("beir:scifact", "SciFact", "default"),
        ("beir:cqadupstack-gis", "CQADupstackGisRetrieval", "default"),
        ("nanobeir:climate-fever", "NanoClimateFeverRetrieval", "default"),
        ("miracl:ko", "MIRACLRetrieval", "ko"),
        ("msmarco", "MSMARCO", "default"),
        ("msmarco:dl19", "msmarco-dl19", "default"),
        ("chemteb:nq", "ChemNQRetrieval", "default"),
        ("data/own", "own", "default"),
    ):
        assert mteb_task(name) == (task, subset)


def test_languages_are_written_as_mteb_writes_them() -> None:
    hangul = "대한민국의 수도는 서울이며 많은 사람들이 그곳에서 살고 있다"
    english = "The quick brown fox jumps over the lazy dog near the river bank"
    assert languages_in_mteb([hangul] * 400) == ["kor-Hang"]
    assert languages_in_mteb([english] * 400) == ["eng-Latn"]
