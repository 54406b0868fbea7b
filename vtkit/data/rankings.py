"""Rankings in a file: documents that some systems put near the top for training queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vtkit import console
from vtkit.data.problems import Problems
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.text import read_jsonl

Ranking = Sequence[Sequence[int]]
"""For each query document numbers, best first; -1 stands for none."""


def read_rankings(path: str | Path, data: RetrievalSet) -> list[Ranking]:
    """The rankings of a file in the layout of msmarco-hard-negatives, one for each system that it names.

    A line is ``{"qid": ..., "pos": [...], "neg": {"bm25": [...], ...}}``, ids as in ``data``; ``neg`` may be one list.
    Queries and documents that ``data`` has not are passed over.

    Raises:
        DataError: lines are damaged, all at once; or none is of a query that ``data`` judges.
    """
    path = Path(path)
    queries = {query.id: row for row, query in enumerate(data.queries)}
    documents = {document.id: number for number, document in enumerate(data.documents)}
    systems: dict[str, dict[int, list[int]]] = {}
    problems = Problems()
    known = 0
    with problems.reading(path):
        for line, entry in read_jsonl(path):
            if isinstance(entry, str):
                problems.add(path, f"line {line}: {entry}")
                continue
            query, negatives = entry.get("qid"), entry.get("neg")
            lists = negatives if isinstance(negatives, dict) else {"": negatives}
            if not isinstance(query, str | int) or not all(isinstance(ids, list) for ids in lists.values()):
                problems.add(path, f"line {line}: qid is missing, or neg is not lists of document ids by system")
            elif (row := queries.get(str(query))) is not None:
                known += 1
                for system, ids in lists.items():
                    there = [documents[name] for name in map(str, ids or []) if name in documents]
                    systems.setdefault(system, {})[row] = there
    if not problems.found and not known:
        problems.add(path, f"has no negatives for any of the {len(queries)} queries that finetune.data judges")
    problems.stop_if_any()
    console.say(f"  {path.name}: negatives of {', '.join(systems) or 'no system'} for {known} queries")
    return [[found.get(row, []) for row in range(len(queries))] for found in systems.values()]
