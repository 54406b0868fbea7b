"""Queries without judgements, from a file or standard input."""

import sys
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from vtkit.data.problems import Problems
from vtkit.data.retrieval import Query, read_queries
from vtkit.data.rows import ending_of
from vtkit.data.text import read_lines
from vtkit.system.errors import DataError

QUERY_FORMS = (
    ".jsonl or .parquet with _id and text, .tsv with id and text, or one query per line; each plain, .gz or .zst"
)


def is_blank(query: str) -> bool:
    """Whether ``query`` has only white space, control and format characters."""
    return all(unicodedata.category(letter)[0] in "ZC" for letter in query)


def read_query_file(name: str) -> list[Query]:
    """The queries of a file, or of the lines of standard input (``-``); missing ids are line numbers.

    Raises:
        DataError: the file cannot be read, or has damaged lines, ids that occur twice or contain white space, or
            queries without text; all problems at once.
    """
    path = Path(name)
    problems = Problems()
    if ending_of(path):
        queries = read_queries([path], problems)
    else:
        queries = _lines(standard_input() if name == "-" else read_lines(path))
    problems.stop_if_any()
    return queries


def standard_input() -> Iterator[str]:
    """The lines of standard input, read as UTF-8 in every locale."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode().removeprefix("\ufeff" if number == 1 else "").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"standard input: line {number} is not UTF-8: byte 0x{line[error.start]:02x} at position "
                f"{error.start + 1}. Convert it first (with: iconv -f ENCODING -t UTF-8)."
            ) from error


def _lines(lines: Iterable[str]) -> list[Query]:
    return [Query(str(number), line.strip()) for number, line in enumerate(lines, 1) if not is_blank(line)]
