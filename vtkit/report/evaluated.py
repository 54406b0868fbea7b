"""The page of ``vtkit evaluate``: systems on collections, their differences, and their costs."""

from collections.abc import Mapping, Sequence

from vtkit.evaluation.comparison import Cell, Comparison
from vtkit.report.blocks import Block, Page, Paragraph, Section, Table
from vtkit.report.data import Outcomes
from vtkit.report.plots import effectiveness_chart
from vtkit.report.results import COLUMNS, outcome_blocks, results_table
from vtkit.report.wording import amount, p_value, score
from vtkit.system.console import size

COSTS = {  # column of the table of costs -> its explanation
    "postings": "Postings in the lists of a query together, on average: what is read where nothing is pruned.",
    "lists": "Lists that a query has.",
    "list length": "Length of the index's lists: the middle one, and the longest.",
    "list maximum": "Largest weight of a list: of the middle one, and of all.",
    "SCORE": "Products of weights that MaxScore adds up for 10 results of a query.",
    "INSERT": "Documents that enter its heap of the best.",
    "NEXT": "Steps to the following posting.",
    "NEXT-GEQ": "Jumps to the posting of a document that another list holds.",
    "mean": "To search an encoded query for 10 results with one thread, by vtkit's exact search.",
    "index": "Bytes of the lists, without the documents' texts.",
    "a document": "Size of the index by the number of documents.",
}


def evaluated_page(comparison: Comparison, outcomes: Sequence[Outcomes], created: str) -> Page:
    """The page of a comparison, with the queries won and lost beside the baseline."""
    by_collection, measure = comparison.by_collection(), comparison.measures[0]
    compared: list[Block] = []
    for each in outcomes:
        compared += [Paragraph(f"{each.system} on {each.set}", "heading"), *outcome_blocks(each)]
    failures = [(failure.system, failure.collection, failure.reason) for failure in comparison.failures]
    failed = Table("What could not be evaluated", ("system", "collection", "reason"), failures, frozenset({1, 2}))
    costs = [table for name, cells in by_collection.items() if (table := _costs(name, cells)).rows]
    sections = [
        Section("results", "Results", _results(comparison, by_collection)),
        Section("queries", "Queries won and lost", compared),
        Section("cost", "Cost", costs),
        Section("failures", "Failures", [failed] if failures else []),
    ]
    figures = []
    for collection, cells in list(by_collection.items())[:4]:
        best = max(cells, key=lambda cell: cell.evaluated.measures[measure])
        value = score(best.evaluated.measures[measure])
        figures.append((value, f"{measure} of {best.system}, the best on {collection}"))
    return Page(
        title=", ".join(dict.fromkeys(cell.system for cell in comparison.cells)) or "nothing evaluated",
        kicker=f"vtkit evaluate · {created}",
        sections=[section for section in sections if section.blocks],
        headline="Not everything could be evaluated." if failures else "",
        harmful=bool(failures),
        figures=figures,
    )


def _results(comparison: Comparison, by_collection: Mapping[str, Sequence[Cell]]) -> list[Block]:
    measure, baseline = comparison.measures[0], comparison.baseline
    blocks: list[Block] = []
    charts = []
    for collection, cells in by_collection.items():
        first = cells[0].evaluated
        further: dict[str, list[str]] = {"p (randomisation)": [], "p (t)": []}
        for cell in cells:
            test, untested = cell.tested.get(measure), "baseline" if cell.system == baseline else "–"
            further["p (randomisation)"].append(p_value(test.randomization) if test else untested)
            further["p (t)"].append(p_value(test.t) if test else untested)
        rows = [(cell.system, cell.evaluated.measures, cell.intervals) for cell in cells]
        caption = f"{collection} ({amount(first.queries)} queries, {amount(first.documents)} documents)"
        blocks.append(results_table(caption, "system", rows, further if any(cell.tested for cell in cells) else {}))
        for reason in first.not_comparable:
            blocks.append(Paragraph(f"Not comparable with published figures: {reason}.", "quiet"))
        systems = [(cell.system, cell.evaluated.measures[measure], cell.evaluated.role) for cell in cells]
        charts.append(effectiveness_chart(f"{measure} by system, {collection}", systems))
    if blocks:
        blocks.append(Paragraph("± half of the 95 % interval of the mean over the queries.", "quiet"))
    if any(cell.tested for cell in comparison.cells):
        correction = comparison.correction.title()
        tests = (
            f"p (randomisation) is Fisher's paired randomisation test of {measure} against {baseline}, two-sided; "
            f"p (t) is Student's paired t-test. Both are corrected for the rows of the table ({correction})."
        )
        blocks.append(Paragraph(tests, "quiet"))
    return [*blocks, *charts]


def _costs(collection: str, cells: Sequence[Cell]) -> Table:
    rows = []
    for cell in cells:
        cost, of = cell.evaluated.cost, cell.evaluated
        if cost is None:
            continue
        deciles = (cost.list_lengths or (0.0,) * 11, cost.list_maxima or (0.0,) * 11)
        shown = map(amount, (of.query_dimensions, of.document_dimensions, of.flops, cost.postings, cost.lists))
        of_lists = (f"{amount(each[5])} / {amount(each[-1])}" for each in deciles)
        steps = map(amount, (cost.score, cost.insert, cost.next, cost.next_geq))
        mean = f"{cost.mean_ms:.2f} ms (p50 {cost.median_ms:.2f}, p99 {cost.p99_ms:.2f})"
        sizes = (size(cost.index_bytes), size(cost.index_bytes / of.documents))
        rows.append((cell.system, *shown, *of_lists, *steps, mean, *sizes))
    notes = {name: COLUMNS[name] for name in ("query dims", "doc dims", "FLOPS")} | COSTS
    return Table(f"{collection}, a query", ("system", *notes), rows, notes=notes)
