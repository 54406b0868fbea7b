"""What came of a run, in one paragraph and a few numbers: the head of the page, and of the model card."""

from collections.abc import Sequence
from dataclasses import dataclass

from vtkit.evaluation.measures.significance import CHANCE
from vtkit.report.blocks import KeyFigure
from vtkit.report.data import Number, ReportData, Row
from vtkit.report.wording import amount, is_number, p_value, score, share, visible
from vtkit.system.console import size

DEMONSTRATION = (
    "This run is a demonstration: its sizes were chosen so that it ends quickly. "
    "Its numbers show that the chain works and are not results to quote."
)

UNREAD = 0.01  # share of words with [UNK] from which on their number says more than that of tokens a word


def row_label(row: Row) -> str:
    """The name of a row of results as a person says it."""
    return row.label or row.model


def is_encoder(row: Row) -> bool:
    """Whether a row is of one of the run's own models, alone."""
    return row.role == "encoder"


@dataclass(frozen=True)
class Standing:
    """Where the run's final model stands on one set."""

    name: str
    measure: str
    final: Row
    bm25: Row | None  # the better of the rows of BM25: what everything is judged against
    hybrid: Row | None  # the sum of both: in the index to be used, if it has a lexical part, else of two rankings
    deployed: Row  # the index that is to be used; the final model where the run has no index of its own for that
    source: Row | None
    peer: Row | None = None  # the best of the peers and their sums with BM25

    def value(self, row: Row | None) -> float | None:
        """``row``'s value of the main measure."""
        found = row.measures.get(self.measure) if row is not None else None
        return float(found) if is_number(found) else None


def standings(report: ReportData) -> list[Standing]:
    """One :class:`Standing` for each set on which an encoder was judged; the main measure is the first."""
    found = []
    for results in report.results:
        by_model = {row.model: row for row in results.rows}
        encoders = [row for row in results.rows if is_encoder(row)]
        if not results.measures or not encoders:
            continue
        final, measure = encoders[-1], results.measures[0]
        baselines = [row for row in results.rows if row.role == "bm25"]
        deployed = by_model.get("deployed", final)
        summed = next((row for row in results.rows if row.role == "sum"), None)
        found.append(
            Standing(
                name=results.set,
                measure=measure,
                final=final,
                bm25=max(baselines, key=lambda row: _sortable(row.measures.get(measure)), default=None),
                hybrid=summed if deployed.balance is None else deployed,
                deployed=deployed,
                source=by_model.get("source") if final.model != "source" else None,
                peer=max(
                    (row for row in results.rows if row.peer),
                    key=lambda row: _sortable(row.measures.get(measure)),
                    default=None,
                ),
            )
        )
    return [standing for standing in found if standing.value(standing.final) is not None]


def _sortable(value: Number) -> float:
    return float(value) if is_number(value) else -1.0


@dataclass(frozen=True)
class Recommendation:
    """Whether to deploy what a run made, in one line."""

    text: str
    harmful: bool  # whether it is below BM25 beyond chance


def recommendation(report: ReportData) -> Recommendation | None:
    """By the difference of the index to be used from the better BM25 and its p; None if nothing was evaluated. Of
    several sets, one that is below BM25 beyond chance is a reason against it."""
    stood = standings(report)
    if not stood:
        return None
    first = stood[0]
    system = "the one index" if first.deployed is first.hybrid else "the encoder"
    gains = [(standing.name, *_gain(standing, standing.deployed)) for standing in stood if standing.bm25 is not None]
    if not gains:
        return Recommendation(f"Compare {system} with BM25 (evaluate.bm25) before you deploy it", False)
    below = [name for name, gain, p in gains if gain < 0 and p < CHANCE]
    above = [name for name, gain, p in gains if gain > 0 and p < CHANCE]
    head = f"Do not deploy {system}" if below else f"Deploy {system}" if above else f"No gain shown by {system}"
    if len(gains) == 1:
        said = f"{first.measure} {score(first.value(first.deployed))}, "
        said += f"{_signed(gains[0][1])} over BM25, p {_related(gains[0][2])}"
    else:
        said = f"{_signed(sum(gain for _, gain, _ in gains) / len(gains))} {first.measure} over BM25 on average, "
        said += f"above it beyond chance on {len(above)} of {len(gains)} sets, below it on {', '.join(below) or 'none'}"
    return Recommendation(visible(f"{head}: {said}"), bool(below))


def _gain(standing: Standing, row: Row) -> tuple[float, float]:
    """By how much ``row`` is above BM25, and p."""
    value, bm25, p = standing.value(row), standing.value(standing.bm25), row.p_value_vs_bm25
    return (value or 0.0) - (bm25 or 0.0), p if is_number(p) else 1.0


def _signed(value: float) -> str:
    return f"{'+' if value >= 0 else ''}{score(value)}"


def _related(p: float) -> str:
    return p_value(p) if p < 0.001 else f"= {p_value(p)}"


def verdict(report: ReportData) -> str:
    """What came of the run, in one paragraph computed from its numbers. Empty where there are none."""
    stood = standings(report)
    sentences = [_set_verdict(standing, first=standing is stood[0]) for standing in stood[:2]]
    if len(stood) > 2:
        sentences.append(_all_sets_verdict(stood))
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


def _set_verdict(standing: Standing, first: bool) -> str:
    final, bm25 = standing.value(standing.final), standing.value(standing.bm25)
    hybrid, source = standing.value(standing.hybrid), standing.value(standing.source)
    assert final is not None  # standings() passed over sets without it
    label = row_label(standing.final)
    after = label[0].upper() + label[1:] if label.startswith("after ") else f"For the {label}"
    text = f"{after}, {standing.measure} on {standing.name} is " if first else f"On {standing.name} it is "
    text += score(final)
    if bm25 is not None:
        text += f", {_compared(final, bm25, standing.final.p_value_vs_bm25)}"
    if bm25 is not None and hybrid is not None:
        better = "BM25" if bm25 >= final else "the encoder"
        helps = round(hybrid, 3) > round(max(final, bm25), 3)
        text += f"; together they reach {score(hybrid)}, "
        text += "better than either alone" if helps else f"no better than {better} alone"
        p = standing.hybrid.p_value_vs_bm25 if standing.hybrid is not None else None
        if helps and better == "BM25" and is_number(p) and p >= CHANCE:
            text += f", which may be chance (p = {p_value(p)})"
    peer = standing.value(standing.peer)
    if standing.peer is not None and peer is not None:
        text += f". The best dense peer, {row_label(standing.peer)}, has {score(peer)}"
    if source is not None:
        text += f". The source model reached {score(source)}" if first else f" (source model: {score(source)})"
    return text + "."


def _compared(final: float, bm25: float, p: Number) -> str:
    if round(final, 3) == round(bm25, 3):
        return "as BM25"
    text = f"{'above' if final > bm25 else 'below'} BM25's {score(bm25)}"
    if not is_number(p):
        return text
    return f"{text} (p {_related(p)})" if p < CHANCE else f"{text}, which may be chance (p {_related(p)})"


def _all_sets_verdict(stood: Sequence[Standing]) -> str:
    compared = [(standing.value(standing.final), standing.value(standing.bm25)) for standing in stood]
    pairs = [(final, bm25) for final, bm25 in compared if final is not None and bm25 is not None]
    if not pairs:
        return ""
    ahead = sum(final > bm25 for final, bm25 in pairs)
    means = [sum(values) / len(pairs) for values in zip(*pairs, strict=True)]
    return f"Ahead of BM25 on {ahead} of {len(pairs)} sets (mean {score(means[0])} against {score(means[1])})."


def key_figures(report: ReportData) -> list[KeyFigure]:
    """Numbers of the first set for the head of the page, the system to deploy first; empty without any."""
    stood = standings(report)
    if not stood:
        return []
    first = stood[0]
    where = f" on {first.name}" if len(stood) > 1 else ""
    if any(results.not_comparable for results in report.results if results.set == first.name):
        where += " (not comparable)"
    deployed = "the one index" if first.deployed is first.hybrid else row_label(first.deployed)
    rows: dict[str, Row | None] = {deployed: first.deployed}
    rows |= {"BM25": first.bm25, "the encoder alone": first.final, "encoder and BM25 together": first.hybrid}
    figures: list[KeyFigure] = []
    shown: list[Row] = []
    for label, row in rows.items():
        if row is not None and row not in shown and first.value(row) is not None:
            shown.append(row)
            figures.append(KeyFigure(score(first.value(row)), f"{first.measure}, {label}{where}"))
    if is_number(first.final.document_dimensions):
        figures.append(KeyFigure(amount(first.final.document_dimensions), "active dimensions a document"))
    if report.cost is not None:
        figures.append(KeyFigure(size(report.cost.index_bytes), "index"))
        figures.append(KeyFigure(f"{report.cost.query_ms:,.1f} ms", "a query, median"))
    return figures
