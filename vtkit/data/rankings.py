"""Lists of documents for queries, by ids, in files: rankings to mine negatives from, and a teacher's scores.

One reader supports all layouts in which such lists are published (:data:`FORMS`).
"""

import json
import re
import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vtkit.data import text as texts
from vtkit.data.judgements import ByQuery, Gathering
from vtkit.data.problems import Problems, numbers
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.rows import read_parquet
from vtkit.data.sequences import Lazy
from vtkit.data.trec import trec_rows
from vtkit.system import console
from vtkit.system.errors import DataError

Ranking = Sequence[Sequence[int]] | Sequence[npt.NDArray[np.int32]] | npt.NDArray[np.int32]
"""For each query document numbers, best first; -1 stands for none."""

FORMS = (
    "a .jsonl of objects with qid and neg (msmarco-hard-negatives) or of [query id, [document id, score], ...] "
    "(ColBERT), a .parquet with a query id, document ids and perhaps scores, a TREC run (.trec, .run, .res), or a "
    ".tar.gz with such a run; text files may be .gz or .zst"
)

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "query": ("query_id", "query-id", "qid"),
    "documents": ("corpus_id", "corpus-id", "document_ids", "document_id", "doc_ids", "doc_id", "passage_ids",
                  "passage_id", "pids", "pid"),
    "relevant": ("positive_id", "positive_ids", "pos_ids", "pos"),
    "others": ("negative_id", "negative_ids", "neg_ids", "neg"),
    "scores": ("scores", "score"),
}  # fmt: skip
"""Known names of columns, and of keys of objects."""

_JSONL, _RUN = re.compile(r"\.jsonl?(\.gz|\.zst)?$", re.I), re.compile(r"\.(trec|run|res)(\.gz|\.zst)?$", re.I)
_PICKLE = re.compile(r"\.(pkl|pickle)(\.gz)?$", re.I)


@dataclass(frozen=True, slots=True)
class ScoredList:
    """The documents of a query in one line of a file."""

    query: str
    documents: Sequence[str]
    scores: Sequence[float] | None = None  # one per document; None if the file has no scores
    system: str = ""  # the system that found them, if the file names it


def read_rankings(path: str | Path, data: RetrievalSet) -> list[Ranking]:
    """The rankings of a file, one for each system that it names; scored documents are ordered by score, and queries and
    documents that ``data`` does not have are ignored."""
    path = Path(path)
    systems: dict[str, Gathering] = {}
    judged: set[str] = set()
    for scored in _known(path, {query.id for query in data.queries}, "negatives"):
        gathering = systems.setdefault(scored.system, Gathering(float))
        for name, score in zip(scored.documents, scored.scores or (0.0,) * len(scored.documents), strict=True):
            gathering.add(scored.query, name, score)
        judged.add(scored.query)
    named = ", ".join(filter(None, systems)) or "no named system"
    console.say(f"  {path.name}: negatives of {named} for {len(judged)} queries")
    return [_ranking(data, gathering.finish()[0]) for gathering in systems.values()]


def _ranking(data: RetrievalSet, scores: ByQuery[float]) -> Ranking:
    def best_first(row: int) -> list[int]:
        scored = sorted(data.by_number(scores, data.queries[row].id).items(), key=lambda scored: -scored[1])
        return [document for document, _ in scored if document >= 0]

    return Lazy(len(data.queries), best_first)


def with_scores(data: RetrievalSet, paths: Iterable[str | Path]) -> RetrievalSet:
    """``data`` with a teacher's scores of its documents, by ids, from files.

    Scored documents without a judgement count as not relevant. Relevant documents without a score are left out and
    counted, and so are queries without a scored relevant document, and ids that ``data`` does not have.

    Raises:
        DataError: damaged lines, all at once; a file has no scores, or none for queries that ``data`` judges; no
            relevant document has a score.
    """
    gathering = Gathering(float)
    unknown = without = 0
    for path in map(Path, paths):
        scored = False
        for scored_list in _known(path, data.qrels, "scores"):
            if scored_list.scores is None:
                continue
            scored = True
            known_documents = data.numbers_of(scored_list.documents) >= 0
            for name, score, known in zip(
                scored_list.documents, scored_list.scores, known_documents.tolist(), strict=True
            ):
                if known:
                    gathering.add(scored_list.query, name, score)
                else:
                    unknown += 1
        if not scored:
            raise DataError(f"{path}: has no scores, so it can only be a source of negatives: name it in mining.files.")
    scores, _ = gathering.finish()
    grades = Gathering(int)
    for query, of_query in scores.items():
        before = data.qrels[query]
        judged = {name: grade for name, grade in before.items() if grade <= 0 or name in of_query}
        without += sum(grade > 0 for grade in before.values()) - sum(grade > 0 for grade in judged.values())
        if any(grade > 0 for grade in judged.values()):
            for name, grade in (dict.fromkeys(of_query, 0) | judged).items():
                grades.add(query, name, grade)
    qrels, _ = grades.finish()
    if not qrels:
        raise DataError(f"{', '.join(map(str, paths))}: no relevant document has a score.")
    console.say(f"  scores of {len(scores.entries):,} documents for {len(qrels):,} queries")
    for count, what in (
        (len(data.queries) - len(qrels), "queries have no scored relevant document"),
        (without, "relevant documents have no score"),
        (unknown, "scores belong to documents that the collection does not have"),
    ):
        if count:
            console.say(f"  left out: {count:,} {what}")
    queries = [query for query in data.queries if query.id in qrels]
    return replace(data, queries=queries, qrels=qrels, scores=scores.only(qrels.keys()))


def _known(path: Path, queries: Collection[str], what: str) -> Iterator[ScoredList]:
    """The lists of a file for ``queries``; raises the problems of all lists at the end."""
    problems, known = Problems(), False
    with problems.reading(path):
        for scored in _lists(path, problems):
            if scored.query in queries:
                known = True
                yield scored
    if not problems.found and not known:
        problems.add(path, f"has no {what} for any of the {len(queries)} queries of the training data")
    problems.stop_if_any()


def _lists(path: Path, problems: Problems) -> Iterator[ScoredList]:
    if _PICKLE.search(path.name):
        raise DataError(
            f"{path}: is a pickle, which can run code when it is opened. The scores of msmarco-hard-negatives are also "
            "available as parquet: sentence-transformers/msmarco-scores-ms-marco-MiniLM-L6-v2, folder list."
        )
    if path.suffix.lower() == ".parquet":
        rows: Iterator[tuple[int, Any]] = read_parquet(path)
    elif _JSONL.search(path.name):
        rows = _json_lines(path)
    elif _RUN.search(path.name):
        yield from _run(path, enumerate(texts.read_lines(path), 1), problems)
        return
    elif path.name.lower().endswith((".tar.gz", ".tgz")):
        inside = archive_lines(path, ".trec", ".run", ".res")
        yield from _run(path, ((number, line) for _, number, line in inside), problems)
        return
    else:
        raise DataError(f"{path}: has an unknown format. Rankings and scores are {FORMS}.")
    for number, row in rows:
        complaint = ""
        try:
            yield from _of_colbert(row) if isinstance(row, list) else _of_columns(row)
        except (ValueError, TypeError, AttributeError) as error:
            complaint = str(error)
        if complaint:
            problems.add(path, f"line {number}: {complaint}")


def archive_lines(path: Path, *endings: str) -> Iterator[tuple[Path, int, str]]:
    """File, number and text of each line of the first file in a .tar.gz whose path (``/NAME/FILE``) has one of
    ``endings``."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            inside = next((entry for entry in archive if entry.isfile() and f"/{entry.name}".endswith(endings)), None)
            file = archive.extractfile(inside) if inside is not None else None
            if inside is None or file is None:
                raise DataError(f"{path}: holds no file called {' or '.join(endings)}")
            for number, line in enumerate(TextIOWrapper(file, encoding="utf-8"), 1):
                yield path / inside.name, number, line.rstrip("\r\n")
    except (tarfile.TarError, EOFError, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the archive is damaged ({error}). Download it again.") from error


def _json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(texts.read_lines(path), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                yield number, None


def _of_colbert(row: list[Any]) -> Iterator[ScoredList]:
    """``[query, [document, score], ...]``, or ``[query, document, ...]`` without scores."""
    query, *entries = row
    if entries and all(isinstance(entry, list) and len(entry) == 2 for entry in entries):
        yield ScoredList(_id(query), [_id(entry[0]) for entry in entries], numbers([entry[1] for entry in entries]))
    else:
        yield ScoredList(_id(query), [_id(entry) for entry in entries])


def _of_columns(row: Mapping[str, Any]) -> Iterator[ScoredList]:
    """A row with named columns: lists of documents (one per system), perhaps with scores, or a triplet."""
    if not isinstance(row, dict):
        raise ValueError("is neither an object nor a list")
    query = _id(_value(row, "query"))
    documents, relevant, others = (_value(row, part) for part in ("documents", "relevant", "others"))
    scores = _value(row, "scores")
    if isinstance(others, dict):
        for system, ids in others.items():
            yield ScoredList(query, _ids(ids), None, str(system))
    elif documents is not None:
        yield ScoredList(query, _ids(documents), None if scores is None else numbers(listed(scores)))
    elif others is None:
        raise ValueError(f"has none of the columns {', '.join((*COLUMNS['documents'], *COLUMNS['others']))}")
    elif scores is None:
        yield ScoredList(query, _ids(others))
    else:
        pair = _ids(relevant if relevant is not None else []), _ids(others)
        yield ScoredList(query, [*pair[0], *pair[1]], margins(numbers(listed(scores)), *map(len, pair)))


def margins(scores: Sequence[float], relevant: int, others: int) -> list[float]:
    """The scores of ``relevant`` and ``others`` documents. With one relevant document, ``scores`` may be its margins
    over the others, which become scores relative to the relevant document."""
    if relevant == 1 and len(scores) == others:
        return [0.0, *(-margin for margin in scores)]
    if len(scores) != relevant + others:
        raise ValueError(f"has {len(scores)} scores for {relevant + others} documents")
    return list(scores)


def _run(path: Path, lines: Iterable[tuple[int, str]], problems: Problems) -> Iterator[ScoredList]:
    for _, (query, document, score) in problems.sound(path, trec_rows(lines)):
        yield ScoredList(query, [document], [score])


def _value(row: Mapping[str, Any], part: str) -> Any:
    return next((row[name] for name in COLUMNS[part] if row.get(name) is not None), None)


def listed(value: Any) -> list[Any]:
    """``value`` if it is a list, else a list of it."""
    return value if isinstance(value, list) else [value]


def _id(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("the id of the query or of a document is missing, or neither a string nor a whole number")
    return str(value)


def _ids(value: Any) -> list[str]:
    return [_id(identity) for identity in listed(value)]
