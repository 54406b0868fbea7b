"""Large collections: mapped from files instead of held, with nothing else changed."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import refused
from tiny import collection, encoder, texts, write_collection

from vtkit.data import documents as stored
from vtkit.data import sequences
from vtkit.data.collections import load_retrieval
from vtkit.data.documents import StoredDocuments, keep_large_collections
from vtkit.data.judgements import Gathering, only
from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.sampling import draw, drawn
from vtkit.data.sequences import Ragged, SpooledTexts
from vtkit.encoder import documents as in_rows
from vtkit.search import bm25
from vtkit.search.bm25 import Bm25
from vtkit.settings.finetune import FinetuneSection
from vtkit.system.errors import DataError
from vtkit.training.finetune import finetune
from vtkit.training.resuming import TrainingRun
from vtkit.training.validation import held_out_queries, validation_set


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what is made of collections, all of which count as large."""
    monkeypatch.setattr(stored, "LARGE", 0)
    monkeypatch.setattr(stored, "_ROWS", 7)
    monkeypatch.setattr(stored, "_folder", None)
    keep_large_collections(tmp_path / "kept")
    return tmp_path / "kept"


def loaded(folder: Path, name: str = "collection") -> RetrievalSet:
    return load_retrieval(folder / name, "test")


ODD = [
    Document("0", "", "plain"), Document("ÅÄÖ-한국어-🙂", "제목", 'text with \\ and " and \u2028'),
    Document("a/b:c", "title only", ""), Document("None", " ", " spaces "), Document("ﬁ", "", "ligature"),
    Document("fi", "", "ligature"),
]  # fmt: skip


def test_documents_come_back_as_they_were(tmp_path: Path, large: Path) -> None:
    documents = [*ODD, *(Document(f"d{n}", "", text) for n, text in enumerate(texts(40, seed=3)))]
    queries = [Query("q", "?")]
    write_collection(tmp_path / "collection", RetrievalSet("x", documents, queries, {"q": {"ﬁ": 1, "d39": 0}}))
    found = loaded(tmp_path)
    assert isinstance(found.documents, StoredDocuments)
    assert list(found.documents) == documents == [found.documents[n] for n in range(len(documents))]
    assert found.documents[-2:] == documents[-2:]
    assert list(found.contents) == [document.contents for document in documents]
    assert found.numbers_of([document.id for document in documents]).tolist() == list(range(len(documents)))
    assert found.numbers_of(["d39", "nobody", "ﬁ"]).tolist() == [len(documents) - 1, -1, 4]
    assert {query: dict(grades) for query, grades in found.qrels.items()} == {"q": {"ﬁ": 1, "d39": 0}}
    assert found.by_number(found.qrels, "q") == {4: 1, len(documents) - 1: 0}
    with pytest.raises(IndexError):
        found.documents[len(documents)]


def test_a_collection_is_made_once_and_again_where_it_is_damaged(
    tmp_path: Path, large: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = collection(30)
    write_collection(tmp_path / "collection", data)
    assert list(loaded(tmp_path).documents) == data.documents
    (file,) = large.iterdir()
    made = file.stat().st_ino
    assert list(loaded(tmp_path).documents) == data.documents
    assert file.stat().st_ino == made
    whole = file.read_bytes()
    for damaged in (whole[:-40], whole[:900] + b"?" + whole[901:]):
        file.unlink()  # which is mapped
        file.write_bytes(damaged)
        assert list(loaded(tmp_path).documents) == data.documents
        assert "is damaged and will be made again" in capsys.readouterr().err
    assert list(large.iterdir()) == [file]  # nothing is left beside it
    (tmp_path / "collection" / "corpus.jsonl").write_text(json.dumps({"_id": "d0", "text": "other"}) + "\n")
    (tmp_path / "collection" / "qrels" / "test.tsv").write_text("q0\td0\t1\n")
    assert list(loaded(tmp_path).documents) == [Document("d0", "", "other")]


def test_what_is_wrong_is_said_as_of_small_collections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: Path
) -> None:
    data = collection(12)
    repeated = [*data.documents, data.documents[3], Document("d5", "", "another")]
    faults = {
        "repeated": (repeated, data.qrels),
        "unknown": (data.documents, {**data.qrels, "nobody": {"d1": 1}, "q3": {"d99": 1, "d3": 1}}),
        "irrelevant": (data.documents, {"q1": {"d1": 0}}),
    }
    for name, (documents, qrels) in faults.items():
        write_collection(tmp_path / name, RetrievalSet("x", documents, data.queries, qrels))
        said = refused(DataError, "", loaded, tmp_path, name)
        with monkeypatch.context() as small:
            small.setattr(stored, "LARGE", 2**30)
            with pytest.raises(DataError) as wanted:
                loaded(tmp_path, name)
        assert sorted(said.splitlines()) == sorted(str(wanted.value).splitlines())
    assert not large.exists() or len(list(large.iterdir())) == 1  # that of the sound documents
    shards = write_collection(tmp_path / "shards", collection(3))
    (shards / "qrels" / "test.tsv").rename(shards / "qrels" / "test-0.tsv")
    (shards / "qrels" / "test-1.tsv").write_text("q1\td2\t0\nq1\td1\t9\n")
    refused(DataError, r"qrels/test-1\.tsv: line 2: 'q1' and 'd1' were judged 1 before", loaded, tmp_path, "shards")
    twice = tmp_path / "unknown" / "qrels" / "test.tsv"
    twice.write_text("q1\td1\t1\nq1\td1\t0\nq2\td2\thigh\nq3\td3\t1e12\n")
    said = r"(?s)line 3: the grade 'high' is not.*line 4: the grade '1e12' is not.*line 2: 'q1' and 'd1' were judged 1"
    refused(DataError, said, loaded, tmp_path, "unknown")


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(-1, 3))))
def test_gathered_values_are_those_of_dictionaries(rows: list[tuple[int, int, int]]) -> None:
    gathering, wanted = Gathering(int), dict[str, dict[str, int]]()
    contradicting = 0
    for query, document, grade in rows:
        gathering.append(f"q{query}", f"d{document}", grade)
        contradicting += wanted.setdefault(f"q{query}", {}).setdefault(f"d{document}", grade) != grade
    found, contradictions = gathering.finish()
    assert {query: list(values.items()) for query, values in found.items()} == {
        query: list(values.items()) for query, values in wanted.items()
    }
    assert len(contradictions) == contradicting
    assert dict(only(found, {"q1"})) == {query: values for query, values in wanted.items() if query == "q1"}


def test_a_training_on_a_mapped_collection_ends_in_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: Path
) -> None:
    data = collection(40, seed=6)
    grades = {f"q{n}": {f"d{n}": 1, **{f"d{(n + k) % 40}": 0 for k in (3, 5, 7)}} for n in range(40)}
    write_collection(tmp_path / "collection", RetrievalSet("x", data.documents, data.queries, grades))
    section = FinetuneSection(
        data="x", steps=6, batch_size=5, hard_negatives=2, loss="margin_mse", checkpoint_every=3, learning_rate=2e-3
    )
    weights = []
    for name in ("mapped", "held"):
        if name == "held":
            monkeypatch.setattr(stored, "LARGE", 2**30)
        opened = loaded(tmp_path)
        assert isinstance(opened.documents, StoredDocuments) is (name == "mapped")
        ours = encoder(tmp_path / name)
        finetune(ours, opened, section, TrainingRun(seed=3, folder=tmp_path / name / "checkpoints", language="en"))
        weights.append({name: each.clone() for name, each in ours.state_dict().items()})
        left, right = held_out_queries(opened, 0.3, 2)
        judged = validation_set(right, "x", 1, most_queries=5, most_documents=20)
        weights[-1] |= {"left": len(left.queries), "judged": (list(judged.documents), judged.grades)}
    for name, value in weights[0].items():
        assert value == weights[1][name] if isinstance(value, int | tuple) else value.equal(weights[1][name]), name


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(-100, 5), max_size=4)))
def test_rows_of_one_array(rows: list[list[int]]) -> None:
    found = Ragged.of(rows)
    assert [row.tolist() for row in found] == rows == [row.tolist() for row in found[:]]
    assert found.lengths.tolist() == [len(row) for row in rows]
    assert found.counts(6).tolist() == [sum(row.count(n) for row in rows) for n in range(6)]


def test_sampled_texts_are_the_same_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = [f"{text} \udcff 🙂" for text in texts(200, seed=1)]
    held = draw(corpus, 50, 7)
    monkeypatch.setattr(sequences, "IN_MEMORY", 100)
    assert list(drawn(corpus, 50, 7, tmp_path)) == held
    assert set(held) <= set(corpus)
    assert len(held) == 50
    assert SpooledTexts(tmp_path)._file._max_size == 100


def test_bm25_in_files_is_bm25(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, queries = [*texts(60, seed=5), "", "apple"], [*texts(20, seed=6, words=(1, 4)), "nothing"]
    whole = Bm25.build(corpus, "en").search(queries, 12)
    monkeypatch.setattr(bm25, "TEXTS_A_BLOCK", 9)
    monkeypatch.setattr(in_rows, "ROWS_AT_ONCE", 3)
    parts = Bm25.build(iter(corpus), "en", folder=tmp_path / "bm25")
    assert (tmp_path / "bm25" / "entries.npy").is_file()
    for found, wanted in zip(parts.search(queries, 12), whole, strict=True):
        assert np.array_equal(found, wanted)
