"""Training data in one file: queries with relevant and other documents, and a teacher's scores of them, in the layouts
of :data:`FORMS` and :data:`FIELDS`. :mod:`vtkit.data.rankings` reads data that refers to texts by ids."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from vtkit.data import text as texts
from vtkit.data.problems import Problems, numbers
from vtkit.data.rankings import archive_lines, listed, margins, with_scores
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
"""Known names of the parts of a .jsonl line or of .parquet columns. ``negative_1``, ``negative_2`` and so on are others
too; ``documents`` is a list of both with ``labels`` or ``scores``."""

FORMS = (
    "a .tsv with query, relevant document and perhaps other documents, or with two scores, query, relevant document "
    "and another; a .jsonl with query, positive and perhaps negatives and scores; each plain, .gz or .zst; a .parquet "
    "with the same columns; a .tar.gz of WebFAQ for ir_datasets; or "
    f"{PAIRS_FORM}"
)

_FILE = re.compile(r"(\.tsv|\.jsonl)(\.gz|\.zst)?$|(\.parquet)$|(\.tar\.gz|\.tgz)$", re.IGNORECASE)
_NUMBERED = re.compile(r"negative_\d+")
_SCORED_COLUMNS, _QRELS_COLUMNS = 5, 4
_MEANT_AS_NUMBER = re.compile(r"[+-]?(\d[\d.,]*(e[+-]?\d+)?|[.,]\d+|nan|inf(inity)?|n/a|none|null|)", re.IGNORECASE)

HEAD = 100  # lines of a .tsv whose majority decides its layout


def is_training_data(name: str | Path) -> bool:
    """Whether ``name`` is a file or pairs of a dataset (``datasets:...``), which have no splits."""
    return str(name).startswith(PREFIX) or os.path.isfile(name)


def is_training_file(path: str | Path) -> bool:
    """Whether a file has the name of training data."""
    return bool(_FILE.search(Path(path).name))


@dataclass(frozen=True)
class _Row:
    """A line: a query, relevant documents, others, and no scores or one per document."""

    query: str
    relevant: list[str]
    others: list[str]
    scores: list[float]


def load_training_data(name: str | Path) -> RetrievalSet:
    """:func:`load_training_file`, or the same of two columns of a dataset, queries and a relevant document each
    (``datasets:NAME:CONFIG:SPLIT:QUERY:DOCUMENT``, :func:`vtkit.data.streaming.read_column_pairs`)."""
    spec = str(name)
    if not spec.startswith(PREFIX):
        return load_training_file(name)
    rows = (_Row(query.strip(), [document.strip()], [], []) for query, document in read_column_pairs(spec))
    return _collected(Path(spec), rows, Problems(), Path(spec.split(":")[1]).name)


def load_training_file(path: str | Path) -> RetrievalSet:
    """The collection in a file of training data: its distinct texts, judged 1 if they are relevant to a query and 0 if
    they are listed as not relevant, with the file's scores.

    Lines without a query or a relevant document are left out and counted. A document that is listed both as relevant
    and as not relevant to a query is relevant, and counted.
    """
    path, problems = Path(path), Problems()
    if path.name.lower().endswith((".tar.gz", ".tgz")):
        return _archive(path, problems)
    return _collected(path, _rows(path, problems), problems)


def _collected(path: Path, rows: Iterable[_Row], problems: Problems, name: str = "") -> RetrievalSet:
    """Rows as a collection: equal texts are one query or one document, and a document that is relevant in any row is
    relevant."""
    name = name or path.name
    queries: dict[str, str] = {}  # text -> id
    documents: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    scores: dict[str, dict[str, float]] = {}
    empty = contradicting = scored = rows_read = 0
    with problems.reading(path):
        for row in rows:
            rows_read += 1
            scored += bool(row.scores)
            if not row.query or not any(row.relevant):
                empty += 1
                continue
            query = queries.setdefault(row.query, f"q{len(queries) + 1}")
            judged = qrels.setdefault(query, {})
            for place, text in enumerate([*row.relevant, *row.others]):
                if not text:
                    continue
                document = documents.setdefault(text, f"d{len(documents) + 1}")
                grade = int(place < len(row.relevant))
                contradicting += judged.get(document, grade) != grade
                judged[document] = max(grade, judged.get(document, 0))
                if row.scores:
                    scores.setdefault(query, {}).setdefault(document, row.scores[place])
    if 0 < scored < rows_read:
        problems.add(
            path, f"{scored} rows have scores and {rows_read - scored} have none: all rows or none must have scores"
        )
    problems.stop_if_any()
    if empty:
        console.say(f"  left out: {empty} rows of {name} without a query or a relevant document")
    if contradicting:
        console.say(
            f"  {contradicting} documents of {name} are listed as relevant and as not relevant to the same query; they "
            "count as relevant"
        )
    if not queries:
        problems.add(path, "holds no query with a relevant document")
    problems.stop_if_any()
    return RetrievalSet(
        name,
        [Document(identity, "", text) for text, identity in documents.items()],
        [Query(identity, text) for text, identity in queries.items()],
        qrels,
        scores,
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
            raise DataError(f"{path}: has an unknown format. Training data are {FORMS}.")


def _tsv_rows(path: Path, problems: Problems) -> Iterator[_Row]:
    """The lines in the layout of most of the first :data:`HEAD`; what does not fit becomes a problem."""
    lines = ((number, line) for number, line in enumerate(texts.read_lines(path), 1) if line.strip())
    head = [(number, _columns(line)) for number, line in islice(lines, HEAD)]
    if not head:
        return
    wanted = Counter(len(columns) for _, columns in head).most_common(1)[0][0]
    if wanted == 1:
        problems.add(path, f"line {head[0][0]}: has one column, not query, tab, relevant document")
        return
    alike = [columns for _, columns in head if len(columns) == wanted]
    scored = wanted == _SCORED_COLUMNS and 2 * sum(map(_begins_with_scores, alike)) > len(alike)
    if _is_header(head[0][1], 2 if scored else 0):
        del head[0]
    for number, columns in chain(head, ((number, _columns(line)) for number, line in lines)):
        if len(columns) != wanted:
            problems.add(path, f"line {number}: has {len(columns)} columns, most lines have {wanted}")
        elif not scored:
            yield _Row(columns[0], columns[1:2], columns[2:], [])
        else:
            try:
                scores = numbers(columns[:2])
            except ValueError as error:
                problems.add(path, f"line {number}: {error}: {columns[0][:40]!r}, {columns[1][:40]!r}")
            else:
                yield _Row(columns[2], columns[3:4], columns[4:], scores)


def _columns(line: str) -> list[str]:
    return [column.strip() for column in line.split("\t")]


def _begins_with_scores(columns: list[str]) -> bool:
    """Whether the first two of ``columns`` are meant as numbers, whether or not they can be used."""
    return all(map(_MEANT_AS_NUMBER.fullmatch, columns[:2]))


def _is_header(columns: list[str], at: int) -> bool:
    """Whether the names of query and relevant document stand in the columns ``at`` and behind it."""
    names = [column.lower() for column in columns[at : at + 2]]
    return len(names) == 2 and names[0] in FIELDS["query"] and names[1] in FIELDS["relevant"]


def _object_rows(path: Path, rows: Iterable[tuple[int, dict[str, Any] | str]], problems: Problems) -> Iterator[_Row]:
    for number, entry in problems.sound(path, rows):
        try:
            row = _list_row(entry) if _named(entry, "documents") is not None else _object_row(entry)
        except ValueError as error:
            problems.add(path, f"line {number}: {error}")
        else:
            yield row


def _object_row(entry: Mapping[str, Any]) -> _Row:
    query, relevant = (_named(entry, part) for part in ("query", "relevant"))
    wrong = [
        f"{' or '.join(FIELDS[part])} is missing"
        for part, values in (("query", query), ("relevant", relevant))
        if values is None
    ]
    numbered = [value for name, value in entry.items() if _NUMBERED.fullmatch(name)]
    others = [*(_named(entry, "other") or []), *(text for value in numbered for text in listed(value))]
    every = [*(query or []), *(relevant or []), *others]
    if not all(isinstance(text, str) for text in every) or (query is not None and len(query) != 1):
        wrong.append("query and documents must be strings, or documents lists of strings")
    if wrong or query is None or relevant is None:
        raise ValueError("; ".join(wrong))
    scores = _given_scores(entry, len(relevant), len(others))
    return _Row(query[0].strip(), [text.strip() for text in relevant], [text.strip() for text in others], scores)


def _list_row(entry: Mapping[str, Any]) -> _Row:
    """A row with one list of documents; those with a label above 0 or, without labels, the highest score are
    relevant."""
    query, documents = _named(entry, "query"), _named(entry, "documents")
    if query is None or documents is None or not all(isinstance(text, str) for text in [*query, *documents]):
        raise ValueError(f"{' or '.join(FIELDS['query'])} is missing, or documents is no list of strings")
    labels, scores = (
        None if entry.get(name) is None else numbers(listed(entry[name])) for name in ("labels", "scores")
    )
    if labels is None and scores is None:
        raise ValueError("has documents, but neither labels nor scores that show which are relevant")
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
    return next((listed(entry[name]) for name in FIELDS[part] if entry.get(name) is not None), None)


def _given_scores(entry: Mapping[str, Any], relevant: int, others: int) -> list[float]:
    """The scores of a row, those of relevant documents first; empty if it has none."""
    if entry.get("pos_scores") is not None or entry.get("neg_scores") is not None:
        scores = [score for name in ("pos_scores", "neg_scores") for score in listed(entry.get(name) or [])]
        if len(scores) != relevant + others:
            raise ValueError(f"has {len(scores)} scores for {relevant + others} documents")
        return numbers(scores)
    name = next((name for name in ("scores", "score", "label", "labels") if name in entry), None)
    return [] if name is None else margins(numbers(listed(entry[name])), relevant, others)


def _archive(path: Path, problems: Problems) -> RetrievalSet:
    """The training part of an archive of WebFAQ for ir_datasets: documents, queries, judgements, and a scored run."""
    documents = [
        Document(name, "", text) for name, text in _archive_texts(path, "/documents.jsonl", "doc_id", problems)
    ]
    queries = [Query(*row) for row in _archive_texts(path, "/training/queries.jsonl", "query_id", problems)]
    qrels: dict[str, dict[str, int]] = {}
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


def _archive_texts(path: Path, member: str, id_name: str, problems: Problems) -> Iterator[tuple[str, str]]:
    for file, number, line in archive_lines(path, member):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            problems.add(file, f"line {number}: is not a JSON object")
        elif isinstance(entry.get(id_name), str) and isinstance(entry.get("text"), str):
            yield entry[id_name], entry["text"]
        else:
            problems.add(file, f"line {number}: {id_name} or text is missing")
