"""Collections by name: folders in two layouts, and public collections in copies of the hub's files."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path

import pytest

from vtkit.data import hub
from vtkit.data.collections import PUBLIC, default_split, hub_repositories, load_retrieval, public_collection, splits_of
from vtkit.data.public.miracl import MIRACL
from vtkit.data.public.webfaq import WEBFAQ
from vtkit.data.retrieval import Document, Query
from vtkit.errors import DataError

REVISION = "0123456789abcdef0123456789abcdef01234567"


def put(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())


def put_topics(root: Path, language: str) -> None:
    stem = f"miracl-v1.0-{language}"
    put(root / stem / "topics" / f"topics.{stem}-dev.tsv", "10\t서울의 인구는?\n11\t부산은 어디인가?\n")
    put(root / stem / "topics" / f"topics.{stem}-train.tsv", "1\t질문\n")
    put(root / stem / "qrels" / f"qrels.{stem}-dev.tsv", "10\tQ0\t5#0\t1\n10\tQ0\t5#1\t0\n11\tQ0\t7#0\t1\n")


def put_passages(root: Path, language: str) -> None:
    folder = root / f"miracl-corpus-v1.0-{language}"
    for number, passages in enumerate(([("5#0", "서울", "인구"), ("5#1", "서울", "강")], [("7#0", "부산", "항구")])):
        lines = [json.dumps({"docid": i, "title": t, "text": x}, ensure_ascii=False) for i, t, x in passages]
        put(folder / f"docs-{number}.jsonl.gz", "\n".join(lines) + "\n")


def put_webfaq(root: Path, language: str) -> None:
    head = ["configs:"]
    for part, splits in (("qrels", ("train", "test")), ("corpus", ("corpus",)), ("queries", ("train", "test"))):
        head += [f"- config_name: {language}-{part}", "  data_files:"]
        for split in splits:
            head += [f"  - split: {split}", f"    path: {language}/{part}-{split}.jsonl"]
    put(root / "README.md", "---\nlanguage:\n- kor\n" + "\n".join(head) + "\n---\n# WebFAQ\n--- and more\n")
    folder = root / language
    put(folder / "corpus-corpus.jsonl", '{"_id": "a1", "title": "", "text": "답"}\n{"_id": "a2", "text": "둘"}\n')
    put(folder / "queries-train.jsonl", '{"_id": "q2", "text": "둘?"}\n')
    put(folder / "queries-test.jsonl", '{"_id": "q1", "text": "질문?"}\n')
    put(folder / "qrels-train.jsonl", '{"query-id": "q2", "corpus-id": "a2", "score": 1.0}\n')
    put(folder / "qrels-test.jsonl", '{"query-id": "q1", "corpus-id": "a1", "score": 1.0}\n')


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, downloads not allowed, and an error for whoever opens a connection all the same."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv(hub.DOWNLOAD_VARIABLE, raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return tmp_path / "hub"


def snapshot(cache: Path, repo_id: str) -> Path:
    """Where a revision of a data set lies in the cache, as the hub's client would have put it there."""
    repository = cache / f"datasets--{repo_id.replace('/', '--')}"
    put(repository / "refs" / "main", REVISION)
    return repository / "snapshots" / REVISION


@pytest.mark.parametrize("below", ["", "miracl-corpus"])
def test_miracl_is_read_from_a_folder_in_the_layout_of_the_hub(tmp_path: Path, below: str) -> None:
    put_topics(tmp_path, "ko")
    put_passages(tmp_path / below, "ko")
    collection = load_retrieval(tmp_path, "dev")
    assert collection == MIRACL.load("ko", root=tmp_path)
    assert collection.name == "miracl-ko"
    assert collection.documents[0] == Document("5#0", "서울", "인구")
    assert [document.id for document in collection.documents] == ["5#0", "5#1", "7#0"]
    assert collection.queries == [Query("10", "서울의 인구는?"), Query("11", "부산은 어디인가?")]
    assert collection.qrels == {"10": {"5#0": 1, "5#1": 0}, "11": {"7#0": 1}}


def test_a_miracl_folder_says_which_splits_files_and_languages_it_lacks(tmp_path: Path) -> None:
    put_topics(tmp_path, "ko")
    with pytest.raises(DataError, match=r"qrels.*-test\.tsv is missing \(splits there: dev\); docs-.* are missing"):
        load_retrieval(tmp_path, "test")
    put_topics(tmp_path, "th")
    with pytest.raises(DataError, match="2 languages \\(ko, th\\)"):
        load_retrieval(tmp_path, "dev")


def test_damaged_miracl_files_are_reported_with_their_lines(tmp_path: Path) -> None:
    put_topics(tmp_path, "ko")
    put_passages(tmp_path, "ko")
    put(tmp_path / "miracl-corpus-v1.0-ko" / "docs-2.jsonl.gz", '{"docid": "5#1", "title": "", "text": "again"}\n')
    put(tmp_path / "miracl-v1.0-ko" / "topics" / "topics.miracl-v1.0-ko-dev.tsv", "10 no tab\n10\tx\n10\ty\n")
    with pytest.raises(DataError) as error:
        load_retrieval(tmp_path, "dev")
    for part in (
        "docs-2.jsonl.gz: line ",
        "line 1: id '5#1' occurs twice (first on line 2 of docs-0.jsonl.gz)",
        "line 1: has one column",
        "line 3: id '10' occurs twice (first on line 2)",
    ):
        assert part in str(error.value)


def test_miracl_by_name_comes_from_the_cache_without_touching_the_network(cache: Path) -> None:
    with pytest.raises(DataError, match=r"miracl/miracl .*is not in the cache.*--download"):
        load_retrieval("miracl:ko", "dev")
    assert not hub.in_cache("miracl/miracl", "dataset")
    put_topics(snapshot(cache, "miracl/miracl"), "ko")
    put_passages(snapshot(cache, "miracl/miracl-corpus"), "ko")
    assert hub.in_cache("miracl/miracl", "dataset")
    assert not hub.in_cache("miracl/miracl", "model")
    assert [document.id for document in load_retrieval("miracl:ko", "dev").documents] == ["5#0", "5#1", "7#0"]
    with pytest.raises(DataError, match=r"docs-.* of miracl-corpus-v1\.0-th are missing.*--download"):
        load_retrieval("miracl:th", "dev")


def test_webfaq_follows_the_head_of_its_readme(tmp_path: Path, cache: Path) -> None:
    put_webfaq(tmp_path / "copy", "kor")
    collection = WEBFAQ.load("kor", root=tmp_path / "copy")
    assert collection.queries == [Query("q1", "질문?")]
    assert collection.documents == [Document("a1", "", "답"), Document("a2", "", "둘")]
    assert collection.qrels == {"q1": {"a1": 1}}
    assert WEBFAQ.load("kor", "train", tmp_path / "copy").queries == [Query("q2", "둘?")]
    put_webfaq(snapshot(cache, "PaDaS-Lab/webfaq-retrieval"), "kor")
    assert load_retrieval("webfaq:kor", "test") == collection
    with pytest.raises(DataError, match=r"no judgements 'dev' in 'kor'. It has: train, test"):
        load_retrieval("webfaq:kor", "dev")
    with pytest.raises(DataError, match="does not say which files hold"):
        WEBFAQ.load("deu", root=tmp_path / "copy")


def test_older_webfaq_revisions_with_all_queries_in_one_file_are_read_too(tmp_path: Path) -> None:
    put_webfaq(tmp_path, "kor")
    readme = (tmp_path / "README.md").read_text()
    head, queries = readme.split("- config_name: kor-queries")
    queries = queries[queries.index("---") :]
    one = "- config_name: kor-queries\n  data_files:\n  - split: queries\n    path: kor/queries-*.jsonl\n"
    put(tmp_path / "README.md", head + one + queries)
    assert WEBFAQ.load("kor", root=tmp_path).queries == [Query("q1", "질문?")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("miracl:xx", "MIRACL has no language 'xx'. It has: ar, bn"),
        ("webfaq:ko", "WebFAQ has no language 'ko'. It has: ara"),
        ("beir:scifact", "no such collection or folder.*miracl:LANGUAGE"),
        ("/nowhere/at/all", "no such collection or folder"),
    ],
)
def test_an_unknown_name_says_what_names_there_are(cache: Path, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_retrieval(name, "test")


def test_names_are_told_from_folders_and_lead_to_their_repositories() -> None:
    names = ("miracl:ko", "webfaq:kor", "miracl", "/data/miracl:ko", "beir:x")
    assert [public_collection(name) is not None for name in names] == [True, True, False, False, False]
    assert hub_repositories("miracl:ko") == ("miracl/miracl", "miracl/miracl-corpus")
    assert hub_repositories("webfaq:kor") == ("PaDaS-Lab/webfaq-retrieval",)
    assert hub_repositories("/data/korquad-ko") == ()
    with pytest.raises(DataError, match="no language"):
        hub_repositories("miracl:xx")


def test_splits_derive_from_the_record_or_from_the_folder(tmp_path: Path) -> None:
    for collection in PUBLIC:
        name = f"{collection.name}:{collection.example}"
        assert public_collection(name) == (collection, collection.example)
        assert default_split(name) == collection.splits[0]
        assert tuple(splits_of(name)) == collection.splits
    put_topics(tmp_path / "own", "ko")
    put(tmp_path / "own" / "miracl-v1.0-th" / "qrels" / "qrels.miracl-v1.0-th-train.tsv.gz", "")
    assert (default_split(str(tmp_path / "own")), splits_of(str(tmp_path / "own"))) == ("dev", ["dev", "train"])
    for file in ("test.tsv", "dev.tsv.zst", "notes.txt"):
        put(tmp_path / "beir" / "qrels" / file, "")
    assert (default_split(str(tmp_path / "beir")), splits_of(str(tmp_path / "beir"))) == ("test", ["dev", "test"])


def test_damaged_webfaq_files_are_reported_together_with_their_lines(tmp_path: Path) -> None:
    put_webfaq(tmp_path, "kor")
    lines = [
        '{"query-id": "q1", "corpus-id": "a1", "score": 1.0}',
        '{"query-id": "q1", "corpus-id": "a1", "score": 0}',
        *(f'{{"query-id": "q1", "corpus-id": "a2", "score": {score}}}' for score in ("0.5", "NaN", "Infinity", "true")),
    ]
    put(tmp_path / "kor" / "qrels-test.jsonl", "\n".join(lines) + "\n")
    put(tmp_path / "kor" / "queries-test.jsonl", '{"_id": "q1", "text": " "}\n')
    with pytest.raises(DataError) as error:
        WEBFAQ.load("kor", root=tmp_path)
    grades = ("0.5", "nan", "inf", "True")
    for part in (
        "queries-test.jsonl: line 1: query 'q1' has no text",
        "qrels-test.jsonl: 5 problems\n  line 2: 'q1' and 'a1' were judged 1 before",
        *(f"line {3 + place}: the grade {grade} is not a whole number" for place, grade in enumerate(grades)),
    ):
        assert part in str(error.value)
    (tmp_path / "kor" / "qrels-test.jsonl").write_bytes(b'{"query-id": "q1"\xff')
    with pytest.raises(DataError, match=r"(?s)has no text.*qrels-test.jsonl: line 1 is not UTF-8"):
        WEBFAQ.load("kor", root=tmp_path)


@pytest.mark.parametrize("elsewhere", ["/etc/passwd.jsonl", "kor/../../up.jsonl", ""])
def test_the_head_of_a_webfaq_readme_cannot_lead_out_of_its_folder(tmp_path: Path, elsewhere: str) -> None:
    put_webfaq(tmp_path, "kor")
    readme = tmp_path / "README.md"
    put(readme, readme.read_text().replace("kor/corpus-corpus.jsonl", f'"{elsewhere}"'))
    with pytest.raises(DataError, match=r"does not say which files hold.*does not lie in the repository"):
        WEBFAQ.load("kor", root=tmp_path)


def test_a_query_in_two_files_of_webfaq_is_told(tmp_path: Path) -> None:
    put_webfaq(tmp_path, "kor")
    readme = tmp_path / "README.md"
    put(readme, readme.read_text().replace("kor/queries-test.jsonl", "kor/queries-t*.jsonl"))
    put(tmp_path / "kor" / "queries-train.jsonl", '{"_id": "q1", "text": "?"}\n')
    with pytest.raises(DataError, match=r"queries-train.jsonl: query 'q1' is in queries-test.jsonl too"):
        WEBFAQ.load("kor", root=tmp_path)


def test_a_file_where_a_folder_is_needed_is_told_apart(tmp_path: Path) -> None:
    put(tmp_path / "corpus.jsonl", "{}")
    with pytest.raises(DataError, match="query or anchor or question is missing; positive or"):
        load_retrieval(tmp_path / "corpus.jsonl", "test")
    put(tmp_path / "corpus.parquet", "{}")
    with pytest.raises(DataError, match=r"corpus\.parquet: has an unknown form: training data are a \.tsv of query"):
        load_retrieval(tmp_path / "corpus.parquet", "test")


def test_without_leave_to_download_the_hub_is_not_asked(cache: Path) -> None:
    assert not hub.downloads_allowed()
    assert not hub.reachable()


def test_a_hub_that_does_not_answer_is_not_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:  # takes the connection, never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv(hub.DOWNLOAD_VARIABLE, "1")
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert not hub.reachable(0.2)
