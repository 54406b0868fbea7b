"""Judgements and scores by query, too many for dictionaries: a mapping over a few arrays; and files of judgements."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vtkit.data import text as texts
from vtkit.data.problems import Problems, numbers
from vtkit.data.rows import GRADES, JUDGED_DOCUMENTS, JUDGED_QUERIES, check_id, identifier, read_rows, value_of

V = TypeVar("V", int, float)

MOST_GRADE = 100_000  # of a judgement; with 10⁷, trec_eval's counters take 80 MB and a second a query

_AT_ONCE = 2**20
_LINES = 2**40  # more lines than a file has, so that one number can hold a file's position in a list and a line number


@dataclass(frozen=True, eq=False)
class ByQuery(Mapping[str, Mapping[str, V]]):
    """Query id -> document id -> value, like a dictionary of dictionaries."""

    rows: Mapping[str, int]  # query id -> its row
    starts: npt.NDArray[np.int64]  # the beginning of each row, and the end of the last, (rows + 1,)
    columns: npt.NDArray[np.int32]  # for each value, the position of its document in `ids`, (values,)
    entries: npt.NDArray[Any]  # the values, row after row
    ids: Any  # the distinct document ids, a pyarrow array of strings
    places: dict[str, Any] = field(default_factory=dict, repr=False)
    """The documents among which ``ids`` were looked up last, and their numbers there."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __getitem__(self, query: str) -> dict[str, V]:
        columns, entries = self.row(query)
        return dict(zip(self.ids.take(columns).to_pylist(), entries.tolist(), strict=True))

    def row(self, query: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any]]:
        """Positions in :attr:`ids` of a query's documents, and their values."""
        row = self.rows[query]
        part = slice(int(self.starts[row]), int(self.starts[row + 1]))
        return self.columns[part], self.entries[part]


def only(values: Mapping[str, Mapping[str, V]], queries: Collection[str]) -> Mapping[str, Mapping[str, V]]:
    """The ``values`` of some queries."""
    if isinstance(values, ByQuery):
        return replace(values, rows={query: row for query, row in values.rows.items() if query in queries})
    return {query: of_query for query, of_query in values.items() if query in queries}


class Gathering:
    """Collects values of queries and documents, line by line, for a :class:`ByQuery`."""

    def __init__(self, kind: type[int] | type[float]) -> None:
        self._names: tuple[list[str], list[str]] = [], []
        self._parts: tuple[list[Any], list[Any]] = [], []
        self._values, self._lines = array("i" if kind is int else "d"), array("q")

    def append(self, query: str, document: str, value: float, line: int = 0) -> None:
        """Add a value."""
        self._names[0].append(query)
        self._names[1].append(document)
        self._values.append(value)  # type: ignore[arg-type]
        self._lines.append(line)
        if len(self._names[0]) == _AT_ONCE:
            self._pack()

    def finish(self) -> tuple[ByQuery[Any], list[tuple[int, str, str, Any]]]:
        """The mapping, and line, query, document and first value of every contradiction of an earlier line. The first
        value of a pair counts."""
        self._pack()
        (queries, query), (documents, document) = map(_encoded, self._parts)
        values, lines = np.asarray(self._values), np.asarray(self._lines)
        pairs = query.astype(np.int64) * max(len(documents), 1) + document
        _, first, which = np.unique(pairs, return_index=True, return_inverse=True)
        del pairs
        wrong = np.flatnonzero(values[first][which] != values)
        contradictions = [
            (int(lines[n]), str(queries[query[n]]), str(documents[document[n]]), values[first[which[n]]].item())
            for n in wrong
        ]
        del which
        kept = np.sort(first)
        kept = kept[np.argsort(query[kept], kind="stable")]
        starts = np.concatenate([[0], np.cumsum(np.bincount(query[kept], minlength=len(queries)))])
        rows = {name: row for row, name in enumerate(queries.to_pylist())}
        return ByQuery(rows, starts, document[kept], values[kept], documents), contradictions

    def _pack(self) -> None:
        import pyarrow

        for names, parts in zip(self._names, self._parts, strict=True):
            parts.append(pyarrow.array(names, pyarrow.string()))
            names.clear()


def _encoded(parts: list[Any]) -> tuple[Any, npt.NDArray[np.int32]]:
    """The distinct strings in order of appearance, and the position of each string among them."""
    import pyarrow

    whole = pyarrow.chunked_array(parts, pyarrow.string()).dictionary_encode().unify_dictionaries()
    parts.clear()
    if not whole.num_chunks:
        return pyarrow.array([], pyarrow.string()), np.empty(0, np.int32)
    return whole.chunk(0).dictionary, np.concatenate([chunk.indices.to_numpy() for chunk in whole.chunks])


def read_judgements(paths: Iterable[Path], problems: Problems) -> Mapping[str, Mapping[str, int]]:
    """Judgements: rows (:mod:`vtkit.data.rows`) with a query, a document and a grade; in tsv files three columns
    (query, document, grade) or TREC's four (query, iteration, document, grade), with or without a header."""
    paths, gathering = list(paths), Gathering(int)
    for place, path in enumerate(paths):
        rows = _judgement_columns(path) if ".tsv" in path.name else _judgement_rows(path)
        for number, (query, document, value) in problems.sound(path, rows):
            if isinstance(grade := _grade(value), str):
                problems.add(path, f"line {number}: {grade}")
            else:
                gathering.append(query, document, grade, place * _LINES + number)
    judgements, contradictions = gathering.finish()
    for line, query, document, before in contradictions:
        place, number = divmod(line, _LINES)
        problems.add(paths[place], f"line {number}: {query!r} and {document!r} were judged {before} before")
    return judgements


_Judgement = tuple[str, str, str | float]  # query, document and grade


def _judgement_columns(path: Path) -> Iterator[tuple[int, _Judgement | str]]:
    for number, line in enumerate(texts.read_lines(path), 1):
        if not line.strip():
            continue
        columns = line.split("\t") if "\t" in line else line.split()
        if len(columns) not in (3, 4):
            yield number, f"has {len(columns)} columns, not query id, document id and grade"
            continue
        query, document, grade = (column.strip() for column in (columns[0], columns[-2], columns[-1]))
        if number > 1 or grade.lstrip("+-")[:1].isdigit():  # else it is a header
            yield number, (query, document, grade)


def _judgement_rows(path: Path) -> Iterator[tuple[int, _Judgement | str]]:
    for number, row in read_rows(path, known_only=True):
        if isinstance(row, str):
            yield number, row
            continue
        query, document = (identifier(value_of(row, names)) for names in (JUDGED_QUERIES, JUDGED_DOCUMENTS))
        grade = value_of(row, GRADES)
        if query is None or document is None or not isinstance(grade, int | float | str):
            yield number, "needs query-id, corpus-id and score"
        elif complaint := check_id(query) or check_id(document):
            yield number, complaint
        else:
            yield number, (query, document, grade)


def _grade(value: str | float) -> int | str:
    """The grade, or what is wrong with it. −1, which TREC writes for documents that were pooled and not judged, is not
    relevant to any measure; a smaller grade ends the process in trec_eval's code, which also keeps a counter for every
    grade up to the largest."""
    try:
        (number,) = numbers([value])
    except ValueError:
        number = 0.5
    if not number.is_integer() or (isinstance(value, str) and "e" in value.lower()):
        return f"the grade {value!r} is not a whole number"
    return int(number) if -1 <= number <= MOST_GRADE else f"the grade {value!r} is not between -1 and {MOST_GRADE:,}"
