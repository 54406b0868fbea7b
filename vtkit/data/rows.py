"""Rows of tables: jsonl, json, csv, tsv and parquet, each plain or compressed, as objects with named columns; and which
columns hold the id, the title and the text of a document.

Columns have several names on the hub and in people's files; the known ones are listed here, the usual one first.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from vtkit.data import text as texts
from vtkit.system.errors import DataError

ENDINGS = (
    *(f".{form}{packed}" for form in ("jsonl", "json", "tsv", "csv") for packed in ("", ".gz", ".zst")),
    ".parquet",
)
"""Endings of readable files; if several files have the same rows, the first counts."""

DOCUMENT_IDS = ("_id", "id", "docid", "doc_id", "pid", "passage_id", "corpus-id", "corpus_id")
QUERY_IDS = ("_id", "id", "query-id", "query_id", "qid")
LOCATORS = ("url", "uri", "link", "doi")  # ids of documents that have no other, and fields too
TEXTS = ("text", "passage", "contents", "content", "body", "document", "article", "abstract", "description")
QUERY_TEXTS = ("text", "query", "question")
JUDGED_QUERIES = ("query-id", "query_id", "qid")
JUDGED_DOCUMENTS = ("corpus-id", "corpus_id", "docid", "doc_id", "pid", "passage_id")
GRADES = ("score", "relevance", "label")
TITLE = "title"
TITLES = (TITLE, "headline", "heading", "subject")

NUMBERED = "#"  # in place of a column: documents are called by the numbers of their rows

ROWS_AT_ONCE = 1000  # rows that are held as Python objects at a time

_SEPARATORS = ",;\t|"
_HEAD = 2**16  # characters of a table that decide whether its cells are quoted

_KNOWN = (*DOCUMENT_IDS, *QUERY_IDS, *TEXTS, *QUERY_TEXTS, *JUDGED_QUERIES, *JUDGED_DOCUMENTS, *GRADES, *TITLES)
_SOUND_ID = re.compile(r"[!-~]+")  # matches most ids; others are checked character by character

Rows = Iterator[tuple[int, dict[str, Any] | str]]  # line and values by column, or a complaint


@dataclass(frozen=True)
class Columns:
    """The columns of a table that hold the id, the title and the text of a document, as a user names them; None: the
    one with a known name. The id may be :data:`NUMBERED`."""

    id: str | None = None
    title: str | None = None
    text: str | None = None

    def found_in(self, names: Sequence[str], ids: Sequence[str], texts: Sequence[str]) -> "Columns":
        """These columns in a table with columns ``names``; None for those that it lacks. Upper case and marks between
        words do not count: ``Doc ID`` is ``doc_id``."""
        plain = {_plain(name): name for name in reversed(names)}

        def column(asked: str | None, known: Sequence[str]) -> str | None:
            if asked is not None:
                return asked if asked in names or (asked, known) == (NUMBERED, ids) else None
            called = (name if name in names else plain.get(_plain(name)) for name in known)
            return next(filter(None, called), None)

        return Columns(column(self.id, ids), column(self.title, TITLES), column(self.text, texts))


RECOGNISED = Columns()


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def ending_of(path: Path) -> str | None:
    """The ending of ``path`` among :data:`ENDINGS`; None for other files."""
    name = path.name.lower()
    return next((ending for ending in ENDINGS if name.endswith(ending)), None)


def form_of(path: Path) -> str:
    """The ending of a file's format in lower case, without that of its compression."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz").removesuffix(".zst")).suffix


def value_of(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value under the first of ``names`` that a row has; None if it has none."""
    return next((row[name] for name in names if name in row), None)


def check_id(identity: str) -> str | None:
    """The problem of an id, if any; columns of run files are separated by white space."""
    if _SOUND_ID.fullmatch(identity):
        return None
    if not identity:
        return "the id is empty"
    if any(character.isspace() for character in identity):
        return f"the id {identity!r} contains white space, which TREC run files cannot hold: write %20 for a space"
    if any(character < " " or character == "\x7f" for character in identity):
        return f"the id {identity!r} contains control characters"
    return None


def identifier(value: Any) -> str | None:
    """An id as text, which may also be a whole number; None if it is neither."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else None


def read_rows(
    path: Path,
    invalid: texts.Invalid = "strict",
    *,
    columns: Columns = RECOGNISED,
    known_only: bool = False,
) -> Rows:
    """Line (or row of a parquet file, from 1) and values by column; for a damaged line, a description of the problem.

    A csv file has a header. A tsv file has one if that names a known column or one of ``columns``; else its rows have
    an id and a text. With ``known_only``, other columns of parquet files are not read.
    """
    match form_of(path) if ending_of(path) else "":
        case ".parquet":
            yield from read_parquet(path, known_only=known_only)
        case ".csv" | ".tsv" as form:
            yield from _table_rows(path, form, invalid, columns)
        case ".jsonl" | ".json":
            yield from texts.read_jsonl(path, invalid)
        case _:
            raise DataError(f"{path}: has an unknown format. Rows are read from {', '.join(ENDINGS)} files.")


def read_parquet(path: Path, *, known_only: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number (from 1) and values by column of each row; with ``known_only``, of columns that have a known
    name, if there are any."""
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            known = {_plain(name) for name in _KNOWN} if known_only else set()
            columns = [name for name in file.schema_arrow.names if _plain(name) in known] or None
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
                values = [[_value(scalar) for scalar in column] for column in batch.columns]
                for row in zip(*values, strict=True):
                    number += 1
                    yield number, dict(zip(batch.schema.names, row, strict=True))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{path}: cannot be read as parquet after row {number} ({first_line}). The file is damaged or incomplete: "
            "download it again."
        ) from error


def _value(scalar: Any) -> Any:
    """A value of Arrow as Python has it, and as a text in ISO 8601 if it is a date that Python has no year for."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return str(scalar.cast("string")).replace(" ", "T")


def _table_rows(path: Path, form: str, invalid: texts.Invalid, columns: Columns) -> Rows:
    """Rows of a csv file, or of a tsv file, whose cells are quoted if its beginning can be read so. The separator of a
    csv file stands in a line such as ``sep=;``, or it is the one that gives most rows the width of the header."""
    csv.field_size_limit(texts.LONGEST_LINE)
    lines = texts.read_lines(path, invalid, text_only=True)
    head = next(texts.batches(lines, ROWS_AT_ONCE, _HEAD), [])
    if not head:
        return
    stated = re.fullmatch(r'"?sep=(.)"?\1*', head[0])
    separators = stated[1] if stated else _SEPARATORS if form == ".csv" else "\t"
    head, number = (head[1:], 2) if stated else (head, 1)
    separator = max(
        separators, key=lambda each: (_agreement(_quoted_rows(head, each)[0]), "".join(head[:1]).count(each))
    )
    rows, sound = _quoted_rows(head, separator)
    quoted = form == ".csv" or (sound and len({*map(len, rows)}) <= 1)
    first = rows[0] if quoted and rows else "".join(head[:1]).split(separator)
    names = [] if form == ".csv" or is_header(first, columns) else ["_id", "text"]
    if names and head[0].count("\t") > 1:
        raise DataError(
            f"{path}: its first line has {head[0].count(separator) + 1} cells, none of them the name of an id or a "
            "text. Name these columns, or begin the file with a line of names, such as _id, title and text."
        )
    quoted = quoted and not names
    reader = csv.reader(
        (f"{line}\n" for line in chain(head, lines)),
        delimiter=separator, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, strict=True,
    )  # fmt: skip
    before = number
    try:
        for cells in reader:
            if not any(map(str.strip, cells)):
                pass
            elif not names:
                names = [" ".join(name.split()) or f"column {place}" for place, name in enumerate(cells, 1)]
                if len({*names}) < len(names):
                    raise DataError(f"{path}: two columns of its header have the same name. Rename one of them.")
            else:
                if not quoted and len(cells) > len(names):  # tabs are part of the last cell
                    cells[len(names) - 1 :] = ["\t".join(cells[len(names) - 1 :])]
                if len(cells) == len(names):
                    yield number, dict(zip(names, map(str.strip, cells), strict=True))
                elif names == ["_id", "text"]:
                    yield number, "has one column instead of id, tab, text"
                else:
                    yield number, f"has {len(cells)} cells, but the header {len(names)}: a cell may lack its quotes"
            number = reader.line_num + before
    except csv.Error as error:
        raise DataError(
            f"{path}: line {number} cannot be read as a table ({error}). A cell that holds quotes, the separator or a "
            'line break is written between quotes, and quotes in it twice: "a ""b"""'
        ) from error


def is_header(cells: Sequence[str], columns: Columns = RECOGNISED) -> bool:
    """Report whether the first row of a tsv file names an id, or two of three columns, or a column that the user
    names."""
    asked = {columns.id, columns.title, columns.text} - {None, NUMBERED}
    known = RECOGNISED.found_in(cells, (*DOCUMENT_IDS, *QUERY_IDS), (*TEXTS, *QUERY_TEXTS))
    named = len({known.title, known.text} - {None})
    return bool(asked & {*cells}) or known.id is not None or named == 2 or (named == 1 and len(cells) > 2)


def _quoted_rows(head: Sequence[str], separator: str) -> tuple[list[list[str]], bool]:
    """The rows in the first lines of a table, up to a cell with misplaced quotes; report whether there is none."""
    reader = csv.reader((f"{line}\n" for line in head), delimiter=separator, strict=True)
    rows: list[list[str]] = []
    try:
        rows += (cells for cells in reader if any(map(str.strip, cells)))
    except csv.Error:
        return rows, reader.line_num >= len(head)  # the last cell may go on behind the head
    return rows, True


def _agreement(rows: Sequence[Sequence[str]]) -> int:
    """The number of rows that are as wide as the first, the header; 0 if that has one cell."""
    width = len(rows[0]) if rows else 1
    return 0 if width == 1 else sum(len(cells) == width for cells in rows)
