"""Training data in one file: queries with relevant and other documents, and a teacher's scores of them, in the layouts
of :data:`FORMS` and :data:`TEXTS`. :mod:`vtkit.data.rankings` reads data that refers to texts by ids."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from vtkit.data import text as texts
from vtkit.data.problems import Problems
from vtkit.data.rankings import parse_row
from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.rows import form_of, read_rows
from vtkit.data.streaming import PAIRS_FORM, PREFIX, read_column_pairs
from vtkit.system import console
from vtkit.system.errors import DataError

TEXTS: Mapping[str, tuple[str, ...]] = {
    "query": ("query", "anchor", "question"),
    "relevant": ("positive", "pos", "document", "answer"),
    "others": ("negative", "negatives", "neg"),
    "documents": ("documents", "docs", "passages"),
    "scores": ("scores", "score"),
    "labels": ("labels", "label"),
}
"""Known names of the parts of a .jsonl line or of .parquet columns, with texts. ``documents`` is a list of relevant and
other documents with ``labels`` or ``scores``. Labels beside ``others`` are scores, or their margins."""

FORMS = (
    "a .tsv with query, relevant document and perhaps other documents, with query, document and label, or with two "
    "scores, query, relevant document and another; a .jsonl with query, positive and perhaps negatives and scores, or "
    "with query, document and label; each plain, .gz or .zst; a .parquet "
    f"with the same columns; or {PAIRS_FORM}"
)

_MEANT_AS_NUMBER = re.compile(r"[+-]?(\d[\d.,]*(e[+-]?\d+)?|[.,]\d+|nan|inf(inity)?|n/a|none|null|)", re.IGNORECASE)

HEAD = 100  # lines of a .tsv whose majority decides its layout


def is_training_data(name: str | Path) -> bool:
    """Whether ``name`` is a file or pairs of a dataset (``datasets:...``), which have no splits."""
    return str(name).startswith(PREFIX) or os.path.isfile(name)


def load_training_data(name: str | Path) -> RetrievalSet:
    """The collection in a file of training data: its distinct texts, judged 1 if they are relevant to a query and 0 if
    they are listed as not relevant, with the file's scores. Or the same of two columns of a dataset, queries and a
    relevant document each (``datasets:NAME:CONFIG:SPLIT:QUERY:DOCUMENT``), or a labelled one if the dataset has labels.

    Lines without a query or a document are left out and counted, and so are queries without a relevant document. A
    document that is listed both as relevant and as not relevant to a query is relevant, and counted.
    """
    path, problems = Path(name), Problems()
    shown = Path(str(name).split(":")[1]).name if str(name).startswith(PREFIX) else path.name
    queries: dict[str, str] = {}  # text -> id
    documents: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    scores: dict[str, dict[str, float]] = {}
    empty = contradicting = scored = rows_read = 0
    for row in problems.parsed(path, _training_rows(str(name)), lambda row: parse_row(row, TEXTS, _text, "relevant")):
        rows_read += 1
        scored += row.scores is not None
        if not row.query or not any(row.documents[: row.relevant or None]):
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
        counts = f"{scored} rows have scores and {rows_read - scored} have none"
        problems.add(path, f"{counts}: all rows or none must have scores")
    problems.stop_if_any()
    asked = [Query(identity, text) for text, identity in queries.items() if any(qrels[identity].values())]
    if empty:
        console.say(f"  left out: {empty} rows of {shown} without a query or a relevant document")
    if len(asked) < len(queries):
        console.say(f"  left out: {len(queries) - len(asked)} queries of {shown} without a relevant document")
    if contradicting:
        console.say(
            f"  {contradicting} documents of {shown} are listed as relevant and as not relevant to the same query; "
            "they count as relevant"
        )
    if not asked:
        raise DataError(f"{path}: holds no query with a relevant document.")
    read = [Document(identity, "", text) for text, identity in documents.items()]
    return RetrievalSet(shown, read, asked, {query.id: qrels[query.id] for query in asked}, scores)


def _training_rows(name: str) -> Iterable[tuple[int, Any]]:
    """Number and content of each row, or a complaint about it."""
    if name.startswith(PREFIX):
        return enumerate(read_column_pairs(name), 1)
    match form_of(Path(name)):
        case ".tsv":
            return _tsv_rows(Path(name))
        case ".jsonl" | ".parquet":
            return read_rows(Path(name))
        case _:
            raise DataError(f"{name}: has an unknown format. Training data are {FORMS}.")


def _tsv_rows(path: Path) -> Iterator[tuple[int, dict[str, str] | str]]:
    """The lines in the layout of most of the first :data:`HEAD`, by the names of their columns, and complaints about
    others."""
    lines = (
        (number, [column.strip() for column in line.split("\t")])
        for number, line in enumerate(texts.read_lines(path), 1)
        if line.strip()
    )
    head = list(islice(lines, HEAD))
    if not head:
        return
    first, names = head[0][0], [column.lower() for column in head[0][1]]
    wanted = Counter(len(columns) for _, columns in head).most_common(1)[0][0]
    columns = zip(*(columns for _, columns in head if len(columns) == wanted), strict=True)
    match wanted, [place for place, column in enumerate(columns) if _holds_numbers(column)]:
        case 1, _:
            yield first, "has one column, not query, tab, relevant document"
            return
        case 5, [0, 1, *_]:
            layout = ["pos_scores", "neg_scores", "query", "positive", "negative"]
        case 3, [0 | 2 as place]:
            layout = ["query", "positive"]
            layout.insert(place, "score" if names[place] in TEXTS["scores"] else "label")
        case _:
            layout = ["query", "positive", *(f"negative_{number}" for number in range(2, wanted))]
    header = dict(zip(layout, names, strict=False))
    begin = int(header.get("query") in TEXTS["query"] and header.get("positive") in TEXTS["relevant"])
    for number, cells in chain(head[begin:], lines):
        row = dict(zip(layout, cells, strict=False))
        yield number, row if len(cells) == wanted else f"has {len(cells)} columns, most lines have {wanted}"


def _holds_numbers(column: Sequence[str]) -> bool:
    """Report whether most cells are meant as numbers, whether or not they can be used, or name a label or a score."""
    named = {*TEXTS["labels"], *TEXTS["scores"]}
    return 2 * sum(bool(_MEANT_AS_NUMBER.fullmatch(cell)) or cell.lower() in named for cell in column) > len(column)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("query and documents must be strings, or documents lists of strings")
    return value.strip()
