"""Exports for OpenSearch, run on a real server as their README says: they rank as vtkit does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
import tiny

from vtkit import encode_texts, export_for, index_vectors
from vtkit.data.document_files import write_documents
from vtkit.data.retrieval import Document
from vtkit.encoder.checkpoint import save_encoder
from vtkit.encoder.query_tables import with_query_table
from vtkit.pipeline.search import open_searcher

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

LONG = "d" * 513


def asked(url: str, path: str, body: Any = None, method: str | None = None) -> Any:
    """The server's answer."""
    content = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(f"{url}/{path}", content, {"Content-Type": "application/json"}, method=method)) as answer:
            return json.loads(answer.read() or b"null")
    except HTTPError as error:
        raise AssertionError(f"{path}: {error.read().decode()}") from error


def ended(folder: Path, url: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program of the export, run by its user."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *arguments], env=clean | {"OPENSEARCH": url} | environment, cwd=folder,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def program(folder: Path, url: str, *arguments: str, **environment: str) -> str:
    done = ended(folder, url, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents() -> list[Document]:
    """Documents with titles, one with an id of 513 bytes, and one that is called as the other's position."""
    texts, titles = tiny.texts(200, 1, (6, 30)), tiny.texts(200, 2, (1, 4))
    names = [f"d{number}" for number in range(200)]
    names[1], names[2] = LONG, "1"
    return [Document(*each) for each in zip(names, titles, texts, strict=True)]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of an index whose queries have a table."""
    folder = tmp_path_factory.mktemp("export")
    encoder = tiny.encoder(folder / "work")
    weights = np.random.default_rng(0).uniform(0.5, 4, len(encoder.tokenizer)).astype("f4")
    weights[encoder.tokenizer.convert_tokens_to_ids("raven")] = 60.0  # a query may have 64
    table = with_query_table(encoder, weights, frozen=True)
    save_encoder(table, folder / "model")
    write_documents(documents(), folder / "documents.jsonl")
    encode_texts(folder / "model", folder / "documents.jsonl", folder / "vectors")
    index_vectors(folder / "vectors", folder / "index")
    (folder / "queries.txt").write_text("\n".join([*tiny.texts(60, 3, (2, 9)), "raven maple", "raven"]), "utf-8")
    export_for(folder / "index", "opensearch", folder / "out", queries=folder / "queries.txt")
    return folder / "out"


def copied(exported: Path, folder: Path) -> Path:
    """The export with other query weights: three times as large, up to 180."""
    shutil.copytree(exported, folder, ignore=shutil.ignore_patterns("*.onnx", "*.zip", "*.safetensors"))
    entries = [json.loads(line) for line in (exported / "replay.jsonl").read_text("utf-8").splitlines()]
    for entry in entries:
        entry["vector"] = {number: 3 * weight for number, weight in entry["vector"].items()}
        entry["results"] = [{"id": each["id"], "score": 3 * each["score"]} for each in entry["results"]]
    (folder / "replay.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries), "utf-8")
    return folder


@pytest.fixture(scope="module")
def loaded(exported: Path, url: str) -> Iterator[str]:
    """The name of an index of that export, for tests that do not change it."""
    assert "200 documents" in program(exported, url, "index.py", "load", INDEX="vtkit.exported")
    yield "vtkit.exported"
    asked(url, "vtkit.exported", method="DELETE")


@pytest.fixture
def named(request: pytest.FixtureRequest, url: str) -> Any:
    """The name of an index of this test, removed after it."""
    name = re.sub(r"\W+", "-", request.node.name.lower())[:80].strip("-")
    yield name
    asked(url, f"{name},{name}-*?ignore_unavailable=true", method="DELETE")


def found_of(text: str) -> tuple[int, int]:
    """Expected results that were found, and all."""
    found = re.search(r"(\d+) of (\d+) results as expected", text)
    assert found is not None
    return int(found[1]), int(found[2])


def test_the_exact_form_ranks_as_the_replay_says_and_keeps_every_document(
    exported: Path, url: str, loaded: str
) -> None:
    assert asked(url, f"{loaded}/_count")["count"] == 200  # none took the place of another
    found, wanted = found_of(program(exported, url, "index.py", "replay", INDEX=loaded))
    assert found == wanted > 500
    entries = [json.loads(line) for line in (exported / "replay.jsonl").read_text("utf-8").splitlines()]
    query = next(each["query"] for each in entries if LONG in {result["id"] for result in each["results"]})
    assert LONG in program(exported, url, "index.py", "search", query, INDEX=loaded)
    lines = (exported / "bulk" / "part-00000.ndjson").read_text("utf-8")
    assert not re.search(r"\d\.\d{13}", lines)  # a float32 needs no more


def test_query_weights_above_64_are_asked_for(exported: Path, url: str, named: str, tmp_path: Path) -> None:
    folder = copied(exported, tmp_path / "out")
    program(folder, url, "index.py", "load", INDEX=named)
    found, wanted = found_of(program(folder, url, "index.py", "replay", INDEX=named))
    assert found == wanted


def test_seismic_finds_as_much_above_its_threshold_as_below(
    exported: Path, url: str, named: str, tmp_path: Path
) -> None:
    """Above it, queries with more than ten terms and results; on both sides of it, weights above 64 and the ceiling."""
    folder, environment = copied(exported, tmp_path / "out"), {"INDEX": named, "SEISMIC": "1"}
    program(folder, url, "index.py", "load", **environment)
    below = found_of(program(folder, url, "index.py", "replay", **environment))
    assert below[0] == below[1]
    mapping = json.loads((folder / "mapping-seismic.json").read_text("utf-8"))
    whole = {"approximate_threshold": 50, "n_postings": 300, "summary_prune_ratio": 1.0}  # lists that are not pruned
    mapping["mappings"]["properties"]["weights"]["method"]["parameters"] |= whole
    (folder / "mapping-seismic.json").write_text(json.dumps(mapping), "utf-8")
    program(folder, url, "index.py", "load", "--replace", **environment)
    above = found_of(program(folder, url, "index.py", "replay", **environment))
    assert above[0] >= 0.99 * above[1]
    query = (
        "import index, encode\nvector = max((each['vector'] for each in encode.replayed()), key=len)\n"
        "print(len(index.search(vector, 40)))"
    )
    assert int(program(folder, url, "-c", query, **environment)) == 40


def test_text_is_encoded_in_the_cluster_as_the_export_encodes_it(
    exported: Path, url: str, loaded: str, named: str
) -> None:
    """The table as the model of both sides, since the network needs a runtime that a server fetches from elsewhere:
    documents through the ingest pipeline, title and text together, and queries through the search pipeline."""
    made = "import index\nmodel = index.registered('queries')\nindex.pipelines(model, model)\nprint(model)"
    model = program(exported, url, "-c", made, INDEX=named).strip()
    try:
        mapping = json.loads((exported / "mapping.json").read_text("utf-8"))
        mapping["mappings"]["_source"] = {"enabled": True}
        mapping["mappings"]["properties"]["contents"]["analyzer"] = "standard"  # the kit has no others
        asked(url, named, mapping, "PUT")
        table = json.loads((exported / "idf.json").read_text("utf-8"))
        for document in documents()[:20]:
            body = {"id": document.id, "title": document.title, "text": document.text}
            asked(url, f"{named}/_doc/{len(document.id)}{document.id[:9]}?pipeline={named}&refresh=true", body, "PUT")
        for hit in asked(url, f"{named}/_search?size=50")["hits"]["hits"]:
            source = hit["_source"]
            words = set(f"{source['title']} {source['text']}".split())
            assert {name for name in source["weights"] if table[name] > 1e-30} == words
            assert set(source) == {"id", "title", "text", "weights"}
        same = 0
        entries = [json.loads(line) for line in (exported / "replay.jsonl").read_text("utf-8").splitlines()]
        for entry in entries:
            query = {"neural_sparse": {"weights": {"query_text": entry["query"]}}}
            path = f"{loaded}/_search?search_pipeline={named}"
            hits = asked(url, path, {"query": query, "_source": ["id"]})["hits"]["hits"]
            same += {hit["_source"]["id"] for hit in hits} == {each["id"] for each in entry["results"]}
        assert same >= len(entries) - 2  # of documents that tie for the last place either may come
    finally:
        asked(url, f"_ingest/pipeline/{named}", method="DELETE")
        asked(url, f"_search/pipeline/{named}", method="DELETE")
        asked(url, f"_plugins/_ml/models/{model}/_undeploy", {}, "POST")
        with suppress(AssertionError):  # which the kit cannot do
            asked(url, f"_plugins/_ml/models/{model}", method="DELETE")


def test_a_hybrid_query_adds_both_scores_scaled_to_0_to_1(exported: Path, url: str, loaded: str) -> None:
    (processor,) = json.loads((exported / "hybrid.json").read_text("utf-8"))["phase_results_processors"]
    weights = processor["normalization-processor"]["combination"]["parameters"]["weights"]
    assert sum(weights) == pytest.approx(1)
    code = (
        "import encode, index, json\nvector = encode.Encoder().queries(['raven maple'])[0]\n"
        "both = index.hybrid('raven maple', vector, 10), index.search(vector, 200)\nprint(json.dumps(both))"
    )
    found, sparse = json.loads(program(exported, url, "-c", code, INDEX=loaded))
    words = asked(url, f"{loaded}/_search?size=200", {"query": {"match": {"contents": "raven maple"}}}, "POST")
    matched = [(hit["_source"]["id"], hit["_score"]) for hit in words["hits"]["hits"]]
    assert len(matched) > 10  # titles are among the contents
    total: dict[str, float] = {}
    for weight, scores in zip(weights, (dict(sparse), dict(matched)), strict=True):
        least, most = min(scores.values()), max(scores.values())
        for name, score in scores.items():
            total[name] = total.get(name, 0.0) + weight * max((score - least) / (most - least), 0.001)
    best = sorted(total.values(), reverse=True)[:10]
    assert [score for _, score in found] == pytest.approx(best, abs=1e-3)
    assert all(total[name] == pytest.approx(score, abs=1e-3) for name, score in found)


def test_a_query_of_more_than_1024_weights_is_asked_for_its_largest(exported: Path, url: str, loaded: str) -> None:
    code = (
        "import index, json\nnames = json.load(open('dimensions.json'))\n"
        "index.opened = lambda path, before=index.opened: names if path.name == 'dimensions.json' else before(path)\n"
        "names += [f'x{n}' for n in range(3000)]\nvector = {n: 1 + n / 9000 for n in range(2500)}\n"
        "print(len(index.query(vector, 5)[0]['query']['neural_sparse']['weights']['query_tokens']))\n"
        "print(min(index.largest(vector, 1024)), len(index.search(vector, 5)))"
    )
    assert program(exported, url, "-c", code, INDEX=loaded).split() == ["1024", "1476", "0"]


def test_a_document_ranks_by_its_best_passage_exactly_and_by_seismic(url: str, named: str, tmp_path: Path) -> None:
    """Of documents with up to forty passages: the same documents with the same scores as in vtkit, however few of them
    have the best passages."""
    save_encoder(tiny.encoder(tmp_path / "work"), tmp_path / "model")
    texts = tiny.texts(40, 7, (8, 30))
    texts[3] = texts[4] = " ".join(tiny.texts(12, 8, (12, 14)) + ["raven maple"] * 40)  # most of the best passages
    write_documents([Document(f"d{number}", "", text) for number, text in enumerate(texts)], tmp_path / "texts.jsonl")
    passages = {"words": 6, "overlap": 2}
    encode_texts(tmp_path / "model", tmp_path / "texts.jsonl", tmp_path / "vectors", passages=passages)
    index_vectors(tmp_path / "vectors", tmp_path / "index")
    (tmp_path / "queries.txt").write_text("\n".join([*tiny.texts(20, 3, (2, 9)), "raven maple", "raven"]), "utf-8")
    out = tmp_path / "out"
    export_for(tmp_path / "index", "opensearch", out, queries=tmp_path / "queries.txt")
    vtkit_finds = {
        found.query: [(result.id, result.score) for result in found.results]
        for found in open_searcher(tmp_path / "index", model=None, collection=None).search(["raven maple", "raven"], 10)
    }
    asking = (
        "import encode, index, json\nencoder = encode.Encoder()\n"
        "print(json.dumps({q: index.search(encoder.queries([q])[0], 10) for q in ('raven maple', 'raven')}))"
    )
    for environment, tolerance in (({"INDEX": named}, 5e-3), ({"INDEX": f"{named}-seismic", "SEISMIC": "1"}, 2e-2)):
        program(out, url, "index.py", "load", **environment)
        found, wanted = found_of(program(out, url, "index.py", "replay", **environment))
        assert found == wanted > 100
        answers = json.loads(program(out, url, "-c", asking, **environment))
        for query, results in vtkit_finds.items():
            assert len({name for name, _ in answers[query]}) == len(results) == 10
            scores = [score for _, score in results]
            assert [score for _, score in answers[query]] == pytest.approx(scores, rel=tolerance)
    hybrid = asking.replace("index.search(encoder.queries([q])[0], 10)", "index.hybrid(q, encoder.queries([q])[0], 10)")
    found = json.loads(program(out, url, "-c", hybrid, INDEX=named))["raven maple"]
    assert len({name for name, _ in found}) == len(found) == 10


def test_a_load_goes_on_where_it_stopped(exported: Path, url: str, named: str, tmp_path: Path) -> None:
    """Smaller files, the server's limit on requests, a load that is broken off, and another export of that name."""
    folder = copied(exported, tmp_path / "out")
    lines = (exported / "bulk" / "part-00000.ndjson").read_text("utf-8").splitlines(keepends=True)
    for number in range(4):
        text = "".join(lines[100 * number : 100 * number + 100])
        (folder / "bulk" / f"part-0000{number}.ndjson").write_text(text, "utf-8")
    stop = (
        "import index, rest, sys\nbefore = rest.send\ncount = iter([1, 2])\n"
        "def send(*given):\n    next(count)\n    before(*given)\nrest.send = send\nindex.load()"
    )
    broken = ended(folder, url, "-c", stop, INDEX=named)
    assert "StopIteration" in broken.stderr
    assert "200 documents, 100 of which were there" in program(folder, url, "index.py", "load", INDEX=named)
    assert "200 documents, 200 of which were there" in program(folder, url, "index.py", "load", INDEX=named)
    (folder / "bulk" / "part-00003.ndjson").unlink()
    other = ended(folder, url, "index.py", "load", INDEX=named)
    assert other.returncode == 1
    assert "--replace removes it first" in other.stderr
    assert "150 documents" in program(folder, url, "index.py", "load", "--replace", INDEX=named)
    assert asked(url, f"{named}/_count")["count"] == 150
    away = ended(folder, "http://127.0.0.1:9", "index.py", "load")
    assert away.returncode == 1
    assert "http://127.0.0.1:9 does not answer" in away.stderr
    assert "Traceback" not in away.stderr


def test_a_request_that_is_too_large_is_sent_in_halves(exported: Path, url: str, named: str, tmp_path: Path) -> None:
    if os.environ.get("VTKIT_OPENSEARCH_URL"):
        pytest.skip("a server of one's own has another limit")
    folder = copied(exported, tmp_path / "out")
    pairs = (exported / "bulk" / "part-00000.ndjson").read_text("utf-8").splitlines()
    grown = [
        json.dumps(json.loads(line) | {"text": "raven " * 17_000}) if n % 2 else line for n, line in enumerate(pairs)
    ]
    (folder / "bulk" / "part-00000.ndjson").write_text("\n".join(grown[:120]) + "\n", "utf-8")  # 6 MB
    assert "60 documents" in program(folder, url, "index.py", "load", INDEX=named)
    assert asked(url, f"{named}/_count")["count"] == 60
    huge = json.dumps(json.loads(pairs[1]) | {"text": "raven " * 300_000})
    (folder / "bulk" / "part-00000.ndjson").write_text(f"{pairs[0]}\n{huge}\n", "utf-8")
    refused = ended(folder, url, "index.py", "load", "--replace", INDEX=named)
    assert "larger than http.max_content_length" in refused.stderr
