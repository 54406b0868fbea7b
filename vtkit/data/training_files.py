"""Training data in one file: queries with relevant documents, others that are not, and a teacher's scores of them.

``.tsv`` (plain, ``.gz`` or ``.zst``): query, relevant document and any number of documents that are not, a tab between
each; or, as MarginMSE's authors publish them, score of the relevant document, score of the other, query, relevant
document, other. ``.jsonl``: an object a line, with a query, one or more relevant documents, and perhaps others and
scores, under the names of sentence-transformers or FlagEmbedding (:data:`FIELDS`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtkit import console
from vtkit.data import text as texts
from vtkit.data.problems import Problems
from vtkit.data.retrieval import Document, Query, RetrievalSet

FIELDS: Mapping[str, tuple[str, ...]] = {
    "query": ("query", "anchor", "question"),
    "relevant": ("positive", "pos", "document", "answer"),
    "other": ("negative", "negatives", "neg"),
}
"""Names that the parts of a .jsonl line may have; ``negative_1``, ``negative_2`` and so on are others too."""

FORMS = (
    "a .tsv of query, relevant document and perhaps others that are not, or of two scores, query, relevant document "
    "and another; or a .jsonl with query, positive and perhaps negatives and scores; each plain, .gz or .zst"
)

_FILE = re.compile(r"\.(tsv|jsonl)(\.gz|\.zst)?$", re.IGNORECASE)
_NUMBERED = re.compile(r"negative_\d+")
_SCORED_COLUMNS = 5


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


def load_training_file(path: str | Path) -> RetrievalSet:
    """The collection that a file of training data holds: its different texts, judged 1 where they are relevant to a
    query and 0 where they are named as not, with the scores that it brings.

    Lines without a query or a relevant document are left out and counted; a document that is relevant to a query in
    one place and not in another is relevant, and counted.

    Raises:
        DataError: the name says nothing of the form; lines are damaged or scores missing or no numbers, all at once;
            some lines have scores and others none; nothing is left.
    """
    path = Path(path)
    problems, gathered = Problems(), _Gathered()
    named = _FILE.search(path.name)
    with_scores = without = 0
    if named is None:
        problems.add(path, f"has an unknown form: training data are {FORMS}")
    else:
        read = _tsv_rows if named[1].lower() == "tsv" else _jsonl_rows
        with problems.reading(path):
            for row in read(path, problems):
                gathered.add(row)
                with_scores += bool(row.scores)
                without += not row.scores
    if with_scores and without:
        problems.add(
            path, f"{with_scores} of its lines have scores and {without} have none: give scores to all or none"
        )
    problems.stop_if_any()
    if gathered.empty:
        console.say(f"  {gathered.empty} lines of {path.name} have no query or no relevant document, and are left out")
    if gathered.contradicting:
        console.say(
            f"  {gathered.contradicting} documents of {path.name} are named as relevant to a query and as not relevant "
            "to it, and count as relevant"
        )
    if not gathered.queries:
        problems.add(path, "holds no query with a relevant document")
    problems.stop_if_any()
    return RetrievalSet(
        path.name,
        [Document(identity, "", text) for text, identity in gathered.documents.items()],
        [Query(identity, text) for text, identity in gathered.queries.items()],
        gathered.qrels,
        {query: scores for query, scores in gathered.scores.items() if scores},
    )


def _tsv_rows(path: Path, problems: Problems) -> Iterator[_Row]:
    wanted, scored = 0, False
    for number, line in enumerate(texts.read_lines(path), 1):
        if not line.strip():
            continue
        columns = [column.strip() for column in line.split("\t")]
        if not wanted:
            wanted = len(columns)
            scored = wanted == _SCORED_COLUMNS and all(_number(column) is not None for column in columns[:2])
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
            scores = _scores(path, number, columns[:2], 2, problems)
            if scores is not None:
                yield _Row(columns[2], columns[3:4], columns[4:], scores)


def _is_header(columns: list[str]) -> bool:
    return columns[0].lower() in FIELDS["query"] and columns[1].lower() in FIELDS["relevant"]


def _jsonl_rows(path: Path, problems: Problems) -> Iterator[_Row]:
    for number, entry in texts.read_jsonl(path):
        if isinstance(entry, str):
            problems.add(path, f"line {number}: {entry}")
            continue
        query, relevant = (_named(entry, part) for part in ("query", "relevant"))
        wrong = [
            f"{' or '.join(FIELDS[part])} is missing"
            for part, found in (("query", query), ("relevant", relevant))
            if found is None
        ]
        numbered = [value for name, value in entry.items() if _NUMBERED.fullmatch(name)]
        others = [*(_named(entry, "other") or []), *(each for value in numbered for each in _listed(value))]
        every = [*(query or []), *(relevant or []), *others]
        if not all(isinstance(each, str) for each in every) or (query is not None and len(query) != 1):
            wrong.append("query and documents must be strings, or documents lists of strings")
        if wrong:
            problems.add(path, f"line {number}: {'; '.join(wrong)}")
            continue
        assert query is not None
        assert relevant is not None
        scores = _jsonl_scores(path, number, entry, len(relevant), len(others), problems)
        if scores is not None:
            yield _Row(query[0].strip(), [each.strip() for each in relevant], [each.strip() for each in others], scores)


def _named(entry: Mapping[str, Any], part: str) -> list[Any] | None:
    """What a line holds under one of the names of ``part``, as a list."""
    return next((_listed(entry[name]) for name in FIELDS[part] if name in entry), None)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _jsonl_scores(
    path: Path, number: int, entry: Mapping[str, Any], relevant: int, others: int, problems: Problems
) -> list[float] | None:
    """The scores of a line, the relevant documents' first; none where it brings none, None where they are no good."""
    if "pos_scores" in entry or "neg_scores" in entry:
        given = [*_listed(entry.get("pos_scores", [])), *_listed(entry.get("neg_scores", []))]
    else:
        name = next((name for name in ("scores", "score", "label", "labels") if name in entry), None)
        if name is None:
            return []
        given = _listed(entry[name])
        if not isinstance(entry[name], list) and (relevant, others) == (1, 1):
            given = [given[0], 0.0]  # the margin between the two
    return _scores(path, number, given, relevant + others, problems)


def _scores(path: Path, number: int, given: list[Any], documents: int, problems: Problems) -> list[float] | None:
    found = [_number(value) for value in given]
    if len(given) != documents:
        problems.add(path, f"line {number}: has {len(given)} scores for {documents} documents")
    elif any(value is None for value in found):
        problems.add(path, f"line {number}: a score is missing, NaN, infinite or no number")
    else:
        return [value for value in found if value is not None]
    return None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
