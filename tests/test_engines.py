"""Every search engine behind the one interface: its results by their definition, what it explains, what it counts."""

import ast
import base64
import html
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import opensearch_server as fake_server
import pytest
import scipy.sparse as sp
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from imports import MODULES, imports_in, module_name
from opensearch_server import opensearch_server, running

from vtkit.evaluation.results import SetResults
from vtkit.pipeline.folder import open_run
from vtkit.pipeline.run import run
from vtkit.pipeline.search import open_searcher
from vtkit.pipeline.store import result_of
from vtkit.search import opensearch_client, seismic
from vtkit.search.engine import EngineIndex, Index, build_index, open_index, reach_engine
from vtkit.search.exact import ExactIndex
from vtkit.search.lucene import quantised
from vtkit.search.measures.agreement import agreement
from vtkit.search.measures.cost import Sparsity, activation_shares, active_dimensions
from vtkit.search.opensearch_client import PASSWORD, USER
from vtkit.search.segments import generation_of
from vtkit.settings.engines import NEEDS, Engine, missing_packages
from vtkit.settings.index import IndexSection
from vtkit.system.errors import CollapseError, DataError, MissingExtra, VtkitError

ENGINES: tuple[Engine, ...] = get_args(Engine)
each_engine = pytest.mark.parametrize("engine", ENGINES)
each_other = pytest.mark.parametrize("engine", ENGINES[1:])


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with opensearch_server() as url:
        yield url


@pytest.fixture
def made_for(server: str) -> Callable[[Engine], IndexSection]:
    """The settings by which an engine finds everything, at its exact score where weights are 0, 1, 2 or 3."""
    return lambda engine: IndexSection(engine=engine, url=server if engine == "opensearch" else None)


def vectors(rows: int, columns: int, seed: int) -> sp.csr_matrix:
    """Small whole weights, so that sums are exact in any order, in two bits too, and many scores are equal."""
    generator = np.random.default_rng(seed)
    return sp.csr_matrix(
        generator.integers(1, 4, (rows, columns)) * (generator.random((rows, columns)) < 0.3), dtype="f4"
    )


@pytest.fixture(params=["as built", "opened again"])
def index(
    request: pytest.FixtureRequest, tmp_path: Path, engine: Engine, made_for: Callable[[Engine], IndexSection]
) -> Index:
    built = build_index(made_for(engine), vectors(40, 25, 1), tmp_path / "index")
    return built if request.param == "as built" else open_index(made_for(engine), tmp_path / "index")


@each_engine
def test_results_are_the_largest_dot_products(index: Index, engine: Engine) -> None:
    queries = vectors(64, 25, 2)  # so many that an engine which searches them at once may answer in another order
    ids, scores = index.search(queries, 10)
    for query, row in enumerate((queries @ vectors(40, 25, 1).T).toarray().tolist()):
        best = sorted((-score, number) for number, score in enumerate(row) if score > 0)[:10]
        found = [(-score, number) for number, score in zip(ids[query], scores[query], strict=True) if number >= 0]
        assert found == sorted(found)
        assert [score for score, _ in found] == [score for score, _ in best]
        assert all(row[number] == -score for score, number in found)
        if engine != "seismic":  # which chooses among documents that tie for the last place
            assert found == best
    assert (ids >= 0).any()
    with pytest.raises(ValueError, match="dimensions"):
        index.search(vectors(1, 24, 2), 10)


@each_engine
def test_dimensions_may_exceed_two_bytes(
    engine: Engine, tmp_path: Path, made_for: Callable[[Engine], IndexSection]
) -> None:
    """As the terms of BM25 behind a vocabulary are, or a multilingual vocabulary by itself."""
    documents = sp.csr_matrix(([1.0, 2.0, 3.0], ([0, 1, 2], [5, 65_536, 69_999])), shape=(3, 70_000), dtype="f4")
    build_index(made_for(engine), documents, tmp_path / "index")
    ids, scores = open_index(made_for(engine), tmp_path / "index").search(documents, 2)
    assert ids[:, 0].tolist() == [0, 1, 2]
    assert scores[:, 0].tolist() == [1.0, 4.0, 9.0]
    assert (ids[:, 1] == -1).all()


@each_engine
def test_contributions_are_the_products_that_make_the_score(index: Index) -> None:
    documents, queries = vectors(40, 25, 1).toarray(), vectors(6, 25, 2)
    ids, scores = index.search(queries, 40)
    for row in range(6):
        query = queries[row].toarray()[0]
        for number, score in zip(ids[row], scores[row], strict=True):
            if number >= 0:
                found = index.postings.explain(queries[row], int(number))
                assert found.products.sum() == score
                assert set(found.dimensions.tolist()) == set(np.flatnonzero(query * documents[number]).tolist())
                assert found.query_weights.tolist() == query[found.dimensions].tolist()
                assert found.document_weights.tolist() == documents[number][found.dimensions].tolist()
    assert not len(index.postings.explain(sp.csr_matrix((1, 25), dtype=np.float32), 0).products)
    with pytest.raises(ValueError, match="dimensions"):
        index.postings.explain(sp.csr_matrix((1, 4)), 0)


@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 99))
def test_info_counts_the_indexed(tmp_path_factory: pytest.TempPathFactory, rows: int, columns: int, seed: int) -> None:
    documents = vectors(rows, columns, seed)
    info = build_index(IndexSection(), documents, tmp_path_factory.mktemp("index")).info
    active = documents.toarray() != 0
    assert (info.documents, info.vocabulary, info.postings) == (rows, columns, active.sum())
    assert info.document_frequencies.tolist() == active.sum(axis=0).tolist()
    assert info.document_sizes.tolist() == active.sum(axis=1).tolist()
    assert info.mean_size == active_dimensions(documents)
    assert info.activation_shares.tolist() == activation_shares(documents).tolist()
    counted = np.arange(columns) % 3 > 0
    sparsity = info.sparsity(counted, 4)
    assert sparsity.dead_dimensions == ((~active.any(axis=0))[counted].mean() if counted.any() else 0)
    assert sum(sparsity.size_counts) == rows


def test_info_by_eye(tmp_path: Path) -> None:
    documents = sp.csr_matrix([[1, 1, 0, 0], [1, 0, 2, 0], [1, 1, 1, 0], [1, 0, 0, 0]], dtype=np.float32)
    info = build_index(IndexSection(), documents, tmp_path).info
    assert info.sparsity(np.array([True, True, False, True]), 2) == Sparsity(
        dead_dimensions=1 / 3, size_edges=(1.0, 2.0, 3.0), size_counts=(1, 3), largest_share=1.0, median_share=0.5
    )
    assert info.mean_size == 2.0
    empty = build_index(IndexSection(), sp.csr_matrix((2, 3), dtype=np.float32), tmp_path / "empty").info
    unused = empty.sparsity(np.ones(3, dtype=bool), 2)
    assert (unused.largest_share, unused.median_share) == (0.0, 0.0)
    assert empty.mean_size == 0.0


def test_engines_are_known_to_search_and_export_only() -> None:
    for path in MODULES:
        module = module_name(path)
        if module and not module.startswith(("search.", "deploy.")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = set(imports_in(tree, module, when_imported=False))
            own = [f"vtkit.search.{engine}" for engine in (*ENGINES, "java")]
            assert not any(name.startswith(engine) for name in names for engine in own), module


@each_engine
def test_what_no_index_was_ever_asked_before(tmp_path: Path, engine: Engine, made_for: Any) -> None:
    """Empty queries, queries of every term there is, documents without weights, more results than documents."""
    documents = sp.vstack([vectors(7, 3000, 4), sp.csr_matrix((1, 3000)), vectors(22, 3000, 5)], "csr", "f4")
    index = build_index(made_for(engine), documents, tmp_path / "index")
    everything = sp.vstack([sp.csr_matrix((1, 3000)), np.full((1, 3000), 0.5), sp.csr_matrix((1, 3000))], dtype="f4")
    ids, scores = index.search(everything.tocsr(), 10_000)
    assert (ids[[0, 2]] == -1).all()
    assert sorted(ids[1][ids[1] >= 0]) == [number for number in range(30) if number != 7]
    # of a query of more than 1024 terms OpenSearch is asked for the 1024 largest
    wanted = documents[:, : 1024 if engine == "opensearch" else None].toarray().sum(axis=1) / 2
    assert np.allclose(scores[1][:29], np.sort(wanted)[::-1][:29], rtol=1e-3)
    nobody = build_index(made_for(engine), sp.csr_matrix((0, 3000), dtype=np.float32), tmp_path / "nobody")
    assert (nobody.search(everything.tocsr(), 5)[0] == -1).all()
    weightless = build_index(made_for(engine), sp.csr_matrix((4, 3000), dtype=np.float32), tmp_path / "weightless")
    assert (weightless.search(everything.tocsr(), 5)[0] == -1).all()


@each_engine
def test_weights_of_every_size_are_searched(tmp_path: Path, engine: Engine, made_for: Any) -> None:
    """A query weight of 1e-12 or 1e9 is one like others; and what no query can have is refused."""
    index = build_index(made_for(engine), sp.csr_matrix([[1.0, 0], [0, 1.0]], dtype=np.float32), tmp_path / "index")
    ids, scores = index.search(sp.csr_matrix([[1e-12, 0], [0, 1e9]], dtype=np.float32), 2)
    assert ids.tolist() == [[0, -1], [1, -1]]
    assert scores[:, 0] == pytest.approx([1e-12, 1e9], rel=5e-3)
    with pytest.raises(CollapseError):
        index.search(sp.csr_matrix([[np.inf, 1.0]], dtype=np.float32), 2)
    with pytest.raises(ValueError, match="depth"):
        index.search(sp.csr_matrix([[1.0, 1.0]], dtype=np.float32), 0)


@each_other
def test_an_index_is_replaced_whole_and_other_folders_left(tmp_path: Path, engine: Engine, made_for: Any) -> None:
    folder = tmp_path / "index"
    for seed in (1, 2):
        build_index(made_for(engine), vectors(20, 9, seed), folder)
    opened = open_index(made_for(engine), folder)
    exact = open_index(IndexSection(), folder)
    assert (opened.search(vectors(5, 9, 3), 20)[0] == exact.search(vectors(5, 9, 3), 20)[0]).all()
    with pytest.raises(DataError, match="negative weights"):
        build_index(made_for(engine), -vectors(20, 9, 1), folder)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("ten years")
    with pytest.raises(DataError, match="files that are no index"):
        build_index(made_for(engine), vectors(20, 9, 1), tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "ten years"


@each_other
def test_files_that_are_gone_or_cut_are_told_with_the_remedy(tmp_path: Path, engine: Engine, made_for: Any) -> None:
    """Each file of the engine once removed and once cut in half: a clear error, or the right results all the same."""
    folder, documents, queries = tmp_path / "index", vectors(60, 25, 1), vectors(6, 25, 2)
    right = build_index(made_for(engine), documents, folder).search(queries, 60)[0]
    files = [path for path in (folder / engine).rglob("*") if path.is_file()]
    assert files
    told: list[str] = []
    for path in files:
        whole = path.read_bytes()
        for left in (None, whole[: len(whole) // 2]):
            path.unlink() if left is None else path.write_bytes(left)
            try:
                assert (open_index(made_for(engine), folder).search(queries, 60)[0] == right).all()
            except VtkitError as error:
                told.append(str(error))
            path.write_bytes(whole)
    assert told
    assert all("Make the index again" in message for message in told)
    shutil.rmtree(folder / engine)
    with pytest.raises(DataError, match=f"no files of the engine {engine}"):
        open_index(made_for(engine), folder)


@each_other
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, engine: Engine, made_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, package = NEEDS[engine][0]
    assert missing_packages(engine) == ()
    monkeypatch.setitem(sys.modules, module, None)
    assert missing_packages(engine) == (package,)
    with pytest.raises(MissingExtra, match=rf"pip install 'vtkit\[{engine}\]'"):
        build_index(made_for(engine), vectors(3, 3, 1), tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def test_answers_that_cannot_be_are_not_passed_on(tmp_path: Path) -> None:
    exact = build_index(IndexSection(), vectors(5, 4, 1), tmp_path / "index")
    assert isinstance(exact, ExactIndex)
    for ids, scores in (([5], [1.0]), ([-1], [1.0]), ([1, 1], [2.0, 1.0]), ([1], [np.nan]), ([1], [])):
        answer = np.asarray(ids, np.int32), np.asarray(scores, np.float32)
        index = EngineIndex(exact, partial(lambda answer, *_: iter([answer]), answer), "seismic")
        with pytest.raises(DataError, match="seismic names documents that the index does not have"):
            index.search(sp.csr_matrix([[1.0, 0, 0, 0]]), 3)


def test_quantisation_by_hand() -> None:
    weights = sp.csr_matrix([[3.0, 1.6, 0.4, 0.0]], dtype=np.float32)
    whole, step = quantised(weights, 2)
    assert (whole.toarray().tolist(), step) == ([[3, 2, 0, 0]], 1.0)


def test_agreement_by_hand() -> None:
    none = [-1, -1, -1]
    ids, scores = np.array([[1, 2, 9], [4, -1, -1], none]), np.array([[4.0, 3.0, 1], [2.0, 0, 0], [0, 0, 0]])
    exact = np.array([[1, 2, 3], [4, 5, -1], none]), np.array([[4.0, 2.0, 1], [2, 1, 0], [0] * 3])
    found = agreement("lucene", ids, scores, *exact)
    assert found.overlap == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert (found.mean_error, found.largest_error) == (pytest.approx(0.5 / 3), 0.5)
    same = agreement("lucene", *exact, *exact)
    assert (same.overlap, same.mean_error, same.largest_error) == (1.0, 0.0, 0.0)


def test_opensearch_is_sent_the_vectors_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features keep 9 bits, and an index that is there already is not sent again."""
    monkeypatch.setenv(USER, "searcher")
    monkeypatch.setenv(PASSWORD, "a secret: ü 비밀")
    documents = sp.random(50, 40, 0.3, format="csr", random_state=1, dtype=np.float32)
    queries = sp.random(5, 40, 0.3, format="csr", random_state=2, dtype=np.float32)
    with running() as server:
        made = IndexSection(engine="opensearch", url=server.url)
        index = build_index(made, documents, tmp_path / "index")
        assert isinstance(index, EngineIndex)
        found, exact = index.search(queries, 50), index.postings.search(queries, 50)
        compared = agreement("opensearch", *found, *exact)
        assert 0 < compared.mean_error < compared.largest_error <= 2**-8
        credentials = base64.b64encode("searcher:a secret: ü 비밀".encode()).decode()
        assert {authorization for _, _, authorization in server.requests} == {f"Basic {credentials}"}
        sent = [request for request in server.requests if request[1].endswith("_bulk")]
        build_index(made, documents, tmp_path / "again")
        assert [request for request in server.requests if request[1].endswith("_bulk")] == sent  # it is there already
        name = next(iter(server.indices))
        held = server.indices.pop(name)
        with pytest.raises(DataError, match=f"{name} is not there.*--force index"):
            open_index(made, tmp_path / "index")
        server.indices[name] = held | {"visible": {}}
        with pytest.raises(DataError, match="has 0 of 50 documents"):  # nothing is refreshed yet
            open_index(made, tmp_path / "index")


def test_a_document_that_opensearch_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = {"_id": "0", "status": 400, "error": {"type": "mapper_parsing_exception", "reason": "no room"}}
    monkeypatch.setattr(fake_server, "bulk", lambda *_: {"errors": True, "items": [{"index": item}]})
    with running() as server, pytest.raises(DataError, match=r"refuses.*no room"):
        build_index(IndexSection(engine="opensearch", url=server.url), sp.csr_matrix([[1.0]]), tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


NO_PRIMARY = {"type": "unavailable_shards_exception", "reason": "[0] primary shard is not active Timeout: [1m]"}


def test_what_opensearch_cannot_do_now_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of request is refused once, then some documents of one, and then a part of an index is missing."""
    monkeypatch.setattr(opensearch_client, "FIRST_PAUSE_S", 0.01)
    before, bulk, seen, sent = fake_server.server_answer, fake_server.bulk, Counter(), []

    def answer(indices: Any, method: str, path: str, body: bytes) -> Any:
        kind = (method, *path.split("/")[1:])
        seen[kind] += 1
        if seen[kind] == 1:  # the second error is that of a cluster without a manager
            error = NO_PRIMARY["type"] if len(seen) % 2 else "cluster_block_exception"
            raise fake_server.Refused(503, error, "not now")
        made = before(indices, method, path, body)
        if seen[kind] == 2:
            for each in [made, *made.get("responses", ())]:
                each["_shards"] = {"failed": 1}
        return made

    def refusing_some(documents: Any, body: bytes) -> Any:
        sent.append(body.count(b"index"))
        made = bulk(documents, body)
        for item in made["items"][:7] if len(sent) == 1 else ():
            item["index"] |= {"status": 503, "error": NO_PRIMARY}
        return made

    monkeypatch.setattr(fake_server, "server_answer", answer)
    monkeypatch.setattr(fake_server, "bulk", refusing_some)
    documents, queries = vectors(20, 30, 1), vectors(5, 30, 2)
    with running() as server:
        index = build_index(IndexSection(engine="opensearch", url=server.url), documents, tmp_path / "index")
        exact = ExactIndex.build(documents).search(queries, 10)
        assert (index.search(queries, 10)[0] == exact[0]).all()
    assert sent == [20, 7]
    assert {kind[-1] for kind in seen} >= {"_bulk", "_msearch", "_count", "_refresh", "_settings", "builder"}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (
            429,
            {"type": "rejected_execution_exception", "reason": "queue is full"},
            r"is busy, also after.*queue is full",
        ),
        (503, NO_PRIMARY, r"cannot do it, also after pauses: .*primary shard is not active.*A node may be lost"),
    ],
)
def test_what_opensearch_can_never_do_is_told_after_a_while(
    status: int, error: dict[str, str], said: str, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opensearch_client, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(opensearch_client, "PATIENCE_S", 0.1)
    asked = []

    def bulk(*given: Any) -> Any:
        asked.append(given)
        if whole:
            raise fake_server.Refused(status, error["type"], error["reason"])
        return {"errors": True, "items": [{"index": {"_id": "0", "status": status, "error": error}}]}

    monkeypatch.setattr(fake_server, "bulk", bulk)
    with running() as server, pytest.raises(DataError, match=said):
        build_index(IndexSection(engine="opensearch", url=server.url), sp.csr_matrix([[1.0]]), tmp_path / "index")
    assert len(asked) > 2
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_none_of_opensearch_is_told() -> None:
    answers: list[tuple[int, Any, str]] = [
        (200, {"hello": "world"}, "does not answer like OpenSearch"),
        (200, b"<html>It works!</html>", "does not answer like OpenSearch"),
        (200, [], "does not answer like OpenSearch"),
        (401, {"error": "who are you"}, "set VTKIT_OPENSEARCH_USER"),
        (403, {"error": "no"}, "denies permission"),
        (500, b"\x1b[31mred", "does not answer like OpenSearch"),
        (200, b"\xff", "does not answer .*decode"),
    ]
    for status, body, said in answers:
        with opensearch_server((status, body)) as url, pytest.raises(DataError, match=said):
            reach_engine(IndexSection(engine="opensearch", url=url))


def test_a_server_that_does_not_answer_is_told_within_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opensearch_client, "TIMEOUT_S", 1)
    with pytest.raises(DataError, match=r"http://127\.0\.0\.1:9.*index\.url"):
        reach_engine(IndexSection(engine="opensearch", url="http://127.0.0.1:9"))


def test_an_error_of_a_query_is_told(tmp_path: Path) -> None:
    with running() as server:
        made = IndexSection(engine="opensearch", url=server.url)
        index = build_index(made, vectors(9, 5, 1), tmp_path / "index")
        refused = {"error": {"root_cause": [{"reason": "unknown query [neural_sparse]"}]}, "status": 400}
        for response, said in ((refused, "unknown query"), ({"status": 200}, "timed_out"), (None, "refuses")):
            server.answer = (200, {"responses": [response]})
            with pytest.raises(DataError, match=said):
                index.search(vectors(1, 5, 2), 3)
        server.answer = (200, {"responses": []})
        with pytest.raises(DataError, match="0 answers to 1 queries"):
            index.search(vectors(1, 5, 2), 3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of a tiny recipe lie."""
    folder = tmp_path_factory.mktemp("finished")
    tiny.finished_run(folder, tiny.collection(30))
    return folder


QUICKLY = ("recipe.name=other", 'evaluate.models=["transfer"]', "evaluate.bm25=false")


@each_other
def test_engines_costs_are_said(finished: Path, server: str, engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    """Through ``vtkit run`` and ``vtkit search``; with Lucene also the report, and an index that is damaged."""
    wanted = (*QUICKLY, f"index.engine={engine}", *([f"index.url={server}"] if engine == "opensearch" else []))
    until = None if engine == "lucene" else "evaluate"
    folder = run(finished / "tiny.toml", wanted, runs=finished / "runs", until=until, threads=1)
    said = capfd.readouterr()
    steps = open_run(folder).steps
    compared = result_of(steps["evaluate:deployed"], dict[str, SetResults])["collection"].rows[0].agreement
    assert (compared.engine, compared.measure) == (engine, "nDCG@10")
    assert compared.overlap > 0.9
    assert compared.largest_error < 0.2
    assert compared.words() in " ".join((said.out + said.err).split())
    for noise in ("Building", "grpc", "WARNING", "Traceback"):
        assert noise not in said.out + said.err
    found = next(open_searcher(folder, model=None, collection=None).search(["amber river"], 5)).results
    exact = open_searcher(finished / "runs" / "tiny", model=None, collection=None)
    assert {result.id for result in found} & {result.id for result in next(exact.search(["amber river"], 5)).results}
    if engine == "lucene":
        assert html.escape(compared.words()) in (folder / "report.html").read_text("utf-8")
        assert compared.words() in (folder / "report.md").read_text("utf-8")
        index = generation_of(steps["index:deployed"] / "collection") / "postings" / "lucene"
        damaged = max((path for path in index.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[: len(whole) // 2])
        run(finished / "tiny.toml", wanted, runs=finished / "runs", until="index", threads=1)
        assert damaged.stat().st_size == len(whole)


def test_a_server_that_is_away_stops_a_run_before_anything_is_made(finished: Path) -> None:
    before = sorted(path.name for path in (finished / "runs" / "artifacts").iterdir())
    settings_ = (*QUICKLY, "index.engine=opensearch", "index.url=http://127.0.0.1:9")
    with pytest.raises(DataError, match="does not answer"):
        run(finished / "tiny.toml", settings_, runs=finished / "runs", threads=1)
    assert sorted(path.name for path in (finished / "runs" / "artifacts").iterdir()) == before


def test_seismic_finds_most_of_what_exact_search_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(seismic.SHAPE, "n_postings", 450)
    documents = sp.random(3000, 400, density=0.15, random_state=1, dtype=np.float32).tocsr()
    queries = sp.random(50, 400, density=0.04, random_state=2, dtype=np.float32).tocsr()
    exact = set_of_results(ExactIndex.build(documents).search(queries, 10)[0])
    section = IndexSection(engine="seismic")
    build_index(section, documents, tmp_path / "index")
    found = set_of_results(open_index(section, tmp_path / "index").search(queries, 10)[0])
    assert len(exact & found) > 0.97 * len(exact)


def test_seismic_refuses_more_dimensions_than_it_can_take(tmp_path: Path) -> None:
    row = np.arange(70_000)
    wide = sp.csr_matrix((np.ones(len(row), np.float32), row, [0, len(row)]), shape=(1, 2**20))
    with pytest.raises(DataError, match="hours for 70,000 of 1,048,576 dimensions in use"):
        build_index(IndexSection(engine="seismic"), wide, tmp_path / "index")


def set_of_results(ids: np.ndarray) -> set[tuple[int, int]]:
    """(query, document) of all results."""
    return {(query, int(document)) for query, row in enumerate(ids) for document in row if document >= 0}
