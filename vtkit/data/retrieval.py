"""Judged collections: documents, queries and relevance judgements, read from folders in the layout of BEIR.

Everything wrong with a collection is reported together.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vtkit.data import text as texts
from vtkit.data.documents import Document as Document
from vtkit.data.documents import DocumentNumbers, Place, StoredDocuments, gathered
from vtkit.data.judgements import ByQuery, Gathering
from vtkit.data.problems import Problems
from vtkit.data.sequences import Lazy
from vtkit.errors import DataError

V = TypeVar("V", int, float)

_SOUND_ID = re.compile(r"[!-~]+")
"""Most ids; the others are looked at character by character."""

LARGE_FILE = 2**24
"""Bytes of a file of judgements from which on they are held in arrays instead of dictionaries."""

LAYOUT = "A BEIR folder holds corpus.jsonl, queries.jsonl (each may be .gz) and qrels/SPLIT.tsv."


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a collection."""

    id: str
    text: str


@dataclass(frozen=True)
class RetrievalSet:
    """A collection under one split of its judgements; ``queries`` are exactly those the split judges."""

    name: str
    documents: Sequence[Document]
    """A list, or mapped from files where they are many (:mod:`vtkit.data.documents`)."""

    queries: list[Query]
    qrels: Mapping[str, Mapping[str, int]]
    """Query id -> document id -> grade; a grade of 0 or below is a judgement of not relevant."""

    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Query id -> document id -> a teacher's score, where training data bring some."""

    not_comparable: tuple[str, ...] = ()
    """Why figures of this collection cannot stand beside published ones: documents, queries or judgements that it
    lacks, such as "sampled: 1,000 of 2,831 queries"."""

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Document id -> its place in ``documents``."""
        if isinstance(self.documents, StoredDocuments):
            return self.documents.numbers
        return {document.id: number for number, document in enumerate(self.documents)}

    def numbers_of(self, names: Sequence[str]) -> npt.NDArray[np.int32]:
        """The number of each document id, -1 where there is none."""
        if isinstance(self.numbers, DocumentNumbers):
            return self.numbers.of(names)
        return np.array([self.numbers.get(name, -1) for name in names], dtype=np.int32)

    @cached_property
    def contents(self) -> Sequence[str]:
        """The text of each document, made when it is asked for."""
        return Lazy(len(self.documents), lambda number: self.documents[number].contents)

    def by_number(self, given: Mapping[str, Mapping[str, V]], query: str) -> dict[int, V]:
        """What ``given``, :attr:`qrels` or :attr:`scores`, says of a query, by the numbers of documents."""
        if isinstance(given, ByQuery):
            return given.by_number(query, self.numbers)
        return {self.numbers[name]: value for name, value in given.get(query, {}).items()}

    def unknown_documents(self) -> Iterator[tuple[str, str]]:
        """Query and document of each judgement whose document is not there."""
        if isinstance(self.qrels, ByQuery):
            return self.qrels.unknown(self.numbers)
        return ((query, name) for query, judged in self.qrels.items() for name in judged if name not in self.numbers)

    def under(self, queries: Sequence[Query]) -> RetrievalSet:
        """The same documents under some of the queries."""
        ids = {query.id for query in queries}

        def kept(given: Mapping[str, Mapping[str, V]]) -> Mapping[str, Mapping[str, V]]:
            if isinstance(given, ByQuery):
                return given.only(ids)
            return {query: values for query, values in given.items() if query in ids}

        return replace(self, queries=list(queries), qrels=kept(self.qrels), scores=kept(self.scores))

    def sample(self, max_queries: int | None, seed: int) -> RetrievalSet:
        """The same documents under ``max_queries`` of the queries, sampled without replacement, in their order."""
        if max_queries is None or max_queries >= len(self.queries):
            return self
        drawn = sorted(random.Random(seed).sample(range(len(self.queries)), max_queries))
        chosen = self.under([self.queries[number] for number in drawn])
        sampled = f"sampled: {max_queries:,} of {len(self.queries):,} queries"
        return replace(chosen, not_comparable=(*self.not_comparable, sampled))


def load_beir(folder: str | Path, split: str) -> RetrievalSet:
    """The collection in ``folder`` under ``qrels/split.tsv``.

    ``corpus.jsonl`` has ``_id``, ``title`` (may be missing) and ``text``, ``queries.jsonl`` has ``_id`` and
    ``text``; both may be compressed. The judgements are query id, document id and whole-number grade, tabs
    between, with or without a header line.

    Raises:
        DataError: files are missing or not UTF-8, lines are damaged, ids occur twice or contain white space,
            judgements name what is not there, or there is nothing to search or to judge.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder. {LAYOUT}")
    corpus, queries = texts.find_file(folder, "corpus.jsonl"), texts.find_file(folder, "queries.jsonl")
    judgements = texts.find_file(folder / "qrels", f"{split}.tsv")
    missing = [name for name, path in (("corpus.jsonl", corpus), ("queries.jsonl", queries)) if path is None]
    complaints = [f"{name} is missing" for name in missing]
    if judgements is None:
        complaints.append(f"qrels/{split}.tsv is missing ({splits_there(folder / 'qrels')})")
    if corpus is None or queries is None or judgements is None:
        raise DataError(f"{folder}: {'; '.join(complaints)}. {LAYOUT}")
    problems = Problems()
    return checked_collection(
        folder.resolve().name,
        read_documents([corpus], problems),
        read_queries(queries, problems),
        read_judgements(judgements, problems),
        problems,
        corpus=corpus,
        queries_file=queries,
        judgements_file=judgements,
    )


def splits_in(folder: Path, prefix: str = "") -> list[str]:
    """The judgements in ``folder``, as its files ``prefix`` + ``SPLIT.tsv`` (plain or compressed) are named, sorted."""
    form = re.compile(rf"{re.escape(prefix)}(.+)\.tsv(?:\.gz|\.zst)?")
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted({match[1] for name in names if (match := form.fullmatch(name))})


def splits_there(folder: Path, prefix: str = "") -> str:
    """:func:`splits_in`, for a message."""
    names = splits_in(folder, prefix)
    return f"splits there: {', '.join(names)}" if names else "there are no judgements at all"


def read_documents(paths: Sequence[Path], problems: Problems, id_field: str = "_id") -> Sequence[Document]:
    """The documents of jsonl files with ``id_field``, ``title`` (may be missing) and ``text``."""

    def rows() -> Iterator[Place]:
        for path in paths:
            with problems.reading(path):
                for number, entry in texts.read_jsonl(path):
                    checked = _fields(path, number, entry, id_field, problems)
                    if checked is not None:
                        identity, text, title = checked
                        yield path, number, Document(identity, title, text)

    return gathered(paths, rows, id_field, problems)


def read_queries(path: Path, problems: Problems) -> list[Query]:
    """The queries of a jsonl file with ``_id`` and ``text``."""
    queries: list[Query] = []
    lines: dict[str, int] = {}
    with problems.reading(path):
        for number, entry in texts.read_jsonl(path):
            checked = _fields(path, number, entry, "_id", problems)
            if checked is not None:
                add_query(queries, lines, path, number, checked[0], checked[1], problems)
    return queries


def add_query(
    queries: list[Query], lines: dict[str, int], path: Path, number: int, identity: str, text: str, problems: Problems
) -> None:
    """Append a query unless its id was there before or its text is empty; ``lines`` remembers where ids stood."""
    if identity in lines:
        problems.add(path, f"line {number}: id {identity!r} occurs twice (first on line {lines[identity]})")
    elif not text.strip():
        problems.add(path, f"line {number}: query {identity!r} has no text")
    else:
        queries.append(Query(identity, text))
    lines.setdefault(identity, number)


def read_judgements(path: Path, problems: Problems) -> Mapping[str, Mapping[str, int]]:
    """Judgements of three columns (query, document, grade) or of TREC's four (query, iteration, document, grade)."""
    qrels: dict[str, dict[str, int]] = {}
    gathering = Gathering(int) if path.stat().st_size >= LARGE_FILE else None
    with problems.reading(path):
        for number, query, document, grade in _judgements(path, problems):
            if gathering is None:
                add_judgement(qrels, path, number, query, document, grade, problems)
            elif (whole := _whole(grade)) is None:
                problems.add(path, f"line {number}: the grade {grade!r} is not a whole number")
            else:
                gathering.add(query, document, whole, number)
    if gathering is None:
        return qrels
    found, contradictions = gathering.finish()
    for number, query, document, before in contradictions:
        problems.add(path, f"line {number}: {query!r} and {document!r} were judged {before} before")
    return found


def _judgements(path: Path, problems: Problems) -> Iterator[tuple[int, str, str, str]]:
    """Line, query, document and grade of each line."""
    for number, line in enumerate(texts.read_lines(path), 1):
        if not line.strip():
            continue
        columns = line.split("\t") if "\t" in line else line.split()
        if len(columns) not in (3, 4):
            problems.add(path, f"line {number}: has {len(columns)} columns, not query id, document id and grade")
            continue
        query, document, grade = (column.strip() for column in (columns[0], columns[-2], columns[-1]))
        if number > 1 or _whole(grade) is not None:  # else it is a header
            yield number, query, document, grade


def _any_relevant(qrels: Mapping[str, Mapping[str, int]]) -> bool:
    if isinstance(qrels, ByQuery):
        return bool((qrels.entries > 0).any())
    return any(grade > 0 for judged in qrels.values() for grade in judged.values())


def add_judgement(
    qrels: dict[str, dict[str, int]],
    path: Path,
    number: int,
    query: str,
    document: str,
    grade: str | float,
    problems: Problems,
) -> None:
    """Enter a judgement unless its grade is no whole number, or differs from what the pair was given before."""
    whole = _whole(grade)
    if whole is None:
        problems.add(path, f"line {number}: the grade {grade!r} is not a whole number")
    elif qrels.setdefault(query, {}).setdefault(document, whole) != whole:
        problems.add(path, f"line {number}: {query!r} and {document!r} were judged {qrels[query][document]} before")


def read_query_columns(path: Path, problems: Problems) -> list[Query]:
    """Queries of a file with two columns, query id and text, with a tab between; blank lines are passed over."""
    queries: list[Query] = []
    lines: dict[str, int] = {}
    with problems.reading(path):
        for number, line in enumerate(texts.read_lines(path), 1):
            if not line.strip():
                continue
            identity, tab, text = line.partition("\t")
            complaint = check_id(identity) if tab else "has one column, not query id, tab, text"
            if complaint:
                problems.add(path, f"line {number}: {complaint}")
            else:
                add_query(queries, lines, path, number, identity, text.strip(), problems)
    return queries


def checked_collection(
    name: str,
    documents: Sequence[Document],
    queries: list[Query],
    qrels: Mapping[str, Mapping[str, int]],
    problems: Problems,
    *,
    corpus: Path,
    queries_file: Path,
    judgements_file: Path,
) -> RetrievalSet:
    """The collection of these parts, once they are known to fit each other.

    Raises:
        DataError: ``problems`` found before, or parts that do not fit, each under its file's name.
    """
    if not problems.found:  # damaged lines would show up again as ids that are not there
        if not documents:
            problems.add(corpus, "holds no documents")
        if not queries:
            problems.add(queries_file, "holds no queries")
        if not qrels:
            problems.add(judgements_file, "holds no judgements")
        elif not _any_relevant(qrels):
            problems.add(judgements_file, "judges no document relevant: every grade is 0 or below")
        if documents and not any(document.contents for document in documents):
            problems.add(corpus, "holds no text: the title and the text of every document are empty")
    problems.stop_if_any()
    found = RetrievalSet(name, documents, [query for query in queries if query.id in qrels], qrels)
    known_queries = {query.id for query in queries}
    for query in qrels:
        if query not in known_queries:
            problems.add(judgements_file, f"query {query!r} is not in {queries_file.name}")
    for query, document in found.unknown_documents():
        problems.add(judgements_file, f"document {document!r} (query {query!r}) is not in {corpus.name}")
    problems.stop_if_any()
    return found


def check_id(identity: str) -> str | None:
    """What is wrong with an id, if anything: run files separate their columns by white space."""
    if _SOUND_ID.fullmatch(identity):
        return None
    if not identity:
        return "the id is empty"
    if any(character.isspace() for character in identity):
        return f"the id {identity!r} contains white space, which TREC run files cannot hold"
    if any(character < " " or character == "\x7f" for character in identity):
        return f"the id {identity!r} contains control characters"
    return None


def _fields(
    path: Path, number: int, entry: dict[str, Any] | str, id_field: str, problems: Problems
) -> tuple[str, str, str] | None:
    """Id, text and title of a jsonl line; None once a problem was noted."""
    if isinstance(entry, str):
        problems.add(path, f"line {number}: {entry}")
        return None
    identity, text, title = entry.get(id_field), entry.get("text"), entry.get("title")
    if isinstance(identity, int) and not isinstance(identity, bool):
        identity = str(identity)
    title = "" if title is None else title
    if not isinstance(identity, str) or not isinstance(text, str) or not isinstance(title, str):
        wrong = [id_field] * (not isinstance(identity, str)) + ["text"] * (not isinstance(text, str))
        wrong += ["title"] * (not isinstance(title, str))
        problems.add(path, f"line {number}: {' and '.join(wrong)} missing or not a string")
        return None
    complaint = check_id(identity)
    if complaint:
        problems.add(path, f"line {number}: {complaint}")
        return None
    return identity, text, title


def _whole(value: str | float) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return int(number) if number.is_integer() else None
