"""The verdict on a run, one sentence a set and a few numbers: the head of the page, and of the model card."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vtkit.evaluation.results import Number, SetResults, SystemResult
from vtkit.report.data import ReportData
from vtkit.report.wording import amount, is_number, p_value, score, visible
from vtkit.search.measures.significance import CHANCE
from vtkit.system.console import size

DEMONSTRATION = (
    "This run is a demonstration: its sizes were chosen so that it ends quickly. "
    "Its numbers show that the chain works and are not results to quote."
)


@dataclass(frozen=True)
class Beside:
    """The index to be used beside another system, on the sets that have both."""

    label: str
    gains: Mapping[str, tuple[float, Number]]  # set -> how much the index is above it, and p

    @property
    def gain(self) -> float:
        """Averaged over the sets."""
        return sum(gain for gain, _ in self.gains.values()) / len(self.gains)

    def beyond_chance(self, sign: Literal[1, -1]) -> list[str]:
        """The sets on which the index is better (1) or worse (-1) beyond chance."""
        return [name for name, (gain, p) in self.gains.items() if sign * gain > 0 and is_number(p) and p < CHANCE]

    @property
    def words(self) -> str:
        """The mean difference, with p, or the sets on which it is beyond chance."""
        gain = f"{self.gain:+.3f}".replace("-", "−")
        said = f"{gain} {'over' if self.gain >= 0 else 'against'} {self.label}"
        if len(self.gains) == 1:
            ((_, p),) = self.gains.values()
            return f"{said}, p {related(p)}" if is_number(p) else said
        above, below = len(self.beyond_chance(1)), ", ".join(self.beyond_chance(-1)) or "none"
        return f"{said} on average, above it beyond chance on {above} of {len(self.gains)} sets, below it on {below}"


def comparisons(judged: Sequence[SetResults]) -> list[Beside]:
    """The index to be used beside BM25, the best dense embedder, and the best sum of an embedder with BM25, in this
    order, as far as they were evaluated. An embedder that is better beyond chance comes before all that may not be."""
    gains: dict[str, dict[str, dict[str, tuple[float, Number]]]] = {"bm25": {}, "peer": {}, "peer-sum": {}}
    for of in judged:
        planned = of.planned
        assert planned is not None  # an encoder is judged
        for row in (row for row in (of.bm25, *of.peers) if row is not None):
            label, p = (row.name, row.p_value_vs_planned) if row.peer else ("BM25", planned.p_value_vs_bm25)
            value, other = of.value(planned), of.value(row)
            if value is not None and other is not None:
                gains[row.role].setdefault(label, {})[of.set] = value - other, p
    beside = ([Beside(label, on_sets) for label, on_sets in of_role.items()] for of_role in gains.values())
    return [min(of_role, key=lambda each: (not each.beyond_chance(-1), each.gain)) for of_role in beside if of_role]


@dataclass(frozen=True)
class Recommendation:
    """One line on whether to deploy the index or encoder of a run."""

    text: str
    harmful: bool  # it is below BM25 beyond chance
    better: Beside | None = None  # the first dense embedder, or its sum with BM25, that is better beyond chance


def recommendation(report: ReportData) -> Recommendation | None:
    """By the differences of the index to be used from BM25, the embedder, and the embedder with BM25, and their p
    values; None if nothing was evaluated. One set on which it is below BM25 beyond chance is a reason against it."""
    if not report.judged:
        return None
    first, beside = report.judged[0], comparisons(report.judged)
    system = "the one index" if first.planned is first.hybrid else "the encoder"
    bm25 = next((each for each in beside if each.label == "BM25"), None)
    better = next((each for each in beside if each is not bm25 and each.beyond_chance(-1)), None)
    above, harmful = (bm25 is not None and bool(bm25.beyond_chance(sign)) for sign in (1, -1))
    if bm25 is None:
        head = f"Compare {system} with BM25 (evaluate.bm25) before you deploy it"
    elif harmful:
        head = f"Do not deploy {system}"
    elif above and better is not None:
        head = f"{system.capitalize()} is better than BM25, but {better.label} is better still"
    else:
        head = f"Deploy {system}" if above else f"No gain shown by {system}"
    if not beside:
        return Recommendation(head, False)
    value = f"{first.measure} {score(first.value(first.planned))}" if len(report.judged) == 1 else first.measure
    said = f"{head}: {', '.join([value, '; '.join(each.words for each in beside)])}"
    if better is not None and report.to_try:
        said += f". To come closer, try {' or '.join(report.to_try)}"
    return Recommendation(visible(said), harmful, better)


def related(p: float) -> str:
    """A p value behind the letter p."""
    return p_value(p) if p < 0.001 else f"= {p_value(p)}"


def verdict(report: ReportData) -> str:
    """A sentence for each of the first two sets, and for each set whose figures do not compare. Empty without any."""
    sentences = []
    for of in report.judged[:2]:
        values = [f"{label} {score(of.value(row))}" for label, row in _systems(of).items()]
        sentences.append(f"{of.measure} on {of.set}: {', '.join(values)}.")
    sentences += [
        f"Figures on {of.set} are not comparable with published ones ({'; '.join(of.not_comparable)})."
        for of in report.results
        if of.not_comparable
    ]
    return visible(" ".join(sentences))


def _systems(of: SetResults) -> dict[str, SystemResult]:
    """The rows that a reader compares first, by their names in words, each once and the system to deploy first."""
    deployed, peer = of.planned, of.best(of.peers)
    rows = {
        "the one index" if deployed is of.hybrid else deployed.name if deployed is not None else "": deployed,
        "BM25": of.bm25,
        "the encoder alone": of.final,
        "encoder and BM25 together": of.hybrid,
        peer.name if peer is not None else "": peer,
        "the source model": of.source,
    }
    shown: dict[str, SystemResult] = {}
    for label, row in rows.items():
        if row is not None and row not in shown.values() and of.value(row) is not None:
            shown[label] = row
    return shown


def key_figures(report: ReportData) -> list[tuple[str, str]]:
    """Numbers of the first set for the head of the page, each with its name, the system to deploy first."""
    if not report.judged:
        return []
    first = report.judged[0]
    where = f" on {first.set}" if len(report.judged) > 1 else ""
    where += " (not comparable)" if first.not_comparable else ""
    figures = [
        (score(first.value(row)), f"{first.measure}, {label}{where}")
        for label, row in _systems(first).items()
        if row is not first.source
    ]
    dimensions = None if first.final is None else first.final.document_dimensions
    if is_number(dimensions):
        figures.append((amount(dimensions), "active dimensions a document"))
    if report.cost is not None:
        figures += [(size(report.cost.index_bytes), "index"), (f"{report.cost.query_ms:,.1f} ms", "a query, median")]
    return figures
