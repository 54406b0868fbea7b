"""Folders of documents in which files have the names of a collection's parts, or of what vtkit writes: nothing is read
twice, and whatever is not read is said."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from support import put

from vtkit.data.document_files import read_corpus, read_document_file
from vtkit.system import console
from vtkit.system.checksums import write_record
from vtkit.system.errors import DataError


def lay(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        put(folder / name, content)
    return folder


def rows(*ids: str) -> str:
    return "".join(json.dumps({"_id": name, "text": f"the row {name}"}) + "\n" for name in ids)


def cells(*ids: str) -> str:
    return "".join(["id,text\n", *(f"{name},the row {name}\n" for name in ids)])


NOTES = {f"note{number}.txt": f"the note {number}" for number in range(4)}
NAMES = [*NOTES]
QRELS = "query-id\tcorpus-id\tscore\nq\ta\t1\n"

FOLDERS: dict[str, tuple[Mapping[str, str | bytes], list[str], str]] = {
    "notes, one called corpus": (NOTES | {"corpus.txt": "a text"}, ["corpus.txt", *NAMES], ""),
    "notes and docs.csv": (NOTES | {"docs.csv": cells("a")}, NAMES, "tables are read alone. Not read: 1 .csv"),
    "notes and a corpus below": (NOTES | {"sub/corpus.jsonl": rows("a")}, NAMES, "Not read: 1 .jsonl"),
    "notes and queries": (NOTES | {"queries.csv": cells("q")}, NAMES, "Not read: 1 .csv"),
    "notes, corpus and queries": (
        NOTES | {"docs.csv": cells("a"), "queries.csv": cells("q")},
        NAMES,
        "Not read: 2 .csv",
    ),
    "tables and a licence": (
        {"a.csv": cells("a"), "LICENCE.txt": "MIT", "README.de.md": "# Tabellen", "license-mit.txt": "MIT"},
        ["a"],
        "tables are read, a document per row. Not read: 2 .txt, 1 .md",
    ),
    "tables, one called docs": ({"a.csv": cells("a"), "docs.csv": cells("b")}, ["a", "b"], ""),
    "tables, one called docs, one queries": (
        {"a.csv": cells("a"), "docs.csv": cells("b"), "queries.csv": cells("c")},
        ["a", "b", "c"],
        "",
    ),
    "tables with the names of splits": ({"docs.train.csv": cells("a"), "docs.test.csv": cells("b")}, ["a", "b"], ""),
    "tables in folders called data": ({"docs.csv": cells("a"), "data/train.csv": cells("b")}, ["a", "b"], ""),
    "a corpus and queries": ({"corpus.jsonl": rows("a"), "queries.jsonl": rows("q")}, ["a"], "Not read: 1 .jsonl"),
    "a corpus and judgements": ({"corpus.jsonl": rows("a"), "qrels/test.tsv": QRELS}, ["a"], "Not read: 1 .tsv"),
    "a collection with a table and a note": (
        {"corpus.jsonl": rows("a"), "queries.jsonl": rows("q"), "qrels/test.tsv": QRELS, "x.csv": "", "n.txt": "n"},
        ["a"],
        "the corpus of a collection is read. Not read: 1 .txt, 1 .tsv, 1 .jsonl, 1 .csv",
    ),
    "a collection below tables": (
        {"a.csv": cells("b"), "sub/corpus.jsonl": rows("a"), "sub/queries.jsonl": rows("q")},
        ["a", "b", "q"],
        "",
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_file_by_its_name_alone_makes_no_folder_a_collection(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, ids, said = FOLDERS[name]
    documents = read_document_file(str(lay(tmp_path / "in", files)))
    assert sorted(document.id for document in documents) == sorted(ids)
    assert sorted(read_corpus(tmp_path / "in")) == sorted(document.contents for document in documents)
    shown = " ".join(capsys.readouterr().err.split())
    assert said in shown
    assert ("Not read" in shown) == bool(said)


HEADS = {
    "a title with a colon": "title: Notes: the second",
    "a template": "title: {{ page.title }}",
    "a list": "- one\n- two",
    "configurations of another program": "configs: 3",
    "a folder elsewhere": "configs:\n- config_name: default\n  data_dir: /srv",
}


@pytest.mark.parametrize("head", HEADS)
def test_the_head_of_a_readme_stops_no_folder_of_notes(head: str, tmp_path: Path) -> None:
    folder = lay(tmp_path, NOTES | {"README.md": f"---\n{HEADS[head]}\n---\nAbout the notes\n"})
    documents = {document.id: document.text for document in read_document_file(str(folder))}
    assert [*documents] == ["README.md", *NAMES]
    assert "About the notes" in documents["README.md"]


def test_a_readme_that_is_not_utf8_is_left_out_like_any_other_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lay(tmp_path, NOTES | {"README.md": "---\ntitle: M\xfcnchen\n---\n".encode("latin-1")})
    assert [document.id for document in read_document_file(str(folder))] == NAMES
    assert "README.md: line 2 is not UTF-8" in capsys.readouterr().err


def test_a_readme_that_declares_a_corpus_makes_a_folder_a_collection(tmp_path: Path) -> None:
    head = "configs:\n- config_name: corpus\n  data_files: texts/*.jsonl\n"
    folder = lay(tmp_path, NOTES | {"README.md": f"---\n{head}---\n", "texts/x.jsonl": rows("a")})
    assert [document.id for document in read_document_file(str(folder))] == ["a"]


def test_a_link_to_another_file_of_the_folder_is_not_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lay(tmp_path / "in", NOTES)
    (folder / "latest.txt").symlink_to(folder / "note3.txt")
    (tmp_path / "elsewhere.txt").write_text("from elsewhere")
    (folder / "away.txt").symlink_to(tmp_path / "elsewhere.txt")
    assert [document.id for document in read_document_file(str(folder))] == ["away.txt", *NAMES]
    assert "Not read: 1 link to another of the files" in capsys.readouterr().err


FILES = [
    *("corpus.txt", "docs.csv", "corpus.jsonl", "queries.csv", "queries.jsonl", "README.md", "LICENCE.txt"),
    *(
        "x.docx.gz",
        "corpus.jsonl.gz",
        "docs.tsv",
        "documents.jsonl",
        "train.csv",
        "query.md",
        "picture.png",
        ".hidden.txt",
    ),
    *("notes", "index.json", "corpus-2.jsonl", "text.txt.gz", "page.html"),
]


class Folders(RuleBasedStateMachine):
    """A folder in which files come, go and are read. Every file holds a word of its own, once."""

    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(mkdtemp(prefix="vtkit-names-"))
        self.count = 0
        self.words: dict[str, str] = {}  # the word in each file
        self.made: set[str] = set()  # folders that vtkit made

    def teardown(self) -> None:
        shutil.rmtree(self.root)
        self.root.with_suffix(".log").unlink(missing_ok=True)

    def word(self) -> str:
        self.count += 1
        return f"word{self.count}x"

    @rule(
        target=names,
        below=st.sampled_from(["", "", "sub/", "data/", "index/", "qrels/"]),
        name=st.sampled_from(FILES),
    )
    def put(self, below: str, name: str) -> str:
        path, word = f"{below}{name}", self.word()
        content = f"a text with {word}\n"
        if ".jsonl" in name:
            content = json.dumps({"_id": word, "text": f"the {word}"}) + "\n"
        elif ".csv" in name or ".tsv" in name:
            content = f"id\ttext\n{word}\tthe {word}\n".replace("\t", "," if ".csv" in name else "\t")
        elif name == "README.md":
            content = f"---\ntitle: odd: {word}\n---\n\n# About\n"
        lay(self.root, {path: content})
        self.words[path] = word
        return path

    @rule(name=consumes(names))
    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)
        self.words.pop(name, None)

    @rule(folder=st.sampled_from(["index", "sub/out"]))
    def build_into(self, folder: str) -> None:
        """As `vtkit build --out` leaves it, whether it has ended or not."""
        lay(
            self.root, {f"{folder}/corpus.jsonl": rows("old"), f"{folder}/texts.txt": "old", f"{folder}/runs/r.md": "o"}
        )
        write_record(self.root / folder / "build.json", {}, ())
        self.made.add(folder)

    @invariant()
    def nothing_is_read_twice_or_left_out_unsaid(self) -> None:
        console.once.cache_clear()
        with console.log_to(self.root.with_suffix(".log")):
            try:
                texts = [document.contents for document in read_document_file(str(self.root))]
            except DataError as error:
                refused = str(error)
                assert "holds no text" in refused or any(str(self.root / name) in refused for name in self.words), (
                    refused
                )
                return
        shown = "\n".join(console.warned())
        read = {name: sum(word in text for text in texts) for name, word in self.words.items()}
        assert max(read.values(), default=0) <= 1, read
        assert sum(read.values()) == len(texts), "nothing comes from elsewhere"
        unread = [name for name, number in read.items() if not number]
        inside = [name for name in unread if any(name.startswith(f"{folder}/") for folder in self.made)]
        entries = len(unread) - len(inside) + sum((self.root / folder).is_dir() for folder in self.made)
        if not shown and all(re.match(r"(.*/)?(corpus|docs|quer(y|ies)|qrels)\b", name) for name in unread):
            return  # a whole collection
        counts = [int(number) for number in re.findall(r"(\d+) ", shown.partition("Not read: ")[2].partition("\n")[0])]
        assert sum(counts) + shown.count("left out: ") == entries, (shown, unread)


Folders.TestCase.settings = settings(max_examples=25, stateful_step_count=10, deadline=None)
TestFolders = Folders.TestCase
