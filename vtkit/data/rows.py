"""Rows of a collection's files: jsonl, parquet and tsv, each plain or compressed, as objects with named columns.

Columns have several names on the hub; the known ones are listed here, the usual one first.
"""

import shlex
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

_FROM_CSV = """import csv, json, sys
for row in csv.DictReader(open(sys.argv[1], encoding="utf-8-sig")): print(json.dumps(row))"""
_FROM_FOLDER = """import json, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.txt")):
    print(json.dumps({"_id": "_".join(str(path).split()), "text": path.read_text("utf-8")}))"""

_KNOWN = {*DOCUMENT_IDS, *QUERY_IDS, *TEXTS, *QUERY_TEXTS, *JUDGED_QUERIES, *JUDGED_DOCUMENTS, *GRADES, TITLE}


def ending_of(path: Path) -> str | None:
    """The ending of ``path`` among :data:`ENDINGS`; None for other files."""
    name = path.name.lower()
    return next((ending for ending in ENDINGS if name.endswith(ending)), None)


def form_of(path: Path) -> str:
    """The ending of a file's format in lower case, without that of its compression."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz").removesuffix(".zst")).suffix


def conversion(path: Path) -> str:
    """Advice that ends in a shell command, for a .csv file or a folder of .txt files; "" for anything else."""
    if path.is_file() and form_of(path) == ".csv":
        advice, program = "Name its columns _id, text and perhaps title, and convert it", _FROM_CSV
    elif path.is_dir() and any(path.rglob("*.txt")):
        advice, program = "Write its .txt files into one file, and name that", _FROM_FOLDER
    else:
        return ""
    command = f"python3 -c {shlex.quote(program)} {shlex.quote(str(path))}"
    return f" {advice}:\n{command} > {shlex.quote(path.resolve().name.partition('.')[0])}.jsonl"


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
