"""Results of a run for its page: tables that explain themselves, queries won and lost beside BM25, example searches."""

from collections.abc import Callable, Iterable

from vtkit.report.blocks import (
    Block,
    Cell,
    Foreign,
    Heading,
    Hit,
    Inline,
    Inlines,
    Paragraph,
    Section,
    Strong,
    Table,
    Token,
)
from vtkit.report.data import Example, Number, Outcomes, ReportData, Row, SetResults, WeightedToken
from vtkit.report.verdict import row_label
from vtkit.report.wording import amount, is_number, p_value, score, share, shorten

TOKENS_SHOWN = 24  # tokens of an example query, and of each result, that are shown; the rest is summed up in one number

MEASURES = {  # measure, in lower case and without its depth -> what it is
    "ndcg": "Normalised discounted cumulative gain: how high the relevant documents rank.",
    "rr": "Reciprocal rank of the first relevant document, averaged over the queries.",
    "mrr": "Reciprocal rank of the first relevant document, averaged over the queries.",
    "r": "Recall: the share of the relevant documents that are found.",
    "ap": "Average precision: precision at the rank of each relevant document, averaged.",
    "judged": "Share of the results that have a relevance judgement.",
}

COLUMNS = {  # column -> what it is
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


def results_section(report: ReportData) -> Section | None:
    """A table for each evaluation set, and what the weight of the sum with BM25 was chosen from."""
    tables = [table for results in report.results if (table := _results_table(results)) is not None]
    if not tables:
        return None
    said = [
        f"The encoder reads the first {amount(results.document_length)} tokens of a document: "
        f"{share(results.share_cut)} of the documents of {results.set} are longer. BM25 reads them whole."
        for results in report.results
        if is_number(results.share_cut) and results.share_cut >= 0.01
    ]
    said += [
        f"{results.set}, {row_label(row)}: {row.agreement.words()}."
        for results in report.results
        for row in results.rows
        if row.agreement is not None
    ]
    notes = [Paragraph(sentence, quiet=True) for sentence in said]
    weights = [table for results in report.results if (table := _weights_table(results)) is not None]
    return Section("results", "Results", (*tables, *notes, *weights))


def _results_table(results: SetResults) -> Table | None:
    rows, measures = results.rows, results.measures
    if not rows or not measures:
        return None
    columns: list[tuple[str, list[Number], Callable[[Number], str]]] = [
        ("query dims", [row.query_dimensions for row in rows], amount),
        ("doc dims", [row.document_dimensions for row in rows], amount),
        ("FLOPS", [row.flops for row in rows], amount),
        ("p", [row.p_value_vs_bm25 if row is results.planned else None for row in rows], p_value),
        ("exploratory p", [None if row is results.planned else row.p_value_vs_bm25 for row in rows], p_value),
    ]
    columns = [column for column in columns if any(map(is_number, column[1]))]
    best = {
        name: max(numbers)
        for name in measures
        if (numbers := [value for row in rows if is_number(value := row.measures.get(name))])
    }
    cells = []
    for position, row in enumerate(rows):
        shown: list[Inline] = []
        for name in measures:
            value = row.measures.get(name)
            shown.append(Strong(score(value)) if is_number(value) and value == best[name] else score(value))
        shown += [form(numbers[position]) for _, numbers, form in columns]
        cells.append((row_label(row), *shown))
    counts = {"queries": results.queries, "documents": results.documents}
    said = ", ".join(f"{amount(count)} {name}" for name, count in counts.items() if count is not None)
    titles = [*measures, *(title for title, _, _ in columns)]
    notes = {title: note for title in titles if (note := COLUMNS.get(title) or measure_note(title))}
    notes |= {row_label(row): note for row in rows if (note := _row_note(row))}
    caption = f"{results.label} ({said})" if said else results.label
    return Table(caption, ("model", *titles), cells, notes=notes)


def measure_note(name: str) -> str:
    """The explanation of a measure, with its depth."""
    kind, _, depth = name.partition("@")
    meaning = MEASURES.get(kind.lower(), "")
    return f"{meaning} Over the first {depth} results." if meaning and depth else meaning


def _row_note(row: Row) -> str:
    """The explanation of a row: the system that it searches with."""
    said = [f"{row.analyser}, k1 {row.k1}, b {row.b}."] if row.analyser is not None else []
    if row.role == "peer":
        said.append("An embedder that could be used instead, searched exactly, with its own settings.")
    if row.query_encoder is not None:
        said.append(f"Queries are encoded by {row.query_encoder}.")
    if row.balance is not None:
        said.append(
            "The sum of both scores, each divided by its deviation: "
            f"the encoder weighs {row.balance.weight:g}, BM25 the rest ({row.balance.words})."
        )
    return " ".join(said)


def _weights_table(results: SetResults) -> Table | None:
    """The values from which the weight of the sum with BM25 was chosen."""
    for row in results.rows:
        balance = row.balance
        if balance is not None and balance.curve and not row.peer:
            cells = [
                Strong(score(value)) if weight == balance.weight else score(value) for weight, value in balance.curve
            ]
            caption = (
                f"{results.label}: {results.measures[0]} of the sum with BM25 on {amount(balance.queries)} other "
                "judged queries, by the weight of the encoder"
            )
            weights = [f"{weight:.1f}" for weight, _ in balance.curve]
            return Table(caption, ("weight", *weights), [(results.measures[0], *cells)])
    return None


def queries_section(report: ReportData) -> Section | None:
    """The queries that were won and lost beside BM25, and example searches."""
    blocks: list[Block] = []
    outcomes = report.outcomes
    if outcomes is not None:
        blocks += outcome_blocks(outcomes)
    for example in report.examples:
        blocks += _example(example)
    if any(example.results for example in report.examples):
        blocks.append(Paragraph("Under each result: what each word of the query added to its score.", quiet=True))
    title = "Queries won and lost" if outcomes else "Example searches"
    return Section("queries", title, tuple(blocks)) if blocks else None


def outcome_blocks(outcomes: Outcomes) -> list[Block]:
    """How many queries a system won and lost beside another, and those that moved most."""
    said = (
        f"Beside {outcomes.baseline}, {outcomes.system} is better on {amount(outcomes.won)} of the "
        f"{amount(outcomes.queries)} queries of {outcomes.set}, worse on {amount(outcomes.lost)}, and equal on "
        f"{amount(outcomes.queries - outcomes.won - outcomes.lost)} ({outcomes.measure})."
    )
    blocks: list[Block] = [Paragraph(said)]
    for title, entries in (("Most won", outcomes.most_won), ("Most lost", outcomes.most_lost)):
        if entries:
            tokens = any(entry.tokens for entry in entries)
            columns = ("query", outcomes.measure, outcomes.baseline, *("searched as",) * tokens)
            rows: list[tuple[Cell, ...]] = []
            for entry in entries:
                row = Foreign(shorten(entry.query)), score(entry.value), score(entry.baseline)
                rows.append((*row, _weighted(entry.tokens, None) or "–") if tokens else row)
            blocks.append(Table(title, columns, rows, frozenset({3}), own_texts=True))
    return blocks


def _example(example: Example) -> list[Block]:
    blocks: list[Block] = [Heading(f"{example.why}: {example.query}" if example.why else example.query)]
    if example.tokens:
        blocks.append(Paragraph(("Searched as", *_weighted(example.tokens, None)), own_texts=True))
    for result in example.results:
        blocks.append(
            Hit(
                rank=amount(result.rank),
                score=amount(result.score),
                identifier=result.id,
                title=result.title,
                text=shorten(result.text),
                tokens=_weighted(result.tokens, result.score),
                relevant=result.relevant,
            )
        )
    if not example.results:
        blocks.append(Paragraph("Nothing was found: no document shares a token with it."))
    return blocks


def _weighted(pairs: Iterable[WeightedToken], total: Number) -> Inlines:
    """Tokens with their weights, heaviest first; what is left of ``total`` (default: their sum) beyond them, last."""
    weighted = sorted(((token, weight) for token, weight in pairs if is_number(weight)), key=lambda pair: -pair[1])
    shown, others = weighted[:TOKENS_SHOWN], weighted[TOKENS_SHOWN:]
    heaviest = max((abs(weight) for _, weight in shown), default=0.0)
    parts: list[Inline] = [
        Token(token, f"{weight:.2f}", abs(weight) / heaviest if heaviest else 0.0) for token, weight in shown
    ]
    left = total - sum(weight for _, weight in shown) if is_number(total) else sum(weight for _, weight in others)
    if shown and left >= 0.005:
        parts.append(f"and {left:.2f} from {f'{len(others)} ' if others else ''}others")
    return tuple(parts)
