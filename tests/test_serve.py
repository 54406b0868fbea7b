"""The HTTP service as its clients meet it: a real server process, with good, bad, slow and broken clients."""

import asyncio
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import command_line
import numpy as np
import pytest
import schemathesis
import tiny
from command_line import invoke
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import positive_data_acceptance
from scipy import sparse

import vtkit
from vtkit.data.retrieval import Document, RetrievalSet
from vtkit.deploy.batching import Batcher
from vtkit.deploy.limits import Limits
from vtkit.deploy.served import Encoding, Served
from vtkit.deploy.server import bind, serve
from vtkit.deploy.snippets import WIDTH, snippet
from vtkit.encoder.checkpoint import load_encoder, save_encoder
from vtkit.encoder.query_tables import with_query_table
from vtkit.encoder.sides import encode_side
from vtkit.pipeline.search import open_searcher, open_served
from vtkit.search.analysers import analyser
from vtkit.search.results import Places
from vtkit.search.segments import generation_of
from vtkit.search.stored_vectors import read_vectors
from vtkit.search.words import PREFIX, cut_words, forms, words_found
from vtkit.system.errors import MachineError

MARKUP = '<img src=x onerror="document.title=\'broken\'"><script>document.title="broken"</script> &amp; river'
NASTY = [
    Document(
        "<b>id</b>", MARKUP, f"{MARKUP} maple river", {"source": MARKUP, "year": 2019, "url": "javascript:alert(1)"}
    ),
    Document(
        "d-plain", "", "river maple " * 300, {"year": 2021, "url": "https://example.org/?<b>", "tags": ["a", "b"]}
    ),
    Document("d-bidi", "\u202egnp.exe", "maple \u202e river \u0000 \ud83d\ude00"),
]


@dataclass
class Running:
    """A server process, and what asks it."""

    process: BaseProcess
    port: int
    outputs: Path

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and body of one request on a connection of its own; ``body`` is sent as JSON unless it is bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            given = {"Content-Type": "application/json"} if data is not None else {}
            connection.request(method, path, data, given | {k.replace("_", "-"): v for k, v in headers.items()})
            answer = connection.getresponse()
            text = answer.read()
            is_json = (answer.getheader("content-type") or "").startswith("application/json")
            return answer.status, json.loads(text) if is_json else text.decode()

    def waits_for(self, requests: int) -> None:
        """Until so many requests are under way, this question aside."""
        until(lambda: f"\nvtkit_requests_under_way {requests}.0\n" in self.ask("GET", "/metrics")[1])

    def embed(self, inputs: Any, **rest: Any) -> tuple[int, Any]:
        return self.ask("POST", "/embed_sparse", {"inputs": inputs, **rest})

    def search(self, **asked: Any) -> tuple[int, Any]:
        return self.ask("GET", f"/search?{urlencode(asked)}")

    def resident(self) -> int:
        """Bytes of memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("utf-8")
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) * 1024

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def signal(self, which: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, which)

    def ended(self) -> tuple[int | None, str]:
        """Exit code, once it has ended, and what it wrote to standard error."""
        self.process.join(30)
        return self.process.exitcode, (self.outputs / "stderr").read_text("utf-8")


def until(holds: Callable[[], bool]) -> None:
    """Wait, a minute at most."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def head(length: int) -> bytes:
    """The head of a request for vectors, whose body is ``length`` bytes long."""
    kind = f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    return f"POST /embed_sparse HTTP/1.1\r\nHost: localhost\r\n{kind}".encode()


def begin(server: Running) -> socket.socket:
    """A connection on which a request has begun, all but :data:`REST` of it."""
    begun = server.connect()
    begun.sendall(head(len(REST) + 1) + b"{")
    return begun


REST = b'"inputs": "river"}'


@contextlib.contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Running]:
    """``vtkit serve ARGUMENTS`` in ``folder``, on a free port."""
    with tempfile.TemporaryDirectory() as name:
        outputs = Path(name)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = command_line.start(folder, ["serve", *arguments, "--port", "0"], environment, outputs)
        try:
            said = outputs / "stdout"
            while not (said.exists() and (found := re.search(r"http://127\.0\.0\.1:(\d+)", said.read_text("utf-8")))):
                assert process.is_alive(), (outputs / "stderr").read_text("utf-8")
                time.sleep(0.05)
            yield Running(process, int(found[1]), outputs)
        finally:
            process.kill()
            process.join()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a model whose queries have a table, a run, and an index of documents that hold markup."""
    made = tmp_path_factory.mktemp("serve")
    tiny.finished_run(made, tiny.collection(30))
    encoder = tiny.encoder(made / "work2")
    table = np.linspace(0.1, 2.0, len(tiny.TOKENS), dtype=np.float32)
    save_encoder(with_query_table(encoder, table, frozen=True), made / "table")
    (made / "nasty").mkdir()
    tiny.write_collection(made / "nasty-set", RetrievalSet("nasty", NASTY, [], {}))
    vtkit.encode_texts(made / "table", made / "nasty-set", made / "vectors")
    shutil.rmtree(made / "nasty")
    vtkit.index_vectors(made / "vectors", made / "nasty")
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    with running(folder, "encoder", "runs/tiny", "nasty") as started:
        yield started
        started.signal(signal.SIGTERM)
        code, said = started.ended()
        assert code == 0, said
        assert "Traceback" not in said
        assert "bug" not in said


def dense(vectors: Sequence[Sequence[dict[str, float]]], width: int) -> np.ndarray:
    rows = np.zeros((len(vectors), width), dtype=np.float32)
    for row, vector in zip(rows, vectors, strict=True):
        for entry in vector:
            row[entry["index"]] = entry["value"]
    return rows


def test_vectors_are_those_of_encode(server: Running, folder: Path) -> None:
    encoder = load_encoder(str(folder / "encoder"))
    texts = [*tiny.texts(20), "", " ", "unknown ☂ letters", "river " * 200]
    status, vectors = server.embed(texts)
    assert status == 200
    wanted = encode_side(encoder, texts, "document", 48)
    np.testing.assert_array_equal(dense(vectors, wanted.shape[1]), wanted.toarray())
    assert all(list(entry) == ["index", "value"] for vector in vectors for entry in vector)
    assert [[entry["index"] for entry in vector] for vector in vectors] == [
        wanted[row].indices.tolist() for row in range(len(texts))
    ]


def test_one_text_is_a_batch_of_one_and_token_ids_are_texts(server: Running, folder: Path) -> None:
    tokenizer = load_encoder(str(folder / "encoder")).tokenizer
    one = server.embed("river stone")
    assert one == server.embed("river stone", prompt_name=None, truncate=None)
    assert one == server.embed(["river stone"]) == server.embed(tokenizer("river stone")["input_ids"])
    mixed = server.embed(["river stone", tokenizer.encode("maple"), "maple"])[1]
    assert mixed[1] == mixed[2]
    status, said = server.embed([[10**6]])
    assert (status, said["error_type"]) == (422, "Validation")


def test_queries_are_weighed_by_the_table_where_the_model_has_one(folder: Path) -> None:
    with running(folder, "table", "--max-length", "20", "--no-truncate") as started:
        encoder = load_encoder(str(folder / "table"))
        for side, inputs in (("query", "river river stone"), ("document", "river river stone")):
            vectors = started.embed(inputs, prompt_name=side)[1]
            wanted = encode_side(encoder, [inputs], side, 20)
            np.testing.assert_array_equal(dense(vectors, wanted.shape[1]), wanted.toarray())
        status, info = started.ask("GET", "/info")
        assert status == 200
        assert info["max_input_length"] == 20
        assert not info["auto_truncate"]
        assert info["model_id"] == str(folder / "table")
        assert info["model_type"] == {"embedding": {"pooling": "splade"}}
        assert info["runs"] == {}
        status, said = started.embed(["river", "river " * 30])
        assert status == 422
        assert said["error"].startswith("`inputs` must have at most 20 tokens; text 1 has more")
        assert started.embed(["river " * 30], truncate=True)[0] == 200
        assert started.search(q="river")[0] == 404
        assert started.ask("GET", "/")[0] == 404
        assert started.ask("GET", "/docs")[0] == 200


def test_queries_have_the_dimensions_of_the_index_that_was_exported(tmp_path: Path) -> None:
    more = '[calibrate]\ntarget_activation = 0.2\ncorpus = ["collection"]\nquery_encoder = "idf"\n'
    run = tiny.finished_run(tmp_path, tiny.collection(30), more=f'{more}[index]\nlexical = "bm25"\n')
    queries = ["maple raven river", "Oak, oak! zephyr", "  ", "river " * 200]
    (tmp_path / "queries.txt").write_text("maple raven river\nOak, oak! zephyr\n" + "river " * 200, "utf-8")
    vtkit.export_for(run, "onnx", tmp_path / "out", queries=tmp_path / "queries.txt")
    encoded = command_line.python(tmp_path / "out" / "encode.py", *queries).splitlines()
    replay = (tmp_path / "out" / "replay.jsonl").read_text("utf-8").splitlines()
    with running(tmp_path, str(run)) as started:
        status, vectors = started.embed(queries, prompt_name="query")
        assert status == 200
        served = [{str(entry["index"]): entry["value"] for entry in vector} for vector in vectors]
        for own, line in zip(served, encoded, strict=True):
            assert own == pytest.approx(json.loads(line), abs=1e-4)
        terms = json.loads((tmp_path / "out" / "settings.json").read_text("utf-8"))["lexical"]["first"]
        assert any(int(dimension) >= terms for dimension in served[0])
        assert served[2] == {}
        for query, line in zip([0, 1, 3], replay, strict=True):
            expected = json.loads(line)
            assert served[query] == pytest.approx(expected["vector"], abs=1e-4)
            results = started.search(q=queries[query], run=run.name)[1]["results"]
            assert [each["id"] for each in results] == [each["id"] for each in expected["results"]]


def test_a_search_finds_what_the_searcher_finds(server: Running, folder: Path) -> None:
    wanted = next(open_searcher(folder / "runs" / "tiny", model=None, collection=None).search(["river stone"], 5))
    status, found = server.search(q="river stone", run="tiny", top=5)
    assert status == 200
    assert found["run"] == "tiny"
    assert [result["id"] for result in found["results"]] == [result.id for result in wanted.results]
    np.testing.assert_allclose(
        [result["score"] for result in found["results"]], [result.score for result in wanted.results], rtol=1e-5
    )
    for result, same in zip(found["results"], wanted.results, strict=True):
        assert {token["token"] for token in result["tokens"]} == {token for token, _ in same.tokens}
        parts = [token["weight"] for token in (*result["tokens"], *result["special_tokens"])]
        assert sum(parts) == pytest.approx(result["score"], abs=0.01) or len(result["tokens"]) == 12
        assert result["snippet"] == same.text == "".join(result["parts"])
        assert set(result["parts"][1::2]) <= set(same.text.split())
        assert result["words"] == []
    for result in server.search(q="river stone", why="1")[1]["results"]:
        assert sum(part["score"] for part in result["words"]) == pytest.approx(result["score"], abs=0.01)
        assert {part["word"] for part in result["words"]} <= {"river", "stone", ""}
    assert server.search(q="river")[1]["run"] == "tiny"  # the first of them
    assert "is cut at 48 tokens" in server.search(q="river " * 100)[1]["warnings"][0]


def test_bad_requests_are_told_what_is_wrong(server: Running) -> None:
    refused = [
        ({"inputs": []}, 400, "Empty", "cannot be empty"),
        ({"inputs": ""}, 400, "Empty", "cannot be empty"),
        ({}, 422, "Validation", "inputs: Field required"),
        ("text", 422, "Validation", "object"),
        ({"inputs": 1}, 422, "Validation", "inputs: Input should be a valid list"),
        ({"inputs": ["a", 1]}, 422, "Validation", "inputs: 1: "),
        ({"inputs": [["a"]]}, 422, "Validation", "inputs: 0: "),
        ({"inputs": ["a", "half \ud800"]}, 422, "Validation", "unable to parse raw data as a unicode string"),
        ({"inputs": [[-1]]}, 422, "Validation", "inputs: 0: "),
        ({"inputs": [[True]]}, 422, "Validation", "inputs: 0: "),
        ({"inputs": "a", "truncate": "yes"}, 422, "Validation", "truncate: "),
        ({"inputs": "a", "prompt_name": "passage"}, 422, "Validation", "'query' or 'document'"),
        ({"inputs": "a", "truncation_direction": "Left"}, 422, "Validation", "'Right'"),
        ({"inputs": ["a"] * 33}, 422, "Validation", "batch size 33 > maximum allowed batch size 32"),
        (b'{"inputs": "half', 400, "Validation", "Invalid JSON"),
        (b"\xff\xfe", 400, "Validation", "Invalid JSON"),
    ]
    for body, status, kind, words in refused:
        answered, said = server.ask("POST", "/embed_sparse", body)
        assert (answered, said["error_type"]) == (status, kind), body
        assert words in said["error"]
        assert set(said) == {"error", "error_type"}
    assert server.ask("POST", "/embed_sparse", b"inputs=a", Content_Type="text/plain")[0] == 415
    assert server.ask("GET", "/embed_sparse") == (
        405,
        {"error": "/embed_sparse needs the method POST", "error_type": "Validation"},
    )
    for method in ("PUT", "DELETE", "PATCH"):
        assert server.ask(method, "/search", {}) == (
            405,
            {"error": "/search needs the method GET or POST", "error_type": "Validation"},
        )
    assert server.ask("HEAD", "/health") == (200, "")
    assert server.ask("GET", "/../../etc/passwd")[0] == 404
    for asked, status, words in (
        ({}, 400, "`q` cannot be empty"),
        ({"q": " \u200b "}, 400, "`q` cannot be empty"),
        ({"q": "river", "top": 0}, 422, "top: "),
        ({"q": "river", "top": 101}, 422, "less than or equal to 100"),
        ({"q": "river", "run": "../tiny"}, 404, "tiny or nasty"),
        ({"q": "r" * 20_000}, 422, "at most 10000 characters"),
    ):
        answered, said = server.search(**asked)
        assert answered == status
        assert words in said["error"]
    assert server.ask("GET", "/search?q=%FF%FE")[0] == 200
    with contextlib.suppress(ConnectionError):  # a head too long for HTTP: the end may come before all is sent
        assert server.ask("GET", f"/search?q={'a' * 200_000}")[0] == 400


def test_several_queries_filters_fields_and_pages(server: Running) -> None:
    def post(**body: Any) -> tuple[int, Any]:
        return server.ask("POST", "/search", body)

    queries = ["river stone", "maple", "oak river"]
    status, said = post(queries=queries, run="tiny", top=5)
    assert status == 200
    for query, answer in zip(queries, said["answers"], strict=True):  # encoded together: digits beyond float32 differ
        alone = server.search(q=query, run="tiny", top=5)[1]
        assert {**answer, "results": [], "tokens": []} == {**alone, "results": [], "tokens": []}
        assert [hit["id"] for hit in answer["results"]] == [hit["id"] for hit in alone["results"]]
        scores = [[hit["score"] for hit in each["results"]] for each in (answer, alone)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5)
    whole = server.search(q="river stone", run="tiny", top=100)[1]
    assert whole["next"] is None
    pages, offset = [], 0
    while offset is not None:
        page = post(queries=["river stone"], run="tiny", top=4, offset=offset)[1]["answers"][0]
        pages, offset = [*pages, *page["results"]], page["next"]
    assert pages == whole["results"]
    assert all(hit["fields"] == {} for hit in pages)

    found = server.search(q="river maple", run="nasty")[1]["results"]
    assert {hit["id"]: hit["fields"] for hit in found} == {document.id: dict(document.fields) for document in NASTY}
    for where, ids in (("year > 2020", ["d-plain"]), ("'b' in tags or source like '<img%'", ["<b>id</b>", "d-plain"])):
        some = server.search(q="river maple", run="nasty", where=where, fields="year")[1]["results"]
        assert [hit["id"] for hit in some] == [hit["id"] for hit in found if hit["id"] in ids]
        assert [hit["score"] for hit in some] == [hit["score"] for hit in found if hit["id"] in ids]
        assert all(set(hit["fields"]) <= {"year"} for hit in some)
    several = post(queries=["river maple"], run="nasty", where="year > 2020", fields=[], why=True)[1]["answers"][0]
    assert [hit["fields"] for hit in several["results"]] == [{}]
    assert several["results"][0]["words"]
    kinds = {"source": "text", "year": "integer", "url": "text", "tags": "words"}
    assert server.ask("GET", "/info")[1]["fields"] == {"tiny": {}, "nasty": kinds}

    for body, words in (
        ({"queries": ["river"], "where": "yaer > 2"}, "`where`: the documents of this index have no fields"),
        ({"queries": ["river"], "run": "nasty", "where": "yaer > 2"}, "no field 'yaer'. Did you mean year?"),
        ({"queries": ["river"], "run": "nasty", "where": "exists(from read_text('/etc/passwd'))"}, "subquery"),
        (
            {"queries": ["river"], "run": "nasty", "fields": ["yaer"]},
            "`fields`: there is no field 'yaer'. Did you mean",
        ),
        ({"queries": ["river"], "top": "5"}, "top: Input should be a valid integer"),
        ({"queries": ["river"], "tpo": 5}, "tpo: Extra inputs are not permitted"),
        ({"queries": "river"}, "queries: Input should be a valid list"),
        ({"queries": ["river"] * 33}, "batch size 33 > maximum allowed batch size 32"),
        ({"queries": ["river"], "offset": 9_901}, "offset: Input should be less than or equal to 9900"),
    ):
        answered, said = post(**body)
        assert (answered, said["error_type"]) == (422, "Validation"), said
        assert words in said["error"]
    for body in ({"queries": []}, {"queries": ["river", " "]}):
        assert post(**body)[0] in (400, 422)


def test_the_description_names_every_route_and_nothing_elsewhere(server: Running) -> None:
    status, described = server.ask("GET", "/openapi.json")
    assert status == 200
    assert set(described["paths"]) == {"/embed_sparse", "/search", "/info", "/health", "/metrics"}
    assert {operation["operationId"] for path in described["paths"].values() for operation in path.values()} == {
        *("embed_sparse", "search", "search_several", "info", "health", "metrics")
    }
    assert "http" not in re.sub(r"https?://spec\.openapis\.org\S*", "", json.dumps(described["paths"]))
    for path in ("/docs", "/docs.js", "/page.css"):  # FastAPI's own page would load scripts from elsewhere
        status, page = server.ask("GET", path)
        assert status == 200
        assert "http" not in page.replace("HTTP", "")
    assert server.ask("GET", "/redoc")[0] == 404


@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
def test_answers_are_as_the_description_says(mode: schemathesis.GenerationMode, server: Running) -> None:
    described = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) == 6
    for operation in operations:

        @settings(max_examples=15)
        @given(operation.as_strategy(generation_mode=mode))
        def answered(case: schemathesis.Case) -> None:
            # the description knows neither runs nor fields, nor the vocabulary
            case.call_and_validate(excluded_checks=[positive_data_acceptance])

        if mode is schemathesis.GenerationMode.POSITIVE or operation.path in ("/embed_sparse", "/search"):
            answered()


def test_only_local_names_reach_a_local_server_which_forbids_what_a_page_does_not_need(server: Running) -> None:
    names = {"localhost": 200, "LOCALHOST:99": 200, "[::1]:8080": 200, "evil.example": 400, "[": 400}
    assert {name: server.ask("GET", "/info", Host=name)[0] for name in names} == names
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for path in ("/", "/page.js", "/info", "/search?q=river", "/nothing"):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert "default-src 'none'; script-src 'self'" in (answer.getheader("content-security-policy") or "")
        assert answer.getheader("x-content-type-options") == "nosniff"
        assert answer.getheader("access-control-allow-origin") is None
    connection.close()


def test_fifty_clients_at_once_get_the_vectors_of_encode(server: Running, folder: Path) -> None:
    encoder = load_encoder(str(folder / "encoder"))
    texts = tiny.texts(200, seed=1)
    wanted = encode_side(encoder, texts, "document", 48).toarray()

    def client(number: int) -> list[tuple[int, Any]]:
        """Answers of one client, which asks for some texts one after another on one connection."""
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        answers = []
        for step in range(20):
            which = (number * 20 + step) % len(texts)
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/embed_sparse", json.dumps({"inputs": texts[which]}), headers)
            answer = connection.getresponse()
            assert answer.status == 200
            answers.append((which, json.loads(answer.read())))
        connection.close()
        return answers

    with ThreadPoolExecutor(50) as clients:
        for answers in clients.map(client, range(50)):
            for which, vectors in answers:
                np.testing.assert_allclose(dense(vectors, wanted.shape[1])[0], wanted[which], atol=1e-5)
    measured = server.ask("GET", "/metrics")[1]
    batches = float(re.findall(r'vtkit_batch_requests_count\{kind="document"\} (\S+)', measured)[0])
    requests = float(re.findall(r'vtkit_batch_requests_sum\{kind="document"\} (\S+)', measured)[0])
    assert requests > 1.5 * batches  # they were encoded together
    assert re.search(r'vtkit_requests_total\{route="/embed_sparse",status="200"\} \d', measured)


def test_large_bodies_are_refused_in_bounded_memory(server: Running) -> None:
    """Also those that lie about their length, or have none."""
    server.embed("river")
    before = server.resident()
    text = b'{"inputs": "' + b"river " * 1_700_000 + b'"}'

    def whole(_: int) -> int:
        return server.ask("POST", "/embed_sparse", text)[0]

    with ThreadPoolExecutor(10) as clients:
        assert set(clients.map(whole, range(30))) == {413}
    with contextlib.closing(server.connect()) as chunked:
        chunked.sendall(b"POST /embed_sparse HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        chunked.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(10):
            chunked.sendall(b"100000\r\n" + b"a" * 2**20 + b"\r\n")
        chunked.sendall(b"0\r\n\r\n")
        assert chunked.recv(100).startswith(b"HTTP/1.1 413")
    long = "river " * 300_000  # within the limit of a body
    assert server.embed(long)[0] == 200
    assert server.embed([long[:50_000]] * 32)[0] == 200
    assert server.resident() < before + 150 * 2**20
    assert server.ask("GET", "/health")[0] == 200


def open_sockets(process: int) -> int:
    """Of a process; one that is closed while it is looked at is not."""
    count = 0
    for each in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += "socket" in os.readlink(each)
    return count


def test_broken_and_slow_clients_leave_nothing_behind(folder: Path) -> None:
    with running(folder, "encoder", "--timeout", "2") as server:
        body = b"{" + REST
        for sent in (b"", b"GET", b"nonsense\r\n\r\n", head(10), head(100) + body, head(len(body)) + body):
            with contextlib.closing(server.connect()) as broken:  # closed before any answer is read
                broken.sendall(sent)
                broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # by a reset
        slow_body, slow_head, idle = (server.connect() for _ in range(3))
        slow_body.sendall(head(1000) + b"{")
        slow_head.sendall(b"POST /embed_sparse HTT")
        started = time.monotonic()
        assert slow_body.recv(1000).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - started > 1.5
        for unanswered in (slow_head, idle):
            with contextlib.suppress(ConnectionResetError):
                assert unanswered.recv(10) == b""
        for each in (slow_body, slow_head, idle):
            each.close()
        with contextlib.closing(server.connect()) as deaf:  # asks and asks, and never reads
            deaf.settimeout(8)
            with contextlib.suppress(OSError):
                for _ in range(2000):
                    texts = json.dumps({"inputs": ["river stone maple"] * 32}).encode()
                    deaf.sendall(head(len(texts)) + texts)
        until(lambda: open_sockets(server.process.pid) <= 6)
        server.waits_for(0)
        until(lambda: server.embed("river")[0] == 200)


def test_requests_beyond_the_limit_are_told_to_come_again(folder: Path) -> None:
    with running(folder, "encoder", "--requests", "2", "--timeout", "60") as started:
        waiting = [begin(started) for _ in range(2)]
        started.waits_for(2)
        status, said = started.embed("river")
        assert (status, said["error_type"]) == (429, "Overloaded")
        assert started.ask("GET", "/health")[0] == 200
        for each in waiting:
            each.sendall(REST)
            assert each.recv(10_000).startswith(b"HTTP/1.1 200")
            each.close()
        assert started.embed("river")[0] == 200


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("waits", [True, False])
def test_a_server_that_is_ended_answers_what_it_has_taken_on(by: int, waits: bool, folder: Path) -> None:
    """A second interrupt does not wait for it."""
    with running(folder, "encoder") as started, contextlib.closing(begin(started)) as begun:
        started.waits_for(1)
        started.signal(by)
        until(lambda: "stopping after the requests in progress" in (started.outputs / "stderr").read_text("utf-8"))
        if waits:
            time.sleep(2)  # longer than Ctrl-C is given elsewhere
            with pytest.raises(OSError):  # noqa: PT011
                started.connect()
            begun.sendall(REST)
            assert begun.recv(10_000).startswith(b"HTTP/1.1 200")
        else:
            started.signal(signal.SIGINT)
        code, said = started.ended()
        assert code == (0 if waits else 130)
        assert "Traceback" not in said


def test_a_server_answers_from_the_index_that_it_opened(folder: Path, tmp_path: Path) -> None:
    for name, texts in (("index", ["maple river", "maple stone"]), ("other", ["stone raven", "stone river"])):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts), "utf-8")
        vtkit.encode_texts(folder / "encoder", tmp_path / f"{name}.txt", tmp_path / f"{name}-vectors")
        vtkit.index_vectors(tmp_path / f"{name}-vectors", tmp_path / name)
    with running(tmp_path, "index") as started:

        def found() -> list[str]:
            return [each["snippet"] for each in started.search(q="maple river")[1]["results"]]

        first = found()
        assert sorted(first) == ["maple river", "maple stone"]
        (tmp_path / "index").rename(tmp_path / "before")
        (tmp_path / "other").rename(tmp_path / "index")
        assert found() == first
        shutil.rmtree(tmp_path / "index")
        shutil.rmtree(tmp_path / "before")
        assert found() == first
        assert started.ask("GET", "/health")[0] == 200
    vtkit.index_vectors(tmp_path / "index-vectors", tmp_path / "index")
    with running(tmp_path, "index") as started:
        written = generation_of(tmp_path / "index") / "documents.jsonl"
        written.write_text(written.read_text("utf-8").replace("maple", "zebra"), "utf-8")
        for status, said in (started.search(q="river"), started.ask("GET", "/health")):
            assert status in (424, 503)
            assert "documents.jsonl was changed after it was opened" in said["error"]
        assert started.embed("river", prompt_name="document")[0] == 200
        assert "bug" not in (started.outputs / "stderr").read_text("utf-8")


def test_a_server_takes_the_new_state_of_an_index_while_it_answers(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "index.txt").write_text("maple river\nmaple stone\n")
    vtkit.encode_texts(folder / "encoder", tmp_path / "index.txt", tmp_path / "vectors")
    vtkit.index_vectors(tmp_path / "vectors", tmp_path / "index", lexical="bm25", language="en")
    with running(tmp_path, "index") as started:

        def found() -> list[str]:
            status, answer = started.search(q="maple river")
            assert status == 200
            return sorted(each["snippet"] for each in answer["results"])

        def answered(wanted: list[str]) -> bool:
            """Until they are the results; every answer before has those of the old state."""
            old, end = found(), time.monotonic() + 60
            while (now := found()) != wanted and time.monotonic() < end:
                assert now == old
            return now == wanted

        vtkit.add_documents(tmp_path / "index", [Document("1", "", "maple copper"), Document("new", "", "river dune")])
        assert answered(["maple copper", "maple stone", "river dune"])
        assert started.ask("GET", "/info")[1]["runs"] == {"index": 3}
        dimensions = [entry["index"] for entry in started.embed("maple dune", prompt_name="query")[1][0]]
        term = open_searcher(tmp_path / "index", model=None, collection=None).names.index("bm25:dune")
        assert term in dimensions, "queries are encoded with the terms of the new state"
        vtkit.delete_documents(tmp_path / "index", ["2"])
        vtkit.merge_segments(tmp_path / "index")
        assert answered(["maple copper", "river dune"])
        state = tmp_path / "index" / "index.json"
        content = state.read_text()
        state.write_text("{")
        end = time.monotonic() + 60
        while "is served on" not in (started.outputs / "stderr").read_text("utf-8") and time.monotonic() < end:
            assert found() == ["maple copper", "river dune"]
        state.write_text(content)
        assert found() == ["maple copper", "river dune"]
        assert "is served on" in (started.outputs / "stderr").read_text("utf-8")


def test_serving_writes_nothing(server: Running, folder: Path) -> None:
    before = {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}
    server.search(q="river", run="nasty")
    server.search(q="river", run="tiny")
    server.embed("river")
    assert {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["encoder", "table"], 2, "one model can be served"),
        (["no-such-folder/model"], 1, "no-such-folder"),
        (["nasty", "--model", "source"], 2, "--collection apply to runs"),
        (["runs/tiny", "--model", "adapt"], 1, "adapt"),
        (["encoder", "--port", "PORT"], 1, "Choose another port"),
        (["encoder", "--host", "no.such.host.example"], 1, "cannot listen on no.such.host.example"),
    ],
)
def test_what_cannot_be_served_is_said(
    arguments: list[str], code: int, words: str, server: Running, folder: Path
) -> None:
    arguments = ["serve", "--port", "0", *(str(server.port) if each == "PORT" else each for each in arguments)]
    with contextlib.chdir(folder):
        result = invoke(*arguments)
    assert result.exit_code == 1
    assert words in str(result.exception)
    assert getattr(result.exception, "exit_code", None) == code


def test_a_unit_lists_the_documents_in_which_it_weighs_most(server: Running, folder: Path) -> None:
    searcher = open_searcher(folder / "runs" / "tiny", model=None, collection=None)
    wanted = searcher.texts_of("river", 5)
    status, found = server.search(unit="river", run="tiny", top=5)
    assert status == 200
    assert found["tokens"] == [{"token": "river", "weight": 1.0}]
    assert [result["id"] for result in found["results"]] == [result.id for result in wanted.results]
    column = searcher.index.postings.by_document()[:, [searcher.names.index("river")]].toarray().ravel()
    assert [result["score"] for result in found["results"]] == pytest.approx(sorted(column)[::-1][:5], rel=1e-5)
    pages = [server.search(unit="river", run="tiny", top=2, offset=offset)[1] for offset in (0, 2)]
    assert [hit["rank"] for page in pages for hit in page["results"]] == [1, 2, 3, 4]
    assert [hit["id"] for page in pages for hit in page["results"]] == [hit.id for hit in wanted.results[:4]]
    some = server.search(unit="river", run="nasty", where="year > 2020")[1]["results"]
    assert [hit["id"] for hit in some] == ["d-plain"]
    for asked, words in (
        ({"where": "yaer > 2020"}, "no field 'yaer'. Did you mean year?"),
        ({"q": "maple"}, "`unit` stands in place of `q`"),
    ):
        status, said = server.search(unit="river", run="nasty", **asked)
        assert status == 422
        assert words in said["error"]
    assert server.search(unit="nothing", run="tiny")[0] == 404
    assert server.search(unit="9" * 5000, run="tiny")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "wrong"),
    [
        *(("GET", path, "were") for path in ("/search", "/info", "/health", "/metrics", "/openapi.json", "/docs")),
        *(("GET", path, "were") for path in ("/", "/page.js", "/page.css", "/docs.js")),
        ("GET", "/", "offset"),  # which the page does not read
        *(("POST", path, "where") for path in ("/search", "/embed_sparse")),
    ],
)
def test_a_parameter_that_a_path_does_not_have_is_refused(server: Running, method: str, path: str, wrong: str) -> None:
    body = None if method == "GET" else {"queries": ["river"], "inputs": "river"}
    status, said = server.ask(method, f"{path}?{wrong}=year+%3E+2020", body)
    assert (status, said["error_type"]) == (422, "Validation")
    assert said["error"].startswith(f"{wrong}: {path} takes ")


def test_a_condition_is_given_once_and_known_parameters_are_taken(server: Running) -> None:
    status, said = server.ask("GET", "/search?q=river&run=nasty&where=year+%3E+2020&where=year+%3C+2020")
    assert status == 422
    assert said["error"].startswith("where: /search takes ")
    assert server.ask("GET", "/search?q=river&run=nasty&fields=year&fields=url")[0] == 200
    assert server.ask("GET", "/?q=river&run=nasty&beside=tiny&top=10&where=year+%3E+2020&unit=river")[0] == 200
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
        connection.request("HEAD", "/search?q=river&top=3")
        assert connection.getresponse().status == 200
    assert server.ask("GET", "/nothing?were=1")[0] == 404


def test_a_server_says_that_it_loads(server: Running) -> None:
    assert "loading encoder, runs/tiny, nasty" in (server.outputs / "stderr").read_text("utf-8")


def test_the_second_of_two_servers_on_a_port_is_told_to_choose_another() -> None:
    """Both have bound it while none listens, as servers do while they load."""
    with bind("127.0.0.1", 0) as first, bind("127.0.0.1", first.getsockname()[1]) as second:
        first.listen(1)
        nothing: Any = None
        with pytest.raises(MachineError, match=r"cannot listen on 127.0.0.1, port \d+: .*Choose another port"):
            serve(nothing, Limits(), second, print)


@pytest.mark.parametrize("of_run", [True, False])
def test_served_vectors_of_documents_are_those_of_the_index(of_run: bool, tmp_path: Path) -> None:
    """Of as many tokens, and with the share of the sum and the largest weights that the index keeps."""
    texts = [*tiny.texts(12, words=(3, 30)), "river"]
    (tmp_path / "texts.txt").write_text("\n".join(texts), "utf-8")
    if of_run:
        more = "[index]\nmass = 0.5\ndocument_length = 12\ntop_dimensions = 9\n"
        home = source = tiny.finished_run(tmp_path, tiny.collection(20), more=more)
        kept = {}
    else:
        save_encoder(tiny.encoder(tmp_path / "work"), tmp_path / "encoder")
        home, source = tmp_path / "index", tmp_path / "encoder"
        kept = {"mass": 0.5, "max_length": 12, "top_dimensions": 9}
    vtkit.encode_texts(source, tmp_path / "texts.txt", tmp_path / "vectors", **kept)
    if not of_run:
        vtkit.index_vectors(tmp_path / "vectors", home)
    served = Served(*open_served([str(home)]))
    (vectors,) = served.compute(Encoding("document", True), [texts])
    wanted = read_vectors(tmp_path / "vectors" / "vectors")
    assert isinstance(vectors, sparse.csr_matrix)
    assert 0 < wanted.getnnz(axis=1).max() <= (36 if of_run else 9)  # candidates of a run's
    np.testing.assert_allclose(vectors.toarray(), wanted.toarray(), atol=1e-5)
    assert served.longest("document") == 12


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def opened_in_chromium(address: str, profile: Path) -> str:
    """A page after its scripts have run, without errors and without what the policy blocks."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
            "--enable-logging=stderr", "--virtual-time-budget=10000", "--dump-dom", address,
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here to open the page in")
@pytest.mark.parametrize("query", ["river maple", MARKUP, "</h2><script>document.title='broken'</script> river"])
def test_the_page_shows_markup_as_text_and_has_no_errors(query: str, server: Running, tmp_path: Path) -> None:
    asked = urlencode({"q": query, "run": "nasty", "beside": "tiny", "top": 10})
    page = opened_in_chromium(f"http://127.0.0.1:{server.port}/?{asked}", tmp_path)
    assert page.count("<script") == 1  # the page's own
    assert "<img" not in page
    assert "&lt;img src=x onerror=" in page
    assert "<title>broken" not in page
    assert "&lt;b&gt;id&lt;/b&gt;" in page
    assert page.count("<section>") == 2
    assert 'href="javascript' not in page
    assert 'href="https://example.org/?&lt;b&gt;"' in page or 'href="https://example.org/?<b>"' in page
    assert "<mark>river</mark>" in page
    assert page.count("beside: ") > 3


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here to open the page in")
def test_the_page_of_the_interface_lists_every_route_and_has_no_errors(server: Running, tmp_path: Path) -> None:
    page = opened_in_chromium(f"http://127.0.0.1:{server.port}/docs", tmp_path)
    for route in ("POST /embed_sparse", "GET /search", "POST /search", "GET /info", "GET /health", "GET /metrics"):
        assert f"<h2>{route}</h2>" in page
    assert "<td>where</td>" in page
    assert "A condition on the documents' fields" in page


def test_a_batch_holds_work_of_one_kind_up_to_its_cost_and_order_is_kept() -> None:
    computed: list[tuple[str, list[int]]] = []
    gate = threading.Event()

    def compute(kind: str, works: Sequence[int]) -> Sequence[int | Exception]:
        gate.wait(10)
        computed.append((kind, list(works)))
        return [10 * work for work in works]

    async def ask() -> list[int]:
        batcher: Batcher[str, int, int] = Batcher(compute, 3, lambda *_: None)
        asked = [batcher.submit("a", 0, 1)]
        await asyncio.sleep(0.05)  # the first is computed alone; the others gather meanwhile
        for work, kind in enumerate("abaaa", 1):
            asked.append(batcher.submit(kind, work, 2 if work == 5 else 1))
        batcher.submit("b", 99, 1).cancel()
        gate.set()
        return await asyncio.gather(*asked)

    assert asyncio.run(ask()) == [0, 10, 20, 30, 40, 50]
    assert computed == [("a", [0]), ("a", [1, 3, 4]), ("b", [2]), ("a", [5])]


def test_a_request_that_breaks_its_batch_fails_alone() -> None:
    def compute(_: str, works: Sequence[int]) -> Sequence[int | Exception]:
        if 2 in works:
            raise ValueError("two")
        return list(works)

    async def ask() -> list[int | BaseException]:
        batcher: Batcher[str, int, int] = Batcher(compute, 100, lambda *_: None)
        return await asyncio.gather(*(batcher.submit("a", work, 1) for work in range(4)), return_exceptions=True)

    first, second, broken, last = asyncio.run(ask())
    assert (first, second, last) == (0, 1, 3)
    assert isinstance(broken, ValueError)


def places(text: str, parts: Mapping[str, float]) -> Places:
    """Where the words of ``parts`` stand in ``text``."""
    return tuple((start, stop, parts[word]) for start, stop, word in cut_words(text) if parts.get(word))


@given(st.text(max_size=1000), st.randoms())
def test_a_snippet_is_a_stretch_of_the_text(text: str, draw: random.Random) -> None:
    words = {piece.word: draw.choice([0.0, 0.5, 2.0]) for piece in cut_words(text) if piece.word}
    parts = snippet(text, places(text, words))
    shown = "".join(parts)
    assert shown.removeprefix("… ").removesuffix(" …") in " ".join(text.split()) + " "
    assert len(shown) <= WIDTH + 4
    assert len(parts) % 2
    assert all(words[part] for part in parts[1::2] if part in words)


def test_a_snippet_shows_where_the_heaviest_words_stand_together() -> None:
    text = "river " + "filler " * 200 + "a maple by the river " + "filler " * 200 + "maple"
    parts = snippet(text, places(text, {"river": 1.0, "maple": 1.5}))
    assert re.fullmatch("… .*a maple by the river.* …", "".join(parts))
    assert parts[1::2] == ["maple", "river"]


def test_words_that_found_a_document_are_marked_whole_and_fragments_of_others_are_not() -> None:
    cut = analyser("de").of_query
    terms = {f"{PREFIX}{term}": 1.0 for term in cut("kabelloser Kopfhörer")}
    by_terms = words_found(
        "Die kabellosen Mäuse, diese These über KOPFHÖRERN.", terms, lambda word: [{f"{PREFIX}{t}" for t in cut(word)}]
    )
    assert [(start, stop) for start, stop, _ in by_terms] == [(4, 14), (39, 49)]  # kabellosen, KOPFHÖRERN
    tokens = {"kabellose": {"kabel", "##lose"}, "diese": {"die", "##se"}, "katzen": {"katze", "##n"}}
    text, parts = "kabellose diese katzen", {"kabel": 5.0, "##lose": 4.0, "##se": 3.0, "katze": 2.0}
    assert [text[start:stop] for start, stop, _ in words_found(text, parts, lambda word: [tokens[word]])] == [
        "kabellose",
        "katzen",
    ]
    named = [form for name in ("271:instagram facebook twitter", "bm25:en/card*", "Card") for form in forms(name)]
    assert named == [":instagram", ":facebook", ":twitter", "bm25:card*", "card"]


def test_a_found_document_has_its_words_by_the_encoder_by_bm25_and_both(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("rivers and maples\nstone oak oakriver\nan amber falcon\n", "utf-8")
    vtkit.encode_texts(folder / "table", tmp_path / "texts.txt", tmp_path / "vectors")
    for lexical, query, wanted in (
        ("bm25", "river", {"1": ["rivers"]}),
        ("none", "oak stone", {"2": ["stone", "oak"]}),
    ):
        vtkit.index_vectors(tmp_path / "vectors", tmp_path / lexical, lexical=lexical, language="en")
        searcher = replace(open_searcher(tmp_path / lexical, model=None, collection=None), marks=True)
        (found,) = searcher.search([query], 3)
        marked = {hit.id: [hit.text[start:stop] for start, stop, _ in hit.places] for hit in found.results}
        assert {name: marked[name] for name in wanted} == wanted
        assert all(0 < part <= hit.score + 1e-4 for hit in found.results for *_, part in hit.places)
        (unmarked,) = replace(searcher, marks=False).search([query], 3)
        assert [hit.places for hit in unmarked.results] == [()] * len(found.results)
