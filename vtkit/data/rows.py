"""Rows of a collection's files: jsonl, parquet and tsv, each plain or compressed, as objects with named columns.

Columns have several names on the hub; the known ones are listed here, the usual one first.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vtkit.data import text as texts
from vtkit.system.errors import DataError

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".tsv", ".tsv.gz", ".tsv.zst", ".parquet")
"""Endings of readable files; if several files have the same rows, the first counts."""

DOCUMENT_IDS = ("_id", "id", "docid", "doc_id", "pid", "passage_id", "corpus-id", "corpus_id")
QUERY_IDS = ("_id", "id", "query-id", "query_id", "qid")
TEXTS = ("text", "passage", "contents", "content")
QUERY_TEXTS = ("text", "query", "question")
JUDGED_QUERIES = ("query-id", "query_id", "qid")
JUDGED_DOCUMENTS = ("corpus-id", "corpus_id", "docid", "doc_id", "pid", "passage_id")
GRADES = ("score", "relevance", "label")
TITLE = "title"

ROWS_AT_ONCE = 1000  # rows that are held as Python objects at a time

_KNOWN = {*DOCUMENT_IDS, *QUERY_IDS, *TEXTS, *QUERY_TEXTS, *JUDGED_QUERIES, *JUDGED_DOCUMENTS, *GRADES, TITLE}


def ending_of(path: Path) -> str | None:
    """The ending of ``path`` among :data:`ENDINGS`; None for other files."""
    name = path.name.lower()
    return next((ending for ending in ENDINGS if name.endswith(ending)), None)


def value_of(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value under the first of ``names`` that a row has; None if it has none."""
    return next((row[name] for name in names if name in row), None)


def text_and_title(row: Mapping[str, Any], names: Sequence[str] = TEXTS) -> tuple[Any, Any]:
    """The text of a row, under one of ``names``, and its title ("" if missing); a text may be a structure of both."""
    text = value_of(row, names)
    if isinstance(text, dict):
        row, text = text, text.get(TEXTS[0])
    title = row.get(TITLE)
    return text, "" if title is None else title


def read_rows(path: Path, invalid: texts.Invalid = "strict") -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Line (or row of a parquet file, from 1) and values by column; for a damaged line, a description of the problem.

    A tsv file without a header has an id and a text. In parquet files, only columns with known names are read.
    """
    match ending_of(path):
        case None:
            raise DataError(f"{path}: has an unknown format. Rows are read from {', '.join(ENDINGS)} files.")
        case ".parquet":
            yield from read_parquet(path, _KNOWN)
        case ending if ending.startswith(".tsv"):
            yield from _tsv_rows(path, invalid)
        case _:
            yield from texts.read_jsonl(path, invalid)


def read_parquet(path: Path, among: Container[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number (from 1) and values by column of each row; only columns ``among`` these names, if given."""
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            columns = None if among is None else [name for name in file.schema_arrow.names if name in among]
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{path}: cannot be read as parquet after row {number} ({first_line}). The file is damaged or incomplete: "
            "download it again."
        ) from error


def _tsv_rows(path: Path, invalid: texts.Invalid) -> Iterator[tuple[int, dict[str, Any] | str]]:
    names: list[str] = []
    for number, line in enumerate(texts.read_lines(path, invalid), 1):
        if number == 1 and set(line.split("\t")) <= _KNOWN:
            names = line.split("\t")
        elif line.strip():
            cells = line.split("\t", max(len(names), 2) - 1)
            if len(cells) == 1:
                yield number, "has one column instead of id, tab, text"
            else:
                yield number, dict(zip(names or ("_id", "text"), map(str.strip, cells), strict=False))
