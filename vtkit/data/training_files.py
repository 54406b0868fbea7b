"""Training data in one file: queries with relevant and other documents, and a teacher's scores of them, in the layouts
of :data:`FORMS` and :data:`TEXTS`. :mod:`vtkit.data.rankings` reads data that refers to texts by ids."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from vtkit.data import text as texts
from vtkit.data.problems import Problems, numbers
from vtkit.data.rankings import Row, listed, parse_row
from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.rows import form_of, read_parquet
from vtkit.data.streaming import PAIRS_FORM, PREFIX, read_column_pairs
from vtkit.system import console
from vtkit.system.errors import DataError

TEXTS: Mapping[str, tuple[str, ...]] = {
    "query": ("query", "anchor", "question"),
    "relevant": ("positive", "pos", "document", "answer"),
    "others": ("negative", "negatives", "neg"),
    "documents": ("documents", "docs", "passages"),
    "scores": ("scores", "score", "label", "labels"),
}
"""Known names of the parts of a .jsonl line or of .parquet columns, with texts; ``documents`` is a list of relevant
and other documents with ``labels`` or ``scores``."""

FORMS = (
    "a .tsv with query, relevant document and perhaps other documents, or with two scores, query, relevant document "
    "and another; a .jsonl with query, positive and perhaps negatives and scores; each plain, .gz or .zst; a .parquet "
    f"with the same columns; or {PAIRS_FORM}"
)

_MEANT_AS_NUMBER = re.compile(r"[+-]?(\d[\d.,]*(e[+-]?\d+)?|[.,]\d+|nan|inf(inity)?|n/a|none|null|)", re.IGNORECASE)

_SCORED_COLUMNS = 5
HEAD = 100  # lines of a .tsv whose majority decides its layout


def is_training_data(name: str | Path) -> bool:
    """Whether ``name`` is a file or pairs of a dataset (``datasets:...``), which have no splits."""
    return str(name).startswith(PREFIX) or os.path.isfile(name)


def load_training_data(name: str | Path) -> RetrievalSet:
    """The collection in a file of training data: its distinct texts, judged 1 if they are relevant to a query and 0 if
    they are listed as not relevant, with the file's scores. Or the same of two columns of a dataset, queries and a
    relevant document each (``datasets:NAME:CONFIG:SPLIT:QUERY:DOCUMENT``).

    Lines without a query or a relevant document are left out and counted. A document that is listed both as relevant
    and as not relevant to a query is relevant, and counted.
    """
    path, problems = Path(name), Problems()
    if not str(name).startswith(PREFIX):
        return _collected(path, _rows(path, problems), problems, path.name)
    pairs = read_column_pairs(str(name))
    rows = (Row(query.strip(), [document.strip()], 1) for query, document in pairs)
    return _collected(path, rows, problems, Path(str(name).split(":")[1]).name)


def _collected(path: Path, rows: Iterable[Row], problems: Problems, name: str) -> RetrievalSet:
    """Rows as a collection: equal texts are one query or one document, and a document that is relevant in any row is
    relevant."""
    queries: dict[str, str] = {}  # text -> id
    documents: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    scores: dict[str, dict[str, float]] = {}
    empty = contradicting = scored = rows_read = 0
    with problems.reading(path):
        for row in rows:
            rows_read += 1
            scored += row.scores is not None
            if not row.query or not any(row.documents[: row.relevant]):
                empty += 1
                continue
            query = queries.setdefault(row.query, f"q{len(queries) + 1}")
            judged = qrels.setdefault(query, {})
            for place, text in enumerate(row.documents):
                if not text:
                    continue
                document = documents.setdefault(text, f"d{len(documents) + 1}")
                grade = int(place < row.relevant)
                contradicting += judged.get(document, grade) != grade
                judged[document] = max(grade, judged.get(document, 0))
                if row.scores is not None:
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
    read = [Document(identity, "", text) for text, identity in documents.items()]
    return RetrievalSet(name, read, [Query(identity, text) for text, identity in queries.items()], qrels, scores)


def _rows(path: Path, problems: Problems) -> Iterator[Row]:
    match form_of(path):
        case ".tsv":
            return _tsv_rows(path, problems)
        case ".jsonl":
            rows = texts.read_jsonl(path)
        case ".parquet":
            rows = read_parquet(path)
        case _:
            raise DataError(f"{path}: has an unknown format. Training data are {FORMS}.")
    return problems.parsed(path, rows, lambda row: parse_row(_relevant_first(row), TEXTS, _text, "relevant"))


def _tsv_rows(path: Path, problems: Problems) -> Iterator[Row]:
    """The lines in the layout of most of the first :data:`HEAD`; what does not fit becomes a problem."""
    lines = (
        (number, [column.strip() for column in line.split("\t")])
        for number, line in enumerate(texts.read_lines(path), 1)
        if line.strip()
    )
    head = list(islice(lines, HEAD))
    if not head:
        return
    wanted = Counter(len(columns) for _, columns in head).most_common(1)[0][0]
    if wanted == 1:
        problems.add(path, f"line {head[0][0]}: has one column, not query, tab, relevant document")
        return
    alike = [columns for _, columns in head if len(columns) == wanted]
    # Columns that are meant as numbers, whether or not they can be used.
    numbered = sum(all(map(_MEANT_AS_NUMBER.fullmatch, columns[:2])) for columns in alike)
    scored = wanted == _SCORED_COLUMNS and 2 * numbered > len(alike)
    first, second, *_ = [column.lower() for column in head[0][1][2 if scored else 0 :]] + ["", ""]
    if first in TEXTS["query"] and second in TEXTS["relevant"]:
        del head[0]
    for number, columns in chain(head, lines):
        if len(columns) != wanted:
            problems.add(path, f"line {number}: has {len(columns)} columns, most lines have {wanted}")
            continue
        if scored:
            *given, query, relevant, other = columns
            try:
                yield Row(query, [relevant, other], 1, numbers(given))
            except ValueError as error:
                problems.add(path, f"line {number}: {error}: {columns[0][:40]!r}, {columns[1][:40]!r}")
        else:
            yield Row(columns[0], columns[1:], 1)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("query and documents must be strings, or documents lists of strings")
    return value.strip()


def _relevant_first(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with one list of documents as one with relevant documents, those with a label above 0 or, without labels,
    the highest score, and others."""
    column = next((name for name in TEXTS["documents"] if row.get(name) is not None), None)
    if column is None:
        return row
    documents = listed(row[column])
    values = {name: numbers(listed(row[name])) for name in ("labels", "scores") if row.get(name) is not None}
    for name, each in values.items():
        if len(each) != len(documents):
            raise ValueError(f"has {len(each)} {name} for {len(documents)} documents")
    if not values:
        raise ValueError("has documents, but neither labels nor scores that show which are relevant")
    scores = values.get("scores")
    labels = values.get("labels") or [float(score == max(scores or ())) for score in scores or ()]
    order = sorted(range(len(documents)), key=lambda place: labels[place] <= 0)
    first = sum(label > 0 for label in labels)
    rearranged = [documents[place] for place in order]
    return {
        **{name: value for name, value in row.items() if name not in (column, *TEXTS["scores"])},
        "positive": rearranged[:first],
        "negative": rearranged[first:],
        **({} if scores is None else {"scores": [scores[place] for place in order]}),
    }
