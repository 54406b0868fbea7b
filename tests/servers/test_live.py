"""The engine ``opensearch`` on real servers: one node, and three of which one is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import kit
import numpy as np
import opensearchpy
import pytest
import scipy.sparse as sp
import tiny

from vtkit.evaluation.results import SetResults
from vtkit.pipeline.folder import open_run
from vtkit.pipeline.run import run
from vtkit.pipeline.search import open_searcher
from vtkit.pipeline.store import result_of
from vtkit.search import opensearch
from vtkit.search.engine import EngineIndex, build_index, open_index
from vtkit.search.exact import ExactIndex
from vtkit.search.measures.agreement import agreement
from vtkit.settings.index import IndexSection
from vtkit.system.errors import DataError

PROGRAM = """
import sys, time
from pathlib import Path
import scipy.sparse as sp
from vtkit.search import opensearch
from vtkit.search.engine import build_index
from vtkit.settings.index import IndexSection

url, vectors, folder, stop_after = sys.argv[1:]
before = opensearch._bulk
calls = iter(range(10**9))

def bulk(*given):
    if int(stop_after) and next(calls) >= int(stop_after):
        (Path(folder).parent / "stopped").touch()
        while not (Path(folder).parent / "go").exists():
            time.sleep(0.1)
    before(*given)

opensearch._bulk = bulk
opensearch.PARALLEL = 2
opensearch._BULK_BYTES = 100_000
build_index(IndexSection(engine="opensearch", url=url, replicas=0), sp.load_npz(vectors), Path(folder))
"""
"""Builds an index; with ``stop_after``, so many requests are sent and the others wait for a file."""


def vectors(rows: int, columns: int = 300, weights: int = 30, seed: int = 1) -> sp.csr_matrix:
    return sp.random(rows, columns, weights / columns, "csr", np.float32, np.random.default_rng(seed))


def section(url: str, **settings: Any) -> IndexSection:
    return IndexSection(engine="opensearch", url=url, **({"replicas": 0} | settings))


@pytest.fixture
def client(url: str) -> Iterator[opensearchpy.OpenSearch]:
    """A client of the server, whose indexes of vtkit are removed at the end, if it had none before."""
    client = opensearchpy.OpenSearch(url)
    if "VTKIT_OPENSEARCH_URL" in os.environ and client.indices.get(index="vtkit-*"):
        pytest.skip("the server has indexes of vtkit, which these tests would remove: name an empty one")
    yield client
    client.indices.delete(index="vtkit-*", ignore_unavailable=True)
    client.close()


def name_of(folder: Path) -> str:
    """The name of an index on the server."""
    return str(json.loads((folder / "opensearch" / "opensearch.json").read_text("utf-8"))["index"])


def agrees(index: Any, queries: sp.csr_matrix, depth: int = 10) -> bool:
    """Whether first results are those of exact search over weights of 9 significant bits."""
    held = index.postings.by_document()
    held.data = (held.data.view(np.int32) >> 15 << 15).view(np.float32)
    ids, scores = index.search(queries, depth)
    exact = ExactIndex.build(held).search(queries, depth)
    return agreement("opensearch", ids, scores, *exact).overlap > 0.999


def test_results_are_those_of_exact_search_at_any_depth(
    url: str, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As deep as one request may go, and behind the results of one, with many equal scores."""
    documents = vectors(1_100, 40, 4, seed=3)
    documents.data = np.rint(documents.data * 2 + 1).astype("f4")
    index = build_index(section(url, shards=2), documents, tmp_path / "index")
    queries = vectors(3, 40, 38, seed=4)
    queries.data = np.rint(queries.data * 3 + 1).astype("f4")
    exact = ExactIndex.build(documents).search(queries, 10_500)
    for window, depth in ((opensearch._WINDOW, 10), (opensearch._WINDOW, 10_500), (400, 1_050), (400, 10_500)):
        monkeypatch.setattr(opensearch, "_WINDOW", window)
        ids, scores = index.search(queries, depth)
        assert (ids == exact[0][:, :depth]).all()
        assert (scores == exact[1][:, :depth]).all()
    assert (exact[0] >= 0).sum(axis=1).min() > 1_000
    (held,) = client.indices.get_settings(index="vtkit-*", include_defaults=True).values()
    assert int(held["defaults"]["index"]["max_result_window"]) == 10_000  # what the engine counts on


def test_requests_that_are_too_large_or_too_many_are_sent_all_the_same(
    url: str, client: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reads requests of 512,000 bytes at most (413), and works on 460,800 at once (429)."""
    monkeypatch.setattr(opensearch, "_BULK_BYTES", 980_000)
    index = build_index(section(url), vectors(1500, 3000, 60), tmp_path / "index")
    assert agrees(index, vectors(20, 3000, 40, seed=2))
    if not os.environ.get("VTKIT_OPENSEARCH_URL"):
        assert "more than http.max_content_length" in capfd.readouterr().err
        (stats,) = client.nodes.stats(metric="indexing_pressure")["nodes"].values()
        assert stats["indexing_pressure"]["memory"]["total"]["coordinating_rejections"] > 0


def test_a_query_of_more_than_1024_weights_is_said(
    url: str, client: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    index = build_index(section(url), vectors(50, 2000, 200), tmp_path / "index")
    assert isinstance(index, EngineIndex)
    query = sp.csr_matrix(np.linspace(0.5, 1.5, 2000, dtype="f4")[None])
    ids, scores = index.search(query, 10)
    assert "1 of 1 queries have more than 1,024 weights" in capfd.readouterr().err
    largest = query.copy()
    largest.data[:976] = 0
    expected = index.postings.search(largest, 10)
    assert (ids == expected[0]).mean() > 0.8
    np.testing.assert_allclose(scores, expected[1], rtol=5e-3)


def test_what_is_read_only_and_a_port_without_tls_are_told(
    url: str, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, before = vectors(20), opensearch._bulk

    def full(client: Any, name: str, lines: list[str]) -> None:
        client.indices.put_settings(index=name, body={"index.blocks.read_only_allow_delete": True})
        before(client, name, lines)

    monkeypatch.setattr(opensearch, "_bulk", full)
    with pytest.raises(DataError, match=r"takes no changes: .*flood stage"):
        build_index(section(url), documents, tmp_path / "index")
    monkeypatch.setattr(opensearch, "_bulk", before)
    (name,) = client.indices.get(index="vtkit-*")
    client.indices.put_settings(index=name, body={"index.blocks.read_only_allow_delete": None})
    assert build_index(section(url), documents, tmp_path / "index").info.documents == 20
    if "VTKIT_OPENSEARCH_URL" in os.environ:
        return  # what follows concerns everything on the server
    client.cluster.put_settings(body={"persistent": {"cluster.blocks.read_only": True}})
    try:
        with pytest.raises(DataError, match=r"takes no changes: .*read-only"):
            build_index(section(url), vectors(21), tmp_path / "other")
    finally:
        client.cluster.put_settings(body={"persistent": {"cluster.blocks.read_only": None}})
    if url.startswith("http://"):
        with pytest.raises(DataError, match="does not speak TLS"):
            build_index(section(url.replace("http", "https")), documents, tmp_path / "tls")


@contextmanager
def program(url: str, tmp_path: Path, documents: sp.csr_matrix, stop_after: int = 0) -> Iterator[Any]:
    """Another process that builds an index of ``documents`` in ``tmp_path/index``."""
    sp.save_npz(tmp_path / "vectors.npz", documents)
    arguments = [url, str(tmp_path / "vectors.npz"), str(tmp_path / "index"), str(stop_after)]
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(holds: Any) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.05)


def test_a_build_that_was_killed_goes_on_and_what_it_left_is_removed(
    url: str, client: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    documents = vectors(4000)
    with program(url, tmp_path, documents, stop_after=8) as process:
        wait_until(lambda: (tmp_path / "stopped").exists() or process.poll() is not None)
        process.kill()
        process.wait()
    left = [path for path in tmp_path.iterdir() if path.name.startswith(".index.index.new-")]
    assert len(left) == 1
    index = build_index(section(url), documents, tmp_path / "index")
    said = " ".join(capfd.readouterr().err.split())
    assert f"which process {process.pid} on" in said
    assert "going on after 0 " not in said
    assert agrees(index, vectors(20, seed=2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "stopped", "vectors.npz"]


def test_of_two_builds_at_once_one_waits_and_says_for_whom(url: str, client: Any, tmp_path: Path) -> None:
    documents, (first, second) = vectors(3000), (tmp_path / "first", tmp_path / "second")
    first.mkdir()
    second.mkdir()
    with program(url, first, documents, stop_after=2) as one:
        wait_until((first / "stopped").exists)
        with program(url, second, documents) as other:
            said = other.stderr.readline()
            (first / "go").touch()
            assert one.wait(60) == other.wait(60) == 0
    assert f"waiting for process {one.pid} on" in said
    assert name_of(first / "index") == name_of(second / "index")
    index = open_index(section(url), second / "index")
    assert agrees(index, vectors(20, seed=2))


@contextmanager
def asked_all_the_while(url: str, alias: str) -> Iterator[list[int]]:
    """Applications that search an alias during the block: how many documents each search found."""
    found: list[int] = []
    stopped = threading.Event()

    def ask() -> None:
        with opensearchpy.OpenSearch(url) as client:
            while not stopped.is_set():
                query = {"neural_sparse": {"weights": {"query_tokens": {"t0": 1.0}}}}
                with suppress(opensearchpy.TransportError):  # a node that is lost: no answer is better than a part
                    answer = client.search(index=alias, body={"query": query}, allow_partial_search_results="false")
                    found.append(answer["hits"]["total"]["value"])

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield found
    finally:
        stopped.set()
        thread.join()


def with_first(documents: sp.csr_matrix) -> sp.csr_matrix:
    """``documents``, each with a weight at the first dimension."""
    dense = documents.tolil()
    dense[:, 0] = 1.0
    return dense.tocsr()


def test_an_alias_stands_for_a_complete_index_at_every_moment(url: str, client: Any, tmp_path: Path) -> None:
    models = [with_first(vectors(300 + 100 * number, seed=number)) for number in range(3)]
    build_index(section(url, alias="passages"), models[0], tmp_path / "0")
    with asked_all_the_while(url, "passages") as found:
        for number in (1, 2):
            build_index(section(url, alias="passages"), models[number], tmp_path / str(number))
    assert set(found) <= {300, 400, 500}
    assert found == sorted(found)
    assert list(client.indices.get_alias(name="passages")) == [name_of(tmp_path / "2")]
    assert list(client.indices.get(index="vtkit-*")) == [name_of(tmp_path / "2")]
    with pytest.raises(DataError, match=r"is not there.*Make the index again"):
        open_index(section(url), tmp_path / "0")
    client.indices.create(index="other", body={"aliases": {"of-others": {}}})
    try:
        with pytest.raises(DataError, match="of-others is other, not of vtkit"):
            build_index(section(url, alias="of-others"), models[0], tmp_path / "others")
        with pytest.raises(DataError, match="other is an index, not of vtkit"):
            build_index(section(url, alias="other"), models[0], tmp_path / "others")
        assert list(client.indices.get(index="vtkit-*")) == [name_of(tmp_path / "2")]  # nothing was sent
    finally:
        client.indices.delete(index="other")


def test_a_recipe_is_run_searched_and_evaluated(url: str, client: Any, tmp_path: Path) -> None:
    more = f'[index]\nengine = "opensearch"\nurl = "{url}"\nreplicas = 0\nalias = "tiny"\n'
    folder = tiny.finished_run(tmp_path, tiny.collection(40), more=more)
    compared = (
        result_of(open_run(folder).steps["evaluate:deployed"], dict[str, SetResults])["collection"].rows[0].agreement
    )
    assert compared.engine == "opensearch"
    assert compared.overlap > 0.98
    assert compared.largest_error < 0.01
    searcher = open_searcher(folder, model=None, collection=None)
    exact = replace(searcher, index=searcher.index.postings)
    for found, wanted in zip(
        searcher.search(["amber river", "maple"], 5, why=True), exact.search(["amber river", "maple"], 5), strict=True
    ):
        assert [each.id for each in found.results] == [each.id for each in wanted.results]
    assert client.count(index="tiny")["count"] == 40
    run(tmp_path / "tiny.toml", ["index.shards=2"], runs=tmp_path / "runs", until="index", threads=1)


@pytest.mark.skipif("VTKIT_OPENSEARCH_URL" in os.environ, reason="a server of one's own has its own nodes")
def test_of_three_nodes_one_is_killed_while_indexing_searching_and_switching(
    three: list[kit.Node], unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost, no answer is wrong; what is asked of the node that is killed is an error that says so."""
    url, before, switching = three[0].url, opensearch._bulk, opensearch._switch
    queries, models = vectors(20, seed=2), [with_first(vectors(600, seed=number)) for number in (5, 6, 7)]
    with opensearchpy.OpenSearch(url) as client:  # copies are made anew at once, not after a minute
        template = {"settings": {"index.unassigned.node_left.delayed_timeout": "0s"}}
        client.indices.put_index_template(name="vtkit", body={"index_patterns": ["vtkit-*"], "template": template})
    monkeypatch.setattr(opensearch, "_BULK_BYTES", 40_000)
    replicated = section(url, replicas=1, shards=2, alias="three")
    first = build_index(replicated, models[0], tmp_path / "first")
    sent = iter(range(1000))

    def killing(*given: Any) -> None:
        if next(sent) == 2:
            three[1].kill()
        before(*given)

    monkeypatch.setattr(opensearch, "_bulk", killing)
    monkeypatch.setattr(opensearch, "_switch", lambda *given: (agrees(first, queries), switching(*given)))
    with asked_all_the_while(url, "three") as found:
        second = build_index(replicated, models[1], tmp_path / "second")
    assert agrees(second, queries)
    three[1] = kit.start(unpacked, three[1].folder, *three[1].arguments, port=int(three[1].url.rsplit(":", 1)[1]))
    three[1].wait("_cluster/health?wait_for_nodes=3&wait_for_status=green&timeout=60s")

    def killing_before(*given: Any) -> None:
        three[2].kill()
        assert agrees(second, queries)
        switching(*given)

    monkeypatch.setattr(opensearch, "_switch", killing_before)
    with asked_all_the_while(url, "three") as more:
        third = build_index(replicated, models[2], tmp_path / "third")
    assert set(found) == set(more) == {600}
    assert agrees(third, queries)
    three[0].kill()
    with pytest.raises(DataError, match="does not answer"):
        third.search(queries, 10)
