"""What came of a run, in one paragraph and a few numbers: the head of the page, and of the model card."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vtkit.report.blocks import KeyFigure
from vtkit.report.data import Number, ReportData, Row, sortable
from vtkit.report.wording import amount, is_number, p_value, score, share, visible
from vtkit.search.measures.significance import CHANCE
from vtkit.system.console import size

DEMONSTRATION = (
    "This run is a demonstration: its sizes were chosen so that it ends quickly. "
    "Its numbers show that the chain works and are not results to quote."
)

UNREAD = 0.01  # share of words with [UNK] from which on their number says more than that of tokens a word


def row_label(row: Row) -> str:
    """The name of a row of results as a person says it."""
    return row.label or row.model


@dataclass(frozen=True)
class Standing:
    """The run's final model and the systems beside it on one set."""

    name: str
    measure: str
    final: Row
    bm25: Row | None  # the better of the rows of BM25: the baseline of all tests
    hybrid: Row | None  # the sum of both: in the index to be used, if it has a lexical part, else of two rankings
    deployed: Row  # the index that is to be used; the final model where the run has no index of its own for that
    source: Row | None
    peers: tuple[Row, ...] = ()  # the dense embedders and their sums with BM25

    def value(self, row: Row | None) -> float | None:
        """``row``'s value of the main measure."""
        found = row.measures.get(self.measure) if row is not None else None
        return float(found) if is_number(found) else None


def standings(report: ReportData) -> list[Standing]:
    """One :class:`Standing` for each set on which an encoder was judged; the main measure is the first."""
    found = []
    for results in report.results:
        by_model = {row.model: row for row in results.rows}
        encoders = [row for row in results.rows if row.role == "encoder"]
        if not results.measures or not encoders or results.planned is None:
            continue
        final, deployed = encoders[-1], results.planned
        summed = next((row for row in results.rows if row.role == "sum"), None)
        found.append(
            Standing(
                name=results.set,
                measure=results.measures[0],
                final=final,
                bm25=results.bm25,
                hybrid=summed if deployed.balance is None else deployed,
                deployed=deployed,
                source=by_model.get("source") if final.model != "source" else None,
                peers=tuple(row for row in results.rows if row.peer),
            )
        )
    return [standing for standing in found if standing.value(standing.final) is not None]


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
        """By how much, and whether beyond chance."""
        said = f"{_signed(self.gain)} {'over' if self.gain >= 0 else 'against'} {self.label}"
        if len(self.gains) == 1:
            ((_, p),) = self.gains.values()
            return f"{said}, p {related(p)}" if is_number(p) else said
        above, below = len(self.beyond_chance(1)), ", ".join(self.beyond_chance(-1)) or "none"
        return f"{said} on average, above it beyond chance on {above} of {len(self.gains)} sets, below it on {below}"


def comparisons(stood: Sequence[Standing]) -> list[Beside]:
    """The index to be used beside BM25, the best dense embedder, and the best sum of an embedder with BM25, in this
    order, as far as they were evaluated. An embedder that is better beyond chance comes before all that may not be."""
    rows: dict[str, dict[str, dict[str, tuple[float, Number]]]] = {"bm25": {}, "peer": {}, "peer-sum": {}}
    for standing in stood:
        for row in (*([standing.bm25] if standing.bm25 is not None else []), *standing.peers):
            value, other = standing.value(standing.deployed), standing.value(row)
            bm25 = row.role == "bm25"
            label, p = ("BM25", standing.deployed.p_value_vs_bm25) if bm25 else (row_label(row), row.p_value_vs_planned)
            if value is not None and other is not None:
                rows[row.role].setdefault(label, {})[standing.name] = value - other, p
    beside = ([Beside(label, gains) for label, gains in of_role.items()] for of_role in rows.values())
    return [min(of_role, key=lambda each: (not each.beyond_chance(-1), each.gain)) for of_role in beside if of_role]


@dataclass(frozen=True)
class Recommendation:
    """Whether to deploy what a run made, in one line."""

    text: str
    harmful: bool  # whether it is below BM25 beyond chance
    better: Beside | None = None  # the first dense embedder, or its sum with BM25, that is better beyond chance


def recommendation(report: ReportData) -> Recommendation | None:
    """By the differences of the index to be used from BM25, the embedder, and the embedder with BM25, and their p
    values; None if nothing was evaluated. One set on which it is below BM25 beyond chance is a reason against it."""
    stood = standings(report)
    if not stood:
        return None
    first, beside = stood[0], comparisons(stood)
    system = "the one index" if first.deployed is first.hybrid else "the encoder"
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
    value = f"{first.measure} {score(first.value(first.deployed))}" if len(stood) == 1 else first.measure
    said = f"{head}: {', '.join([value, '; '.join(each.words for each in beside)])}"
    if better is not None and report.to_try:
        said += f". To come closer, try {' or '.join(report.to_try)}"
    return Recommendation(visible(said), harmful, better)


def _signed(value: float) -> str:
    return f"{'+' if value >= 0 else ''}{score(value)}"


def related(p: float) -> str:
    """A p value behind the letter p."""
    return p_value(p) if p < 0.001 else f"= {p_value(p)}"


def verdict(report: ReportData) -> str:
    """The figures of the run in one paragraph: a sentence for each of the first two sets, then vocabulary and size.
    Empty without any."""
    stood = standings(report)
    sentences = []
    for standing in stood[:2]:
        values = [f"{label} {score(standing.value(row))}" for label, row in _systems(standing).items()]
        sentences.append(f"{standing.measure} on {standing.name}: {', '.join(values)}.")
    sentences += [
        f"Figures on {results.set} are not comparable with published ones ({'; '.join(results.not_comparable)})."
        for results in report.results
        if results.not_comparable
    ]
    if report.vocabulary is not None:
        sentences.append(
            f"Of the {amount(report.vocabulary.target_size)} tokens of the new vocabulary "
            f"{share(report.vocabulary.overlap_share)} were known to the source model."
        )
    cut = _fragmentation(report)
    if cut:
        sentences.append(cut)
    if stood and is_number(stood[0].final.document_dimensions):
        row = stood[0].final
        query = f" and a query {amount(row.query_dimensions)}" if is_number(row.query_dimensions) else ""
        sentences.append(f"A document activates {amount(row.document_dimensions)} dimensions on average{query}.")
    return visible(" ".join(sentences))


def _fragmentation(report: ReportData) -> str:
    """How much shorter, or longer, the new vocabulary makes the queries (or, without queries, the documents)."""
    analysis = report.vocabularies
    if analysis is None or analysis.source is None:
        return ""
    for text, old, new in (
        ("a query", analysis.source.queries, analysis.target.queries),
        ("a document", analysis.source.documents, analysis.target.documents),
    ):
        if old is not None and new is not None:
            cut = (
                f"The new vocabulary cuts a word of {text} into {new.tokens_per_word:.2f} tokens on average, the "
                f"source's into {old.tokens_per_word:.2f}."
            )
            if max(old.unknown_words, new.unknown_words) < UNREAD:
                return cut
            # a word that is one [UNK] is one token, and nothing is known of it
            if new.unknown_words < UNREAD:
                return f"The source's vocabulary cannot read {share(old.unknown_words)} of the words of {text}. {cut}"
            return (
                f"{share(new.unknown_words)} of the words of {text} cannot be read with the new vocabulary, "
                f"{share(old.unknown_words)} with the source's. {cut}"
            )
    return ""


def _systems(standing: Standing) -> dict[str, Row]:
    """The rows that a reader compares first, by their names in words, each once and the system to deploy first."""
    one_index = standing.deployed is standing.hybrid
    peer = max(standing.peers, key=lambda row: sortable(row.measures.get(standing.measure)), default=None)
    rows: dict[str, Row | None] = {
        "the one index" if one_index else row_label(standing.deployed): standing.deployed,
        "BM25": standing.bm25,
        "the encoder alone": standing.final,
        "encoder and BM25 together": standing.hybrid,
        "" if peer is None else row_label(peer): peer,
        "the source model": standing.source,
    }
    shown: dict[str, Row] = {}
    for label, row in rows.items():
        if row is not None and row not in shown.values() and standing.value(row) is not None:
            shown[label] = row
    return shown


def key_figures(report: ReportData) -> list[KeyFigure]:
    """Numbers of the first set for the head of the page, the system to deploy first; empty without any."""
    stood = standings(report)
    if not stood:
        return []
    first = stood[0]
    where = f" on {first.name}" if len(stood) > 1 else ""
    if any(results.not_comparable for results in report.results if results.set == first.name):
        where += " (not comparable)"
    figures = [
        KeyFigure(score(first.value(row)), f"{first.measure}, {label}{where}")
        for label, row in _systems(first).items()
        if row is not first.source
    ]
    if is_number(first.final.document_dimensions):
        figures.append(KeyFigure(amount(first.final.document_dimensions), "active dimensions a document"))
    if report.cost is not None:
        figures.append(KeyFigure(size(report.cost.index_bytes), "index"))
        figures.append(KeyFigure(f"{report.cost.query_ms:,.1f} ms", "a query, median"))
    return figures
