"""Documents as people have them: tables of any columns and folders of files, sound ones and hostile ones."""

import csv
import gzip
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import refused, write_pdf

from vtkit.data import documents as stored
from vtkit.data.document_files import read_corpus, read_document_file, read_query_file, write_documents
from vtkit.data.documents import Document
from vtkit.data.rows import Columns
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
    Document("a1", "Han River", 'It "flows",\nthrough Seoul', {"url": "https://a/1", "year": "2019"}),
    Document("a2", "", "Busan; a port", {"year": "2021"}),
]


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
def test_a_table_with_any_separator_gives_text_with_line_breaks_and_fields(
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
    frame = pandas.DataFrame(TABLE).replace("", None)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    frame.to_json(tmp_path / "t.json", orient="records")
    frame.to_json(tmp_path / "u.json.gz", orient="records", indent=2)
    frame.to_json(tmp_path / "v.jsonl", orient="records")
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    frame.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    for name in ("t.parquet", "t.jsonl", "t.json", "u.json.gz", "v.jsonl", "t.csv.gz", "t.tsv"):
        assert list(read_document_file(str(tmp_path / name))) == READ, name
        assert list(read_corpus(tmp_path / name)) == [document.contents for document in READ], name


def test_a_dataset_and_a_folder_of_parquet_files_are_tables_too(tmp_path: Path) -> None:
    (tmp_path / "set" / "data").mkdir(parents=True)
    frame = pandas.DataFrame(TABLE).replace("", None)
    frame[:1].to_parquet(tmp_path / "set" / "data" / "train-00000-of-00002.parquet")
    frame[1:].to_parquet(tmp_path / "set" / "data" / "train-00001-of-00002.parquet")
    (tmp_path / "set" / "README.md").write_text("# A data set\n")
    assert list(read_document_file(str(tmp_path / "set"))) == READ
    assert list(read_document_file(f"datasets:{tmp_path / 'set'}::train")) == READ
    with pytest.raises(DataError, match="cannot be read with the datasets library"):
        read_document_file(f"datasets:{tmp_path / 'set'}::absent")


def test_the_output_of_a_command_is_read_as_lines() -> None:
    for read in (read_document_file, read_corpus):
        reading, writing = os.pipe()
        os.write(writing, b"one\n\ntwo\n")
        os.close(writing)
        assert [getattr(text, "text", text) for text in read(f"/dev/fd/{reading}")] == ["one", "two"]
        os.close(reading)


def test_columns_that_are_not_obvious_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("nr,inhalt,jahr\n7,eins,1999\n8,zwei,2000\n", "utf-8")
    said = refused(DataError, "", read_document_file, str(path))
    assert "Its columns are nr, inhalt, jahr: name --id COLUMN and --text COLUMN" in said
    documents = read_document_file(str(path), Columns(id="nr", text="inhalt"))
    assert list(documents) == [Document("7", "", "eins", {"jahr": "1999"}), Document("8", "", "zwei", {"jahr": "2000"})]
    numbered = read_document_file(str(path), Columns(id="#", text="inhalt"))
    assert [document.id for document in numbered] == ["2", "3"]
    refused(DataError, "absent missing or not a string", read_document_file, str(path), Columns(id="nr", text="absent"))
    (tmp_path / "t.tsv").write_text("nr\tinhalt\tjahr\n7\teins\t1999\n", "utf-8")
    refused(DataError, "its first line has 3 cells", read_document_file, str(tmp_path / "t.tsv"))


def test_an_address_is_the_id_of_rows_without_another_and_stays_a_field(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("url,title,text,published\nhttps://a/1,T,one,true\n", "utf-8")
    (document,) = read_document_file(str(path))
    assert document == Document("https://a/1", "T", "one", {"url": "https://a/1", "published": "true"})


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
    assert [document.fields.get("note", "") for document in documents] == [note.strip() for note in wanted["note"]]


def test_cells_that_look_like_other_values_stay_as_they_are_written(tmp_path: Path) -> None:
    cells = ["2020", "-3.5", "1.10", "007", "1e5", "+49", "True", "12345678901234567890", "2020-01-05"]
    (tmp_path / "t.csv").write_text("".join(["text,note\n", *(f"a,{cell}\n" for cell in cells)]), "utf-8")
    documents = read_document_file(str(tmp_path / "t.csv"), Columns(id="#"))
    assert [document.fields["note"] for document in documents] == cells


@pytest.mark.parametrize("header", ['sep=;\nDoc ID;Text, all\n', '"sep=;";\n"Doc ID";"Text, all"\n',
                                    '"Doc\nID";"Text, all"\n', '"Doc\r\nID";"Text,\r\nall"\r\n',
                                    '"Doc ID (number, short)";"Text, all, of, it"\n'])  # fmt: skip
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_header_may_have_separators_and_line_breaks_in_quotes_and_lines_any_end(
    tmp_path: Path, header: str, end: str
) -> None:
    content = header + 'a1;"one, two, ""three"""\na2;"four\nfive"\n'
    (tmp_path / "t.csv").write_bytes(content.replace("\r\n", "\n").replace("\n", end).encode())
    columns = (
        Columns("Doc ID (number, short)", None, "Text, all, of, it") if "short" in header else Columns(text="Text, all")
    )
    documents = list(read_document_file(str(tmp_path / "t.csv"), columns))
    assert documents == [Document("a1", "", 'one, two, "three"'), Document("a2", "", "four\nfive")]


def test_a_quoted_header_of_a_tsv_file_may_break_its_lines(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text('"Doc\nID"\t"Text"\na1\t"one\ttwo"\n', "utf-8")
    assert list(read_document_file(str(tmp_path / "t.tsv"))) == [Document("a1", "", "one\ttwo")]


def test_the_line_of_a_damaged_row_is_named_behind_a_line_that_names_the_separator(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("sep=;\nid;text\n1;one\n2;two;three\n", "utf-8")
    refused(DataError, "line 4: has 3 cells, but the header 2", read_document_file, str(tmp_path / "t.csv"))


def test_an_array_of_json_is_read_entry_by_entry_and_faults_are_named(tmp_path: Path) -> None:
    rows = [{"_id": f"d{number}", "text": f"text {number} é"} for number in range(5000)]
    for name, content in {"line [1].json": json.dumps(rows), "many.json": json.dumps(rows, indent=1)}.items():
        (tmp_path / name).write_text(f"\ufeff {content}", "utf-8")
        assert [(each.id, each.text) for each in read_document_file(str(tmp_path / name))] == [
            (row["_id"], row["text"]) for row in rows
        ]
    (tmp_path / "odd.json").write_text('[{"_id": "1", "text": "a"}, 3, {"_id": "1", "_id": "2", "text": "b"}]', "utf-8")
    said = refused(DataError, "", read_document_file, str(tmp_path / "odd.json"))
    assert "line 2: is not a JSON object but a number" in said
    assert 'line 3: has "_id" twice' in said
    (tmp_path / "cut.json").write_text(json.dumps(rows)[:-9], "utf-8")
    with pytest.raises(DataError, match=r"cut\.json: cannot be read as an array of JSON \("):
        read_document_file(str(tmp_path / "cut.json"))


@pytest.mark.parametrize("name", ["x.docx.gz", "x.pdf.zst"])
def test_a_packed_document_is_not_called_damaged(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"anything"))
    said = refused(DataError, "", read_document_file, str(tmp_path / name))
    assert f"{name}: is compressed" in said
    assert "Decompress it first" in said
    assert "damaged" not in said


def test_parquet_keeps_decimals_lists_with_nulls_and_years_above_9999(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    decimals = [Decimal("1.10"), Decimal("7"), Decimal("12345678901234567.25"), None]
    days = [18_266, None, 4_000_000, -1_000_000]  # since 1970
    times = pyarrow.array([0, 1_500_000, 400_000_000_000_000_000, None], pyarrow.timestamp("us"))
    table = pyarrow.table(
        {
            "id": list("abcd"), "text": ["x"] * 4, "tags": [["u", None, "v"], [None], [], None], "time": times,
            "price": pyarrow.array(decimals, pyarrow.decimal128(38, 18)), "day": pyarrow.array(days, pyarrow.date32()),
            "of": [{"day": date(2020, 1, 5), "n": None}, None, None, None],
        }
    )  # fmt: skip
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    fields = [dict(document.fields) for document in read_document_file(str(tmp_path / "t.parquet"))]
    assert fields == [
        {"tags": ["u", "v"], "time": "1970-01-01T00:00:00", "price": 1.1, "day": "2020-01-05",
         "of": {"day": "2020-01-05", "n": None}},
        {"tags": [], "time": "1970-01-01T00:00:01.500000", "price": 7},
        {"tags": [], "time": "14645-06-30T15:06:40.000000", "price": "12345678901234567.25", "day": "12921-08-18"},
        {"day": "-0768-02-04"},
    ]  # fmt: skip


def test_a_field_of_metadata_does_not_take_the_place_of_a_column(tmp_path: Path) -> None:
    rows = [
        {"_id": "1", "text": "a", "metadata": {"year": 1999, "a": 1}, "year": 2020},
        {"_id": "2", "text": "b", "year": 2021},
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    documents = read_document_file(str(tmp_path / "t.jsonl"))
    assert [document.fields for document in documents] == [
        {"year": 2020, "metadata.year": 1999, "a": 1},
        {"year": 2021},
    ]
    write_documents(documents, tmp_path / "documents.jsonl")
    assert list(read_document_file(str(tmp_path / "documents.jsonl"))) == list(documents)


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


MEASURED = """
import json, os, resource, sys
import vtkit.pipeline.build
from vtkit.__main__ import main

for call in iter(sys.stdin.readline, ""):
    said, sys.argv[1:] = json.loads(call)
    if not (process := os.fork()):
        sys.stdin, sys.stderr = open(os.devnull), open(said, "w", encoding="utf-8")
        try:
            main()
        except SystemExit as left:
            sys.stderr.flush()
            os._exit(left.code)
    _, status, used = os.wait4(process, 0)
    print(os.waitstatus_to_exitcode(status), used.ru_maxrss // 1024, flush=True)
"""
"""Calls of vtkit by a process that has imported what they need, and nothing else: of the tests' own, the memory would
count."""


@pytest.fixture(scope="module")
def measured() -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-c", MEASURED]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_words_within_bounded_memory(
    name: str, measured: subprocess.Popen[str], tmp_path: Path
) -> None:
    make, words = HOSTILE[name]
    path, said = tmp_path / name, tmp_path / "said"
    path.parent.mkdir(exist_ok=True)
    make(path)
    given = path.parent if "/" in name else path
    called = ["build", given, "--embedder", "absent", "--language", "en", "--out", tmp_path / "index"]
    assert measured.stdin is not None
    assert measured.stdout is not None
    print(json.dumps([str(said), [*map(str, called)]]), file=measured.stdin, flush=True)
    code, mebibytes = measured.stdout.readline().split()
    shown = " ".join(said.read_text("utf-8").split())
    assert code == "1", shown
    assert words in shown, shown
    assert "Traceback" not in shown
    assert int(mebibytes) < 800
    assert not (tmp_path / "index").exists()
