"""Documents as people have them: tables of any columns and folders of files, sound ones and hostile ones."""

import csv
import gzip
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtkit.data import documents as stored
from vtkit.data.corpora import read_corpus
from vtkit.data.document_files import read_document_file, read_query_file, write_documents
from vtkit.data.documents import Document
from vtkit.data.rows import Columns, typed
from vtkit.data.text_files import document_id
from vtkit.system.errors import DataError

TABLE = [
    {
        "Doc ID": "a1",
        "Headline": "Han River",
        "Body": 'It "flows",\nthrough Seoul',
        "url": "https://a/1",
        "year": "2019",
    },
    {"Doc ID": "a2", "Headline": "", "Body": "Busan; a port", "url": "", "year": "2021"},
]
READ = [
    Document("a1", "Han River", 'It "flows",\nthrough Seoul', {"url": "https://a/1", "year": 2019}),
    Document("a2", "", "Busan; a port", {"year": 2021}),
]


def write_pdf(path: Path, pages: Sequence[str]) -> Path:
    """A PDF with a text on each page; a picture for a page of ""."""
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"pdf.fonttype": 42}), PdfPages(path, metadata={"Title": "Rivers"}) as pdf:
        for text in pages:
            figure = Figure()
            figure.text(0.1, 0.5, text, size=8) if text else figure.figimage([[0.0, 1.0]])
            pdf.savefig(figure)
    return path


def write_docx(path: Path, paragraphs: Sequence[str], title: str = "") -> Path:
    import docx

    document = docx.Document()
    document.core_properties.title = title
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    document.add_table(1, 2).rows[0].cells[1].text = "in a cell"
    document.save(str(path))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_table_with_any_separator_gives_text_with_line_breaks_and_typed_fields(
    tmp_path: Path, separator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"news{ord(separator)}{'.tsv' if separator == chr(9) else '.csv'}"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(TABLE[0]), delimiter=separator)
        writer.writeheader()
        writer.writerows(TABLE)
    assert list(read_document_file(str(path))) == READ
    said = " ".join(capsys.readouterr().err.split())
    assert f"{path.name}: id is Doc ID, title is Headline, text is Body; fields: url, year" in said
    assert list(read_corpus(path)) == [document.contents for document in READ]


def test_the_same_rows_in_every_format_are_the_same_documents(tmp_path: Path) -> None:
    frame = pandas.DataFrame(TABLE).assign(year=[2019, 2021]).replace("", None)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    frame.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    for name in ("t.parquet", "t.jsonl", "t.csv.gz", "t.tsv"):
        assert list(read_document_file(str(tmp_path / name))) == READ, name


def test_a_dataset_and_a_folder_of_parquet_files_are_tables_too(tmp_path: Path) -> None:
    (tmp_path / "set" / "data").mkdir(parents=True)
    frame = pandas.DataFrame(TABLE).assign(year=[2019, 2021]).replace("", None)
    frame[:1].to_parquet(tmp_path / "set" / "data" / "train-00000-of-00002.parquet")
    frame[1:].to_parquet(tmp_path / "set" / "data" / "train-00001-of-00002.parquet")
    (tmp_path / "set" / "README.md").write_text("# A data set\n")
    assert list(read_document_file(str(tmp_path / "set"))) == READ
    assert list(read_document_file(f"datasets:{tmp_path / 'set'}::train")) == READ
    with pytest.raises(DataError, match="cannot be read with the datasets library"):
        read_document_file(f"datasets:{tmp_path / 'set'}::absent")


def test_columns_that_are_not_obvious_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("nr,inhalt,jahr\n7,eins,1999\n8,zwei,2000\n", "utf-8")
    with pytest.raises(DataError) as refused:
        read_document_file(str(path))
    assert "Its columns are nr, inhalt, jahr: name --id COLUMN and --text COLUMN" in str(refused.value)
    documents = read_document_file(str(path), Columns(id="nr", text="inhalt"))
    assert list(documents) == [Document("7", "", "eins", {"jahr": 1999}), Document("8", "", "zwei", {"jahr": 2000})]
    numbered = read_document_file(str(path), Columns(id="#", text="inhalt"))
    assert [document.id for document in numbered] == ["2", "3"]
    with pytest.raises(DataError, match="absent missing or not a string"):
        read_document_file(str(path), Columns(id="nr", text="absent"))
    (tmp_path / "t.tsv").write_text("nr\tinhalt\tjahr\n7\teins\t1999\n", "utf-8")
    with pytest.raises(DataError, match="its first line has 3 cells"):
        read_document_file(str(tmp_path / "t.tsv"))


def test_an_address_is_the_id_of_rows_without_another_and_stays_a_field(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("url,title,text,published\nhttps://a/1,T,one,true\n", "utf-8")
    (document,) = read_document_file(str(path))
    assert document == Document("https://a/1", "T", "one", {"url": "https://a/1", "published": True})


def test_values_that_are_no_field_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"_id": "1", "text": "one", "tags": ["a", "b"], "vector": [0.1, 0.2], "metadata": {"year": 1}, "x": None}]
    rows[0]["place"] = {"city": "Seoul", "people": 9}
    (tmp_path / "odd.jsonl").write_text(json.dumps(rows[0]), "utf-8")
    (document,) = read_document_file(str(tmp_path / "odd.jsonl"))
    assert document.fields == {"tags": ["a", "b"], "year": 1, "place": {"city": "Seoul", "people": 9}}
    assert "odd.jsonl: vector is not kept" in capsys.readouterr().err
    frame = pandas.DataFrame(
        {"id": [1], "text": ["one"], "day": pandas.to_datetime(["2020-02-03"]), "n": [float("nan")]}
    )
    frame.to_parquet(tmp_path / "t.parquet")
    (document,) = read_document_file(str(tmp_path / "t.parquet"))
    assert (document.id, document.fields) == ("1", {"day": "2020-02-03T00:00:00"})


FIELDS = st.dictionaries(
    st.text("abc", min_size=1, max_size=3),
    st.one_of(st.text(min_size=1), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), st.booleans(),
              st.lists(st.text(min_size=1), min_size=1)),
)  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1)


@given(st.lists(st.tuples(TEXT, TEXT, FIELDS), min_size=1, max_size=5))
def test_written_documents_are_read_back_held_and_mapped(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, str, dict[str, Any]]]
) -> None:
    folder = tmp_path_factory.mktemp("written")
    documents = [Document(f"d{number}", *each) for number, each in enumerate(parts)]
    write_documents(documents, folder / "documents.jsonl")
    assert list(read_document_file(str(folder / "documents.jsonl"))) == documents
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "LARGE", 0)
        mapped = read_document_file(str(folder / "documents.jsonl"))
    assert list(mapped) == documents
    assert mapped[-1] == documents[-1]


@given(st.lists(st.lists(TEXT, min_size=2, max_size=2), min_size=1, max_size=6))
def test_a_table_is_read_as_pandas_reads_it(tmp_path_factory: pytest.TempPathFactory, cells: list[list[str]]) -> None:
    frame = pandas.DataFrame(cells, columns=["text", "note"])
    path = tmp_path_factory.mktemp("table") / "t.csv"
    frame.to_csv(path, index=False)
    wanted = pandas.read_csv(path, dtype=str, keep_default_na=False)
    documents = read_document_file(str(path), Columns(id="#"))
    assert [document.text for document in documents] == [text.strip() for text in wanted["text"]]
    assert [document.fields.get("note", "") for document in documents] == [
        typed(note.strip()) for note in wanted["note"]
    ]


def test_cells_that_look_like_numbers_keep_their_zeros() -> None:
    cells = ("2020", "-3.5", "0", "007", "1e5", "+49", "1,000", "True", "12345678901234567890", "")
    values = [2020, -3.5, 0, "007", "1e5", "+49", "1,000", True, "12345678901234567890", ""]
    assert [typed(cell) for cell in cells] == values


def test_queries_come_in_tables_too(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text('qid,question\n1,"where, exactly?"\n', "utf-8")
    assert [(query.id, query.text) for query in read_query_file(str(tmp_path / "q.csv"))] == [("1", "where, exactly?")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a b.txt").write_text("\ufeffplain text", "utf-8")
    (folder / "deep" / "note.md").write_text("# A *note*\n\nSee [the river](https://river).\n", "utf-8")
    page = "<title>Die Stadt</title><script>var x;</script><p>Erste</p><p>Zw<b>ei</b>te &amp; letzte</p>"
    (folder / "deep" / "page.html").write_text(page, "utf-8")
    (folder / "deep" / "old.htm").write_bytes(b'<meta charset="iso-8859-1"><p>M\xfcnchen</p>')
    write_pdf(folder / "deep" / "er" / "r.pdf", ["the first page", "the second page"])
    write_docx(folder / "w.docx", ["one paragraph", "another"], "A letter")
    return folder


def test_a_folder_of_files_is_read_recursively_by_their_paths(folder: Path) -> None:
    documents = {document.id: document for document in read_document_file(str(folder))}
    words = {name: " ".join(document.text.split()) for name, document in documents.items()}
    assert words == {
        "a%20b.txt": "plain text",
        "deep/er/r.pdf": "the first page the second page",
        "deep/note.md": "A note See the river.",
        "deep/old.htm": "München",
        "deep/page.html": "Erste Zweite & letzte",
        "w.docx": "one paragraph another in a cell",
    }
    titles = {name: document.title for name, document in documents.items() if document.title}
    expected = {
        "deep/er/r.pdf": "Rivers",
        "deep/page.html": "Die Stadt",
        "w.docx": "A letter",
        "deep/note.md": "A note",
    }
    assert titles == expected
    assert sorted(read_corpus(folder)) == sorted(document.contents.strip() for document in documents.values())
    (alone,) = read_document_file(str(folder / "w.docx"))
    assert alone == documents["w.docx"]


def test_broken_files_are_named_left_out_and_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = {
        "none.pdf": b"%PDF-1.4 nothing", "none.docx": b"PK\x03\x04", "latin.txt": b"M\xfcnchen", "empty.txt": b" \n",
        "nul.txt": b"a\0b", "table.csv": b"id,text\n1,one\n", "photo.jpg": b"\xff\xd8", ".hidden.txt": b"x",
    }  # fmt: skip
    for name, content in broken.items():
        (folder / name).write_bytes(content)
    write_pdf(folder / "scan.pdf", [""])
    try:
        assert len(read_document_file(str(folder))) == 6
    finally:
        for name in (*broken, "scan.pdf"):
            (folder / name).unlink()
    said = " ".join(capsys.readouterr().err.split())
    for words in ("none.pdf: is damaged", "none.docx: is damaged", "latin.txt: line 1 is not UTF-8",
                  "empty.txt: has no text", "nul.txt: line 1 holds NUL bytes",
                  "scan.pdf: has no text. A scanned page is a picture", "6 of 12 files were left out",
                  "tables are read alone. Not read: ", "1 .csv", "1 .jpg", "1 hidden file"):  # fmt: skip
        assert words in said, (words, said)


def pdf_of(units: Mapping[int, str]) -> bytes:
    """A PDF whose text is the codes of a font that maps each to UTF-16 units, in hexadecimal."""
    entries = "\n".join(f"<{code:02X}> <{unit}>" for code, unit in units.items())
    spaces = "1 begincodespacerange <00> <FF> endcodespacerange"
    streams = (
        f"BT /F 12 Tf 10 10 Td <{bytes(units).hex()}> Tj ET",
        f"begincmap {spaces} {len(units)} beginbfchar\n{entries}\nendbfchar endcmap",
    )
    page, to_unicode = (f"<</Length {len(stream)}>>stream\n{stream}\nendstream" for stream in streams)
    objects = (
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        page,
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 6 0 R>>",
        to_unicode,
    )
    whole, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(whole))
        whole += f"{number} 0 obj{content}endobj\n".encode()
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    trailer = f"trailer<</Size {len(objects) + 1}/Root 1 0 R>>\nstartxref\n{len(whole)}\n%%EOF".encode()
    return whole + head + table + trailer


def test_halves_of_surrogate_pairs_in_a_pdf_are_joined_or_replaced(tmp_path: Path) -> None:
    units = {65: "0061", 66: "D800", 67: "D835", 68: "DC00", 69: "D835DC00", 70: "0062"}
    (tmp_path / "odd.pdf").write_bytes(pdf_of(units))
    (document,) = read_document_file(str(tmp_path / "odd.pdf"))
    assert document.text == "a\ufffd\U0001d400\U0001d400b"


def test_links_that_circle_and_names_that_are_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one")
    (tmp_path / "in" / "round").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "self.txt").symlink_to(tmp_path / "in" / "self.txt")
    (tmp_path / "in" / "gone.txt").symlink_to(tmp_path / "absent.txt")
    os.mkfifo(tmp_path / "in" / "pipe.txt")
    name = os.fsencode(tmp_path / "in") + b"/caf\xe9.txt"
    try:
        with open(name, "wb") as file:
            file.write(b"two")
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    assert {document.id: document.text for document in read_document_file(str(tmp_path / "in"))} == {
        "a.txt": "one", "caf%E9.txt": "two"
    }  # fmt: skip
    said = " ".join(capsys.readouterr().err.split())
    assert "1 link to a folder" in said
    for file in ("self.txt", "gone.txt", "pipe.txt"):
        assert f"{file}: is no file, or a link to none" in said


@given(
    st.text(min_size=1).filter(lambda name: "\0" not in name), st.text(min_size=1).filter(lambda name: "\0" not in name)
)
def test_different_names_have_different_sound_ids(first: str, second: str) -> None:
    ids = [document_id(name.encode("utf-8", "replace").decode()) for name in (first, second)]
    assert all(not any(map(str.isspace, name)) for name in ids)
    replaced = [name.encode("utf-8", "replace").decode() for name in (first, second)]
    assert (ids[0] == ids[1]) == (replaced[0] == replaced[1])


def bomb(path: Path) -> None:
    """A Word file whose text unpacks to 1.2 GB."""
    packed = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with packed, packed.open("word/document.xml", "w") as part:
        for _ in range(1200):
            part.write(b" " * 1_000_000)


HOSTILE = {
    "line.jsonl": (lambda path: path.write_bytes(b'{"_id": "1", "text": "' + b"x" * 200_000_000), "longer than 64 MiB"),
    "line.csv": (lambda path: path.write_bytes(b"id,text\n1," + b"x" * 200_000_000), "longer than 64 MiB"),
    "line.txt": (lambda path: path.write_bytes(b"x" * 200_000_000), "longer than 64 MiB"),
    "files/line.txt": (lambda path: path.write_bytes(b"x " * 100_000_000), "has more than 16 MiB of text"),
    "bomb.docx": (bomb, "unpacks to 1.2 GB"),
    "nul.csv": (lambda path: path.write_bytes(b"id,text\n1,on\0e\n"), "line 2 holds NUL bytes"),
    "open.csv": (lambda path: path.write_bytes(b'id,text\n1,"never closed\n'), "line 2 cannot be read as a table"),
    "wide.csv": (lambda path: path.write_bytes(b"id,text\n1,two,three\n"), "line 2: has 3 cells, but the header 2"),
    "twice.csv": (lambda path: path.write_bytes(b"id,text,text\n1,two,three\n"), "two columns of its header"),
    "utf16.csv": (lambda path: path.write_bytes("id,text\n1,one\n".encode("utf-16")), "NUL bytes"),
    "scan.pdf": (lambda path: write_pdf(path, [""]), "has no text"),
    "packed.txt.gz": (lambda path: path.write_bytes(gzip.compress(b"x" * 200_000_000)), "64 MiB"),
}  # fmt: skip


MEASURED = """import resource, subprocess, sys
code = subprocess.run([sys.executable, "-m", "vtkit", *sys.argv[1:]]).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""
"""A call of vtkit by a small process: of the tests' own, the memory would count."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_words_within_bounded_memory(tmp_path: Path, name: str) -> None:
    make, words = HOSTILE[name]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    make(path)
    given = path.parent if "/" in name else path
    called = ["build", given, "--embedder", "absent", "--language", "en", "--out", tmp_path / "index"]
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, called)], capture_output=True, text=True, check=True
    )
    (code, mebibytes), shown = run.stdout.split()[-2:], " ".join(run.stderr.split())
    assert code == "1", shown
    assert words in shown, shown
    assert "Traceback" not in shown
    assert int(mebibytes) < 800
    assert not (tmp_path / "index").exists()
