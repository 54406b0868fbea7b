"""The fields of documents: typed columns in an Arrow file beside ``documents.jsonl``, mapped into memory, and
conditions on them, which DuckDB parses and computes. A condition is one expression of comparisons and of a few
functions that return numbers, dates and truth values: it cannot contain statements or queries, read files, or build
large texts."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vtkit.data.document_files import DOCUMENTS
from vtkit.data.documents import METADATA
from vtkit.search.index_info import REBUILD, FieldsRecord, Kind
from vtkit.system import console
from vtkit.system.errors import DataError, RecipeError
from vtkit.system.runtime import threads

if TYPE_CHECKING:
    import duckdb
    import pyarrow

FIELDS = "fields.arrow"  # file of the columns, in the folder of an index

MOST_FIELDS = 500  # columns; rarer fields are kept with the documents, but not as columns
MOST_CHARACTERS = 10_000  # of a condition
SECONDS = 10.0  # for which a condition may be computed

_MARK = f'"{METADATA}"'.encode()  # in the lines of documents with fields
_ROWS = 10_000  # of an Arrow batch
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
_DIGITS = 15  # more are not exact in a float
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?)?")

_CLASSES = {"BETWEEN", "CAST", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "OPERATOR", "TYPE"}
_OPERATORS = ("~~", "!~~", "~~*", "!~~*", "&&", "@>", "<@", "+", "-", "*", "/", "//", "%", "list_value")
FUNCTIONS = (
    *("contains", "starts_with", "prefix", "ends_with", "suffix", "regexp_matches", "regexp_full_match", "length"),
    *("list_contains", "list_has", "list_has_any", "list_has_all", "len", "array_length"),
    *("year", "month", "day", "hour", "minute", "date_part", "date_trunc", "abs", "round", "floor", "ceil"),
)
"""Functions in conditions, by DuckDB's names. Others could take all memory (``repeat``) or time (``sleep_ms``)."""
_TYPES = {"boolean", "integer", "bigint", "double", "date", "timestamp", "varchar"}


class ConditionError(RecipeError):
    """A condition that cannot be computed."""


def is_missing(value: Any) -> bool:
    """Report whether a JSON value is null, an empty text or NaN."""
    return value in (None, "") or (isinstance(value, float) and not math.isfinite(value))


def kind_of(value: Any) -> Kind | None:
    """The type of a JSON value; None if it is missing. Numbers, dates (ISO 8601) and truth values count as such also
    where they are written as texts, as in CSV files."""
    if is_missing(value):
        return None
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer" if abs(value) < 2**63 else "text"
        case float():
            return "number"
        case list():
            return "text" if any(isinstance(entry, dict | list) for entry in value) else "words"
        case "true" | "false":
            return "boolean"
        case str() if (match := _NUMBER.fullmatch(value)) and sum(map(str.isdigit, value)) <= _DIGITS:
            return "number" if match[2] else "integer"
        case str() if match := _DATE.fullmatch(value):
            with suppress(ValueError, OverflowError):  # it may be no date of the calendar
                moment(value)
                return "datetime" if match[1] else "date"
    return "text"


def common_kind(kinds: set[Kind]) -> Kind:
    """The type of a column whose values have these types: ``text`` if they are mixed."""
    if len(kinds) == 1:
        return next(iter(kinds))
    return "number" if kinds == {"integer", "number"} else "datetime" if kinds == {"date", "datetime"} else "text"


def typed_fields(fields: Mapping[str, Any], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The fields of a document in the types of their columns; missing ones are left out."""
    values = {_column(name, kinds): value for name, value in fields.items() if not is_missing(value)}
    return {name: typed(value, kinds.get(name)) for name, value in values.items()}


def typed(value: Any, kind: Kind | None) -> Any:
    """A JSON value in the type of its column, as JSON again, with dates in ISO 8601; None if it is missing."""
    if is_missing(value):
        return None
    match kind:
        case "text":
            return _as_text(value)
        case "words":
            return [_as_text(entry) for entry in value if entry is not None]
        case "integer":
            return int(value)
        case "number":
            return float(value)
        case "boolean":
            return value in (True, "true")
        case "datetime":
            return f"{moment(value).isoformat()}Z"
    return value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def moment(value: str) -> datetime:
    """The moment that a date states, without a time zone: in UTC where it has one, else as it is."""
    read = datetime.fromisoformat(value)
    return read.astimezone(UTC).replace(tzinfo=None) if read.tzinfo else read


def _in_arrow(value: Any, kind: Kind) -> Any:
    """A JSON value as Arrow's columns take it."""
    if kind in ("date", "datetime") and not is_missing(value):
        return date.fromisoformat(value) if kind == "date" else moment(value)
    return typed(value, kind)


def arrow_type(kind: Kind) -> pyarrow.DataType:
    """Arrow's type of a column."""
    import pyarrow

    return {
        "text": pyarrow.large_string(),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "date": pyarrow.date32(),
        "datetime": pyarrow.timestamp("us"),
        "boolean": pyarrow.bool_(),
        "words": pyarrow.large_list(pyarrow.large_string()),
    }[kind]


def write_fields(folder: Path) -> FieldsRecord | None:
    """Write :data:`FIELDS` for the documents of ``folder``, and say the types; None, and no file, if they have no
    fields."""
    kinds = _kinds(folder / DOCUMENTS)
    if not kinds:
        (folder / FIELDS).unlink(missing_ok=True)
        return None
    import pyarrow

    schema = pyarrow.schema([(name, arrow_type(kind)) for name, kind in kinds.items()])
    rows = ({_column(name, kinds): value for name, value in row.items()} for row in _fields(folder / DOCUMENTS))
    with pyarrow.OSFile(str(folder / FIELDS), "wb") as out, pyarrow.ipc.new_file(out, schema) as writer:
        for batch in iter(lambda: list(islice(rows, _ROWS)), []):
            columns = ([_in_arrow(row.get(name), kind) for row in batch] for name, kind in kinds.items())
            arrays = [pyarrow.array(*column) for column in zip(columns, schema.types, strict=True)]
            writer.write_batch(pyarrow.record_batch(arrays, schema))
    console.say(f"fields: {said(kinds)}")
    return FieldsRecord(kinds)


def said(kinds: Mapping[str, Kind]) -> str:
    """Fields with their types, for a message."""
    return ", ".join(f"{console.one_line(name, 40)} ({kind})" for name, kind in kinds.items())


def unknown_field(name: str, kinds: Mapping[str, Kind]) -> str:
    """A message about a field that there is not, with those that may be meant."""
    close = get_close_matches(name.lower(), [known.lower() for known in kinds], n=3)
    meant = f" Did you mean {' or '.join(_column(each, kinds) for each in close)}?" if close else ""
    return f"there is no field {name!r}.{meant}"


def _column(name: str, kinds: Mapping[str, Kind]) -> str:
    """The column of a field: conditions do not tell letters by their case."""
    return name if name in kinds else next((known for known in kinds if known.lower() == name.lower()), name)


def _kinds(documents: Path) -> dict[str, Kind]:
    """The type of each field, the most frequent :data:`MOST_FIELDS` in the order in which they first occur."""
    seen: dict[str, set[Kind]] = {}
    counts: dict[str, int] = {}
    names: dict[str, str] = {}
    with documents.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
        if text.find(_MARK) < 0:
            return {}
    for row in _fields(documents):
        for name, value in row.items():
            if (kind := kind_of(value)) is not None:
                column = names.setdefault(name.lower(), name)
                seen.setdefault(column, set()).add(kind)
                counts[column] = counts.get(column, 0) + 1
    kept = set(sorted(counts, key=lambda name: -counts[name])[:MOST_FIELDS])
    if len(kept) < len(counts):
        console.warn(
            f"the documents have {len(counts):,} fields. The {MOST_FIELDS} most frequent can be filtered by; the "
            "others are only shown."
        )
    return {name: common_kind(kinds) for name, kinds in seen.items() if name in kept}


def _fields(documents: Path) -> Iterator[dict[str, Any]]:
    """The fields of each document of a file."""
    with documents.open("rb") as file:
        for number, line in enumerate(file):
            try:
                yield dict(json.loads(line)[METADATA]) if _MARK in line else {}
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise DataError(f"{documents} is damaged after {number:,} documents. Encode again.") from error


@dataclass(frozen=True, eq=False)
class Fields:
    """The columns of an index, a row for each document."""

    kinds: Mapping[str, Kind]
    table: pyarrow.Table
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def open(cls, folder: Path, record: FieldsRecord, documents: int) -> Fields:
        """The columns of the index in ``folder``; they stay readable if the file is replaced or removed."""
        import pyarrow

        path = folder / FIELDS
        try:
            table = pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all()
        except (OSError, pyarrow.ArrowException) as error:
            raise DataError(f"{path} is missing or damaged ({type(error).__name__}). {REBUILD}") from error
        if table.schema.names != list(record.kinds) or table.num_rows < documents:
            raise DataError(f"{path} belongs to other documents. {REBUILD}")
        return cls(record.kinds, table)

    def passing(self, where: str) -> NDArray[np.bool_]:
        """The documents that meet the condition ``where``, (documents,) bool; a missing value meets no comparison.

        Raises:
            ConditionError: it is no condition, names a field or function that there is not, compares other types, or
                takes too long.
        """
        import duckdb

        if len(where) > MOST_CHARACTERS:
            raise ConditionError(f"the condition has more than {MOST_CHARACTERS:,} characters")
        with self.lock:
            watch = threading.Timer(SECONDS, self._database.interrupt)
            watch.start()
            try:
                self._check(where)
                condition = self._database.table("fields").project(duckdb.SQLExpression(where))
                if str(condition.types[0]) != "BOOLEAN":
                    raise self._refused(where, f"it is a {str(condition.types[0]).lower()}, not true or false")
                (values,) = condition.fetchnumpy().values()
                return np.asarray(np.ma.filled(values, False), dtype=np.bool_)
            except duckdb.InterruptException as error:
                raise self._refused(where, f"it takes longer than {SECONDS:g} seconds") from error
            except (duckdb.Error, RecursionError) as error:
                complaint = re.sub(r"^[A-Z][\w ]* Error: ", "", str(error)).partition("\n\n")[0]
                raise self._refused(where, " ".join(complaint.split())) from error
            finally:
                watch.cancel()

    def _check(self, where: str) -> None:
        """Refuse everything but comparisons of fields and values, by DuckDB's own syntax tree."""
        (text,) = self._database.execute("SELECT json_serialize_sql(?::VARCHAR)", [f"SELECT {where}"]).fetchall()[0]
        tree = json.loads(text)
        if tree["error"]:
            raise self._refused(where, tree["error_message"])
        nodes = [tree]
        while nodes:
            node = nodes.pop()
            if isinstance(node, dict):
                self._check_node(where, node)
                nodes += node.values()
            elif isinstance(node, list):
                nodes += node

    def _check_node(self, where: str, node: Mapping[str, Any]) -> None:
        match node.get("class"):
            case "COLUMN_REF" if _column(name := ".".join(node["column_names"]), self.kinds) not in self.kinds:
                why = f"{unknown_field(name, self.kinds)} A text stands in 'single quotes'"
            case "FUNCTION" if node["function_name"] not in (*FUNCTIONS, *_OPERATORS):
                why = f"there is no function {node['function_name']}. There are {', '.join(FUNCTIONS)}"
            case "TYPE" if node["children"] or node["type_name"].lower() not in _TYPES:
                why = f"there is no type {node['type_name']}. There are {', '.join(sorted(_TYPES))}"
            case other if other not in {None, *_CLASSES}:
                why = f"it holds a {str(other).lower()}, not comparisons of fields with values alone"
            case _:
                return
        raise self._refused(where, why)

    def _refused(self, where: str, why: str) -> ConditionError:
        return ConditionError(
            f'the condition "{console.one_line(where, 100)}" cannot be used: {console.one_line(why, 400)}. '
            f"Fields: {said(self.kinds)}."
        )

    @cached_property
    def _database(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        settings: dict[str, str | bool | int | float | list[str]] = {
            **dict.fromkeys(("enable_external_access", "python_enable_replacements", "autoload_known_extensions",
                             "autoinstall_known_extensions", "allow_community_extensions"), "false"),
            "max_expression_depth": "100", "memory_limit": "1GB", "threads": str(threads()),
        }  # fmt: skip
        database = duckdb.connect(":memory:", config=settings)
        database.register("fields", self.table)
        database.execute("SET lock_configuration = true")
        return database
