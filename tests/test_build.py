"""From documents as people have them to an index that answers: ``vtkit build``, and recipes without judgements."""

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tiny
from command_line import invoke
from support import write_pdf

import vtkit
from vtkit import Document
from vtkit.data.document_files import read_document_file
from vtkit.encoder.checkpoint import save_encoder
from vtkit.pipeline.folder import open_run
from vtkit.pipeline.search import searched
from vtkit.search.bm25 import Bm25
from vtkit.search.folders import read_encoding
from vtkit.system.errors import DataError, RecipeError

TEXTS = tiny.texts(60, words=(12, 30))
SMALL = ("--set", "source.units.size=32", "--set", "source.units.active=4", "--set", "source.steps=20",
         "--set", "index.precision=float32")  # fmt: skip


def text_files(folder: Path) -> Path:
    (folder / "texts").mkdir()
    (folder / "texts" / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    for number, text in enumerate(TEXTS):
        path = folder / "texts" / str(number % 3) / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder / "texts"


def table(folder: Path) -> Path:
    with (folder / "table.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerow(["Headline", "Body", "url", "year"])
        rows.writerows(["", text, f"https://example.org/{number}", 1990 + number] for number, text in enumerate(TEXTS))
    return folder / "table.csv"


def beir(folder: Path) -> Path:
    return tiny.write_collection(folder / "beir", tiny.collection(60))


def pdfs(folder: Path) -> Path:
    (folder / "pdfs").mkdir()
    for number in range(4):
        write_pdf(folder / "pdfs" / f"{number}.pdf", TEXTS[number * 3 : number * 3 + 3])
    return folder / "pdfs"


FIRST = {text_files: "0/0.txt", table: "https://example.org/0", beir: "d0", pdfs: "0.pdf"}


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.dense(tmp_path_factory.mktemp("embedder") / "dense")


@pytest.mark.parametrize("make", FIRST, ids=lambda make: make.__name__)
def test_from_an_empty_folder_to_an_answered_query(
    make: Callable[[Path], Path], embedder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtkit.transfer.latent_units.FEWEST_TOKENS", 50)
    documents, out = make(tmp_path), tmp_path / "index"
    built = invoke("build", documents, "--embedder", embedder, "--language", "en", "--out", out, *SMALL)
    assert built.exception is None, (built.output, built.exception)
    for words in (
        "the encoder weighs",
        "are cut at 384 tokens",
        "a query takes",
        "snippets as queries",
        "search it:",
    ):
        assert words in built.output, built.output
    corpus = [json.loads(line) for line in (out / "corpus.jsonl").read_text("utf-8").splitlines()]
    first = next(line for line in corpus if line["_id"] == FIRST[make])
    query = " ".join(first["text"].split()[2:9])
    found = invoke("search", out, query, "--json")
    assert found.exception is None, found.output
    results = json.loads(found.output)["results"]
    assert FIRST[make] in [result["id"] for result in results[:3]]
    if make is text_files:
        assert "broken.pdf: is damaged" in built.output
        assert "1 of 61 files were left out" in built.output
    if make is table:
        limited = json.loads(invoke("search", out, query, "--json", "--where", "year >= 2040").output)["results"]
        assert limited
        assert all(int(result["id"].rpartition("/")[2]) >= 50 for result in limited)
        assert first["metadata"] == {"url": "https://example.org/0", "year": "1990"}  # as it is written
        assert json.loads((out / "built.json").read_text())["documents"] == 60
    again = invoke("build", documents, "--embedder", embedder, "--language", "en", "--out", out, *SMALL)
    assert isinstance(again.exception, RecipeError)
    moved = tmp_path / "moved"
    shutil.copytree(out, moved)
    shutil.rmtree(out)
    assert json.loads(invoke("search", moved, query, "--json").output)["results"] == results


def test_documents_that_are_too_long_are_indexed_as_passages_and_short_ones_are_not(
    embedder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtkit.transfer.latent_units.FEWEST_TOKENS", 50)
    monkeypatch.setattr("vtkit.pipeline.build.PASSAGE_WORDS", (200, 8))
    documents, more = text_files(tmp_path), ("--language", "en", *SMALL, "--set", "index.document_length=20")
    built = invoke("build", documents, "--embedder", embedder, "--out", tmp_path / "index", *more)
    assert built.exception is None, (built.output, built.exception)
    assert "of the documents have more than 20 tokens: passages of up to 8 words are indexed" in built.output
    assert "passages = { words = 8, overlap = 2 }" in (tmp_path / "index" / "recipe.toml").read_text("utf-8")
    figures = json.loads((tmp_path / "index" / "built.json").read_text())
    assert figures["documents"] == 60
    assert figures["passages"] > 120
    end = " ".join(TEXTS[0].split()[-6:])  # of which the encoder would read nothing
    found = vtkit.search_run(tmp_path / "index", end)[0][0]
    assert (found.id, found.text) == ("0/0.txt", TEXTS[0])
    assert found.passage is not None
    assert end in found.passage
    assert len(found.passage.split()) <= 8
    explained = json.loads(invoke("explain", tmp_path / "index", end, "0/0.txt", "--json").output)
    assert explained["passage"] == found.passage
    assert explained["rank"] == 1
    assert explained["score"] == pytest.approx(found.score, rel=1e-5)


def test_a_build_that_stopped_continues_and_says_what_stopped_it(
    embedder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, out = text_files(tmp_path), tmp_path / "index"
    arguments = ("build", documents, "--embedder", embedder, *SMALL, "--out")
    monkeypatch.setattr("vtkit.transfer.latent_units.FEWEST_TOKENS", 1_000_000)
    monkeypatch.setattr("vtkit.pipeline.build.ENOUGH", 0)
    stopped = invoke(*arguments, out, "--language", "en")
    assert isinstance(stopped.exception, DataError)
    assert "Units need at least" in str(stopped.exception)
    with pytest.raises(vtkit.VtkitError):
        vtkit.search_run(out, "a query")
    monkeypatch.setattr("vtkit.transfer.latent_units.FEWEST_TOKENS", 50)
    assert invoke(*arguments, out, "--language", "en").exception is None
    assert vtkit.search_run(out, TEXTS[5][10:60])[0]


@pytest.mark.parametrize("names", [("mine",), ("recipe.toml", "corpus.jsonl", "texts.txt"), ("build.json",), ()])
def test_a_folder_that_no_build_made_is_left_as_it_is(names: Sequence[str], embedder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for name in names:
        (tmp_path / "other" / name).write_text("{}")
    refused = invoke(
        "build", text_files(tmp_path), "--embedder", embedder, "--language=en", "--out", tmp_path / "other"
    )
    assert isinstance(refused.exception, RecipeError)
    assert "other already exists and will not be overwritten" in str(refused.exception)
    assert {path.name: path.read_text() for path in (tmp_path / "other").iterdir()} == dict.fromkeys(names, "{}")


def test_a_few_notes_get_an_index_of_bm25_alone_inside_their_folder(
    embedder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = ("the red fox sleeps under the bridge", "apples and pears for the cake", "the night train to Vienna leaves")
    unlucky = {"docs.csv": "id,text\n1,row\n", "README.md": "---\ntitle: my notes: all\n---\nabout the notes"}
    for name, text in ({f"{number}.txt": text for number, text in enumerate(notes)} | unlucky).items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    built = invoke("build", ".", "--embedder", embedder, "--out", "index")
    assert built.exception is None, (built.output, built.exception)
    said = " ".join(built.output.split())
    assert "texts are read, a document per file; tables are read alone. Not read: 1 .csv" in said
    assert "detected language: en 100% of 4 texts" in said
    assert said.index("detected language") < said.index("BM25 ranks alone: the documents' ")
    assert "the encoder weighs 0, BM25 1: the documents' " in said
    contents = [document.contents for document in read_document_file(".")]
    bm25 = Bm25.build(contents, "en", "full").search(["a train to Vienna"], 4)
    (found,) = vtkit.search_run("index", "a train to Vienna")
    assert found[0].id == "2.txt"
    assert [result.score for result in found] == pytest.approx(bm25[1][0][: len(found)].tolist(), rel=1e-3)
    Path("3.txt").write_text("an umbrella against the rain")
    added = invoke("add", "index", ".")
    assert added.exception is None, (added.output, added.exception)
    assert "1 added, 4 replaced: 5 documents" in added.output
    assert vtkit.search_run("index", "umbrella")[0][0].id == "3.txt"


def test_a_recipe_without_judgements_ends_with_an_index_whose_settings_its_model_keeps(
    embedder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vtkit.transfer.latent_units.FEWEST_TOKENS", 50)
    documents = table(tmp_path).name
    new = invoke("recipe", "new", "--name=unjudged", "--language=en", f"--embedder={embedder}", "--corpus", documents)
    assert new.exception is None, new.output
    assert 'documents = "./table.csv"' in Path("unjudged.toml").read_text()
    shown = invoke("run", "unjudged.toml", *SMALL, "--set", "index.document_length=20")
    assert shown.exception is None, (shown.output, shown.exception)
    assert "search it: vtkit search" in shown.output
    run = open_run("runs/unjudged")
    place, _ = searched(Path("runs/unjudged"), model=None, collection=None)
    assert (place.name, run.index.lexical, run.index.document_length) == ("table.csv", "bm25", 20)
    query = TEXTS[7][10:80]
    of_run = vtkit.search_run("runs/unjudged", query, top=5)[0]
    assert of_run
    refused = str(invoke("add", "runs/unjudged", documents).exception)
    assert "vtkit index runs/unjudged --out" in refused
    for wrong, said in (
        (("--engine", "lucene"), "settings of its recipe"),
        (("--collection", "x"), "no collection 'x'"),
    ):
        assert said in str(invoke("index", "runs/unjudged", "--out", "copied", *wrong).exception)
    assert "belongs to a run" in str(invoke("search", "runs/unjudged/index/table.csv", query).exception)
    assert invoke("index", "runs/unjudged", "--out", "copied").exception is None
    assert vtkit.search_run("copied", query, top=5)[0] == of_run
    files = [path.relative_to(place) for path in place.rglob("*.npy")]
    assert all((Path("copied") / file).samefile(place / file) for file in files), "nothing takes space twice"
    added = vtkit.add_documents("copied", [Document("new", "", query)])
    assert (added.added, added.documents) == (1, len(TEXTS) + 1)
    assert vtkit.search_run("copied", query, top=1)[0][0].id == "new"
    assert vtkit.search_run("runs/unjudged", query, top=5)[0] == of_run
    assert invoke("check", "runs/unjudged").exception is None
    for model in ("runs/unjudged/model", "runs/unjudged"):
        vectors, index = Path(f"v{len(model)}"), Path(f"i{len(model)}")
        encoded = invoke("encode", model, documents, "--out", vectors)
        assert encoded.exception is None, encoded.output
        encoding = read_encoding(vectors)
        assert (encoding.max_length, encoding.language, encoding.run["lexical"]) == (20, "en", "bm25")
        assert not {"documents", "url", "alias", "shards", "replicas"} & encoding.run.keys(), "of the run's own index"
        assert invoke("index", vectors, "--out", index).exception is None
        found = vtkit.search_run(index, query, top=5)[0]
        assert [(each.id, pytest.approx(each.score, rel=1e-4)) for each in found] == [
            (each.id, each.score) for each in of_run
        ]
    assert invoke("index", vectors, "--out", "plain", "--set", "lexical=none").exception is None
    assert [each.score for each in vtkit.search_run("plain", query)[0]] != [each.score for each in of_run]
    assert invoke("encode", "runs/unjudged", documents, "--out", "longer", "--max-length", "30").exception is None
    assert read_encoding(Path("longer")).max_length == 30


def test_documents_and_evaluation_sets_are_not_both_indexed(embedder: Path, tmp_path: Path) -> None:
    collection = beir(tmp_path)
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        f'[recipe]\nname = "r"\n[source]\nmodel = "{embedder}"\n[source.units]\n[vocabulary]\nkind = "source"\n'
        f'[index]\ndocuments = "{collection}"\n[evaluate]\nsets = ["{collection}"]\n'
    )
    assert "the documents of evaluate.sets are indexed" in str(invoke("recipe", "check", recipe).exception)


def test_a_build_without_a_model_is_told_what_it_needs_and_names_no_other_command(tmp_path: Path) -> None:
    refused = invoke("build", beir(tmp_path), "--language", "en", "--out", tmp_path / "out").exception
    assert str(refused) == "The recipe needs also: --source (or --embedder)"
    assert "`vtkit build`" in invoke("search", "--help").stdout
    assert "vtkit run, build or index" in str(invoke("search", tmp_path / "beir", "a query").exception)


def test_documents_without_any_text_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "blank.jsonl").write_text('{"_id": "a", "text": ""}\n{"_id": "b", "text": " "}\n')
    given = ["--embedder", "x", "--language", "en", "--out", tmp_path / "out"]
    refused = invoke("build", tmp_path / "blank.jsonl", *given).exception
    assert "blank.jsonl: none of its 2 documents has a text" in str(refused)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("language", ["de,en", "de"])
def test_a_sparse_encoder_is_built_from_if_its_language_is_among_the_texts_and_with_pairs(
    language: str, tmp_path: Path
) -> None:
    documents, model, pairs = table(tmp_path), tmp_path / "model", tmp_path / "pairs.tsv"
    save_encoder(tiny.encoder(tmp_path / "work"), model)
    pairs.write_text(
        "".join(f"{word} {other}\t{word} {other}\n" for word in tiny.WORDS for other in tiny.WORDS), "utf-8"
    )
    given = ["--source", model, "--language", language, "--set", "adapt.steps=2", "--set", "adapt.batch_size=4"]
    given += ["--parallel", pairs] if language == "de" else []
    built = invoke("build", documents, "--out", tmp_path / "index", *given)
    assert built.exception is None, (built.output, built.exception)
    found = vtkit.search_run(tmp_path / "index", TEXTS[3][10:80], top=3)[0]
    assert "https://example.org/3" in [result.id for result in found]
