"""The page of ``vtkit evaluate``: systems on collections, what separates them, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vtkit.evaluation.comparison import Cell, Comparison
from vtkit.report.blocks import Block, Heading, Inline, KeyFigure, Page, Paragraph, Section, Strong, Table
from vtkit.report.data import Outcomes, ReportData, Row, SetResults
from vtkit.report.results import COLUMNS, measure_note, outcome_blocks
from vtkit.report.wording import amount, p_value, score
from vtkit.system.console import size

if TYPE_CHECKING:
    from vtkit.report.plots import Chart

COSTS = {  # column of the table of costs -> what it is
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
}


def evaluated_page(comparison: Comparison, outcomes: Sequence[Outcomes], created: str) -> Page:
    """The page of a comparison, with the queries won and lost beside the baseline."""
    systems = dict.fromkeys(cell.system for cell in comparison.cells)
    cells = comparison.by_collection()
    compared = tuple(
        block for each in outcomes for block in (Heading(f"{each.system} on {each.set}"), *outcome_blocks(each))
    )
    won_and_lost = Section("queries", "Queries won and lost", compared) if compared else None
    sections = [_results(comparison, cells), won_and_lost, _costs(cells), _failures(comparison)]
    measure, figures = comparison.measures[0], []
    for collection, of in list(cells.items())[:4]:
        best = max(of, key=lambda cell: cell.evaluated.measures[measure])
        value = score(best.evaluated.measures[measure])
        figures.append(KeyFigure(value, f"{measure} of {best.system}, the best on {collection}"))
    return Page(
        title=", ".join(systems) or "nothing evaluated",
        kicker=f"vtkit evaluate · {created}",
        sections=tuple(section for section in sections if section is not None),
        headline="" if not comparison.failures else "Not everything could be evaluated.",
        harmful=bool(comparison.failures),
        figures=tuple(figures),
    )


def evaluated_charts(comparison: Comparison) -> Mapping[str, Sequence[Chart]]:
    """A bar for each system on each collection."""
    from vtkit.report.plots import effectiveness_charts

    sets = []
    for collection, cells in comparison.by_collection().items():
        rows = [
            Row(**cell.evaluated.facts, model="BM25" if cell.system == "bm25" else cell.system, label=cell.system,
                measures=cell.evaluated.measures)
            for cell in cells
        ]  # fmt: skip
        sets.append(SetResults(collection, tuple(rows)))
    return {"results": effectiveness_charts(ReportData(results=tuple(sets)), "system")}


def _results(comparison: Comparison, by_collection: Mapping[str, list[Cell]]) -> Section | None:
    blocks: list[Block] = []
    for collection, cells in by_collection.items():
        tested = any(cell.tested for cell in cells)
        columns = ("system", *comparison.measures, *(("p (randomisation)", "p (t)") if tested else ()))
        best = {name: max(cell.evaluated.measures[name] for cell in cells) for name in comparison.measures}
        rows = []
        for cell in cells:
            shown: list[Inline] = []
            for name in comparison.measures:
                low, high = cell.intervals[name]
                value = cell.evaluated.measures[name]
                text = f"{score(value)} ±{score((high - low) / 2)}"
                shown.append(Strong(text) if value == best[name] else text)
            test = cell.tested.get(comparison.measures[0])
            if test is not None:
                shown += [p_value(test.randomization), p_value(test.t)]
            untested = "baseline" if cell.system == comparison.baseline else "–"
            shown += [untested] * (len(columns) - 1 - len(shown))
            rows.append((cell.system, *shown))
        first = cells[0].evaluated
        caption = f"{collection} ({amount(first.queries)} queries, {amount(first.documents)} documents)"
        notes = {name: note for name in comparison.measures if (note := measure_note(name))}
        notes["p (randomisation)"] = (
            f"Fisher's paired randomisation test of {comparison.measures[0]} against {comparison.baseline}, two-sided, "
            f"corrected for the rows of the table ({comparison.correction.title()})."
        )
        notes["p (t)"] = "Student's paired t-test, corrected in the same way."
        notes = {name: note for name, note in notes.items() if name in columns}
        blocks.append(Table(caption, columns, rows, notes=notes))
        for reason in first.not_comparable:
            blocks.append(Paragraph(f"Not comparable with published figures: {reason}.", quiet=True))
    if not blocks:
        return None
    said = "± half of the 95 % interval of the mean over the queries."
    return Section("results", "Results", (*blocks, Paragraph(said, quiet=True)))


def _costs(by_collection: Mapping[str, list[Cell]]) -> Section | None:
    tables = []
    kinds = {"query dims": "query_dimensions", "doc dims": "document_dimensions", "FLOPS": "flops"}
    for collection, cells in by_collection.items():
        rows = []
        for cell in cells:
            cost = cell.evaluated.cost
            if cost is None:
                continue
            sizes = [getattr(cell.evaluated, field) for field in kinds.values()]
            shown = ["–" if each is None else amount(each) for each in sizes]
            shown += map(amount, (cost.postings, cost.lists))
            for deciles in (cost.list_lengths or (0.0,) * 11, cost.list_maxima or (0.0,) * 11):
                shown.append(f"{amount(deciles[5])} / {amount(deciles[-1])}")
            shown += map(amount, (cost.score, cost.insert, cost.next, cost.next_geq))
            shown.append(f"{cost.mean_ms:.2f} ms (p50 {cost.median_ms:.2f}, p99 {cost.p99_ms:.2f})")
            rows.append((cell.system, *shown, size(cost.index_bytes)))
        if rows:
            columns = ("system", *kinds, *COSTS)
            notes = {name: note for name in columns if (note := COSTS.get(name) or COLUMNS.get(name))}
            tables.append(Table(f"{collection}, a query", columns, rows, notes=notes))
    return Section("cost", "Cost", tuple(tables)) if tables else None


def _failures(comparison: Comparison) -> Section | None:
    rows = [(failure.system, failure.collection, failure.reason) for failure in comparison.failures]
    if not rows:
        return None
    table = Table("What could not be evaluated", ("system", "collection", "reason"), rows, frozenset({1, 2}))
    return Section("failures", "Failures", (table,))
