"""Results for pages: tables that explain themselves, queries won and lost beside another system, example searches."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from vtkit.evaluation.results import Number, SetResults, SystemResult
from vtkit.report.blocks import Block, Cell, Foreign, Hit, Inlines, Paragraph, Piece, Section, Strong, Table, Token
from vtkit.report.data import Example, Outcomes, ReportData, WeightedToken
from vtkit.report.plots import effectiveness_chart
from vtkit.report.wording import amount, is_number, p_value, score, share, shorten
from vtkit.search.results import readable

TOKENS_SHOWN = 24  # tokens of an example query, and of each result, that are shown; the rest is summed up in one number

MEASURES = {  # measure, in lower case and without its depth -> its explanation
    "ndcg": "Normalised discounted cumulative gain: how high the relevant documents rank.",
    **dict.fromkeys(("rr", "mrr"), "Reciprocal rank of the first relevant document, averaged over the queries."),
    "r": "Recall: the share of the relevant documents that are found.",
    "ap": "Average precision: precision at the rank of each relevant document, averaged.",
    "judged": "Share of the results that have a relevance judgement.",
}

COLUMNS = {  # column -> its explanation
    "query dims": "Weights above zero in a query, on average: the posting lists that a search reads.",
    "doc dims": "Weights above zero in a document, on average: what the index stores.",
    "FLOPS": "Dimensions that a random query and a random document are expected to share: what a comparison costs.",
    "p": (
        "Two-sided paired randomisation test of the first measure against the better BM25, planned for this row alone "
        "and corrected for the sets of the run (Holm). Below 0.05, chance is an unlikely explanation of the difference."
    ),
    "exploratory p": (
        "The same test of the other rows, not planned and not corrected: a low p may come from testing many rows. "
        "Confirm it on other queries."
    ),
}


def results_table(
    caption: str,
    head: str,
    results: SetResults,
    further: Mapping[str, Sequence[str]],
    *,
    measures: Sequence[str] = (),
    form: Callable[[Number], str] = score,
    notes: Mapping[str, str] | None = None,
) -> Table:
    """A row for each system: its measures, with half of the interval if it has one, the best of each bold; then
    ``further`` columns.

    Args:
        head: what the systems are.
        further: a cell for each row; a column without any is left out.
        measures: some of the measures; default: all.
    """
    rows, measures = results.rows, measures or results.measures
    best = {name: max(filter(is_number, (row.measures.get(name) for row in rows)), default=None) for name in measures}
    further = {title: cells for title, cells in further.items() if any(cell not in ("", "–") for cell in cells)}
    lines: list[tuple[Cell, ...]] = []
    for row, *cells in zip(rows, *further.values(), strict=True):
        shown: list[Cell] = []
        for measure in measures:
            value, (low, high) = row.measures.get(measure), row.intervals.get(measure, (0.0, 0.0))
            text = f"{form(value)} ±{score((high - low) / 2)}" if measure in row.intervals else form(value)
            shown.append(Strong(text) if is_number(value) and value == best[measure] else text)
        lines.append((row.name, *shown, *cells))
    titles = (*measures, *further)
    explained = {title: note for title in titles if (note := COLUMNS.get(title) or measure_note(title))}
    return Table(caption, (head, *titles), lines, notes=explained | dict(notes or {}))


def measure_note(name: str) -> str:
    """The explanation of a measure, with its depth."""
    kind, _, depth = name.partition("@")
    meaning = MEASURES.get(kind.lower(), "")
    return f"{meaning} Over the first {depth} results." if meaning and depth else meaning


def results_section(report: ReportData) -> Section | None:
    """A table and a chart for each evaluation set, and the values that chose the weight of the sum with BM25."""
    sets = [results for results in report.results if results.measures]
    notes = [
        f"The encoder reads the first {amount(results.document_length)} tokens of a document: "
        f"{share(results.share_cut)} of the {results.unit} of {results.set} are longer. BM25 reads them whole."
        for results in sets
        if is_number(results.share_cut) and results.share_cut >= 0.01
    ]
    notes += [
        f"The {amount(results.documents)} documents of {results.set} are cut into {amount(results.passages)} passages; "
        "the encoder, BM25 and dense embedders rank each document by its best one."
        for results in sets
        if results.passages is not None
    ]
    notes += [
        f"{results.set}, {row.name}: {row.agreement.words()}."
        for results in sets
        for row in results.rows
        if row.agreement is not None
    ]
    blocks: list[Block] = [*map(set_table, sets), *(Paragraph(note, "quiet") for note in notes)]
    blocks += filter(None, map(_weights_table, sets))
    blocks += [chart for of in sets if (chart := effectiveness_chart(f"{of.measure} by stage, {of.label}", of))]
    return Section("results", "Results", blocks) if sets else None


def set_table(results: SetResults) -> Table:
    """The systems of an evaluation set: measures, sizes and tests."""
    rows = results.rows
    planned = results.planned
    further = {
        "query dims": [amount(row.query_dimensions) for row in rows],
        "doc dims": [amount(row.document_dimensions) for row in rows],
        "FLOPS": [amount(row.flops) for row in rows],
        "p": [p_value(row.p_value_vs_bm25) if row is planned else "–" for row in rows],
        "exploratory p": ["–" if row is planned else p_value(row.p_value_vs_bm25) for row in rows],
    }
    counts = {"queries": results.queries, "documents": results.documents}
    counted = ", ".join(f"{amount(count)} {name}" for name, count in counts.items() if count is not None)
    caption = f"{results.label} ({counted})" if counted else results.label
    notes = {row.name: note for row in rows if (note := _row_note(row))}
    return results_table(caption, "model", results, further, notes=notes)


def _row_note(row: SystemResult) -> str:
    """The explanation of a row: the system that it searches with."""
    said = [f"{row.analyser}, k1 {row.k1}, b {row.b}."] if row.analyser is not None else []
    if row.role == "peer":
        said.append("An embedder that could be used instead, searched exactly, with its own settings.")
    if row.query_encoder is not None:
        said.append(f"Queries are encoded by {row.query_encoder}.")
    if row.fusion is not None:
        said.append(
            "The sum of both scores, each divided by its deviation: "
            f"the encoder weighs {row.fusion.weight:g}, BM25 the rest ({row.fusion.words})."
        )
    return " ".join(said)


def _weights_table(results: SetResults) -> Table | None:
    """The values from which the weight of the sum with BM25 was chosen."""
    fusion = next((row.fusion for row in results.rows if row.fusion and row.fusion.curve and not row.peer), None)
    if fusion is None:
        return None
    cells = [Strong(score(value)) if weight == fusion.weight else score(value) for weight, value in fusion.curve]
    caption = (
        f"{results.label}: {results.measure} of the sum with BM25 on {amount(fusion.queries)} other judged queries, "
        "by the weight of the encoder"
    )
    return Table(caption, ("weight", *(f"{weight:.1f}" for weight, _ in fusion.curve)), [(results.measure, *cells)])


def queries_section(report: ReportData) -> Section | None:
    """The queries that were won and lost beside BM25, and example searches."""
    blocks = [] if report.outcomes is None else [*outcome_blocks(report.outcomes)]
    for example in report.examples:
        blocks += _example(example)
    if any(example.results for example in report.examples):
        blocks.append(Paragraph("Under each result: what each word of the query added to its score.", "quiet"))
    title = "Queries won and lost" if report.outcomes else "Example searches"
    return Section("queries", title, blocks) if blocks else None


def outcome_blocks(outcomes: Outcomes) -> Iterable[Block]:
    """How many queries a system won and lost beside another, and those that moved most."""
    counts = (
        f"Beside {outcomes.baseline}, {outcomes.system} is better on {amount(outcomes.won)} of the "
        f"{amount(outcomes.queries)} queries of {outcomes.set}, worse on {amount(outcomes.lost)}, and equal on "
        f"{amount(outcomes.queries - outcomes.won - outcomes.lost)} ({outcomes.measure})."
    )
    yield Paragraph(counts)
    for title, entries in (("Most won", outcomes.most_won), ("Most lost", outcomes.most_lost)):
        tokens = any(entry.tokens for entry in entries)
        columns = ("query", outcomes.measure, outcomes.baseline, *("searched as",) * tokens)
        rows = [
            (Foreign(shorten(entry.query)), score(entry.value), score(entry.baseline), _weighted(entry.tokens) or "–")
            for entry in entries
        ]
        if entries:
            yield Table(title, columns, [row[: len(columns)] for row in rows], frozenset({3}), own_texts=True)


def _example(example: Example) -> Iterable[Block]:
    yield Paragraph(f"{example.why}: {example.query}" if example.why else example.query, "heading")
    if example.tokens:
        yield Paragraph(("Searched as", *_weighted(example.tokens)), own_texts=True)
    yield from (Hit(result, _weighted(result.tokens, result.score)) for result in example.results)
    if not example.results:
        yield Paragraph("Nothing was found: no document shares a token with it.")


def _weighted(pairs: Iterable[WeightedToken], total: Number = None) -> Inlines:
    """The heaviest tokens with their weights, then the sum of the remaining weights: of those in ``pairs``, or of what
    is left of ``total`` if it is given."""
    numbers = ((readable(token), weight) for token, weight in pairs if is_number(weight))
    weighted = sorted(numbers, key=lambda pair: -pair[1])
    shown, others = weighted[:TOKENS_SHOWN], weighted[TOKENS_SHOWN:]
    heaviest = max((abs(weight) for _, weight in shown), default=0.0) or 1.0
    parts: list[str | Piece] = [Token(token, f"{weight:.2f}", abs(weight) / heaviest) for token, weight in shown]
    left = total - sum(weight for _, weight in shown) if is_number(total) else sum(weight for _, weight in others)
    if shown and left >= 0.005:
        parts.append(f"and {left:.2f} from {f'{len(others)} ' if others else ''}others")
    return tuple(parts)
