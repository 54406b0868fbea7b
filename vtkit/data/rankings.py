"""Lists of documents for queries, by ids, in files: rankings to mine negatives from, and a teacher's scores.

One reader supports all layouts in which such lists are published (:data:`FORMS`). :mod:`vtkit.data.training_files`
reads the same rows with texts instead of ids.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vtkit.data.judgements import ByQuery, Gathering, only
from vtkit.data.problems import Problems, numbers
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.rows import form_of, read_parquet
from vtkit.data.sequences import Lazy
from vtkit.data.text import read_jsonl, read_lines
from vtkit.data.trec import trec_rows
from vtkit.system import console
from vtkit.system.errors import DataError

Ranking = Sequence[Sequence[int]] | Sequence[npt.NDArray[np.int32]] | npt.NDArray[np.int32]
"""For each query document numbers, best first; -1 stands for none."""

FORMS = (
    "a .jsonl of objects with qid and neg (msmarco-hard-negatives) or of [query id, [document id, score], ...] "
    "(ColBERT), a .parquet with a query id, document ids and perhaps scores, or a TREC run (.trec, .run, .res); text "
    "files may be .gz or .zst"
)

IDS: Mapping[str, tuple[str, ...]] = {
    "query": ("query_id", "query-id", "qid"),
    "documents": ("corpus_id", "corpus-id", "document_ids", "document_id", "doc_ids", "doc_id", "passage_ids",
                  "passage_id", "pids", "pid"),
    "relevant": ("positive_id", "positive_ids", "pos_ids", "pos"),
    "others": ("negative_id", "negative_ids", "neg_ids", "neg"),
    "scores": ("scores", "score"),
}  # fmt: skip
"""Known names of columns, and of keys of objects, with ids."""

_NUMBERED = re.compile(r"negative_\d+")


@dataclass(frozen=True, slots=True)
class Row:
    """A query and documents, as ids or as texts."""

    query: str
    documents: Sequence[str]
    relevant: int = 0  # number of documents at the beginning that are given as relevant
    scores: Sequence[float] | None = None  # one per document; None if the row has no scores
    system: str = ""  # the system that found them, if the file names it


def parse_row(
    row: Any, names: Mapping[str, Sequence[str]], text: Callable[[Any], str], required: str = "others"
) -> Iterator[Row]:
    """The lists of documents in a row with named columns or keys, one for each system that it names.

    Args:
        names: names of the columns, as in :data:`IDS`; ``negative_1``, ``negative_2`` and so on are others too.
        text: checks a query or a document, and gives its text or id.
        required: the part that a row without a list of documents must have.

    Raises:
        ValueError: the row has none of the layouts.
    """
    if not isinstance(row, dict):
        raise ValueError("is neither an object nor a list")
    value = {part: next((row[name] for name in names[part] if row.get(name) is not None), None) for part in names}
    numbered = [each for name, texts in row.items() if _NUMBERED.fullmatch(name) for each in listed(texts)]
    given = value["documents"] is not None or (required == "others" and numbered)
    missing = [part for part in ("query", required) if value[part] is None and not (part == required and given)]
    if missing:
        raise ValueError("; ".join(f"{' or '.join(names[part])} is missing" for part in missing))
    query = text(value["query"])
    if isinstance(value["others"], dict):
        for system, documents in value["others"].items():
            yield Row(query, [text(each) for each in listed(documents)], system=str(system))
        return
    listing, relevant = listed(value["documents"]), listed(value["relevant"])
    others = [*listed(value["others"]), *numbered]
    scores = None if value["scores"] is None else numbers(listed(value["scores"]))
    labels = next((numbers(listed(row[name])) for name in names.get("labels", ()) if name in row), None)
    if row.get("pos_scores") is not None or row.get("neg_scores") is not None:
        scores = numbers([*listed(row.get("pos_scores")), *listed(row.get("neg_scores"))])
    elif "labels" not in names:  # the collection judges them
        others = [*listing, *others]
    elif listing or not others:
        relevant, others, scores = _by_label(listing, relevant, labels, scores)
    elif scores is None:
        scores = labels
    if scores is not None:
        scores = _margins(scores, len(relevant), len(others))
    yield Row(query, [*map(text, relevant), *map(text, others)], len(relevant), scores)


def _by_label(
    listing: list[Any], relevant: list[Any], labels: list[float] | None, scores: list[float] | None
) -> tuple[list[Any], list[Any], list[float] | None]:
    """The relevant documents, the others, and the scores of both, of a row that has them in one column: ``listing``, or
    the column ``relevant``. Documents with a label above 0 are relevant. Without labels, the documents of a ``listing``
    with the highest score are relevant, else the first of several scored ones (``mine_hard_negatives`` of
    sentence-transformers writes it before the negatives), or all if they have no scores."""
    documents = listing or relevant
    for name, values in (("labels", labels), ("scores", scores)):
        if values is not None and len(values) != len(documents):
            raise ValueError(f"has {len(values)} {name} for {len(documents)} documents")
    if labels is None and scores is None and listing:
        raise ValueError("has documents, but neither labels nor scores that show which are relevant")
    if labels is None and scores is not None:
        if len(documents) == 1:
            raise ValueError("has a score but no label: is its document relevant? Add labels, or remove the scores")
        labels = [float(score == max(scores) if listing else not place) for place, score in enumerate(scores)]
    labels = labels or [1.0] * len(documents)
    if any(label % 1 for label in labels):
        raise ValueError("a label is no whole number: 0 means not relevant, 1 or more relevant")
    order = sorted(range(len(documents)), key=lambda place: labels[place] <= 0)
    count, ranked = sum(label > 0 for label in labels), [documents[place] for place in order]
    return ranked[:count], ranked[count:], None if scores is None else [scores[place] for place in order]


def _margins(scores: list[float], relevant: int, others: int) -> list[float]:
    """The scores of ``relevant`` and ``others`` documents. With one relevant document, ``scores`` may be its margins
    over the others, which become scores relative to the relevant document."""
    if relevant == 1 and len(scores) == others:
        return [0.0, *(-margin for margin in scores)]
    if len(scores) != relevant + others:
        raise ValueError(f"has {len(scores)} scores for {relevant + others} documents")
    return scores


def listed(value: Any) -> list[Any]:
    """``value`` if it is a list, else a list of it; empty for None."""
    return value if isinstance(value, list) else [] if value is None else [value]


def read_rankings(path: str | Path, data: RetrievalSet) -> list[Ranking]:
    """The rankings of a file, one for each system that it names; scored documents are ordered by score, and queries and
    documents that ``data`` does not have are ignored."""
    path = Path(path)
    systems: dict[str, Gathering] = {}
    judged: set[str] = set()
    for scored in _known(path, {query.id for query in data.queries}, "negatives"):
        gathering = systems.setdefault(scored.system, Gathering(float))
        documents = scored.documents if scored.scores is not None else scored.documents[scored.relevant :]
        for name, score in zip(documents, scored.scores or (0.0,) * len(documents), strict=True):
            gathering.append(scored.query, name, score)
        judged.add(scored.query)
    named = ", ".join(filter(None, systems)) or "no named system"
    console.say(f"  {path.name}: negatives of {named} for {len(judged)} queries")
    return [Lazy(len(data.queries), partial(_best_first, data, each.finish()[0])) for each in systems.values()]


def _best_first(data: RetrievalSet, scores: ByQuery[float], row: int) -> list[int]:
    scored = sorted(data.by_number(scores, data.queries[row].id).items(), key=lambda scored: -scored[1])
    return [document for document, _ in scored if document >= 0]


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
        for row in _known(path, data.qrels, "scores"):
            if row.scores is None:
                continue
            scored = True
            known = data.numbers_of(row.documents) >= 0
            unknown += len(known) - int(known.sum())
            for name, score in compress(zip(row.documents, row.scores, strict=True), known):
                gathering.append(row.query, name, score)
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
                grades.append(query, name, grade)
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
    return replace(data, queries=queries, qrels=qrels, scores=only(scores, qrels.keys()))


def _known(path: Path, queries: Collection[str], what: str) -> Iterator[Row]:
    """The lists for ``queries`` in a file; raises one DataError with the problems of all its lists at the end."""
    problems, known = Problems(), False
    for row in problems.parsed(path, _listed_rows(path), _parsed):
        if row.query in queries:
            known = True
            yield row
    if not problems.found and not known:
        problems.add(path, f"has no {what} for any of the {len(queries)} queries of the training data")
    problems.stop_if_any()


def _listed_rows(path: Path) -> Iterable[tuple[int, Any]]:
    """Number and content of each row, or a complaint about it."""
    match form_of(path):
        case ".pkl" | ".pickle":
            raise DataError(
                f"{path}: is a pickle, which can run code when it is opened. The scores of msmarco-hard-negatives are "
                "also available as parquet: sentence-transformers/msmarco-scores-ms-marco-MiniLM-L6-v2, folder list."
            )
        case ".trec" | ".run" | ".res":
            lines = trec_rows(enumerate(read_lines(path), 1))
            return ((number, row if isinstance(row, str) else [row[0], row[1:]]) for number, row in lines)
        case ".parquet":
            return read_parquet(path)
        case ".json" | ".jsonl":
            return read_jsonl(path, kinds=(dict, list))
        case _:
            raise DataError(f"{path}: has an unknown format. Rankings and scores are {FORMS}.")


def _parsed(row: Any) -> Iterator[Row]:
    """The lists in a row with named ids; in ``[query, [document, score], ...]``, or ``[query, document, ...]`` without
    scores."""
    if not isinstance(row, list):
        yield from parse_row(row, IDS, _id)
        return
    query, *entries = row or [None]
    if entries and all(isinstance(entry, list | tuple) and len(entry) == 2 for entry in entries):
        yield Row(_id(query), [_id(entry[0]) for entry in entries], scores=numbers([entry[1] for entry in entries]))
    else:
        yield Row(_id(query), [_id(entry) for entry in entries])


def _id(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("the id of the query or of a document is missing, or neither a string nor a whole number")
    return str(value)
