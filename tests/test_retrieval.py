"""Collections in BEIR layout: what is read, and that everything wrong is said at once."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtkit.data.collections import load_retrieval
from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.system.errors import DataError

DOCUMENTS: list[dict[str, object]] = [
    {"_id": "d1", "title": "Seoul", "text": "The capital of Korea."},
    {"_id": "d2", "title": "", "text": "부산은 항구 도시이다."},
    {"_id": 3, "text": "A document whose id is a number."},
]
QUERIES: list[dict[str, object]] = [
    {"_id": "q1", "text": "capital"},
    {"_id": "q2", "text": "항구"},
    {"_id": "q3", "text": "not judged"},
]
QRELS = "query-id\tcorpus-id\tscore\nq2\td2\t1\nq1\td1\t2\nq1\t3\t0\n"


def lines(entries: list[dict[str, object]]) -> str:
    return "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small sound collection that tests may damage."""
    root = tmp_path / "small-ko"
    (root / "qrels").mkdir(parents=True)
    (root / "corpus.jsonl").write_text(lines(DOCUMENTS), encoding="utf-8")
    (root / "queries.jsonl").write_text(lines(QUERIES), encoding="utf-8")
    (root / "qrels" / "test.tsv").write_text(QRELS, encoding="utf-8")
    return root


def complaint(folder: Path, split: str = "test") -> str:
    with pytest.raises(DataError) as error:
        load_retrieval(folder, split)
    return str(error.value)


def test_a_folder_is_read_with_the_queries_its_split_judges(folder: Path) -> None:
    collection = load_retrieval(folder, "test")
    documents = [Document(str(each["_id"]), str(each.get("title", "")), str(each["text"])) for each in DOCUMENTS]
    queries, judged = [Query("q1", "capital"), Query("q2", "항구")], {"q2": {"d2": 1}, "q1": {"d1": 2, "3": 0}}
    assert collection == RetrievalSet("small-ko", documents, queries, judged)
    contents = [document.contents for document in collection.documents[:2]]
    assert contents == ["Seoul The capital of Korea.", "부산은 항구 도시이다."]


def test_compressed_files_and_judgements_in_other_columns_give_the_same(folder: Path, tmp_path: Path) -> None:
    plain = load_retrieval(folder, "test")
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        path = folder / name
        (folder / f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert load_retrieval(folder, "test") == plain
    (folder / "qrels" / "trec.tsv").write_text("q2 0 d2 1\nq1 Q0 d1 2\nq1 0 3 0\n")
    (folder / "qrels" / "bare.tsv").write_text("q2\td2\t1.0\nq1\td1\t2\nq1\t3\t0\nq1\t3\t0\n")
    assert load_retrieval(folder, "trec") == load_retrieval(folder, "bare") == plain


def test_missing_files_and_splits_are_named_together(folder: Path) -> None:
    (folder / "corpus.jsonl").unlink()
    (folder / "qrels" / "train.tsv").write_text("q1\td1\t1\n")
    message = complaint(folder, "dev")
    for part in (str(folder), "the corpus is missing", "the judgements 'dev' are missing", "splits there: test, train"):
        assert part in message
    assert "the queries are missing" not in message
    assert "no such collection or folder" in complaint(folder / "absent")


def test_all_problems_of_all_files_are_told_with_their_lines(folder: Path) -> None:
    (folder / "corpus.jsonl").write_text(
        lines(DOCUMENTS) + '{"_id": "d1", "text": "again"}\nnot json\n{"_id": "d5"}\n{"_id": "a b", "text": "x"}\n'
    )
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": " "}\n{"_id": "", "text": "x"}\n{"_id": null}\n')
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td1\tyes\nq1\nq1\td1\t1\nq1\td1\t0\nq1\td2\t2147483648\n"
    )
    message = complaint(folder)
    for part in (
        "corpus.jsonl: 4 problems",
        "line 4: id 'd1' occurs twice (first on line 1)",
        "line 5: is not JSON",
        "line 6: text missing or not a string",
        "line 7: the id 'a b' contains white space",
        "queries.jsonl: 3 problems",
        "line 1: query 'q1' has no text",
        "line 2: the id is empty",
        "line 3: _id and text missing",
        "test.tsv: 4 problems",
        "line 2: the grade 'yes' is not a whole number",
        "line 3: has 1 columns",
        "line 5: 'q1' and 'd1' were judged 1 before",
        "line 6: the grade '2147483648' does not fit into 32 bits",
    ):
        assert part in message


def test_text_that_is_not_utf8_names_the_file(folder: Path) -> None:
    (folder / "queries.jsonl").write_bytes('{"_id": "q1", "text": "서울"}\n'.encode("euc-kr"))
    (folder / "qrels" / "test.tsv").write_bytes(b"q1\td1\t\xff\n")
    message = complaint(folder)
    assert "queries.jsonl: line 1 is not UTF-8" in message
    assert "test.tsv: line 1 is not UTF-8" in message, "the other files are looked at too"


def test_many_problems_are_counted_and_the_first_few_shown(folder: Path) -> None:
    with (folder / "qrels" / "test.tsv").open("a") as file:
        file.writelines(f"q1\tabsent{number}\t1\n" for number in range(40))
        file.write("q9\td1\t1\n")
    message = complaint(folder)
    assert "test.tsv: 41 problems" in message
    assert "document 'absent0' (query 'q1') is not in corpus.jsonl" in message
    assert "and 36 more" in message
    assert "absent30" not in message


def test_an_empty_file_is_an_error(folder: Path) -> None:
    for name, held in (("qrels/test.tsv", "judgements"), ("queries.jsonl", "queries"), ("corpus.jsonl", "documents")):
        (folder / name).write_text("\n")
        assert f"holds no {held}" in complaint(folder)


@given(st.integers(0, 30), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_sample_is_a_part_of_the_queries_in_their_order(count: int, size: int, seed: int) -> None:
    queries = [Query(f"q{number}", "text") for number in range(count)]
    whole = RetrievalSet("s", [], queries, {query.id: {"d": 1} for query in queries})
    part = whole.sample(size, seed)
    assert len(part.queries) == min(size, count)
    assert part == whole.sample(size, seed)
    assert [query for query in queries if query in part.queries] == part.queries
    assert part.qrels == {query.id: {"d": 1} for query in part.queries}
    assert whole.sample(None, seed) is whole
    said = (f"sampled: {size} of {count} queries",) if size < count else ()
    assert part.not_comparable == said, "and its figures cannot stand beside those of the whole"
