"""Rows of the files that collections lie in: jsonl, parquet and tsv, each plain or compressed, as objects with names.

The same column has many names on the hub; the names that are known stand here, the usual one first.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vtkit.data import text as texts
from vtkit.system.errors import DataError

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".tsv", ".tsv.gz", ".tsv.zst", ".parquet")
"""Of the files that are read; where the same rows lie in several, the first counts."""

DOCUMENT_IDS = ("_id", "id", "docid", "doc_id", "pid", "passage_id", "corpus-id", "corpus_id")
QUERY_IDS = ("_id", "id", "query-id", "query_id", "qid")
TEXTS = ("text", "passage", "contents", "content")
QUERY_TEXTS = ("text", "query", "question")
JUDGED_QUERIES = ("query-id", "query_id", "qid")
JUDGED_DOCUMENTS = ("corpus-id", "corpus_id", "docid", "doc_id", "pid", "passage_id")
GRADES = ("score", "relevance", "label")
TITLE = "title"

ROWS_AT_ONCE = 1000
"""Rows that are Python objects at the same time."""

_KNOWN = {*DOCUMENT_IDS, *QUERY_IDS, *TEXTS, *QUERY_TEXTS, *JUDGED_QUERIES, *JUDGED_DOCUMENTS, *GRADES, TITLE}


def ending_of(path: Path) -> str | None:
    """The one of :data:`ENDINGS` that ``path`` has; None for files of another kind."""
    name = path.name.lower()
    return next((ending for ending in ENDINGS if name.endswith(ending)), None)


def value_of(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value under the first of ``names`` that a row has; None where it has none of them."""
    return next((row[name] for name in names if name in row), None)


def text_and_title(row: Mapping[str, Any], names: Sequence[str] = TEXTS) -> tuple[Any, Any]:
    """The text of a row, under one of ``names``, and its title ("" without one); a text may be a structure of both."""
    text = value_of(row, names)
    if isinstance(text, dict):
        row, text = text, text.get(TEXTS[0])
    title = row.get(TITLE)
    return text, "" if title is None else title


def read_rows(path: Path, invalid: texts.Invalid = "strict") -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Line (or row of a parquet file, from 1) and values by column; a damaged line comes as the sentence that says so.

    A tsv file without a header has an id and a text. Of a parquet file only columns with known names are read.

    Raises:
        DataError: the file cannot be read to its end, or has an unknown form.
    """
    match ending_of(path):
        case None:
            raise DataError(f"{path}: has an unknown form. Rows lie in {', '.join(ENDINGS)} files.")
        case ".parquet":
            yield from read_parquet(path, _KNOWN)
        case ending if ending.startswith(".tsv"):
            yield from _tsv_rows(path, invalid)
        case _:
            yield from texts.read_jsonl(path, invalid)


def read_parquet(path: Path, among: Container[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number (from 1) and values by column of each row; only of columns whose names are ``among`` these, if any.

    Raises:
        DataError: the file cannot be read to its end.
    """
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
            f"{path}: cannot be read as parquet past row {number} ({first_line}). The file is damaged or was not "
            "copied to its end; fetch it again."
        ) from error


def _tsv_rows(path: Path, invalid: texts.Invalid) -> Iterator[tuple[int, dict[str, Any] | str]]:
    names: list[str] = []
    for number, line in enumerate(texts.read_lines(path, invalid), 1):
        if number == 1 and set(line.split("\t")) <= _KNOWN:
            names = line.split("\t")
        elif line.strip():
            cells = line.split("\t", max(len(names), 2) - 1)
            if len(cells) == 1:
                yield number, "has one column, not id, tab, text"
            else:
                yield number, dict(zip(names or ("_id", "text"), map(str.strip, cells), strict=False))
