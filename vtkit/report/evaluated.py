"""The page of ``vtkit evaluate``: systems on collections, their differences, and their costs."""

from collections.abc import Sequence

from vtkit.evaluation.comparison import Comparison
from vtkit.evaluation.results import SetResults
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
    compared: list[Block] = []
    for each in outcomes:
        compared += [Paragraph(f"{each.system} on {each.set}", "heading"), *outcome_blocks(each)]
    failures = [(failure.system, failure.collection, failure.reason) for failure in comparison.failures]
    failed = Table("What could not be evaluated", ("system", "collection", "reason"), failures, frozenset({1, 2}))
    costs = [table for of in comparison.sets if (table := _costs(of)).rows]
    sections = [
        Section("results", "Results", _results(comparison)),
        Section("queries", "Queries won and lost", compared),
        Section("cost", "Cost", costs),
        Section("failures", "Failures", [failed] if failures else []),
    ]
    figures = []
    for of in comparison.sets[:4]:
        best = of.best(of.rows)
        assert best is not None
        figures.append((score(of.value(best)), f"{of.measure} of {best.system}, the best on {of.set}"))
    return Page(
        title=", ".join(dict.fromkeys(row.system for of in comparison.sets for row in of.rows)) or "nothing evaluated",
        kicker=f"vtkit evaluate · {created}",
        sections=[section for section in sections if section.blocks],
        headline="Not everything could be evaluated." if failures else "",
        harmful=bool(failures),
        figures=figures,
    )


def _results(comparison: Comparison) -> list[Block]:
    baseline = comparison.baseline
    blocks: list[Block] = []
    charts = []
    for of in comparison.sets:
        measure = of.measure
        further: dict[str, list[str]] = {"p (randomisation)": [], "p (t)": []}
        for row in of.rows:
            test, untested = row.tested.get(measure), "baseline" if row.system == baseline else "–"
            further["p (randomisation)"].append(p_value(test.randomization) if test else untested)
            further["p (t)"].append(p_value(test.t) if test else untested)
        caption = f"{of.set} ({amount(of.queries)} queries, {amount(of.documents)} documents)"
        blocks.append(results_table(caption, "system", of, further if any(row.tested for row in of.rows) else {}))
        for reason in of.not_comparable:
            blocks.append(Paragraph(f"Not comparable with published figures: {reason}.", "quiet"))
        chart = effectiveness_chart(f"{measure} by system, {of.set}", of)
        charts += [chart] if chart is not None else []
    if blocks:
        blocks.append(Paragraph("± half of the 95 % interval of the mean over the queries.", "quiet"))
    if any(row.tested for of in comparison.sets for row in of.rows):
        correction, measure = comparison.correction.title(), comparison.sets[0].measure
        tests = (
            f"p (randomisation) is Fisher's paired randomisation test of {measure} against {baseline}, two-sided; "
            f"p (t) is Student's paired t-test. Both are corrected for the rows of the table ({correction})."
        )
        blocks.append(Paragraph(tests, "quiet"))
    return [*blocks, *charts]


def _costs(results: SetResults) -> Table:
    rows = []
    for of in results.rows:
        cost = of.cost
        if cost is None:
            continue
        deciles = (cost.list_lengths or (0.0,) * 11, cost.list_maxima or (0.0,) * 11)
        shown = map(amount, (of.query_dimensions, of.document_dimensions, of.flops, cost.postings, cost.lists))
        of_lists = (f"{amount(each[5])} / {amount(each[-1])}" for each in deciles)
        steps = map(amount, (cost.score, cost.insert, cost.next, cost.next_geq))
        mean = f"{cost.mean_ms:.2f} ms (p50 {cost.median_ms:.2f}, p99 {cost.p99_ms:.2f})"
        sizes = (size(cost.index_bytes), size(cost.index_bytes / (results.documents or 1)))
        rows.append((of.system, *shown, *of_lists, *steps, mean, *sizes))
    notes = {name: COLUMNS[name] for name in ("query dims", "doc dims", "FLOPS")} | COSTS
    return Table(f"{results.set}, a query", ("system", *notes), rows, notes=notes)
