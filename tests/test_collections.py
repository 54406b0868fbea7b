"""Collections by name: folders of all layouts, and public collections in copies of the hub's files."""

import json
import re
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ir_datasets
import pytest
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st
from support import put, refused

from vtkit.data import hub, irds
from vtkit.data.collections import judgements, load_retrieval
from vtkit.data.document_files import read_corpus, read_document_file, read_queries_as_documents
from vtkit.data.hub import DOWNLOAD_VARIABLE
from vtkit.data.public import PUBLIC, Repository
from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.sources import default_split, hub_repositories, public_collection, splits_of
from vtkit.system.errors import DataError

REVISION = "0123456789abcdef0123456789abcdef01234567"
Rows = list[dict[str, Any]]

CORPUS: Rows = [
    {"_id": "5#0", "title": "서울", "text": "인구"},
    {"_id": "5#1", "title": "서울", "text": "강"},
    {"_id": "7#0", "title": "부산", "text": "항구"},
]
QUERIES: Rows = [
    {"_id": "10", "text": "서울의 인구는?"},
    {"_id": "11", "text": "부산은 어디인가?"},
    {"_id": "1", "text": "질문"},
]
TEST: Rows = [
    {"query-id": "10", "corpus-id": "5#0", "score": 1},
    {"query-id": "10", "corpus-id": "5#1", "score": 0},
    {"query-id": "11", "corpus-id": "7#0", "score": 1},
]
TRAIN: Rows = [{"query-id": "1", "corpus-id": "7#0", "score": 2}]
DOCUMENTS = [Document(row["_id"], row["title"], row["text"]) for row in CORPUS]


def put_head(folder: Path, configs: Mapping[str, Mapping[str, str | list[str]]]) -> None:
    """A README whose head says which files each configuration has by split, as the hub writes it."""
    lines = ["---", "language:", "- kor", "configs:"]
    for name, splits in configs.items():
        lines += [f"- config_name: {name}", "  data_files:"]
        for split, path in splits.items():
            lines += [f"  - split: {split}", f"    path: {json.dumps(path)}"]
    put(folder / "README.md", "\n".join([*lines, "---", "# A data set", "--- and more"]))


def put_beir(folder: Path, ending: str = ".jsonl") -> Path:
    put(folder / f"corpus{ending}", CORPUS)
    put(folder / f"queries{ending}", QUERIES)
    for split, rows in (("test", TEST), ("train", TRAIN)):
        put(folder / "qrels" / f"{split}.tsv", rows)
    return folder


def put_topics(root: Path, language: str) -> None:
    stem = f"miracl-v1.0-{language}"
    put(root / stem / "topics" / f"topics.{stem}-dev.tsv", "10\t서울의 인구는?\n11\t부산은 어디인가?\n")
    put(root / stem / "topics" / f"topics.{stem}-train.tsv", "1\t질문\n")
    put(root / stem / "qrels" / f"qrels.{stem}-dev.tsv", "10\tQ0\t5#0\t1\n10\tQ0\t5#1\t0\n11\tQ0\t7#0\t1\n")


def put_passages(root: Path, language: str) -> None:
    for number, passages in enumerate((CORPUS[:2], CORPUS[2:])):
        rows = [{"docid": row["_id"], "title": row["title"], "text": row["text"]} for row in passages]
        put(root / f"miracl-corpus-v1.0-{language}" / f"docs-{number}.jsonl.gz", rows)


def put_webfaq(root: Path, *languages: str, all_queries_in_one: bool = False) -> None:
    """Configurations of three parts a language, grades as floating-point numbers."""
    configs: dict[str, dict[str, str | list[str]]] = {}
    for language in languages:
        splits = ["queries"] if all_queries_in_one else ["train", "test"]
        configs[f"{language}-qrels"] = {split: f"{language}/qrels-{split}.jsonl" for split in ("train", "test")}
        configs[f"{language}-corpus"] = {"corpus": f"{language}/corpus.jsonl"}
        configs[f"{language}-queries"] = {split: f"{language}/queries-{split}.jsonl" for split in splits}
        folder = root / language
        put(folder / "corpus.jsonl", CORPUS)
        for split in splits:
            rows = {"queries": QUERIES, "train": QUERIES[2:], "test": QUERIES[:2]}[split]
            put(folder / f"queries-{split}.jsonl", rows)
        for split, rows in (("train", TRAIN), ("test", TEST)):
            put(folder / f"qrels-{split}.jsonl", [{**row, "score": float(row["score"])} for row in rows])
    put_head(root, configs)


def put_hard_negatives(root: Path, language: str = "ko") -> None:
    """mteb's: parquet, a configuration a part, the only split called like that of the judgements."""
    parts = {"corpus": CORPUS, "queries": QUERIES[:2], "qrels": TEST}
    put_head(root, {f"{language}-{part}": {"dev": f"{language}-{part}/dev-*"} for part in parts})
    for part, rows in parts.items():
        put(root / f"{language}-{part}" / "dev-00000-of-00001.parquet", rows)


def put_chemteb(root: Path, *, head: bool = True) -> None:
    """Parquet in corpus/, queries/ and data/."""
    put(root / "corpus" / "corpus-00000-of-00002.parquet", CORPUS[:2])
    put(root / "corpus" / "corpus-00001-of-00002.parquet", CORPUS[2:])
    put(root / "queries" / "queries-00000-of-00001.parquet", QUERIES)
    put(root / "data" / "test-00000-of-00001.parquet", TEST)
    if head:
        put_head(
            root,
            {
                "corpus": {"corpus": "corpus/corpus-*"},
                "default": {"test": "data/test-*"},
                "queries": {"queries": "queries/queries-*"},
            },
        )


def put_nanobeir(root: Path) -> None:
    """Every part is a split train."""
    for part, rows in (("corpus", CORPUS), ("queries", QUERIES[:2]), ("qrels", TEST)):
        put(root / part / "train-00000-of-00001.parquet", rows)
    put_head(root, {part: {"train": f"{part}/train-*"} for part in ("corpus", "queries", "qrels")})


def put_cmteb(root: Path) -> None:
    """Corpus and queries as splits of the only configuration, the judgements in a repository beside it."""
    put(root / "data" / "corpus-00000-of-00001-8afe7b7a7eca49e3.parquet", _renamed(CORPUS, _id="id"))
    put(root / "data" / "queries-00000-of-00001-930bf3b805a80dd9.parquet", _renamed(QUERIES, _id="id"))
    put_head(root, {"default": {"corpus": "data/corpus-*", "queries": "data/queries-*"}})
    beside = root.with_name(f"{root.name}-qrels")
    names = {"query-id": "qid", "corpus-id": "pid"}
    put(beside / "data" / "test-00000-of-00001-a1b2c3d4e5f60718.parquet", _renamed(TEST, **names))


def put_mmarco(root: Path, language: str) -> None:
    """tsv without headers; the same judgements for all languages."""
    google = root / "data" / "google"
    numbers = {"5#0": "0", "5#1": "1", "7#0": "2"}
    documents = "".join(f"{numbers[row['_id']]}\t{row['title']} {row['text']}\n" for row in CORPUS)
    put(google / "collections" / f"{language}_collection.tsv", documents)
    queries = "".join(f"{row['_id']}\t{row['text']}\n" for row in QUERIES)
    put(google / "queries" / "dev" / f"{language}_queries.dev.tsv", queries)
    put(google / "queries" / "dev" / f"{language}_queries.dev.small.tsv", queries)
    for split in ("dev", "dev.small"):
        rows = "".join(f"{row['query-id']}\t0\t{numbers[row['corpus-id']]}\t{row['score']}\n" for row in TEST)
        put(root / "data" / f"qrels.{split}.tsv", rows)


def _renamed(rows: Rows, **names: str) -> Rows:
    return [{names.get(name, name): value for name, value in row.items()} for row in rows]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, downloads not allowed, and an error for whoever opens a connection all the same."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv(hub.DOWNLOAD_VARIABLE, raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return tmp_path / "hub"


def snapshot(cache: Path, repo_id: str, revision: str | None = None) -> Path:
    """Where a revision of a data set lies in the cache, as the hub's client would have put it there."""
    repository = cache / f"datasets--{repo_id.replace('/', '--')}"
    put(repository / "refs" / "main", revision or REVISION)
    return repository / "snapshots" / (revision or REVISION)


def repositories(name: str) -> Sequence[Repository]:
    """The repositories that a public collection lies in."""
    return (public_collection(name) or pytest.fail(name)).repositories


def contents_of(collection: RetrievalSet) -> tuple[Any, ...]:
    return list(collection.documents), collection.queries, {q: dict(j) for q, j in collection.qrels.items()}


WHOLE = (
    DOCUMENTS,
    [Query("10", "서울의 인구는?"), Query("11", "부산은 어디인가?")],
    {"10": {"5#0": 1, "5#1": 0}, "11": {"7#0": 1}},
)
"""What every layout holds."""


@pytest.mark.parametrize("below", ["", "miracl-corpus"])
def test_miracl_is_read_from_a_folder_in_the_layout_of_the_hub(tmp_path: Path, below: str) -> None:
    put_topics(tmp_path, "ko")
    put_passages(tmp_path / below, "ko")
    assert contents_of(load_retrieval(tmp_path, "dev")) == WHOLE
    assert (default_split(str(tmp_path)), splits_of(str(tmp_path))) == ("dev", ["dev"])
    put_topics(tmp_path, "th")
    put_passages(tmp_path / below, "th")
    with pytest.raises(DataError, match=r"has 2 collections \(ko, th\)\. Name one of them, for example .*:ko"):
        load_retrieval(tmp_path, "dev")
    named = load_retrieval(f"{tmp_path}:th", "dev")
    assert contents_of(named) == WHOLE
    assert named.name == f"{tmp_path.name}-th"
    refused(DataError, r"has no collection 'tj'\. It has: ko, th", load_retrieval, f"{tmp_path}:tj", "dev")


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".tsv", ".tsv.gz", ".tsv.zst", ".parquet"])
def test_a_beir_folder_may_hold_its_files_in_any_form(tmp_path: Path, ending: str) -> None:
    folder = put_beir(tmp_path / "folder", ending)
    assert contents_of(load_retrieval(folder, "test")) == WHOLE
    assert splits_of(str(folder)) == ["test", "train"]
    assert judgements(str(folder), "train") == {"1": {"7#0": 2}}
    assert judgements(str(folder), "dev") == {}


def test_layouts_of_the_hub_are_read_from_folders_that_were_copied_from_there(tmp_path: Path) -> None:
    put_webfaq(tmp_path / "webfaq", "kor", "deu")
    put_hard_negatives(tmp_path / "hard")
    put_chemteb(tmp_path / "chem")
    put_chemteb(tmp_path / "headless", head=False)
    put_nanobeir(tmp_path / "nano")
    put_cmteb(tmp_path / "T2Retrieval")
    splits = {"hard": "dev", "hard:ko": "dev", "nano": "train"}
    for name in ("webfaq:kor", "webfaq:deu", "hard", "hard:ko", "chem", "headless", "nano", "T2Retrieval"):
        split = splits.get(name, "test")
        assert contents_of(load_retrieval(str(tmp_path / name), split)) == WHOLE, name
        assert split in splits_of(str(tmp_path / name))


def test_a_folder_of_mmarco_has_a_collection_a_language_and_judgements_for_all(tmp_path: Path) -> None:
    put_mmarco(tmp_path, "japanese")
    put_mmarco(tmp_path, "german")
    found = load_retrieval(f"{tmp_path}:japanese", "dev.small")
    assert [document.id for document in found.documents] == ["0", "1", "2"]
    assert found.documents[0].text == "서울 인구"
    assert found.qrels == {"10": {"0": 1, "1": 0}, "11": {"2": 1}}
    assert splits_of(f"{tmp_path}:german") == ["dev", "dev.small"]


def test_texts_may_be_structures_and_grades_words_under_other_names(tmp_path: Path) -> None:
    for ending in (".jsonl", ".parquet"):
        folder = tmp_path / ending.removeprefix(".")
        texts = [{"docid": row["_id"], "text": {"title": row["title"], "text": row["text"]}} for row in CORPUS]
        put(folder / f"corpus{ending}", texts)
        put(folder / f"queries{ending}", _renamed(QUERIES, _id="query_id", text="question"))
        judged = [{**row, "score": str(row["score"])} for row in TEST]
        names = {"query-id": "query_id", "corpus-id": "corpus_id", "score": "label"}
        put(folder / f"qrels-test{ending}", _renamed(judged, **names))
        assert contents_of(load_retrieval(folder, "test")) == WHOLE


@pytest.mark.parametrize(
    "columns",
    [
        ("pid passage", "qid query", "qid pid relevance"),
        ("passage_id contents", "query-id text", "query_id passage_id score"),
        ("doc_id content", "id question", "query-id doc_id label"),
        ("docid text", "query_id text", "query_id docid score"),
        ("corpus-id text", "_id text", "qid corpus_id score"),
    ],
)
def test_columns_have_several_names_and_ids_may_be_numbers(columns: tuple[str, str, str], tmp_path: Path) -> None:
    for ending in (".jsonl", ".parquet"):
        folder = tmp_path / ending.removeprefix(".")
        values: tuple[tuple[object, ...], ...] = (7, "text"), (3, "question"), (3, 7, "1")
        for place, names, row in zip(("corpus", "queries", "qrels/test"), columns, values, strict=True):
            put(folder / f"{place}{ending}", [dict(zip(names.split(), row, strict=True))])
        found = load_retrieval(folder, "test")
        assert contents_of(found) == ([Document("7", "", "text")], [Query("3", "question")], {"3": {"7": 1}})


def test_of_the_same_rows_in_two_forms_one_counts(tmp_path: Path) -> None:
    folder = put_beir(tmp_path / "both")
    put(folder / "corpus.jsonl.gz", CORPUS)
    put(folder / "qrels" / "test.jsonl", TEST)
    put(folder / ".cache" / "corpus.jsonl", CORPUS)
    assert contents_of(load_retrieval(folder, "test")) == WHOLE


def second_corpus_file(folder: Path) -> None:
    put_topics(folder, "ko")
    put_passages(folder, "ko")
    put(folder / "miracl-corpus-v1.0-ko" / "docs-2.jsonl", '{"docid": "5#1", "title": "", "text": "again"}\n')


def twice_in_parquet(folder: Path) -> None:
    put_beir(folder, ".parquet")
    put(folder / "corpus.parquet", [*CORPUS, CORPUS[1]])


def cut_parquet(folder: Path) -> None:
    put_chemteb(folder)
    path = folder / "corpus" / "corpus-00001-of-00002.parquet"
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("lay", "at", "message"),
    [
        (lambda folder: put_topics(folder, "ko"), "", r"corpus is missing; .*'test' are missing .*: dev\)"),
        (second_corpus_file, "", r"docs-2.jsonl: line 1: id '5#1' occurs twice \(first on line 2 of docs-0.json"),
        (twice_in_parquet, "", r"corpus.parquet: row 4: id '5#1' occurs twice \(first on row 2\)"),
        (cut_parquet, "", r"corpus-00001-of-00002\.parquet: .*parquet.*download it again"),
        (lambda folder: put(folder / "corpus.jsonl", "{}"), "corpus.jsonl", "query or anchor or question is missing"),
        (lambda folder: put(folder / "corpus.parquet", "{}"), "corpus.parquet", r"corpus\.parquet: .*parquet"),
    ],
)
def test_problems_of_a_folder_are_named(tmp_path: Path, lay: Callable[[Path], object], at: str, message: str) -> None:
    lay(tmp_path)
    split = "dev" if lay is second_corpus_file else "test"
    refused(DataError, message, load_retrieval, tmp_path / at, split)
    if lay is cut_parquet:
        refused(DataError, "download it again", read_corpus, tmp_path)


def test_damaged_rows_are_reported_together_with_their_lines(tmp_path: Path) -> None:
    put_webfaq(tmp_path, "kor")
    grades = ("0.5", "NaN", "Infinity", "true")
    rows = [("5#0", "1.0"), ("5#0", "0"), *(("7#0", score) for score in grades)]
    lines = [f'{{"query-id": "10", "corpus-id": "{document}", "score": {score}}}' for document, score in rows]
    put(tmp_path / "kor" / "qrels-test.jsonl", "\n".join(lines) + "\n")
    put(tmp_path / "kor" / "queries-test.jsonl", '{"_id": "10", "text": " "}\n')
    put(tmp_path / "kor" / "corpus.jsonl", '{"_id": "a", "text": 1}\n{"_id": "b c", "text": ""}\n')
    said = refused(DataError, "", load_retrieval, f"{tmp_path}:kor", "test")
    for part in (
        "line 1: text missing",
        "line 2: the id 'b c'",
        "queries-test.jsonl: line 1: query '10'",
        "qrels-test.jsonl: 5 problems\n",
        "line 2: '10' and '5#0'",
        *(f"line {3 + place}: the grade {grade} " for place, grade in enumerate(("0.5", "nan", "inf", "True"))),
    ):
        assert part in said
    put(tmp_path / "kor" / "qrels-test.jsonl", b'{"query-id": "10"\xff')
    with pytest.raises(DataError, match=r"(?s)has no text.*qrels-test.jsonl: line 1 is not UTF-8"):
        load_retrieval(f"{tmp_path}:kor", "test")


@pytest.mark.parametrize("elsewhere", ["/etc/passwd.jsonl", "kor/../../up.jsonl", ""])
def test_the_head_of_a_readme_cannot_lead_out_of_its_folder(tmp_path: Path, elsewhere: str) -> None:
    put_webfaq(tmp_path, "kor")
    readme = tmp_path / "README.md"
    put(readme, readme.read_text().replace("kor/corpus.jsonl", elsewhere))
    refused(DataError, r"does not name the files.*is outside of the repository", load_retrieval, tmp_path, "test")


def test_a_readme_without_a_head_leaves_it_to_the_names(tmp_path: Path) -> None:
    folder = put_beir(tmp_path)
    for readme in ("# Only text", "---\nlicense: mit\n---\n", "---\nconfigs: []\n---\n"):
        put(folder / "README.md", readme)
        assert contents_of(load_retrieval(folder, "test")) == WHOLE
    put(folder / "README.md", "---\nconfigs: [\n---\n")
    refused(DataError, r"README\.md: its head does not name the files", load_retrieval, folder, "test")


def test_miracl_by_name_comes_from_the_cache_without_touching_the_network(cache: Path) -> None:
    refused(DataError, r"macavaney/miracl-noauth .*is not in the cache.*--download", load_retrieval, "miracl:ko", "dev")
    put_topics(snapshot(cache, "macavaney/miracl-noauth"), "ko")
    put_passages(snapshot(cache, "miracl/miracl-corpus"), "ko")
    found = load_retrieval("miracl:ko", "dev")
    assert contents_of(found) == WHOLE
    assert found.name == "miracl-ko"
    with pytest.raises(DataError, match=r"the corpus is missing; the queries are missing.*--download"):
        load_retrieval("miracl:th", "dev")


def test_a_folder_has_no_repositories_and_no_record(tmp_path: Path) -> None:
    assert [each.id for each in hub_repositories("miracl:ko")] == ["macavaney/miracl-noauth", "miracl/miracl-corpus"]
    assert hub_repositories(str(tmp_path)) == ()
    assert public_collection("/data/miracl:ko") is public_collection("other:x") is None


def test_public_collections_are_read_at_their_pinned_revisions(cache: Path) -> None:
    layouts = (
        ("webfaq:kor", "test", lambda folder: put_webfaq(folder, "kor")),
        ("miracl-hard:ko", "dev", put_hard_negatives),
        ("nanobeir:scifact", "train", put_nanobeir),
        ("chemteb:nq", "test", put_chemteb),
        ("beir:nfcorpus", "test", put_beir),
    )
    for name, split, lay in layouts:
        (repository,) = repositories(name)
        assert re.fullmatch("[0-9a-f]{40}", repository.revision or "")
        lay(snapshot(cache, repository.id, REVISION))
        with pytest.raises(DataError, match=f"{repository.id} .*{repository.revision}.* is not in the cache"):
            load_retrieval(name, split)
        lay(snapshot(cache, repository.id, repository.revision))
        found = load_retrieval(name, split)
        assert contents_of(found) == WHOLE
        assert found.name == name.replace(":", "-")
        assert default_split(name) == split
        assert list(read_corpus(name)) == [document.contents for document in DOCUMENTS]


def test_the_deep_learning_tracks_take_the_passages_of_ms_marco(cache: Path) -> None:
    corpus, judged = repositories("msmarco:dl19")
    put(snapshot(cache, corpus.id, corpus.revision) / "corpus.jsonl", CORPUS)
    put_beir(snapshot(cache, judged.id, judged.revision))
    (snapshot(cache, judged.id, judged.revision) / "corpus.jsonl").unlink()
    assert contents_of(load_retrieval("msmarco:dl19", "test")) == WHOLE
    assert splits_of("msmarco") == ["dev", "train"]
    assert splits_of("msmarco:dl20") == ["test"]


def test_mmarco_by_name_is_called_by_language(cache: Path) -> None:
    put_mmarco(snapshot(cache, "unicamp-dl/mmarco"), "japanese")
    found = load_retrieval("mmarco:ja", "dev.small")
    assert (found.name, len(found.documents), len(found.queries)) == ("mmarco-ja", 3, 2)


def test_webfaq_follows_the_head_of_its_readme_whether_queries_are_split_or_not(tmp_path: Path) -> None:
    for number, in_one in enumerate((False, True)):
        put_webfaq(tmp_path / str(number), "kor", all_queries_in_one=in_one)
        assert contents_of(load_retrieval(tmp_path / str(number), "test")) == WHOLE
        assert load_retrieval(tmp_path / str(number), "train").queries == [Query("1", "질문")]
    refused(DataError, r"'dev' are missing \(splits there: test, train\)", load_retrieval, tmp_path / "0", "dev")


def test_judgements_of_missing_documents_are_left_out(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository,) = repositories("nanobeir:scifact")
    folder = snapshot(cache, repository.id, repository.revision)
    put_nanobeir(folder)
    more = [{"query-id": "10", "corpus-id": "gone", "score": 1}, {"query-id": "99", "corpus-id": "5#0", "score": 1}]
    put(folder / "qrels" / "train-00000-of-00001.parquet", TEST + more)
    found = load_retrieval("nanobeir:scifact", "train")
    assert contents_of(found) == WHOLE
    lost = "2 of 5 judgements left out: 1 queries and 1 documents are not in the collection"
    assert f"nanobeir-scifact: {lost}" in " ".join(capsys.readouterr().err.split())
    assert found.not_comparable == (PUBLIC["nanobeir:scifact"].sampled, lost)
    put_nanobeir(tmp_path / "mine")
    put(tmp_path / "mine" / "qrels" / "train-00000-of-00001.parquet", TEST + more)
    refused(DataError, "document 'gone'", load_retrieval, tmp_path / "mine", "train")
    put(folder / "qrels" / "train-00000-of-00001.parquet", more)
    refused(DataError, "holds no judgements", load_retrieval, "nanobeir:scifact", "train")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("miracl:xx", "MIRACL has no subset 'xx'.* It has: ar, bn"),
        ("webfaq:ko", "WebFAQ has no subset 'ko'.* Did you mean 'kor'"),
        ("beir:scifct", "BEIR has no subset 'scifct'. Did you mean 'scifact'"),
        ("beir", "BEIR needs the name of a subset. It has: arguana"),
        ("msmarco:dl21", "has no subset 'dl21'. Did you mean 'dl"),
        ("mirakl:ko", "no such collection or folder. Did you mean 'miracl:ko'"),
        ("/nowhere/at/all", "no such collection or folder.*miracl:"),
    ],
)
def test_an_unknown_name_says_what_names_there_are(cache: Path, name: str, message: str) -> None:
    refused(DataError, message, load_retrieval, name, "test")


def test_every_record_is_whole() -> None:
    sizes = Counter(name.partition(":")[0] for name in PUBLIC)
    assert sizes["miracl"] == sizes["miracl-hard"] == 18
    assert (sizes["webfaq"], sizes["nanobeir"], sizes["mmarco"], sizes["chemteb"]) == (49, 13, 14, 2)
    for name, public in PUBLIC.items():
        assert default_split(name) == splits_of(name)[0]
        assert {part for each in public.repositories for part in each.parts} == {"corpus", "queries", "qrels"}
    assert {name.partition(":")[0] for name, public in PUBLIC.items() if public.sampled} == {"miracl-hard", "nanobeir"}
    assert splits_of("miracl:yo") == ["dev"]


def test_collections_are_corpora_documents_and_queries_too(tmp_path: Path) -> None:
    put_chemteb(tmp_path / "chem")
    name = str(tmp_path / "chem")
    assert list(read_corpus(name)) == [document.contents for document in DOCUMENTS]
    assert read_document_file(name) == DOCUMENTS
    assert [query.id for query in read_queries_as_documents(name)] == ["10", "11", "1"]
    parquet = f"{name}/corpus/corpus-00000-of-00002.parquet"
    assert list(read_corpus(parquet)) == [document.contents for document in DOCUMENTS[:2]]
    put_webfaq(tmp_path / "webfaq", "kor", "deu")
    assert read_document_file(f"{tmp_path / 'webfaq'}:deu") == DOCUMENTS


def test_the_hub_is_reachable_where_allowed_and_answering(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hub.downloads_allowed()
    assert not hub.reachable()
    monkeypatch.undo()  # of the refusal to connect
    with socket.socket() as silent:  # takes the connection, never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv(hub.DOWNLOAD_VARIABLE, "1")
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert not hub.reachable(0.2)


# Collections of ir_datasets, by their ids.


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
    assert not list(tmp_path.glob("cache/ir_datasets/*"))


def test_documents_without_a_text_field_are_read_by_their_default_text() -> None:
    document = ir_datasets.load("cord19/trec-covid").docs_cls()("7", "Masks", "10.1", "2020", "They help.")
    assert irds._document(document) == {"_id": "7", "text": "Masks They help."}


def test_nothing_is_fetched_without_being_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VTKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(DOWNLOAD_VARIABLE, raising=False)
    result = invoke("gap", "ir_datasets:beir/scifact/test", "ir_datasets:beir/scifact/test")
    assert isinstance(result.exception, DataError)
    assert "ir_datasets:beir/scifact/test is not in vtkit's cache. Run again with --download" in str(result.exception)


# BEIR folders; damage is in test_data_check.py.


BILINGUAL: list[dict[str, object]] = [
    {"_id": "d1", "title": "Seoul", "text": "The capital of Korea."},
    {"_id": "d2", "title": "", "text": "부산은 항구 도시이다."},
    {"_id": 3, "text": "A document whose id is a number."},
]
ASKED: list[dict[str, object]] = [
    {"_id": "q1", "text": "capital"},
    {"_id": "q2", "text": "항구"},
    {"_id": "q3", "text": "not judged"},
]
JUDGED = "query-id\tcorpus-id\tscore\nq2\td2\t1\nq1\td1\t2\nq1\t3\t0\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small sound collection that tests may damage."""
    for name, content in {"corpus.jsonl": BILINGUAL, "queries.jsonl": ASKED, "qrels/test.tsv": JUDGED}.items():
        put(tmp_path / "small-ko" / name, content)
    return tmp_path / "small-ko"


def test_a_folder_is_read_with_the_queries_its_split_judges(folder: Path) -> None:
    collection = load_retrieval(folder, "test")
    documents = [Document(str(each["_id"]), str(each.get("title", "")), str(each["text"])) for each in BILINGUAL]
    queries, judged = [Query("q1", "capital"), Query("q2", "항구")], {"q2": {"d2": 1}, "q1": {"d1": 2, "3": 0}}
    assert collection == RetrievalSet("small-ko", documents, queries, judged)
    contents = [document.contents for document in collection.documents[:2]]
    assert contents == ["Seoul The capital of Korea.", "부산은 항구 도시이다."]


def test_compressed_files_and_judgements_in_other_columns_give_the_same(folder: Path, tmp_path: Path) -> None:
    plain = load_retrieval(folder, "test")
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        put(folder / f"{name}.gz", (folder / name).read_bytes())
        (folder / name).unlink()
    assert load_retrieval(folder, "test") == plain
    (folder / "qrels" / "trec.tsv").write_text("q2 0 d2 1\nq1 Q0 d1 2\nq1 0 3 0\n")
    (folder / "qrels" / "bare.tsv").write_text("q2\td2\t1.0\nq1\td1\t2\nq1\t3\t0\nq1\t3\t0\n")
    assert load_retrieval(folder, "trec") == load_retrieval(folder, "bare") == plain


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
