"""The lexical part of an index: BM25 as further dimensions of the same vectors, one index and one query."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import tiny
from hypothesis import given
from hypothesis import strategies as st

from vtkit.data.collections import load_retrieval
from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.trec import Run, read_trec, to_run
from vtkit.evaluation.fusion import FusionWeight, deviation, weighted_sum
from vtkit.evaluation.results import SetResults
from vtkit.pipeline.folder import report_of
from vtkit.pipeline.run import run
from vtkit.pipeline.search import open_searcher
from vtkit.pipeline.store import result_of
from vtkit.search.bm25 import TERMS, Bm25
from vtkit.search.exact import ExactIndex
from vtkit.search.lexical import LexicalPart
from vtkit.search.searcher import Searcher
from vtkit.search.segments import Manifest
from vtkit.settings.index import IndexSection
from vtkit.system.errors import DataError, VtkitError
from vtkit.vocabulary.tokenizer_file import tokenizer_digest

TEXTS = ["river stone river", "oak reef", "stone oak oak maple", "", "reef river stone oak"]
QUERIES = ["river oak", "maple", "nothing known", "stone stone reef"]


def part_of(
    weight: float, deviations: tuple[float, float], vectors: sp.csr_matrix
) -> tuple[LexicalPart, sp.csr_matrix]:
    bm25 = Bm25.build(TEXTS, "en", "words")
    part = LexicalPart.weighted(bm25, vectors, weight, deviations)
    return part, sp.vstack(list(part.join_documents([vectors], [bm25.index.by_document()])), format="csr")


def found(documents: sp.csr_matrix, queries: sp.csr_matrix) -> Run:
    names = [str(number) for number in range(documents.shape[0])]
    return to_run(
        [str(row) for row in range(queries.shape[0])], names, *ExactIndex.build(documents).search(queries, len(names))
    )


@given(st.integers(0, 99), st.integers(1, 10).map(lambda tenths: tenths / 10))
def test_one_search_ranks_and_scores_as_the_sum_of_two(seed: int, weight: float) -> None:
    """S = w · S_encoder / σ_encoder + (1 − w) · S_BM25 / σ_BM25, times σ_encoder / w."""
    vectors = sp.random(len(TEXTS), 9, 0.5, "csr", dtype=np.float32, random_state=seed)
    asked = sp.random(len(QUERIES), 9, 0.4, "csr", dtype=np.float32, random_state=seed + 1)
    encoder = found(vectors, asked)
    ids, scores = Bm25.build(TEXTS, "en", "words").search(QUERIES, len(TEXTS))
    bm25 = to_run([str(row) for row in range(len(QUERIES))], [str(n) for n in range(len(TEXTS))], ids, scores)
    deviations = deviation(encoder), deviation(bm25)
    part, documents = part_of(weight, deviations, vectors)
    assert documents.shape[1] == 9 + len(part.terms)
    one = found(documents, part.join_queries(asked, QUERIES))
    two = weighted_sum(encoder, bm25, len(TEXTS), weight, deviations)
    for query in one:
        expected = {document: score * deviations[0] / weight for document, score in two[query] if score}
        assert dict(one[query]) == pytest.approx(expected, rel=1e-4)


def test_a_list_that_weighs_nothing_adds_no_documents_and_breaks_no_ties() -> None:
    encoder = {"q": [("c", 3.0), ("b", 2.0), ("d", 1.0)], "only": [("a", 1.0)]}
    bm25 = {"q": [("a", 5.0), ("b", 2.0), ("c", 2.0)], "none": [("b", 1.0)]}
    assert weighted_sum(encoder, bm25, 10, 0.0, (1.0, 1.0)) == bm25 | {"only": []}
    assert weighted_sum(encoder, bm25, 10, 1.0, (1.0, 1.0)) == encoder | {"none": []}
    halved = {"q": [("a", 2.5), ("b", 1.0)], "none": [("b", 0.5)], "only": []}
    assert weighted_sum(encoder, bm25, 2, 0.0, (1.0, 2.0)) == halved


def test_the_weights_at_the_ends_leave_one_ranking_alone() -> None:
    vectors = sp.csr_matrix(np.eye(len(TEXTS), 9, dtype=np.float32))
    asked = sp.csr_matrix(np.ones((len(QUERIES), 9), dtype=np.float32))
    part, documents = part_of(0.0, (2.0, 1.0), vectors)
    alone = part.join_queries(asked, QUERIES)
    assert not alone[:, :9].nnz
    scores = [[round(score, 4) for _, score in results] for results in found(documents, alone).values()]
    bm25 = Bm25.build(TEXTS, "en", "words").search(QUERIES, len(TEXTS))[1]
    assert scores == [[round(float(score), 4) for score in row if score] for row in bm25]
    part, documents = part_of(1.0, (2.0, 1.0), vectors)
    assert not part.join_queries(asked, QUERIES)[:, 9:].nnz


def test_both_parts_of_a_document_reach_about_the_same_largest_weight() -> None:
    vectors = sp.csr_matrix(np.eye(len(TEXTS), 9, dtype=np.float32) * 3)
    _, documents = part_of(0.5, (1.0, 1.0), vectors)
    assert 2**-0.5 < documents[:, 9:].max() / documents[:, :9].max() < 2**0.5


def test_a_part_comes_back_as_it_was(tmp_path: Path) -> None:
    vectors = sp.csr_matrix(np.eye(len(TEXTS), 9, dtype=np.float32))
    asked = sp.csr_matrix((len(QUERIES), 9), dtype=np.float32)
    part, _ = part_of(0.3, (2.0, 1.5), vectors)
    again = LexicalPart.load(tmp_path, part.save(tmp_path), 9)
    assert (again.join_queries(asked, QUERIES) != part.join_queries(asked, QUERIES)).nnz == 0
    assert again.names() == part.names() == [f"bm25:{term}" for term in ("maple", "oak", "reef", "river", "stone")]


SIX_OF_FIVE = '["oak", "oak", "maple", "reef", "river", "stone"]'


@pytest.mark.parametrize(
    "text", ["[", '["river"]', "[1, 2, 3, 4, 5]", '{"river": 1}', '["oak", "oak", "a", "b", "c"]', SIX_OF_FIVE]
)
def test_damaged_terms_are_named_with_what_to_do(tmp_path: Path, text: str) -> None:
    vectors = sp.csr_matrix(np.eye(len(TEXTS), 9, dtype=np.float32))
    part, _ = part_of(0.3, (2.0, 1.5), vectors)
    record = part.save(tmp_path)
    assert record.terms == 5  # river, stone, oak, reef, maple
    (tmp_path / TERMS).write_text(text)
    with pytest.raises(DataError, match=r"terms\.json: the terms of the index are missing or damaged.*vtkit run"):
        LexicalPart.load(tmp_path, record, 9)


def test_the_digest_of_a_tokenizer_is_of_what_it_makes_of_text() -> None:
    plain, other = tiny.tokenizer(), tiny.tokenizer(tiny.shuffled(3))
    digest = tokenizer_digest(plain)
    plain.backend_tokenizer.enable_truncation(4)
    plain.backend_tokenizer.enable_padding()
    assert tokenizer_digest(plain) == digest != tokenizer_digest(other)


# a whole run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose index has a lexical part, over a collection that has training queries."""
    folder = tmp_path_factory.mktemp("run")
    data = tiny.collection(120)
    tiny.finished_run(folder, data)
    tiny.add_training_queries(folder / "collection", data)
    return run(folder / "tiny.toml", ("index.lexical=bm25",), runs=folder / "runs", threads=1)


def test_the_index_to_be_used_finds_what_the_sum_of_two_rankings_finds(finished: Path) -> None:
    trec = finished / "trec" / "collection"
    deployed, two = read_trec(trec / "deployed.trec.gz"), read_trec(trec / "hybrid.trec.gz")
    assert deployed.keys() == two.keys()
    firsts = [(deployed[query][0][0], two[query][0][0]) for query in two if two[query]]
    assert np.mean([first == second for first, second in firsts]) > 0.95  # ties are broken differently
    record = Manifest.load(finished / "index" / "collection")
    assert (record.engine, record.lexical.analysis) == ("exact", "full")


def test_the_index_to_be_used_has_a_row_and_nothing_is_encoded_again(finished: Path) -> None:
    report = report_of(finished)
    (results,) = report.results
    rows = {row.system: row for row in results.rows if row.role == "deployed"}
    assert list(rows) == ["deployed"]
    alone = next(row for row in results.rows if row.system == "transfer")
    assert all(row.p_value_vs_bm25 is not None for row in rows.values())
    (standing,) = report.judged
    assert (standing.final, standing.hybrid) == (alone, rows["deployed"])
    collection = finished.parents[1] / "collection"
    steps = json.loads((finished / "run.json").read_text("utf-8"))["steps"]
    assert [name for name in steps if name.startswith("encode")] == [
        "encode:source", "encode:transfer", "encode:queries",
    ]  # fmt: skip
    weights = {row.system: row.fusion for row in results.rows}
    assert "transfer + BM25" not in weights, "the same ranking is one row"
    deployed = weights["deployed"]
    assert deployed.kind == "other judged queries"
    assert deployed.queries == len(load_retrieval(collection, "train").queries) >= 50
    artifacts = finished.parent / "artifacts"
    assert deployed == result_of(artifacts / steps["fusion"], dict[str, FusionWeight])["collection"]
    (hybrid,) = result_of(artifacts / steps["evaluate:hybrid"], dict[str, SetResults])["collection"].rows
    assert deployed == hybrid.fusion


def test_a_source_that_was_trained_on_the_training_queries_does_not_take_over_the_index(finished: Path) -> None:
    """The training queries are those whose relevant document is the one that the encoder finds, as after training on
    them: they would choose the encoder alone, which knows nothing else."""
    home = finished.parents[1]
    draw = random.Random(5)
    topics = [draw.sample(tiny.WORDS, 4) for _ in range(120)]
    documents = [Document(f"d{n}", "", " ".join(draw.choices(topic, k=14))) for n, topic in enumerate(topics)]
    tests = [Query(f"q{n}", " ".join(topic[:2])) for n, topic in enumerate(topics)]
    found = RetrievalSet("learned", documents, tests, {f"q{n}": {f"d{n}": 1} for n in range(120)})
    collection = tiny.write_collection(home / "learned", found)
    changes = ("index.lexical=bm25", f"evaluate.sets=['{collection}']")
    before = run(home / "tiny.toml", changes, runs=home / "learned-runs", threads=1)
    asked = [f"{' '.join(draw.sample(tiny.WORDS, 3))}" for _ in range(120)]
    firsts = [
        answer.results[0].id for answer in open_searcher(before, model="transfer", collection=None).search(asked, 1)
    ]
    with (collection / "queries.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"_id": f"l{number}", "text": text}) + "\n" for number, text in enumerate(asked))
    rows = [f"l{number}\t{document}\t1" for number, document in enumerate(firsts)]
    (collection / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n", "utf-8")
    folder = run(home / "tiny.toml", changes, runs=home / "learned-runs", threads=1)
    report = report_of(folder)
    fusion = next(row.fusion for row in report.results[0].rows if row.role == "deployed")
    assert fusion.chosen is not None
    assert fusion.chosen > 0.5
    assert dict(fusion.curve)[1.0] == pytest.approx(1, abs=0.01)
    assert fusion.contradicted
    assert fusion.weight == fusion.snippets.weight < 0.5
    assert fusion.words in (folder / "report.md").read_text("utf-8").replace("\\", "")
    assert "warning:   learned: compared with BM25 on" in (folder / "run.log").read_text("utf-8")
    skipped, raised = report.warnings  # the first by a step that only the run before this one made
    assert skipped.startswith("gate overlap after vocabulary: warn; ")
    assert raised.startswith("learned: compared with BM25 on ")
    assert report_of(before).warnings[0] == skipped
    assert "Nothing needs attention" not in (folder / "report.md").read_text("utf-8")
    assert (report.results[0].rows[-1].measures["nDCG@10"] or 0) > 0.9


def test_a_search_names_the_terms_of_bm25(finished: Path) -> None:
    searcher = open_searcher(finished, model=None, collection=None)
    collection = load_retrieval(finished.parents[1] / "collection", "test")
    query = collection.queries[0].text
    result = next(searcher.search([query], 3)).results[0]
    assert any(token.startswith("bm25:") for token, _ in result.tokens)
    whole = searcher.explain(query, result.id)
    assert whole.score == pytest.approx(result.score, rel=1e-4)
    judged = open_searcher(finished, model="transfer", collection=None)
    assert judged.lexical is None
    with pytest.raises(VtkitError, match=r"no index for 'deployed'\. Choose another with --model: source, transfer"):
        open_searcher(finished, model="deployed", collection=None)


def test_an_index_of_another_vocabulary_is_refused(finished: Path, tmp_path: Path) -> None:
    index = finished / "index" / "collection"
    other = tiny.encoder(tmp_path / "work", tokens=tiny.shuffled(3))
    other.save_pretrained(str(tmp_path / "other"))
    with pytest.raises(DataError, match=r"another vocabulary than the model .*other"):
        Searcher.load(index, Manifest.load(index).searched_by(str(tmp_path / "other"), IndexSection(query_length=32)))
