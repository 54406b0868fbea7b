"""Collections of ir_datasets, by their ids."""

from pathlib import Path

import ir_datasets
import pytest
from command_line import invoke

from vtkit.data import irds
from vtkit.data.collections import load_retrieval, splits_of
from vtkit.data.corpora import read_corpus
from vtkit.data.hub import DOWNLOAD_VARIABLE
from vtkit.data.retrieval import Document, Query
from vtkit.system.errors import DataError


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small collection in ir_datasets' own registry, with downloads allowed."""
    monkeypatch.setenv("VTKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(DOWNLOAD_VARIABLE, "1")
    (tmp_path / "d.tsv").write_text("a\tthe river\nb\tthe hill\n", "utf-8")
    (tmp_path / "q.tsv").write_text("1\triver\n2\thill\n3\tnot judged\n", "utf-8")
    (tmp_path / "qrels").write_text("1 0 a 2\n2 0 b 1\n2 0 gone 1\n", "utf-8")
    name = f"vtkit-{tmp_path.name}/brooks/train"
    dataset = ir_datasets.create_dataset(
        docs_tsv=str(tmp_path / "d.tsv"), queries_tsv=str(tmp_path / "q.tsv"), qrels_trec=str(tmp_path / "qrels")
    )
    ir_datasets.registry.register(name, dataset)
    return irds.PREFIX + name


def test_an_id_of_ir_datasets_is_a_collection(registered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert splits_of(registered) == ["train"]
    found = load_retrieval(registered, "train")
    assert list(found.documents) == [Document("a", "", "the river"), Document("b", "", "the hill")]
    assert found.queries == [Query("1", "river"), Query("2", "hill")]
    assert found.qrels == {"1": {"a": 2}, "2": {"b": 1}}
    (said,) = found.not_comparable
    assert said.startswith("1 of 3 judgements left out: 0 queries and 1 documents")
    assert list(read_corpus(registered)) == ["the river", "the hill"]
    monkeypatch.delenv(DOWNLOAD_VARIABLE)
    monkeypatch.setattr(ir_datasets, "load", None)  # once it was fetched, it is read from the cache
    assert load_retrieval(registered, "train") == found


def test_an_unknown_id_leaves_nothing_behind(registered: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ir_datasets:beir/scifakt/test: ir_datasets has no such id"):
        load_retrieval("ir_datasets:beir/scifakt/test", "test")
    assert not list((tmp_path / "cache" / "ir_datasets").iterdir())


def test_documents_without_a_text_field_are_read_by_their_default_text() -> None:
    document = ir_datasets.load("cord19/trec-covid").docs_cls()("7", "Masks", "10.1", "2020", "They help.")
    assert irds._document(document) == {"_id": "7", "text": "Masks They help."}


def test_nothing_is_fetched_without_being_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VTKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(DOWNLOAD_VARIABLE, raising=False)
    result = invoke("gap", "ir_datasets:beir/scifact/test", "ir_datasets:beir/scifact/test")
    assert isinstance(result.exception, DataError)
    assert "ir_datasets:beir/scifact/test is not in vtkit's cache. Run again with --download" in str(result.exception)
