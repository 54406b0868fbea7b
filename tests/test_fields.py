"""Fields of documents: their types, the columns they are kept in, and conditions, against the definition in Python."""

import json
import operator
import os
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import scipy.sparse as sp
import tiny
from command_line import call, invoke
from hypothesis import given
from hypothesis import strategies as st

import vtkit
from vtkit.data.document_files import DOCUMENTS, read_document_file, write_documents
from vtkit.data.documents import Document
from vtkit.data.retrieval import RetrievalSet
from vtkit.pipeline.search import open_searcher
from vtkit.search import fields
from vtkit.search.exact import ExactIndex
from vtkit.search.fields import ConditionError, Fields, common_kind, kind_of, write_fields
from vtkit.search.index_info import RECORD
from vtkit.search.segments import Manifest, generation_of
from vtkit.system.checksums import files_of, verify, write_record
from vtkit.system.errors import DataError, RecipeError

ROWS: list[dict[str, Any]] = [
    {"year": 2019, "source": "a", "tags": ["x", "y"], "seen": "2020-01-05", "open": True, "price": 1.5, "zip": "01234"},
    {"year": 2020, "source": "b", "tags": ["z"], "seen": "2021-12-31", "open": False, "price": 2, "zip": "99999"},
    {"year": 2021, "source": "O'Hara", "tags": [], "seen": "2020-02-29T10:00:00+02:00", "Order": "x%y"},
    {"source": None, "year": "", "mixed": 3},
    {"year": 2022, "mixed": "three", "tags": ["x", "ü"], "nested": {"a": [1]}},
]


def columns(folder: Path, rows: list[dict[str, Any]]) -> Fields:
    folder.mkdir(exist_ok=True)
    write_documents([Document(f"d{n}", "", "text", row) for n, row in enumerate(rows)], folder / DOCUMENTS)
    record = write_fields(folder)
    assert record is not None
    return Fields.open(folder, record, len(rows))


@pytest.fixture(scope="module")
def of_rows(tmp_path_factory: pytest.TempPathFactory) -> Fields:
    return columns(tmp_path_factory.mktemp("fields"), ROWS)


def passing(of: Fields, where: str) -> list[int]:
    return np.flatnonzero(of.passing(where)).tolist()


def test_types_are_inferred(of_rows: Fields) -> None:
    assert dict(of_rows.kinds) == {
        "year": "integer",
        "source": "text",
        "tags": "words",
        "seen": "datetime",
        "open": "boolean",
        "price": "number",
        "zip": "text",
        "Order": "text",
        "mixed": "text",
        "nested": "text",
    }


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        *[(None, None), ("", None), (float("nan"), None), (True, "boolean"), ("false", "boolean"), (3, "integer")],
        *[("3", "integer"), ("03", "text"), ("-3.50", "number"), (2**63, "text"), ("123456789012345678", "integer")],
        *[("1234567890123456789", "text"), ("1.234567890123456", "text"), ("True", "boolean"), ("FALSE", "boolean")],
        *[("2020-02-30", "text"), ("2020-02-29", "date"), ("2020-02-29 10:00", "datetime"), ([], "words")],
        *[([1, "a"], "words"), ([["a"]], "text"), ({"a": 1}, "text"), ("1e5", "text"), ("٣", "text")],
    ],
)
def test_the_type_of_a_value(value: Any, kind: str | None) -> None:
    assert kind_of(value) == kind


def test_a_column_of_mixed_types_is_text() -> None:
    assert common_kind({"integer", "number"}) == "number"
    assert common_kind({"date", "datetime"}) == "datetime"
    assert common_kind({"integer", "boolean"}) == common_kind({"words", "text"}) == "text"


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("year >= 2020", [1, 2, 4]),
        ("year >= 2020 and source in ('a', 'b')", [1]),
        ("source = 'O''Hara'", [2]),
        ("source is null", [3, 4]),
        ("not (year > 2019)", [0]),
        ("YEAR between 2019 and 2020 or mixed = '3'", [0, 1, 3]),
        ("seen < '2020-02-29 08:30:00'", [0, 2]),  # 10:00 in a zone of two hours is 8:00 UTC
        ("year(seen) = 2021 and not open", [1]),
        ("seen >= date '2021-01-01'", [1]),
        ("list_contains(tags, 'x')", [0, 4]),
        ("'ü' in tags", [4]),
        ("len(tags) = 0", [2]),
        ("list_has_any(tags, ['y', 'z'])", [0, 1]),
        ("\"Order\" like 'x%'", [2]),
        ("zip = '01234' and price * 2 = 3", [0]),
        ("nested = '{\"a\": [1]}'", [4]),
        ("true", [0, 1, 2, 3, 4]),
    ],
)
def test_conditions(of_rows: Fields, where: str, numbers: list[int]) -> None:
    assert passing(of_rows, where) == numbers


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("yaer > 3", "there is no field 'yaer'. Did you mean year?"),
        ('source = "a"', "A text stands in 'single quotes'"),
        ("fields.year > 3", "there is no field 'fields.year'"),
        ("year", "it is a bigint, not true or false"),
        ("source >= 3", "Cannot compare values of type VARCHAR"),
        ("year = 'abc'", "Could not convert string 'abc'"),
        ("", "SELECT clause without selection list"),
        ("year >", "syntax error"),
        ("year > 1; drop table fields", "Only SELECT statements"),
        ("year > 1); drop table fields; --", "syntax error"),
        ("year in (select 2020)", "it holds a subquery"),
        ("year > 1 union select true", ""),
        ("true from read_text('/etc/passwd')", "there is no function read_text"),
        ("exists(from glob('/*'))", "subquery"),
        ("year > 1 order by 1", "modifier"),
        ("true where year > 1", ""),
        ("source = getenv('HOME')", "there is no function getenv"),
        ("repeat(source, 1000000000) = 'x'", "there is no function repeat"),
        ("sleep_ms(1000) > 0", "there is no function sleep_ms"),
        ("current_setting('memory_limit') = 'x'", "there is no function current_setting"),
        ("source || source = 'aa'", "there is no function"),
        ("cast(year as int[1000000]) is null", "there is no type array"),
        ("list_filter(tags, lambda x: x = 'x') = []", "there is no function list_filter"),
        ("year = ?", "parameter"),
        ("sum(year) > 3", "there is no function sum"),
        ("columns(*) is not null", "it holds a star"),
        ("(" * 2000 + "true" + ")" * 2000, "Max expression depth"),
        ("true or " * 5000 + "true", "more than 10,000 characters"),
    ],
)
def test_refused_conditions(of_rows: Fields, where: str, said: str) -> None:
    with pytest.raises(ConditionError) as error:
        of_rows.passing(where)
    assert said in str(error.value)
    assert passing(of_rows, "year = 2019") == [0]  # the columns are as they were


def test_a_condition_that_takes_too_long_is_stopped(of_rows: Fields, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "SECONDS", 0.2)
    monkeypatch.setattr(fields, "FUNCTIONS", (*fields.FUNCTIONS, "sleep_ms"))
    with pytest.raises(ConditionError, match="takes longer than"):
        of_rows.passing("sleep_ms(20000) is null")
    assert passing(of_rows, "year = 2019") == [0]


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=True), st.text(max_size=3),
    st.sampled_from(["true", "3", "0.5", "a", "x'y", "\0", "\U0001f600", "2020-01-05"]),
    st.lists(st.sampled_from(["a", "b"]), max_size=2),
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(["n", "s", "Ü b"]), VALUES), min_size=1, max_size=8))
def test_any_values_are_kept_and_equal_themselves(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    """Each value is found by the comparison with itself, and every document by null or not null."""
    folder = tmp_path_factory.mktemp("any")
    write_documents([Document(f"d{n}", "", "text", row) for n, row in enumerate(rows)], folder / DOCUMENTS)
    record = write_fields(folder)
    if record is None:
        assert all(kind_of(value) is None for row in rows for value in row.values())
        return
    of = Fields.open(folder, record, len(rows))
    for name, kind in record.items():
        missing = [number for number, row in enumerate(rows) if kind_of(row.get(name)) is None]
        assert passing(of, f'"{name}" is null') == missing
        for value in {repr(row.get(name)): row.get(name) for row in rows}.values():
            wanted = fields.typed(value, kind)
            if wanted is not None and kind != "words":
                quoted = "'" + str(wanted).replace("'", "''") + "'"
                if "\0" not in quoted:
                    same = [n for n, row in enumerate(rows) if fields.typed(row.get(name), kind) == wanted]
                    assert passing(of, f'"{name}" = {quoted}') == same


@given(st.data())
def test_a_filtered_search_is_the_filtered_ranking(data: st.DataObject) -> None:
    rows, width = data.draw(st.integers(1, 40)), 5
    draw = np.random.default_rng(data.draw(st.integers(0, 999)))
    documents, queries = draw.integers(0, 4, (rows, width)), draw.integers(0, 3, (3, width))
    kept, depth = draw.random(rows) < data.draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])), data.draw(st.integers(1, 12))
    index = ExactIndex.build(sp.csr_matrix(documents, dtype=np.float32))
    ids, scores = index.search(sp.csr_matrix(queries, dtype=np.float32), depth, kept)
    whole, whole_scores = index.search(sp.csr_matrix(queries, dtype=np.float32), rows)
    for row in range(len(queries)):
        wanted = [(d, s) for d, s in zip(whole[row], whole_scores[row], strict=True) if d >= 0 and kept[d]][:depth]
        assert [(d, s) for d, s in zip(ids[row], scores[row], strict=True) if d >= 0] == wanted


def with_fields(number: int) -> dict[str, Any]:
    return {"year": 2000 + number % 30, "source": "abc"[number % 3], "url": f"https://example.org/{number}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and an index, of documents with fields: in ``metadata`` as BEIR has it, and as columns of their own."""
    made = tmp_path_factory.mktemp("folder")
    found = tiny.collection(60)
    tiny.finished_run(made, found)
    for name in ("beir", "columns"):
        tiny.write_collection(made / name, RetrievalSet(name, found.documents, found.queries, found.qrels))
        lines = []
        for number, document in enumerate(found.documents):
            entry: dict[str, Any] = {"_id": document.id, "title": "", "text": document.text}
            entry |= {"metadata": with_fields(number)} if name == "beir" else with_fields(number)
            lines.append(json.dumps(entry) + "\n")
        (made / name / "corpus.jsonl").write_text("".join(lines), "utf-8")
        vtkit.encode_texts(made / "encoder", made / name, made / f"{name}-vectors")
        vtkit.index_vectors(made / f"{name}-vectors", made / f"{name}-index")
    return made


def test_fields_of_metadata_and_of_columns_are_the_same(folder: Path) -> None:
    both = [read_document_file(str(folder / name)) for name in ("beir", "columns")]
    assert both[0] == both[1]
    assert both[0][7].fields == with_fields(7)
    assert {path.name for path in generation_of(folder / "beir-index").iterdir()} >= {"fields.arrow", "documents.jsonl"}


@pytest.mark.parametrize(
    "where", ["year >= 2020 and source in ('a', 'b')", "year = 2003", "year < 1990", "url like '%7'"]
)
def test_search_gives_the_first_that_pass(folder: Path, where: str) -> None:
    searcher = open_searcher(folder / "columns-index", model=None, collection=None)
    meets: dict[str, Callable[[dict[str, Any]], bool]] = {
        "year >= 2020 and source in ('a', 'b')": lambda row: row["year"] >= 2020 and row["source"] in "ab",
        "year = 2003": lambda row: row["year"] == 2003,
        "year < 1990": lambda row: False,
        "url like '%7'": lambda row: row["url"].endswith("7"),
    }
    queries = [query.text for query in tiny.collection(60).queries[:20]]
    for top, skip in ((10, 0), (3, 0), (3, 3)):
        filtered = searcher.search(queries, top, skip=skip, where=where)
        for some, every in zip(filtered, searcher.search(queries, 60), strict=True):
            wanted = [result for result in every.results if meets[where](dict(result.fields))][skip : skip + top]
            assert [(each.id, each.score, each.fields) for each in some.results] == [
                (each.id, each.score, each.fields) for each in wanted
            ]
            assert [each.rank for each in some.results] == list(range(skip + 1, skip + 1 + len(wanted)))


def test_where_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    index, query = str(folder / "beir-index"), tiny.collection(60).queries[0].text
    found = json.loads(invoke("search", index, query, "--where", "source = 'b'", "--json").stdout)
    assert found["results"]
    assert all(result["fields"]["source"] == "b" for result in found["results"])
    shown = invoke("search", index, query, "--where", "year = 2007 or year = 2008").stdout
    assert "year: 2007" in shown or "year: 2008" in shown
    assert "url: https://example.org/" in shown
    (tmp_path / "queries.tsv").write_text(f"q1\t{query}\nq2\tmaple river\n", "utf-8")
    lines = invoke(
        "search", index, "--batch", str(tmp_path / "queries.tsv"), "--where", "source = 'b'"
    ).stdout.splitlines()
    assert lines
    assert {int(line.split()[2].removeprefix("d")) % 3 for line in lines} == {1}


def test_further_results_and_units_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    index, query = str(folder / "beir-index"), tiny.collection(60).queries[0].text
    (tmp_path / "queries.tsv").write_text(f"q1\t{query}\n", "utf-8")

    def found(*asked: str) -> list[Any]:
        return list(json.loads(invoke("search", index, *asked, "--json").stdout)["results"])

    for asked in ((query,), ("--unit", "maple"), (query, "--where", "source = 'b'")):
        whole = found(*asked, "--top", "5")
        assert len(whole) == 5
        assert found(*asked, "--top", "3", "--offset", "2") == whole[2:]
    in_b = found("--unit", "maple", "--where", "source = 'b'")
    assert in_b
    assert all(result["fields"]["source"] == "b" for result in in_b)
    assert "Did you mean source?" in str(invoke("search", index, "--unit", "maple", "--where", "sorce = 'b'").exception)
    assert "no further document" in invoke("search", index, query, "--offset", "100000").stdout
    batch = ("search", index, "--batch", tmp_path / "queries.tsv")
    ranks = [line.split()[2:4] for line in invoke(*batch, "--top", "4").stdout.splitlines()]
    further = [line.split()[2:4] for line in invoke(*batch, "--top", "2", "--offset", "2").stdout.splitlines()]
    assert further == ranks[2:]
    assert [rank for _, rank in further] == ["3", "4"]
    reasons = json.loads(invoke(*batch, "--why", "--json").stdout)["results"]
    assert all(result["words"] for result in reasons)
    refused = invoke(*batch, "--why").exception
    assert isinstance(refused, RecipeError)
    assert "--json" in str(refused)


def test_a_wrong_condition_is_a_clear_error(folder: Path) -> None:
    wrong = call(folder, ["search", "beir-index", "maple", "--where", "yaer > 2000"], os.environ)
    assert wrong.returncode == 2
    assert "Did you mean year?" in wrong.stderr
    assert "year (integer)" in wrong.stderr
    none = call(folder, ["search", "runs/tiny", "maple", "--where", "year > 2000"], os.environ)
    assert (none.returncode, "no fields" in none.stderr) == (2, True)


def test_damaged_columns_are_named(folder: Path, tmp_path: Path) -> None:
    of = columns(tmp_path / "a", ROWS)
    record = write_fields(tmp_path / "a")
    assert record is not None
    (tmp_path / "a" / fields.FIELDS).unlink()
    assert passing(of, "year = 2019") == [0]  # what was opened stays readable
    with pytest.raises(DataError, match=r"fields\.arrow is missing"):
        Fields.open(tmp_path / "a", record, len(ROWS))
    columns(tmp_path / "a", ROWS)
    of_index = Manifest(None, {}, "exact", "", 9, (), len(ROWS), fields=record)
    write_record(tmp_path / "a" / RECORD, of_index.to_json(), files_of(tmp_path / "a"))
    assert Manifest.load(tmp_path / "a") == of_index
    with (tmp_path / "a" / fields.FIELDS).open("r+b") as file:
        file.seek(200)
        file.write(b"\xff\xff")
    with pytest.raises(DataError, match=r"fields\.arrow is damaged: its checksum does not match"):
        verify(tmp_path / "a" / RECORD)


def test_more_fields_than_columns_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"common": number, f"rare{number}": 1} for number in range(fields.MOST_FIELDS + 5)]
    of = columns(tmp_path, rows)
    assert len(of.kinds) == fields.MOST_FIELDS
    assert "common" in of.kinds
    assert f"{len(rows) + 1} fields" in capsys.readouterr().err


def test_large_collections_keep_their_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vtkit.data import documents

    lines = [json.dumps({"_id": f"d{n}", "text": "a text", "year": n, "metadata": {"tags": ["ü"]}}) for n in range(20)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines), "utf-8")
    held = read_document_file(str(tmp_path / "corpus.jsonl"))
    monkeypatch.setattr(documents, "LARGE", 10)
    mapped = read_document_file(str(tmp_path / "corpus.jsonl"))
    assert isinstance(mapped, documents.StoredDocuments)
    assert list(mapped) == list(held)
    assert mapped[3].fields == {"year": 3, "tags": ["ü"]}


ZONES = ["", "Z", "+00:00", "+09:00", "-03:30", "+0530", *map(ZoneInfo, ("Europe/Berlin", "America/New_York"))]
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, "=": operator.eq, "<>": operator.ne, ">=": operator.ge, ">": operator.gt,
}  # fmt: skip


def drawn_time(draw: random.Random) -> str:
    """A date or a time of a few days, with any zone or none; summer time begins in Berlin within them."""
    moment = datetime(2024, 3, 30) + timedelta(hours=draw.randrange(72), minutes=draw.choice([0, 30]))
    if draw.random() < 0.25:
        return moment.date().isoformat()
    moment += timedelta(microseconds=draw.choice([0, 0, 1, 500_000]))
    zone = draw.choice(ZONES)
    written = moment.isoformat(draw.choice("T ")) if isinstance(zone, str) else ""
    return written + zone if isinstance(zone, str) else moment.replace(tzinfo=zone).isoformat()


def in_utc(written: str) -> datetime:
    """The reference: Python's own reading, in which a date is its midnight and a time without a zone is in UTC."""
    read = datetime.fromisoformat(written)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def test_ten_thousand_comparisons_of_times_are_those_of_python(tmp_path: Path) -> None:
    draw = random.Random(64)
    rows = [{"t": drawn_time(draw), "d": drawn_time(draw)[:10]} for _ in range(50)]
    of = columns(tmp_path, rows)
    assert dict(of.kinds) == {"t": "datetime", "d": "date"}
    for number in range(200):
        name, wanted = draw.choice("td"), sorted((drawn_time(draw), drawn_time(draw)), key=in_utc)
        sign, meets = draw.choice([*OPERATORS.items()])
        values = [in_utc(row[name]) for row in rows]
        low, high = map(in_utc, wanted)
        where, expected = [
            (f"{name} {sign} '{wanted[0]}'", [meets(value, low) for value in values]),
            (f"'{wanted[0]}' {sign} {name}", [meets(low, value) for value in values]),
            (f"{name} {sign} timestamp '{wanted[0]}'", [meets(value, low) for value in values]),
            (f"{name} between '{wanted[0]}' and '{wanted[1]}'", [low <= value <= high for value in values]),
            (f"not {name} in ('{wanted[0]}', '{wanted[1]}')", [value not in (low, high) for value in values]),
            (f"d {sign} t", [meets(in_utc(row["d"]), in_utc(row["t"])) for row in rows]),
        ][number % 6]
        assert of.passing(where).tolist() == expected, where


def test_times_are_shown_with_a_zone_only_if_they_have_one() -> None:
    written = {
        "a": "2024-05-01T10:00:00+09:00",
        "b": "2024-05-01 10:00",
        "c": "2024-05-01",
        "d": "2024-05-01T10:00:00Z",
    }
    assert fields.typed_fields(written, dict.fromkeys(written, "datetime")) == {
        "a": "2024-05-01T01:00:00Z", "b": "2024-05-01T10:00:00", "c": "2024-05-01T00:00:00", "d": "2024-05-01T10:00:00Z"
    }  # fmt: skip


def test_texts_of_a_text_column_stay_as_they_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"version": "1.10", "ok": "True"}, {"version": "1.1", "ok": "no"}, {"version": "2.0rc1", "ok": "true"}]
    of = columns(tmp_path, rows)
    assert dict(of.kinds) == {"version": "text", "ok": "text"}
    assert [passing(of, f"version = '{version}'") for version in ("1.10", "1.1")] == [[0], [1]]
    assert [passing(of, f"ok = '{value}'") for value in ("True", "true")] == [[0], [2]]
    said = " ".join(capsys.readouterr().err.split())
    assert "the field version is text, since its values have several types: 1.10 (number), 2.0rc1 (text)" in said


def test_a_text_that_is_written_otherwise_than_numbers_meets_none(tmp_path: Path) -> None:
    of = columns(tmp_path, [{"code": "1234", "price": "1.1"}, {"code": "77", "price": "2"}])
    assert dict(of.kinds) == {"code": "integer", "price": "number"}
    assert passing(of, "code = '1234' and price = 1.10") == [0]
    for where in ("code = '01234'", "code in ('77', '+1234')", "price = '1.10'", "'00' < code"):
        with pytest.raises(ConditionError, match="no number is written as"):
            of.passing(where)
    with pytest.raises(ConditionError, match="x4D2 stands behind its end"):
        of.passing("code = 0x4D2")  # DuckDB reads code = 0, called x4D2


def test_names_that_differ_by_case_are_one_field_unless_a_document_has_both(tmp_path: Path) -> None:
    rows = [
        {"Status": "a", "status": "b", "Year": 2020, "metadata.year": 1},
        {"status": "a", "year": "2021"},
        {"STATUS": "c"},
    ]
    of = columns(tmp_path, rows)
    assert dict(of.kinds) == {
        "Status": "text", "status": "text", "Year": "integer", "metadata.year": "integer", "STATUS": "text"
    }  # fmt: skip
    assert passing(of, "Status = 'a'") == [0]
    assert passing(of, "status = 'a' or STATUS = 'c'") == [1, 2]
    assert passing(of, "yEAR >= 2020 and year is not null") == [0, 1]
    assert passing(of, "metadata.year = 1") == passing(of, '"metadata.year" = 1') == [0]
    with pytest.raises(ConditionError, match="Did you mean Status or status or STATUS"):
        of.passing("sTATUS = 'a'")
    assert fields.typed_fields(rows[0], of.kinds) == rows[0]
    assert fields.typed_fields(rows[1], of.kinds) == {"status": "a", "Year": 2021}


def test_whole_numbers_that_no_float_tells_apart_stay_apart_beside_a_fraction(tmp_path: Path) -> None:
    large = 2**53
    of = columns(tmp_path / "mixed", [{"n": large}, {"n": large + 1}, {"n": 1.5}])
    assert dict(of.kinds) == {"n": "text"}
    assert [passing(of, f"n = '{number}'") for number in (large, large + 1)] == [[0], [1]]
    of = columns(tmp_path / "whole", [{"n": large}, {"n": str(large + 1)}, {"n": 3}])
    assert dict(of.kinds) == {"n": "integer"}
    assert [passing(of, f"n = {number}") for number in (large, large + 1)] == [[0], [1]]
    of = columns(tmp_path / "exact", [{"n": large - 1}, {"n": 1.5}])
    assert dict(of.kinds) == {"n": "number"}
    assert passing(of, f"n = {large - 1}") == [0]


def test_an_index_with_columns_of_dates_as_they_were_written_before_is_read(tmp_path: Path) -> None:
    import pyarrow

    table = pyarrow.table(
        {"d": pyarrow.array([date(2020, 1, 1)], pyarrow.date32()),
         "t": pyarrow.array([datetime(2020, 1, 1, 10)], pyarrow.timestamp("us"))}
    )  # fmt: skip
    with pyarrow.OSFile(str(tmp_path / fields.FIELDS), "wb") as out, pyarrow.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    of = Fields.open(tmp_path, {"d": "date", "t": "datetime"}, 1)
    assert passing(of, "d < '2020-01-01T10:00' and t = '2020-01-01T19:00+09:00'") == [0]
    assert passing(of, "cast(d as date) + 30 = '2020-01-31' and year(t) = 2020") == [0]


def test_documents_are_deleted_by_the_zone_of_a_condition(folder: Path, tmp_path: Path) -> None:
    lines = [{"_id": str(n), "text": f"maple river {n}", "seen": f"2024-05-01T{n:02}:00:00"} for n in range(20)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    vtkit.encode_texts(folder / "encoder", tmp_path / "t.jsonl", tmp_path / "vectors")
    vtkit.index_vectors(tmp_path / "vectors", tmp_path / "index")
    changed = invoke("delete", str(tmp_path / "index"), "--where", "seen >= '2024-05-01T10:00:00+09:00'")
    assert changed.exit_code == 0
    left = (generation_of(tmp_path / "index") / DOCUMENTS).read_text("utf-8").splitlines()
    assert [json.loads(line)["_id"] for line in left] == ["0"]
