"""Judged collections: documents, queries and relevance judgements, read from folders in the layout of BEIR.

Everything wrong with a collection is reported together.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vtkit.data import text as texts
from vtkit.data.problems import Problems
from vtkit.errors import DataError

LAYOUT = "A BEIR folder holds corpus.jsonl, queries.jsonl (each may be .gz) and qrels/SPLIT.tsv."


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a collection."""

    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """What is indexed and encoded: title and text with a space between, or the one that is there."""
        return texts.contents(self.title, self.text)


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a collection."""

    id: str
    text: str


@dataclass(frozen=True)
class RetrievalSet:
    """A collection under one split of its judgements; ``queries`` are exactly those the split judges."""

    name: str
    documents: list[Document]
    queries: list[Query]
    qrels: dict[str, dict[str, int]]
    """Query id -> document id -> grade; a grade of 0 or below is a judgement of not relevant."""

    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    """Query id -> document id -> a teacher's score, where training data bring some."""

    not_comparable: tuple[str, ...] = ()
    """Why figures of this collection cannot stand beside published ones: documents, queries or judgements that it
    lacks, such as "sampled: 1,000 of 2,831 queries"."""

    def sample(self, max_queries: int | None, seed: int) -> RetrievalSet:
        """The same documents under ``max_queries`` of the queries, sampled without replacement, in their order."""
        if max_queries is None or max_queries >= len(self.queries):
            return self
        drawn = sorted(random.Random(seed).sample(range(len(self.queries)), max_queries))
        queries = [self.queries[number] for number in drawn]
        return replace(
            self,
            queries=queries,
            qrels={query.id: self.qrels[query.id] for query in queries},
            not_comparable=(*self.not_comparable, f"sampled: {max_queries:,} of {len(self.queries):,} queries"),
        )


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


def read_documents(paths: Iterable[Path], problems: Problems, id_field: str = "_id") -> list[Document]:
    """The documents of jsonl files with ``id_field``, ``title`` (may be missing) and ``text``."""
    documents: list[Document] = []
    places: dict[str, tuple[Path, int]] = {}
    for path in paths:
        with problems.reading(path):
            for number, entry in texts.read_jsonl(path):
                checked = _fields(path, number, entry, id_field, problems)
                if checked is None:
                    continue
                identity, text, title = checked
                before, line = places.setdefault(identity, (path, number))
                if (before, line) != (path, number):
                    where = f"line {line}" if before == path else f"line {line} of {before.name}"
                    problems.add(path, f"line {number}: id {identity!r} occurs twice (first on {where})")
                    continue
                documents.append(Document(identity, title, text))
    return documents


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


def read_judgements(path: Path, problems: Problems) -> dict[str, dict[str, int]]:
    """Judgements of three columns (query, document, grade) or of TREC's four (query, iteration, document, grade)."""
    qrels: dict[str, dict[str, int]] = {}
    with problems.reading(path):
        _read_judgements(path, qrels, problems)
    return qrels


def _read_judgements(path: Path, qrels: dict[str, dict[str, int]], problems: Problems) -> None:
    for number, line in enumerate(texts.read_lines(path), 1):
        if not line.strip():
            continue
        columns = line.split("\t") if "\t" in line else line.split()
        if len(columns) not in (3, 4):
            problems.add(path, f"line {number}: has {len(columns)} columns, not query id, document id and grade")
            continue
        query, document, grade = (column.strip() for column in (columns[0], columns[-2], columns[-1]))
        if number > 1 or _whole(grade) is not None:  # else it is a header
            add_judgement(qrels, path, number, query, document, grade, problems)


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
    documents: list[Document],
    queries: list[Query],
    qrels: dict[str, dict[str, int]],
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
        elif all(grade <= 0 for judged in qrels.values() for grade in judged.values()):
            problems.add(judgements_file, "judges no document relevant: every grade is 0 or below")
        if documents and not any(document.contents for document in documents):
            problems.add(corpus, "holds no text: the title and the text of every document are empty")
    problems.stop_if_any()
    known_documents, known_queries = {document.id for document in documents}, {query.id for query in queries}
    for query, judged in qrels.items():
        if query not in known_queries:
            problems.add(judgements_file, f"query {query!r} is not in {queries_file.name}")
        for document in judged:
            if document not in known_documents:
                problems.add(judgements_file, f"document {document!r} (query {query!r}) is not in {corpus.name}")
    problems.stop_if_any()
    return RetrievalSet(name, documents, [query for query in queries if query.id in qrels], qrels)


def check_id(identity: str) -> str | None:
    """What is wrong with an id, if anything: run files separate their columns by white space."""
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
