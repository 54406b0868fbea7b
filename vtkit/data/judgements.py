"""Judgements or scores by query, too many for dictionaries: a mapping over a few arrays."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

V = TypeVar("V", int, float)

_AT_ONCE = 2**20


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

    def add(self, query: str, document: str, value: float, line: int = 0) -> None:
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
