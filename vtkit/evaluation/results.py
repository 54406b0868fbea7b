"""Results of systems on collections, as values that stages, commands and reports share: nothing heavy is imported
here."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

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

Number = int | float | None  # a measure that could not be taken is None
PerQuery = Mapping[str, Mapping[str, float]]  # measure -> query id -> value


@dataclass(frozen=True)
class Tested(Result):
    """The difference of a system from the baseline in one measure."""

    difference: float
    randomization: float
    """p of Fisher's randomisation test, corrected for all systems that are compared on the collection; so ``t``."""

    t: float  # p of Student's paired t-test


@dataclass(frozen=True, kw_only=True)
class SystemResult(Result):
    """One system on one collection: what it is, what it costs, its measures and their tests."""

    role: Role
    system: str = ""
    """Its name. In a run: ``BM25``, ``BM25 (words)``, ``source``, a stage's name, a peer's, one of these with
    ``+ BM25``, or ``deployed``. Which kind it is, ``role`` says."""

    label: str = ""
    measures: Mapping[str, Number] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Measure -> 95 % interval of its mean over the queries; empty for results in a run."""

    tested: Mapping[str, Tested] = field(default_factory=dict)
    """Measure -> the comparison with the baseline; empty for the baseline itself, without one, and in a run."""

    p_value_vs_bm25: Number = None
    """In a run, p of the difference from the better BM25 in the first measure (paired randomisation test): of the
    planned row corrected for the sets (Holm), of all others exploratory and uncorrected."""

    p_value_vs_planned: Number = None
    """p of the difference from the planned row, for dense embedders and their sums only; corrected over these rows of
    all sets (Holm)."""

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
    def name(self) -> str:
        """The name on pages."""
        return self.label or self.system

    @property
    def peer(self) -> bool:
        """True for a dense embedder of ``evaluate.peers``, or its sum with BM25."""
        return self.role in ("peer", "peer-sum")


@dataclass(frozen=True, kw_only=True)
class SetResults(Result):
    """Systems on one collection: of a stage its one system, of a report, a comparison or a sweep all of theirs."""

    set: str
    rows: tuple[SystemResult, ...] = ()
    queries: int | None = None
    documents: int | None = None
    share_cut: Number = None  # share of documents longer than the final model reads
    document_length: int | None = None  # tokens that the final model reads at most
    not_comparable: tuple[str, ...] = ()  # why they cannot stand beside published ones: sampled, or missing
    passages: int | None = None  # that the documents are cut into; ``share_cut`` is then of these

    @classmethod
    def of(cls, name: str, collection: RetrievalSet, rows: Iterable[SystemResult]) -> Self:
        """Systems that were evaluated on the queries of ``collection``."""
        return cls(
            set=name,
            rows=tuple(rows),
            queries=len(collection.queries),
            documents=len(collection.documents),
            not_comparable=collection.not_comparable,
        )

    @property
    def unit(self) -> str:
        """The name of the texts that are encoded: documents, or their passages."""
        return "documents" if self.passages is None else "passages"

    @property
    def label(self) -> str:
        """The name of the set, with a remark if its figures do not compare with published ones."""
        return f"{self.set}, not comparable ({'; '.join(self.not_comparable)})" if self.not_comparable else self.set

    @property
    def measures(self) -> list[str]:
        """The measures, in the order of the recipe."""
        return list(dict.fromkeys(name for row in self.rows for name in row.measures))

    @property
    def measure(self) -> str:
        """The main measure, the first; empty without any."""
        return next(iter(self.measures), "")

    def value(self, row: SystemResult | None) -> float | None:
        """The main measure of ``row``."""
        value = None if row is None else row.measures.get(self.measure)
        return float(value) if value is not None and math.isfinite(value) else None

    def best(self, rows: Iterable[SystemResult]) -> SystemResult | None:
        """The row that is best in the main measure."""
        return max(rows, key=lambda row: -math.inf if (value := self.value(row)) is None else value, default=None)

    @property
    def final(self) -> SystemResult | None:
        """The run's final model."""
        return next((row for row in reversed(self.rows) if row.role == "encoder"), None)

    @property
    def planned(self) -> SystemResult | None:
        """The one row of the set that is tested as planned: the index to be used, or else the final model."""
        return next((row for row in reversed(self.rows) if row.role == "deployed"), self.final)

    @property
    def bm25(self) -> SystemResult | None:
        """The BM25 that is better in the first measure: no claim is made against a weak one."""
        return self.best(row for row in self.rows if row.role == "bm25")

    @property
    def hybrid(self) -> SystemResult | None:
        """The sum of the final model and BM25: in the index to be used, if it has a lexical part, else of two
        rankings."""
        if self.planned is not None and self.planned.fusion is not None:
            return self.planned
        return next((row for row in self.rows if row.role == "sum"), None)

    @property
    def source(self) -> SystemResult | None:
        """The source model, if it is not the final one."""
        return next((row for row in self.rows if row.system == "source" and row is not self.final), None)

    @property
    def peers(self) -> list[SystemResult]:
        """The dense embedders and their sums with BM25."""
        return [row for row in self.rows if row.peer]


@dataclass(frozen=True)
class Ranking:
    """The results of a system for the queries of a collection."""

    run: Run
    result: SystemResult  # without measures until it is evaluated
    per_query: PerQuery = field(default_factory=dict)

    def evaluated(self, collection: RetrievalSet, measures: Sequence[str]) -> Self:
        """This ranking with its measures over the queries of ``collection``; a query without results counts 0."""
        queries = {query.id for query in collection.queries}
        qrels = {query: judged for query, judged in collection.qrels.items() if query in queries}
        values = per_query(self.run, qrels, measures)
        return replace(self, result=replace(self.result, measures=means(values)), per_query=values)

    def write(self, folder: Path, tag: str) -> None:
        """Write ``run.trec.gz`` and ``per_query.json`` into ``folder``, which is made."""
        folder.mkdir(parents=True)
        write_trec(self.run, folder / RUN_FILE, f"vtkit-{tag}")
        (folder / PER_QUERY).write_text(json.dumps(self.per_query, ensure_ascii=False), encoding="utf-8")


def means(values: PerQuery) -> dict[str, float]:
    """Each measure, averaged over the queries."""
    return {name: sum(of_queries.values()) / len(of_queries) for name, of_queries in values.items()}


def read_per_query(folder: Path) -> dict[str, dict[str, float]]:
    """Measure -> query -> value, as :meth:`Ranking.write` left them in ``folder``."""
    path = folder / PER_QUERY
    try:
        return {str(name): dict(values) for name, values in json.loads(path.read_text("utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is missing or damaged. Run the recipe again: vtkit run RECIPE.") from error
