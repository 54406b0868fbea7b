"""``vtkit encode``, ``vtkit index`` and ``vtkit search`` of the folder that comes out, and what is refused."""

import gzip
import inspect
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import invoke, succeeds
from support import flip
from tiny import collection, encoder, write_collection

import vtkit
from vtkit.data import shards as shards_of
from vtkit.data.document_files import read_document_file, read_queries_as_documents, read_query_file
from vtkit.encoder.sides import encode_side
from vtkit.search.results import WordShare
from vtkit.search.stored_vectors import read_vectors
from vtkit.system.errors import DataError, RecipeError, VtkitError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "encoder"
    vtkit.save_encoder(encoder(tmp_path_factory.mktemp("made")), folder)
    return folder


@pytest.fixture(scope="module")
def beir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_collection(tmp_path_factory.mktemp("beir") / "collection", collection(40))


@pytest.fixture(scope="module")
def indexed(model: Path, beir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexed")
    vtkit.encode_texts(model, beir, folder / "vectors")
    vtkit.index_vectors(folder / "vectors", folder / "index")
    return folder


def test_a_collection_is_encoded_indexed_and_searched(model: Path, beir: Path, tmp_path: Path) -> None:
    done = invoke("encode", model, beir, "--out", tmp_path / "vectors")
    assert (done.exit_code, done.stdout.splitlines()[0].split(",")[0]) == (0, "40 texts")
    done = invoke(
        "index", tmp_path / "vectors", "--out", tmp_path / "index", "--json", "--set", "index.query_length=60",
    )  # fmt: skip
    said = json.loads(done.stdout)
    settings = {"query_length": 60, "mass": 1.0, "document_length": 256}
    assert (said["documents"], said["engine"], said["settings"]) == (40, "exact", settings)
    documents = read_document_file(str(beir))
    found = json.loads(invoke("search", tmp_path / "index", documents[3].text, "--json").stdout)
    loaded = vtkit.load_encoder(model)
    vectors = encode_side(loaded, [document.contents for document in documents], "document", 256)
    scores = (vectors @ encode_side(loaded, [documents[3].text], "query", 64).T).toarray()[:, 0]
    best = sorted(range(40), key=lambda number: (-scores[number], number))[:10]
    assert [result["score"] for result in found["results"]] == pytest.approx(scores[best].tolist(), rel=1e-4)
    succeeds("explain", tmp_path / "index", documents[3].text, documents[3].id)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "vectors"]


def test_empty_texts_are_counted_in_a_warning(model: Path, tmp_path: Path) -> None:
    (tmp_path / "some.jsonl").write_text('{"_id": "a", "text": ""}\n{"_id": "b", "text": "amber river"}\n')
    assert (
        "1 of 2 texts are empty" in invoke("encode", model, tmp_path / "some.jsonl", "--out", tmp_path / "out").output
    )


def test_documents_without_queries_are_indexed_with_bm25_beside_the_encoder(indexed: Path, tmp_path: Path) -> None:
    vectors, index = indexed / "vectors", tmp_path / "index"
    succeeds("index", vectors, "--out", index, "--set", "lexical=bm25", "--language", "en")
    document = read_document_file(str(vectors / "documents.jsonl"))[3]
    best, *_ = json.loads(invoke("search", index, document.text, "--why", "--json").stdout)["results"]
    assert best["id"] == document.id
    words = [WordShare(*word) for word in best["words"]]
    assert all(word.encoder + word.bm25 == pytest.approx(word.score) for word in words)
    assert sum(word.score for word in words) == pytest.approx(best["score"], rel=1e-3)
    assert sum(word.bm25 for word in words) > 0


def test_problems_of_several_files_are_told_by_the_row_or_line_of_their_own_file(model: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "hub" / "corpus"
    corpus.mkdir(parents=True)
    (corpus / "corpus-0.jsonl").write_text('{"_id": "a", "text": "x"}\n{"_id": "b", "text" "y"}\n')
    pq.write_table(pa.table({"_id": ["c", "a"], "text": ["x", "y"]}), corpus / "corpus-1.parquet")
    refused = invoke("encode", model, tmp_path / "hub", "--out", tmp_path / "vectors").exception
    assert isinstance(refused, DataError)
    first, second = str(refused).splitlines()
    assert first.startswith(f"{corpus / 'corpus-0.jsonl'}: line 2: is not JSON")
    assert second.startswith(f"{corpus / 'corpus-1.parquet'}: row 2: id 'a' occurs twice (first on line 1 of corpus-0")


def test_queries_are_encoded_as_queries(model: Path, beir: Path, tmp_path: Path) -> None:
    done = invoke("encode", model, beir, "--queries", "--out", tmp_path / "queries", "--json")
    queries = read_queries_as_documents(str(beir))
    assert (done.exit_code, json.loads(done.stdout)["side"]) == (0, "query")
    expected = encode_side(vtkit.load_encoder(model), [query.text for query in queries], "query", 64)
    assert abs(read_vectors(tmp_path / "queries" / "vectors") - expected).max() < 1e-5
    assert isinstance(invoke("index", tmp_path / "queries", "--out", tmp_path / "index").exception, DataError)
    assert not (tmp_path / "index").exists()


def test_joined_parts_are_the_whole(model: Path, beir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_of, "ITEMS_A_SHARD", 6)  # 7 shards
    options: list[str | Path] = ["--top-dimensions", "7"]
    whole, joined, shards = tmp_path / "whole", tmp_path / "joined", tmp_path / ".joined.parts"
    succeeds("encode", model, beir, "--out", whole, *options)
    encode = ["encode", model, beir, "--out", joined, *options]
    texts = [json.loads(invoke(*encode, "--json", "--part", f"{part}/3").stdout)["texts"] for part in (3, 1)]
    assert texts == [12, 16]  # shards 2 and 5; 0, 3 and 6, which has 4
    assert not joined.exists()
    refused = invoke(*encode, "--join", "3").exception
    assert isinstance(refused, DataError)
    assert "of 3 parts, these are missing, damaged, or made from other texts or settings: 2. " in str(refused)
    (shards / "000003" / "data.npy").write_bytes(b"")
    damaged = invoke(*encode, "--join", "3").exception
    assert "settings: 1, 2. Encode each of them (part 1/3)" in str(damaged)
    records = {place: (shards / place / "shard.json").stat().st_mtime_ns for place in ("000000", "000003", "000006")}
    assert "wrote part 1/3" in invoke(*encode, "--part", "1/3").output
    again = {place: (shards / place / "shard.json").stat().st_mtime_ns for place in records}
    assert [place for place in records if again[place] != records[place]] == ["000003"]
    succeeds(*encode, "--part", "2/3")
    succeeds(*encode, "--join", "3")
    names = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(joined) for path in joined.rglob("*") if path.is_file())
    visible = [name for name in names if not name.name.startswith(".")]
    assert all((whole / name).read_bytes() == (joined / name).read_bytes() for name in visible)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["joined", "whole"]


def test_an_empty_part_is_no_error_and_parts_of_others_are_not_joined(model: Path, beir: Path, tmp_path: Path) -> None:
    for part, texts in (("2/2", 0), ("1/2", 40)):
        assert vtkit.encode_texts(model, beir, tmp_path / "vectors", part=part).texts == texts
    with pytest.raises(DataError, match="settings: 1"):
        vtkit.encode_texts(model, beir, tmp_path / "vectors", join=2, top_dimensions=7)
    assert vtkit.encode_texts(model, beir, tmp_path / "vectors", join=2).texts == 40


def test_a_part_that_cannot_be_is_refused(model: Path, beir: Path, tmp_path: Path) -> None:
    for part in ("0/4", "5/4", "3", "a/b", "-1/2", "1/0"):
        refused = invoke("encode", model, beir, "--out", tmp_path / "vectors", f"--part={part}").exception
        assert isinstance(refused, RecipeError)
        assert part in str(refused)
        assert list(tmp_path.iterdir()) == []


def test_documents_come_in_several_forms(tmp_path: Path) -> None:
    for name, content, ids in (
        ("a.jsonl", '{"_id": "x", "text": "one"}\n{"_id": "y", "title": "t", "text": "two"}\n', ["x", "y"]),
        ("a.tsv", "x\tone\ny\ttwo\n", ["x", "y"]),
        ("a.txt", "one\n\n  two \n", ["1", "3"]),
        ("a.txt.gz", "one\ntwo\n", ["1", "2"]),
    ):
        path = tmp_path / name
        path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
        found = read_document_file(str(path))
        assert [document.id for document in found] == ids
        assert [document.text for document in found] == ["one", "two"]


def test_queries_in_a_folder_and_unknown_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("one, two\n", "utf-8")
    for read in (read_query_file, read_queries_as_documents):
        with pytest.raises(DataError, match=r"is a folder|queries are missing"):
            read(str(tmp_path / "texts"))
    for name in ("a.xml", "a.ods.gz"):
        (tmp_path / name).write_bytes(b"<a>")
        with pytest.raises(DataError, match=r"has an unknown format\. Documents are a folder"):
            read_document_file(str(tmp_path / name))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "encoding.json": lambda folder: (folder / "encoding.json").write_text('{"model": 1}'),
    "documents": lambda folder: (folder / "documents.jsonl").write_text(""),
    "no documents": lambda folder: (folder / "documents.jsonl").unlink(),
    "vectors": lambda folder: (folder / "vectors" / "data.npy").write_bytes(b"nonsense"),
    "a bit of the vectors": lambda folder: flip(folder / "vectors" / "data.npy", -3),
    "nothing": lambda folder: (folder / "encoding.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_vectors_make_no_index(indexed: Path, tmp_path: Path, damage: str) -> None:
    shutil.copytree(indexed / "vectors", tmp_path / "vectors")
    DAMAGE[damage](tmp_path / "vectors")
    said = r"data\.npy is damaged: .* " if "vectors" in damage else ""
    with pytest.raises(DataError, match=f"{said}vtkit encode"):
        vtkit.index_vectors(tmp_path / "vectors", tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("function", "command"),
    [
        (vtkit.index_vectors, ["index", "vectors"]),
        (vtkit.evaluate, ["evaluate", "bm25", "--on", "data"]),
        (vtkit.expand_documents, ["expand-documents", "model", "data"]),
    ],
)
def test_an_argument_of_the_function_is_no_setting(
    function: Callable[..., object], command: list[str], tmp_path: Path
) -> None:
    for argument in inspect.signature(function).parameters.keys() - {"settings"}:
        refused = invoke(*command, "--out", tmp_path / "out", "--set", f"{argument}=5").exception
        assert isinstance(refused, RecipeError), (argument, refused)
        assert f"{argument}: unknown setting." in str(refused)


def test_what_does_not_fit_is_refused(indexed: Path, tmp_path: Path, model: Path, beir: Path) -> None:
    with pytest.raises(RecipeError, match='engine: must be "exact"'):
        vtkit.index_vectors(indexed / "vectors", tmp_path / "index", engine="fast")
    with pytest.raises(RecipeError, match="dk is a country: its language is da"):
        vtkit.index_vectors(indexed / "vectors", tmp_path / "index", lexical="bm25", language="dk")
    (tmp_path / "numbers.txt").write_text("".join(f"{number} {number + 1}\n" for number in range(40)))
    vtkit.encode_texts(model, tmp_path / "numbers.txt", tmp_path / "numbers")
    refused = invoke("index", tmp_path / "numbers", "--out", tmp_path / "index", "--set", "lexical=bm25")
    assert "BM25 needs the language, which the texts do not show. Name it with --language." in str(refused.exception)
    for wrong in ("query_length", "query_length=0", "nothing=1", "heap=1", "engine.fast=1"):
        refused = invoke("index", indexed / "vectors", "--out", tmp_path / "index", "--set", wrong)
        assert isinstance(refused.exception, RecipeError), wrong
    with pytest.raises(RecipeError, match="already exists"):
        vtkit.index_vectors(indexed / "vectors", indexed / "index")
    with pytest.raises(RecipeError, match="already exists"):
        vtkit.encode_texts(model, beir, indexed / "vectors")
    assert isinstance(invoke("search", indexed / "index", "t1", "--model", "source").exception, RecipeError)
    refused = invoke("encode", model, beir, "--out", tmp_path / "v", "--top-dimensions", "0").exception
    assert isinstance(refused, RecipeError)
    record = json.loads((indexed / "index" / "index.json").read_text())
    del record["outputs"], record["manifest_sha256"]  # as older versions wrote it
    (tmp_path / "moved" / "segments").mkdir(parents=True)
    (tmp_path / "moved" / "index.json").write_text(json.dumps(record | {"model": str(tmp_path / "gone")}))
    with pytest.raises(VtkitError, match="is gone"):
        vtkit.search_run(tmp_path / "moved", ["t1"])
    model = {"model": str(model)}
    for change in ({"engine": "fast"}, {"settings": {"query_length": "long"}, **model}, {"model": 1}, None):
        damaged = "{" if change is None else json.dumps(record | change)
        (tmp_path / "moved" / "index.json").write_text(damaged)
        with pytest.raises(DataError, match="is damaged"):
            vtkit.search_run(tmp_path / "moved", ["t1"])


@pytest.mark.parametrize("given", [("--mass", "0.5"), ("--passages", "20")])
def test_settings_of_documents_are_refused_for_queries(given: tuple[str, str], tmp_path: Path) -> None:
    refused = invoke("encode", "encoder", "texts.txt", "--out", tmp_path / "vectors", "--queries", *given).exception
    assert isinstance(refused, RecipeError)
    assert f"{given[0].removeprefix('--')}: these are for documents" in str(refused)
    assert not (tmp_path / "vectors").exists()
