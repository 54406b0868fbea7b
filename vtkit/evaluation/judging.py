"""Rankings and their measures, as values that stages, commands and reports share: nothing heavy is imported here."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from vtkit.data.retrieval import RetrievalSet
from vtkit.data.trec import Run, write_trec
from vtkit.evaluation.fusion import FusionWeight
from vtkit.search.measures.agreement import Agreement
from vtkit.search.measures.cost import QueryCost, SearchCost
from vtkit.search.measures.effectiveness import per_query
from vtkit.system.errors import DataError
from vtkit.system.results import Result

Role = Literal["encoder", "bm25", "sum", "deployed", "peer", "peer-sum", "index", "run", "reranked"]
"""An encoder alone; BM25; the sum of both; the encoder's index as it is to be used; a dense embedder, and its sum
with BM25; an index or a run file of any origin; another system's results reranked."""

RUN_FILE, PER_QUERY = "run.trec.gz", "per_query.json"


@dataclass(frozen=True, kw_only=True)
class SystemFacts(Result):
    """The system behind a ranking, and its cost."""

    role: Role
    query_dimensions: float | None = None
    """Mean number of weights above zero; this and the next three are of encoders only."""

    document_dimensions: float | None = None
    flops: float | None = None  # vtkit.search.measures.cost.flops
    tied_scores: float | None = None  # share of the queries with equal scores among their first 10 results
    query_encoder: str | None = None  # the query encoder in words; None where documents have the same
    analyser: str | None = None  # how BM25 cuts texts into terms; this, `k1` and `b` are of BM25 only
    k1: float | None = None
    b: float | None = None
    fusion: FusionWeight | None = None  # of a sum with BM25
    agreement: Agreement | None = None  # with exact search, of engines that are not exact
    cost: QueryCost | None = None  # of searching its lists, where it has some and was asked to count
    search_cost: SearchCost | None = None  # of dense embedders, encoding included

    @property
    def facts(self) -> dict[str, Any]:
        """These fields by their names, for classes that add further ones."""
        return {field.name: getattr(self, field.name) for field in fields(SystemFacts)}


@dataclass(frozen=True, kw_only=True)
class Evaluated(SystemFacts):
    """A system judged on one collection."""

    queries: int
    documents: int
    measures: Mapping[str, float]
    not_comparable: tuple[str, ...] = ()
    """Why the measures cannot stand beside published ones (:attr:`RetrievalSet.not_comparable`)."""


@dataclass(frozen=True)
class EvaluateResult(Result):
    """One system judged on each evaluation set."""

    sets: Mapping[str, Evaluated]


@dataclass(frozen=True)
class Ranking:
    """The results of a system for the queries of a collection."""

    run: Run
    facts: SystemFacts


@dataclass(frozen=True)
class Judged:
    """A ranking with its measures."""

    evaluated: Evaluated
    run: Run
    per_query: Mapping[str, Mapping[str, float]]  # measure -> query id -> value

    def write(self, folder: Path, tag: str) -> Evaluated:
        """Write ``run.trec.gz`` and ``per_query.json`` into ``folder``, which is made; returns the measures."""
        folder.mkdir(parents=True)
        write_trec(self.run, folder / RUN_FILE, f"vtkit-{tag}")
        (folder / PER_QUERY).write_text(json.dumps(self.per_query, ensure_ascii=False), encoding="utf-8")
        return self.evaluated


def read_per_query(folder: Path) -> dict[str, dict[str, float]]:
    """Measure -> query -> value, as :meth:`Judged.write` left them in ``folder``."""
    path = folder / PER_QUERY
    try:
        return {str(name): dict(values) for name, values in json.loads(path.read_text("utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is missing or damaged. Run the recipe again: vtkit run RECIPE.") from error


def judge(collection: RetrievalSet, ranking: Ranking, measures: Sequence[str]) -> Judged:
    """The measures of ``ranking`` over the queries of ``collection``; a query without results counts 0."""
    queries = {query.id for query in collection.queries}
    qrels = {query: judged for query, judged in collection.qrels.items() if query in queries}
    values = per_query(ranking.run, qrels, measures)
    evaluated = Evaluated(
        **ranking.facts.facts,
        queries=len(collection.queries),
        documents=len(collection.documents),
        measures={name: sum(of_queries.values()) / len(of_queries) for name, of_queries in values.items()},
        not_comparable=collection.not_comparable,
    )
    return Judged(evaluated, ranking.run, values)
