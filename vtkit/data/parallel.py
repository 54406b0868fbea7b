"""Parallel text: sentences or dictionary entries in two languages, one pair per line, separated by a tab."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vtkit.data.problems import Problems
from vtkit.data.text import read_lines
from vtkit.system.errors import DataError


def read_pairs(path: str | Path) -> Iterator[tuple[str, str]]:
    """Source and target text of each line, without surrounding white space; blank lines are skipped.

    Raises:
        DataError: lines do not have exactly two columns, or an empty column (the first few such lines are named), or
            the file has no pairs.
    """
    path = Path(path)
    problems = Problems()
    any_pair = any_bad = False
    with problems.reading(path):
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                continue
            columns = [column.strip() for column in line.split("\t")]
            if len(columns) != 2 or not all(columns):
                problems.add(path, f"line {number} {_complaint(columns)}")
                any_bad = True
            elif not any_bad:
                any_pair = True
                yield columns[0], columns[1]
    problems.stop_if_any(_WANTED if any_bad else "")
    if not any_pair:
        raise DataError(f"{path}: holds no pairs. {_WANTED}")


_WANTED = "Parallel text has two columns per line, separated by a tab: source and target language. Remove others."


def _complaint(columns: list[str]) -> str:
    if len(columns) == 1:
        return "has only one column"
    if len(columns) > 2:
        return f"has {len(columns)} columns"
    return f"has an empty {'first' if not columns[0] else 'second'} column"
