"""Parallel text: sentences or dictionary entries of two languages, one pair a line, a tab between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vtkit.data.text import read_lines
from vtkit.errors import DataError


def read_pairs(path: str | Path) -> Iterator[tuple[str, str]]:
    """Source and target text of each line, without white space around them; blank lines are skipped.

    Raises:
        DataError: a line has not exactly two columns or one of them is empty (the first such line is named),
            or the file holds no pair at all.
    """
    number = 0
    any_pair = False
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) != 2 or not all(columns):
            raise DataError(f"{path}: line {number} {_complaint(columns)}. {_WANTED}")
        any_pair = True
        yield columns[0], columns[1]
    if not any_pair:
        raise DataError(f"{path}: holds no pairs. {_WANTED}")


_WANTED = (
    "Parallel text has two columns a line, source language, tab, target language; further columns must be removed."
)


def _complaint(columns: list[str]) -> str:
    if len(columns) == 1:
        return "has only one column"
    if len(columns) > 2:
        return f"has {len(columns)} columns"
    return f"has an empty {'first' if not columns[0] else 'second'} column"
