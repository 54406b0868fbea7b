"""The fields of documents: typed columns in an Arrow file beside ``documents.jsonl``, mapped into memory, and
conditions on them, which DuckDB parses and computes. A condition is one expression of comparisons and of a few
functions that return numbers, dates and truth values: it cannot contain statements or queries, read files, or build
large texts."""

from __future__ import annotations

import json
import math
import re
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vtkit.data.document_files import DOCUMENTS
from vtkit.data.documents import METADATA
from vtkit.search.index_info import REBUILD, Kind
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
_WHOLE, _DIGITS = 18, 15  # digits of a number that are exact in 64 bits, and in a float
_EXACT = 2**53  # whole numbers above are not exact in a float
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?)?")
_PADDED = re.compile(r"\s*([+-]?0\d[\d.]*|\+[\d.]+|-?\d+\.\d+0)\s*")  # with a needless sign or zero
_TIME = "TIMESTAMP WITH TIME ZONE"  # DuckDB's only type that heeds the zone of a text

_ARROW = {"text": "large_string", "integer": "int64", "number": "float64", "boolean": "bool"}
"""Arrow's names of types."""

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
    where they are written as texts, as in CSV files, but for numbers with a needless 0, as those of phones and
    articles have it."""
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
        case str() if value.lower() in ("true", "false"):
            return "boolean"
        case str() if match := _NUMBER.fullmatch(value):
            kind: Kind = "number" if match[2] else "integer"
            return kind if sum(map(str.isdigit, value)) <= (_DIGITS if match[2] else _WHOLE) else "text"
        case str() if match := _DATE.fullmatch(value):
            with suppress(ValueError, OverflowError):  # it may be no date of the calendar
                moment(value)
                return "datetime" if match[1] else "date"
    return "text"


def common_kind(kinds: Set[Kind], *, exact: bool = True) -> Kind:
    """The type of a column whose values have these types: ``text`` if they are mixed. Whole numbers and others are
    mixed too unless a float holds them all in an ``exact`` way."""
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds == {"integer", "number"} and exact:
        return "number"
    return "datetime" if kinds == {"date", "datetime"} else "text"


def typed_fields(fields: Mapping[str, Any], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The fields of a document in the types of their columns; missing ones are left out."""
    values = {_column(name, kinds): value for name, value in fields.items() if not is_missing(value)}
    return {name: typed(value, kinds.get(name)) for name, value in values.items()}


def typed(value: Any, kind: Kind | None) -> Any:
    """A JSON value in the type of its column, as JSON again, with dates in ISO 8601; None if it is missing. Times with
    a zone become UTC, marked by ``Z``."""
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
            return str(value).lower() == "true"
        case "datetime":
            return moment(value).isoformat() + ("Z" if datetime.fromisoformat(value).tzinfo else "")
    return value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def moment(value: str) -> datetime:
    """The moment that a date states, without a time zone: in UTC where it has one, else as it is."""
    read = datetime.fromisoformat(value)
    return read.astimezone(UTC).replace(tzinfo=None) if read.tzinfo else read


def _schema(kinds: Mapping[str, Kind]) -> pyarrow.Schema:
    """Arrow's types of columns; dates are midnights in UTC, so that they compare with times."""
    import pyarrow

    words, time = pyarrow.large_list(pyarrow.large_string()), pyarrow.timestamp("us", "UTC")
    own = {"words": words, "date": time, "datetime": time}
    return pyarrow.schema(
        [(name, own.get(kind) or pyarrow.type_for_alias(_ARROW[kind])) for name, kind in kinds.items()]
    )


def write_fields(folder: Path) -> Mapping[str, Kind] | None:
    """Write :data:`FIELDS` for the documents of ``folder``, and say the types; None, and no file, if they have no
    fields."""
    kinds = _kinds(folder / DOCUMENTS)
    if not kinds:
        (folder / FIELDS).unlink(missing_ok=True)
        return None
    import pyarrow

    schema, times = _schema(kinds), [name for name, kind in kinds.items() if kind in ("date", "datetime")]
    typed_rows = (typed_fields(row, kinds) for row in _fields(folder / DOCUMENTS))
    rows = (row | {name: moment(row[name]) for name in times if name in row} for row in typed_rows)
    with pyarrow.OSFile(str(folder / FIELDS), "wb") as out, pyarrow.ipc.new_file(out, schema) as writer:
        for batch in iter(lambda: list(islice(rows, _ROWS)), []):
            writer.write_batch(pyarrow.RecordBatch.from_pylist(batch, schema))
    console.say(f"fields: {said(kinds)}")
    return kinds


def said(kinds: Mapping[str, Kind]) -> str:
    """Fields with their types, for a message."""
    return ", ".join(f"{console.one_line(name, 40)} ({kind})" for name, kind in kinds.items())


def unknown_field(name: str, kinds: Mapping[str, Kind]) -> str:
    """A message about a field that there is not, with those that may be meant."""
    close = get_close_matches(name.lower(), {known.lower() for known in kinds}, n=3)
    meant = f" Did you mean {' or '.join(known for known in kinds if known.lower() in close)}?" if close else ""
    return f"there is no field {name!r}.{meant}"


def _column(name: str, kinds: Collection[str]) -> str:
    """The column of a field: the one that is called so, else the only one that is but for the case of letters."""
    alike = [] if name in kinds else [known for known in kinds if known.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else name


def _kinds(documents: Path) -> dict[str, Kind]:
    """The type of each field, the most frequent :data:`MOST_FIELDS` in the order in which they first occur. Names that
    differ by case alone are one field, unless a document has both."""
    seen: dict[str, dict[Kind, Any]] = {}  # name -> type -> a value
    counts: Counter[str] = Counter()
    apart, large = set[str](), set[str]()  # names in lower case
    for row in _fields(documents):
        names = Counter(map(str.lower, row))
        counts.update(names)
        apart.update(name for name, count in names.items() if count > 1)
        for name, value in row.items():
            kind = kind_of(value) or "text"
            seen.setdefault(name, {}).setdefault(kind, value)
            if kind == "integer" and abs(int(value)) >= _EXACT:
                large.add(name.lower())
    columns: dict[str, dict[Kind, Any]] = {}
    for name, values in seen.items():
        column = name if name.lower() in apart else _column(name, columns)
        columns[column] = values | columns.get(column, {})
    if len(columns) > MOST_FIELDS:
        console.warn(
            f"the documents have {len(columns):,} fields. The {MOST_FIELDS} most frequent can be filtered by; the "
            "others are only shown."
        )
    kept = {*sorted(columns, key=lambda name: -counts[name.lower()])[:MOST_FIELDS]}
    kinds: dict[str, Kind] = {}
    for name in filter(kept.__contains__, columns):
        kinds[name] = common_kind(columns[name].keys(), exact=name.lower() not in large)
        if kinds[name] == "text" and len(columns[name]) > 1:
            mixed = ", ".join(
                f"{console.one_line(_as_text(value), 40)} ({kind})" for kind, value in columns[name].items()
            )
            console.warn(
                f"the field {console.one_line(name, 40)} is text, since its values have several types: {mixed}"
            )
    return kinds


def _fields(documents: Path) -> Iterator[dict[str, Any]]:
    """The fields of each document of a file, without missing ones."""
    with documents.open("rb") as file:
        for number, line in enumerate(file):
            try:
                fields = dict(json.loads(line)[METADATA]) if _MARK in line else {}
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise DataError(f"{documents} is damaged after {number:,} documents. Encode again.") from error
            yield {name: value for name, value in fields.items() if not is_missing(value)}


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """The objects of a syntax tree, each before those that it holds."""
    if isinstance(tree, dict):
        yield tree
    for each in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(each)


@dataclass(frozen=True, eq=False)
class Fields:
    """The columns of an index, a row for each document."""

    kinds: Mapping[str, Kind]
    table: pyarrow.Table
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def open(cls, folder: Path, kinds: Mapping[str, Kind], documents: int) -> Fields:
        """The columns, of these types, of the index in ``folder``; they stay readable if the file is replaced or
        removed."""
        import pyarrow

        path = folder / FIELDS
        try:
            table = pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all()
        except (OSError, pyarrow.ArrowException) as error:
            raise DataError(f"{path} is missing or damaged ({type(error).__name__}). {REBUILD}") from error
        if table.schema.names != list(kinds) or table.num_rows < documents:
            raise DataError(f"{path} belongs to other documents. {REBUILD}")
        return cls(kinds, table.cast(_schema(kinds)))

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
                condition = self._database.table("fields").project(duckdb.SQLExpression(self._resolved(where)))
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

    def _resolved(self, where: str) -> str:
        """The condition with the columns of its fields and its times in UTC, by DuckDB's own syntax tree; everything
        but comparisons of fields and values is refused."""
        (text,) = self._database.execute("SELECT json_serialize_sql(?::VARCHAR)", [f"SELECT {where}"]).fetchall()[0]
        tree = json.loads(text)
        if tree["error"]:
            raise self._refused(where, tree["error_message"])
        for node in list(_nodes(tree)):
            self._resolve(where, node)
        (sql,) = self._database.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchall()[0]
        return str(sql).removeprefix("SELECT ")

    def _resolve(self, where: str, node: dict[str, Any]) -> None:
        """Check a node of the tree, before those that it holds, and let it name DuckDB's column and type."""
        why = ""
        match node:
            case {"alias": str(alias)} if alias:
                why = f"{alias} stands behind its end"
            case {"class": "COLUMN_REF", "column_names": names}:
                if (column := _column(".".join(names), self.kinds)) not in self.kinds:
                    why = f"{unknown_field(column, self.kinds)} A text stands in 'single quotes'"
                node["column_names"] = [self._names.get(column)]
            case {"class": "FUNCTION", "function_name": name} if name not in (*FUNCTIONS, *_OPERATORS):
                why = f"there is no function {name}. There are {', '.join(FUNCTIONS)}"
            case {"class": "TYPE", "type_name": name}:
                if node["children"] or name.lower() not in _TYPES:
                    why = f"there is no type {name}. There are {', '.join(sorted(_TYPES))}"
                elif name.lower() == "timestamp":
                    node |= {"type_name": _TIME, "qualified_name": {"path": [_TIME]}}
            case {"class": other} if other not in _CLASSES:
                why = f"it holds a {other.lower()}, not comparisons of fields with values alone"
            case {"type": str(kind)} if kind.startswith("COMPARE_"):
                below = list(_nodes(node))
                kinds = {self.kinds.get(_column(".".join(each.get("column_names", ())), self.kinds)) for each in below}
                texts = [
                    each["text"] for each in below if each.get("kind") == "STRING" and _PADDED.fullmatch(each["text"])
                ]
                if texts and kinds & {"integer", "number"}:
                    why = f"no number is written as '{texts[0]}'. Compare with a number"
        if why:
            raise self._refused(where, why)

    def _refused(self, where: str, why: str) -> ConditionError:
        return ConditionError(
            f'the condition "{console.one_line(where, 100)}" cannot be used: {console.one_line(why, 400)}. '
            f"Fields: {said(self.kinds)}."
        )

    @cached_property
    def _names(self) -> dict[str, str]:
        """DuckDB's name of each column, which it does not tell from others by the case of letters."""
        return dict(zip(self.kinds, self._database.table("fields").columns, strict=True))

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
        database.execute("SET TimeZone = 'UTC'")
        database.execute("SET lock_configuration = true")
        return database
