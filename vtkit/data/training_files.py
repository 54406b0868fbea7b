"""Training data in one file: queries with relevant documents, others that are not, and a teacher's scores of them.

``.tsv`` (plain, ``.gz`` or ``.zst``): query, relevant document and any number of documents that are not, a tab between
each; or, as MarginMSE's authors publish them, score of the relevant document, score of the other, query, relevant
document, other. ``.jsonl`` and ``.parquet``: rows of a query, one or more relevant documents, and perhaps others and
scores, under the names of sentence-transformers or FlagEmbedding (:data:`FIELDS`); one score of one relevant document
and one other is the margin between them. ``.tar.gz``: WebFAQ for ir_datasets, with BGE-M3's scores.

Data by ids, in which texts are named and not written, are read by :mod:`vtkit.data.rankings`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtkit.data import text as texts
from vtkit.data.problems import Problems
from vtkit.data.rankings import archive_lines, listed, margins, numbers, with_scores
from vtkit.data.retrieval import Document, Query, RetrievalSet, add_judgement
from vtkit.data.rows import read_parquet
from vtkit.data.streaming import PAIRS_FORM, PREFIX, read_column_pairs
from vtkit.system import console
from vtkit.system.errors import DataError

FIELDS: Mapping[str, tuple[str, ...]] = {
    "query": ("query", "anchor", "question"),
    "relevant": ("positive", "pos", "document", "answer"),
    "other": ("negative", "negatives", "neg"),
    "documents": ("documents", "docs", "passages"),
}
"""Names that the parts of a .jsonl line or the columns of a .parquet may have; ``negative_1``, ``negative_2`` and so on
are others too, ``documents`` a list of both with ``labels`` or ``scores``."""

FORMS = (
    "a .tsv of query, relevant document and perhaps others that are not, or of two scores, query, relevant document "
    "and another; or a .jsonl with query, positive and perhaps negatives and scores; each plain, .gz or .zst; a "
    ".parquet with the same columns; or a .tar.gz of WebFAQ for ir_datasets; or "
    f"{PAIRS_FORM}"
)

_FILE = re.compile(r"(\.tsv|\.jsonl)(\.gz|\.zst)?$|(\.parquet)$|(\.tar\.gz|\.tgz)$", re.IGNORECASE)
_NUMBERED = re.compile(r"negative_\d+")
_SCORED_COLUMNS, _QRELS_COLUMNS = 5, 4


def is_training_data(name: str | Path) -> bool:
    """Whether ``name`` is a file, or pairs of a dataset (``datasets:...``): training data, which have no splits."""
    return str(name).startswith(PREFIX) or os.path.isfile(name)


def is_training_file(path: str | Path) -> bool:
    """Whether a file's name is that of training data."""
    return bool(_FILE.search(Path(path).name))


@dataclass(frozen=True)
class _Row:
    """A line: a query, relevant documents, others, and no scores or one of each document."""

    query: str
    relevant: list[str]
    others: list[str]
    scores: list[float]


@dataclass
class _Gathered:
    """Rows as a collection: the same text is the same query or the same document."""

    queries: dict[str, str] = field(default_factory=dict)
    """Text -> id."""

    documents: dict[str, str] = field(default_factory=dict)
    qrels: dict[str, dict[str, int]] = field(default_factory=dict)
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    empty: int = 0
    contradicting: int = 0
    """Documents given as relevant to a query and as not."""

    def add(self, row: _Row) -> None:
        """Enter a row. What is relevant in one and not in another is relevant."""
        if not row.query or not any(row.relevant):
            self.empty += 1
            return
        query = self.queries.setdefault(row.query, f"q{len(self.queries) + 1}")
        judged, scored = self.qrels.setdefault(query, {}), self.scores.setdefault(query, {})
        for place, text in enumerate([*row.relevant, *row.others]):
            if not text:
                continue
            document = self.documents.setdefault(text, f"d{len(self.documents) + 1}")
            grade = int(place < len(row.relevant))
            before = judged.get(document)
            if before is not None and before != grade:
                self.contradicting += 1
            judged[document] = max(grade, before or 0)
            if row.scores:
                scored.setdefault(document, row.scores[place])


def load_training_data(name: str | Path) -> RetrievalSet:
    """:func:`load_training_file`, or :func:`load_column_pairs` where ``name`` is pairs of a dataset."""
    return load_column_pairs(str(name)) if str(name).startswith(PREFIX) else load_training_file(name)


def load_training_file(path: str | Path) -> RetrievalSet:
    """The collection that a file of training data holds: its different texts, judged 1 where they are relevant to a
    query and 0 where they are named as not, with the scores that it brings.

    Lines without a query or a relevant document are left out and counted; a document that is relevant to a query in
    one place and not in another is relevant, and counted.

    Raises:
        DataError: the name says nothing of the form; lines are damaged or scores missing or no numbers, all at once;
            some lines have scores and others none; nothing is left.
    """
    path, problems = Path(path), Problems()
    if path.name.lower().endswith((".tar.gz", ".tgz")):
        return _archive(path, problems)
    return _collected(path, _rows(path, problems), problems)


def load_column_pairs(spec: str) -> RetrievalSet:
    """The collection that two columns of a dataset are, queries and a relevant document each, as
    :func:`load_training_file` makes one of a file.

    Args:
        spec: ``datasets:NAME:CONFIG:SPLIT:QUERY:DOCUMENT`` (:func:`vtkit.data.streaming.read_column_pairs`).

    Raises:
        DataError: the dataset cannot be read, or has no such columns or no pair.
    """
    rows = (_Row(query.strip(), [document.strip()], [], []) for query, document in read_column_pairs(spec))
    return _collected(Path(spec), rows, Problems(), Path(spec.split(":")[1]).name)


def _collected(path: Path, rows: Iterable[_Row], problems: Problems, name: str = "") -> RetrievalSet:
    name = name or path.name
    gathered = _Gathered()
    scored = without = 0
    with problems.reading(path):
        for row in rows:
            gathered.add(row)
            scored += bool(row.scores)
            without += not row.scores
    if scored and without:
        problems.add(path, f"{scored} of its rows have scores and {without} have none: give scores to all or none")
    problems.stop_if_any()
    if gathered.empty:
        console.say(f"  {gathered.empty} rows of {name} have no query or no relevant document, and are left out")
    if gathered.contradicting:
        console.say(
            f"  {gathered.contradicting} documents of {name} are named as relevant to a query and as not relevant "
            "to it, and count as relevant"
        )
    if not gathered.queries:
        problems.add(path, "holds no query with a relevant document")
    problems.stop_if_any()
    return RetrievalSet(
        name,
        [Document(identity, "", text) for text, identity in gathered.documents.items()],
        [Query(identity, text) for text, identity in gathered.queries.items()],
        gathered.qrels,
        {query: scores for query, scores in gathered.scores.items() if scores},
    )


def _rows(path: Path, problems: Problems) -> Iterator[_Row]:
    named = _FILE.search(path.name)
    match (named[1] or named[3] or "").lower() if named is not None else "":
        case ".tsv":
            return _tsv_rows(path, problems)
        case ".jsonl":
            return _object_rows(path, texts.read_jsonl(path), problems)
        case ".parquet":
            return _object_rows(path, read_parquet(path), problems)
        case _:
            raise DataError(f"{path}: has an unknown form: training data are {FORMS}.")


def _tsv_rows(path: Path, problems: Problems) -> Iterator[_Row]:
    wanted, scored = 0, False
    for number, line in enumerate(texts.read_lines(path), 1):
        if not line.strip():
            continue
        columns = [column.strip() for column in line.split("\t")]
        if not wanted:
            wanted = len(columns)
            scored = wanted == _SCORED_COLUMNS and all(map(_is_number, columns[:2]))
            if wanted == 1:
                problems.add(path, f"line {number}: has one column, not query, tab, relevant document")
                return
            if _is_header(columns):
                continue
        if len(columns) != wanted:
            problems.add(path, f"line {number}: has {len(columns)} columns, the first line {wanted}")
        elif not scored:
            yield _Row(columns[0], columns[1:2], columns[2:], [])
        else:
            try:
                scores = numbers(columns[:2])
            except ValueError as error:
                problems.add(path, f"line {number}: {error}")
            else:
                yield _Row(columns[2], columns[3:4], columns[4:], scores)


def _is_number(text: str) -> bool:
    try:
        return bool(numbers([text]))
    except ValueError:
        return False


def _is_header(columns: list[str]) -> bool:
    return columns[0].lower() in FIELDS["query"] and columns[1].lower() in FIELDS["relevant"]


def _object_rows(path: Path, rows: Iterable[tuple[int, dict[str, Any] | str]], problems: Problems) -> Iterator[_Row]:
    """The rows of a .jsonl or .parquet file."""
    for number, entry in rows:
        if isinstance(entry, str):
            problems.add(path, f"line {number}: {entry}")
            continue
        try:
            row = _list_row(entry) if _named(entry, "documents") is not None else _object_row(entry)
        except ValueError as error:
            problems.add(path, f"line {number}: {error}")
        else:
            yield row


def _object_row(entry: Mapping[str, Any]) -> _Row:
    """Relevant documents and others under names of their own."""
    query, relevant = (_named(entry, part) for part in ("query", "relevant"))
    wrong = [
        f"{' or '.join(FIELDS[part])} is missing"
        for part, values in (("query", query), ("relevant", relevant))
        if values is None
    ]
    numbered = [value for name, value in entry.items() if _NUMBERED.fullmatch(name)]
    others = [*(_named(entry, "other") or []), *(each for value in numbered for each in listed(value))]
    every = [*(query or []), *(relevant or []), *others]
    if not all(isinstance(each, str) for each in every) or (query is not None and len(query) != 1):
        wrong.append("query and documents must be strings, or documents lists of strings")
    if wrong or query is None or relevant is None:
        raise ValueError("; ".join(wrong))
    scores = _given_scores(entry, len(relevant), len(others))
    return _Row(query[0].strip(), [each.strip() for each in relevant], [each.strip() for each in others], scores)


def _list_row(entry: Mapping[str, Any]) -> _Row:
    """One list of documents, relevant where their label is above 0 or, without labels, where their score is highest."""
    query, documents = _named(entry, "query"), _named(entry, "documents")
    if query is None or documents is None or not all(isinstance(each, str) for each in [*query, *documents]):
        raise ValueError(f"{' or '.join(FIELDS['query'])} is missing, or documents is no list of strings")
    labels, scores = (
        None if entry.get(name) is None else numbers(listed(entry[name])) for name in ("labels", "scores")
    )
    if labels is None and scores is None:
        raise ValueError("has documents, but neither labels nor scores that tell the relevant ones")
    for name, values in (("labels", labels), ("scores", scores)):
        if values is not None and len(values) != len(documents):
            raise ValueError(f"has {len(values)} {name} for {len(documents)} documents")
    if labels is None:
        assert scores is not None
        labels = [float(score == max(scores)) for score in scores]
    order = sorted(range(len(documents)), key=lambda place: labels[place] <= 0)
    split = sum(label > 0 for label in labels)
    texts_ = [documents[place].strip() for place in order]
    return _Row(
        query[0].strip(), texts_[:split], texts_[split:], [] if scores is None else [scores[place] for place in order]
    )


def _named(entry: Mapping[str, Any], part: str) -> list[Any] | None:
    """The values of a row under one of the names of ``part``."""
    return next((listed(entry[name]) for name in FIELDS[part] if entry.get(name) is not None), None)


def _given_scores(entry: Mapping[str, Any], relevant: int, others: int) -> list[float]:
    """The scores of a row, the relevant documents' first; none where it brings none."""
    if entry.get("pos_scores") is not None or entry.get("neg_scores") is not None:
        given = [each for name in ("pos_scores", "neg_scores") for each in listed(entry.get(name) or [])]
        if len(given) != relevant + others:
            raise ValueError(f"has {len(given)} scores for {relevant + others} documents")
        return numbers(given)
    name = next((name for name in ("scores", "score", "label", "labels") if name in entry), None)
    return [] if name is None else margins(numbers(listed(entry[name])), relevant, others)


def _archive(path: Path, problems: Problems) -> RetrievalSet:
    """The training part of an archive of WebFAQ for ir_datasets: documents, queries, judgements, and a scored run."""
    documents: list[Document] = []
    queries: list[Query] = []
    qrels: dict[str, dict[str, int]] = {}
    for file, number, entry in _archive_objects(path, "/documents.jsonl", problems):
        if isinstance(entry.get("doc_id"), str) and isinstance(entry.get("text"), str):
            documents.append(Document(entry["doc_id"], "", entry["text"]))
        else:
            problems.add(file, f"line {number}: doc_id or text is missing")
    for file, number, entry in _archive_objects(path, "/training/queries.jsonl", problems):
        if isinstance(entry.get("query_id"), str) and isinstance(entry.get("text"), str):
            queries.append(Query(entry["query_id"], entry["text"]))
        else:
            problems.add(file, f"line {number}: query_id or text is missing")
    for file, number, line in archive_lines(path, "/training/qrels"):
        columns = line.split()
        if len(columns) == _QRELS_COLUMNS:
            add_judgement(qrels, file, number, columns[0], columns[2], columns[3], problems)
        elif columns:
            problems.add(file, f"line {number}: is not query, 0, document and grade")
    problems.stop_if_any()
    name = path.name.partition(".")[0]
    data = RetrievalSet(name, documents, [query for query in queries if query.id in qrels], qrels)
    return with_scores(data, [path])


def _archive_objects(path: Path, member: str, problems: Problems) -> Iterator[tuple[Path, int, dict[str, Any]]]:
    for file, number, line in archive_lines(path, member):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if isinstance(entry, dict):
            yield file, number, entry
        else:
            problems.add(file, f"line {number}: is not a JSON object")
