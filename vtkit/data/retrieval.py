"""Judged collections: documents, queries and relevance judgements, read from files of rows.

All problems of a collection are reported together.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import date
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vtkit.data import text as texts
from vtkit.data.documents import METADATA, Place, StoredDocuments, gathered, without_repeated
from vtkit.data.documents import Document as Document
from vtkit.data.documents import Query as Query
from vtkit.data.judgements import ByQuery, Gathering, only
from vtkit.data.problems import Problems, numbers
from vtkit.data.rows import (
    DOCUMENT_IDS,
    GRADES,
    JUDGED_DOCUMENTS,
    JUDGED_QUERIES,
    LOCATORS,
    NUMBERED,
    QUERY_IDS,
    QUERY_TEXTS,
    RECOGNISED,
    TEXTS,
    TITLE,
    Columns,
    form_of,
    read_rows,
    value_of,
)
from vtkit.data.sequences import Lazy
from vtkit.system import console

Rows = Iterator[tuple[int, dict[str, Any] | str]]  # line and values by column, or a complaint
V = TypeVar("V", int, float)

LONGEST_QUERY = 100_000  # characters
MOST_GRADE = 100_000  # of a judgement; with 10⁷, trec_eval's counters take 80 MB and a second a query

_SOUND_ID = re.compile(r"[!-~]+")  # matches most ids; others are checked character by character
_LINES = 2**40  # more lines than a file has, so that one number can hold a file's position in a list and a line number


@dataclass(frozen=True)
class RetrievalSet:
    """A collection with one split of its judgements; ``queries`` are exactly the judged ones."""

    name: str
    documents: Sequence[Document]  # a list, or mapped from files if there are many (vtkit.data.documents)
    queries: list[Query]
    qrels: Mapping[str, Mapping[str, int]]  # query id -> document id -> grade; grades of 0 and below mean not relevant
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Query id -> document id -> a teacher's score, if the training data have scores."""

    not_comparable: tuple[str, ...] = ()
    """Why figures of this collection cannot be compared with published ones: missing documents, queries or judgements,
    such as "sampled: 1,000 of 2,831 queries"."""

    own_documents: bool = False
    """Whether a document with a query's id is the query itself (ArguAna, Quora). It is neither a result nor a negative
    of the query. In other collections ids of both meet by chance."""

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {document.id: number for number, document in enumerate(self.documents)}

    def numbers_of(self, names: Sequence[str]) -> npt.NDArray[np.int32]:
        """The position in :attr:`documents` of each document id, -1 if there is none."""
        if isinstance(self.documents, StoredDocuments):
            return self.documents.numbers_of(names)
        return np.array([self._numbers.get(name, -1) for name in names], dtype=np.int32)

    @cached_property
    def contents(self) -> Sequence[str]:
        """The text of each document, built on access."""
        return Lazy(len(self.documents), lambda number: self.documents[number].contents)

    def by_number(self, values: Mapping[str, Mapping[str, V]], query: str) -> dict[int, V]:
        """Document number -> value of a query in ``values``, :attr:`qrels` or :attr:`scores`; -1 for documents that are
        not in the collection."""
        if not isinstance(values, ByQuery) or query not in values:
            by_name = values.get(query, {})
            return dict(zip(self.numbers_of(list(by_name)).tolist(), by_name.values(), strict=True))
        if values.places.get("documents") is not self.documents:
            values.places.update(documents=self.documents, numbers=self.numbers_of(values.ids.to_pylist()))
        columns, entries = values.row(query)
        return dict(zip(values.places["numbers"][columns].tolist(), entries.tolist(), strict=True))

    @cached_property
    def own_numbers(self) -> npt.NDArray[np.int32]:
        """The number of each query's own document, -1 if it has none, (queries,)."""
        if not self.own_documents:
            return np.full(len(self.queries), -1, dtype=np.int32)
        return self.numbers_of([query.id for query in self.queries])

    def under(self, queries: Sequence[Query]) -> RetrievalSet:
        """The same documents with some of the queries."""
        ids = {query.id for query in queries}
        return replace(self, queries=list(queries), qrels=only(self.qrels, ids), scores=only(self.scores, ids))

    def sample(self, max_queries: int | None, seed: int) -> RetrievalSet:
        """The same documents with ``max_queries`` of the queries, sampled without replacement, in their order."""
        if max_queries is None or max_queries >= len(self.queries):
            return self
        drawn = sorted(random.Random(seed).sample(range(len(self.queries)), max_queries))
        chosen = self.under([self.queries[number] for number in drawn])
        sampled = f"sampled: {max_queries:,} of {len(self.queries):,} queries"
        return replace(chosen, not_comparable=(*self.not_comparable, sampled))


def read_documents(
    paths: Sequence[Path], problems: Problems, columns: Columns = RECOGNISED, rows_of: Callable[..., Rows] = read_rows
) -> Sequence[Document]:
    """The documents in files of rows (:mod:`vtkit.data.rows`) with an id, a text, perhaps a title, and fields: all
    further columns.

    Args:
        columns: those that the user names; the others are recognised by their names, which is said.
        rows_of: reads the rows of each of ``paths``.
    """

    def rows() -> Iterator[Place]:
        for path in paths:
            read = rows_of(path, among=None, columns=columns)
            for number, document in documents_in(path, read, columns, problems):
                yield path, number, document

    return gathered(paths, rows, problems, astuple(columns))


def read_queries(paths: Iterable[Path], problems: Problems, columns: Columns = RECOGNISED) -> list[Query]:
    """The queries in files of rows (:mod:`vtkit.data.rows`) with an id and a text; ``columns`` as for documents."""

    def rows() -> Iterator[tuple[Path, int, Query]]:
        for path in paths:
            read = read_rows(path, columns=columns)
            for number, asked in documents_in(path, read, columns, problems, QUERY_IDS, QUERY_TEXTS):
                if not asked.text.strip():
                    problems.add(path, f"line {number}: query {asked.id!r} has no text")
                elif complaint := too_long(asked.text):
                    problems.add(path, f"line {number}: query {asked.id!r} {complaint}")
                yield path, number, Query(asked.id, asked.text)

    return without_repeated(rows(), problems)


def too_long(query: str) -> str:
    """The complaint about a query of more than :data:`LONGEST_QUERY` characters, else nothing: the analysis of a book
    as a query would take minutes."""
    if len(query) <= LONGEST_QUERY:
        return ""
    return f"has {len(query):,} characters. Cut it: a query has at most {LONGEST_QUERY:,}"


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
                gathering.add(query, document, grade, place * _LINES + number)
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
    for number, row in read_rows(path):
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


def documents_in(
    path: Path,
    rows: Rows,
    columns: Columns,
    problems: Problems,
    ids: Sequence[str] = (*DOCUMENT_IDS, *LOCATORS),
    names: Sequence[str] = TEXTS,
) -> Iterator[tuple[int, Document]]:
    """Number and document of each valid row; its id is under one of ``ids``, its text under one of ``names``, unless
    ``columns`` names them. Unusual columns are said once."""
    of_keys: dict[tuple[str, ...], Columns] = {}  # rows of jsonl may differ
    form = form_of(path)
    for number, row in problems.sound(path, rows):
        keys = tuple(row)
        if keys not in of_keys:
            of_keys[keys] = columns.found_in(keys, ids, names)
            if ids != QUERY_IDS and (said := _said(path, of_keys[keys], keys)):
                console.once(console.say, said)
        of = of_keys[keys]
        identity = str(number) if of.id == NUMBERED else identifier(row.get(of.id or ""))
        text, title = row.get(of.text or ""), row.get(of.title or "")
        if isinstance(text, dict):  # of both
            title, text = text.get(TITLE), text.get(TEXTS[0])
        title = "" if title is None else title
        if identity is None or not isinstance(text, str) or not isinstance(title, str):
            needed = (columns.id or ids[0], identity), (columns.text or names[0], text), (columns.title or TITLE, title)
            wrong = [name for name, value in needed if not isinstance(value, str)]
            advice = ""
            if None in (of.id, of.text) and not any(each.id and each.text for each in of_keys.values()):
                options = [f"--{name} COLUMN" for name, there in (("id", of.id), ("text", of.text)) if there is None]
                advice = f". Its columns are {', '.join(keys)}: name {' and '.join(options)}"
                advice += f" (--id {NUMBERED} numbers the rows)" if of.id is None else ""
                advice += ", or rename them in the file"
            problems.add(path, f"line {number}: {' and '.join(wrong)} missing or not a string{advice}")
            if advice and form != ".jsonl":
                return  # every row has the same columns
        elif complaint := check_id(identity):
            problems.add(path, f"line {number}: {complaint}")
        else:
            used = {of.text, of.title, None if of.id in LOCATORS else of.id}
            fields = _fields(row, used)
            for name in [name for name, value in fields.items() if value is None]:
                del fields[name]
                lost = f"{path.name}: {name} is not kept: it is no text, number, date or list of words"
                console.once(console.say, lost)
            yield number, Document(identity, title, text, fields)


def _fields(row: Mapping[str, Any], used: Container[str | None]) -> dict[str, Any]:
    """The further values of a row: texts, numbers, dates (in ISO 8601), true or false, lists of words, objects of such
    values; None for values that are nothing of these. BEIR has them in ``metadata``, whose year is ``metadata.year`` in
    rows with a year of their own."""
    inner = row.get(METADATA)
    fields = {name: value for name, value in row.items() if name not in used and value is not inner}
    for name, value in inner.items() if isinstance(inner, dict) else [(METADATA, inner)]:
        while name in fields:
            name = f"{METADATA}.{name}"
        fields[name] = value
    # NaN stands for a missing value
    return {name: _kept(value) for name, value in fields.items() if value not in (None, "") and value == value}


def _kept(value: Any) -> Any:
    """A value as a field has it; None if fields cannot have it."""
    match value:
        case Decimal():
            number = int(value) if value == int(value) else float(value)
            return number if Decimal(repr(number)) == value else f"{value.normalize():f}"
        case date():  # or a time
            return value.isoformat()
        case list():
            words = [_kept(each) for each in value if each is not None]
            return words if all(isinstance(each, str) for each in words) else None
        case dict():
            values = {name: _kept(each) for name, each in value.items()}
            whole = all(isinstance(each, str | int | float) or value[name] is None for name, each in values.items())
            return values if whole else None
    return value if isinstance(value, str | int | float) else None


def _said(path: Path, of: Columns, keys: Sequence[str]) -> str:
    """The columns of a table in words, if any are unusual."""
    chosen = {"id": of.id, "title": of.title, "text": of.text}
    others = [key for key in keys if key not in (*chosen.values(), METADATA, "_id")]
    if None in (of.id, of.text) or ({of.id, of.text} <= {*DOCUMENT_IDS, *TEXTS, NUMBERED} and not others):
        return ""
    parts = [f"{part} is {column}" for part, column in chosen.items() if column]
    return f"{path.name}: {', '.join(parts)}" + (f"; fields: {', '.join(others)}" if others else "")


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
