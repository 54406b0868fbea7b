"""The page of a run and its sections; a part of the run without data has no section."""

import shlex
from collections.abc import Callable

from vtkit.report.blocks import Bar, Block, Page, Paragraph, Section, Strong, Table, table_of
from vtkit.report.data import ReportData
from vtkit.report.diagnosis import diagnose
from vtkit.report.plots import histogram_chart
from vtkit.report.results import queries_section, results_section
from vtkit.report.training import calibration_section, training_section
from vtkit.report.verdict import DEMONSTRATION, key_figures, recommendation, verdict
from vtkit.report.vocabularies import coverage_section, fragmentation_section, neighbours_section, vocabulary_section
from vtkit.report.wording import amount, duration, is_number, share, visible
from vtkit.search.measures.cost import SearchCost
from vtkit.system.console import size


def report_page(report: ReportData) -> Page:
    """The page of a run: verdict, figures and advice, then the sections."""
    deploy = recommendation(report)
    return Page(
        title=visible(report.name) or "run",
        kicker=" · ".join(visible(part) for part in ("vtkit report", report.language, report.created) if part),
        notice=f"Demonstration. {DEMONSTRATION}" if report.demonstration else "",
        about=report.about or "",
        headline="" if deploy is None else f"{deploy.text}.",
        harmful=deploy is not None and deploy.harmful,
        figures=key_figures(report),
        advice=[text for _, text in diagnose(report)],
        summary=verdict(report),
        sections=sections(report),
        language=visible(report.language or "en").partition(",")[0],
    )


def sections(report: ReportData) -> list[Section]:
    """The sections of the page, in reading order."""
    made = (
        results_section, queries_section, _cost, vocabulary_section, training_section, calibration_section, _gates,
        _sparsity, coverage_section, fragmentation_section, neighbours_section, _times, _reproduction,
    )  # fmt: skip
    return [section for make in made if (section := make(report)) is not None]


def _gates(report: ReportData) -> Section | None:
    if not report.gates:
        return None
    rows = [(gate.gate, gate.stage, gate.finding, f"{gate.seen} {gate.advice}".strip()) for gate in report.gates]
    title = "Whether each stage can have worked"
    table = Table(title, ("gate", "after", "finding", "seen"), rows, frozenset({1, 2, 3}))
    return Section("gates", "Gates", [table], folded=all(gate.finding == "pass" for gate in report.gates))


def _sparsity(report: ReportData) -> Section | None:
    sparsity = report.sparsity
    if sparsity is None:
        return None
    dead = f"{share(sparsity.dead_dimensions)} of the dimensions that can be active are dead"
    blocks: list[Block] = [Paragraph(f"{dead}: no document activates them.")]
    if sparsity.largest_share is not None and sparsity.median_share is not None:
        of_others = f"Of the others, the most used is active in {share(sparsity.largest_share)} of the documents, "
        blocks.append(Paragraph(f"{of_others}the middle one in {share(sparsity.median_share)}."))
    counts, edges = sparsity.size_counts, sparsity.size_edges
    if sum(counts) > 0:
        middle = next(bin for bin in range(len(counts)) if 2 * sum(counts[: bin + 1]) >= sum(counts))
        spread = (
            f"Of {amount(sum(counts))} documents the middle one has {amount(edges[middle])} to "
            f"{amount(edges[middle + 1])} active dimensions; all lie between {amount(edges[0])} and "
            f"{amount(edges[-1])}."
        )
        blocks += [Paragraph(spread), histogram_chart(counts, edges)]
    return Section("sparsity", "Sparsity", blocks, folded=True)


def _cost(report: ReportData) -> Section | None:
    cost = report.cost
    if cost is None:
        return None
    rows = report.results[0].rows if report.results else ()
    costs = {"deployed index": cost} | {row.name: row.search_cost for row in rows if row.search_cost is not None}
    left_out = "–" if report.sparsity is None else f"{share(report.sparsity.left_out)} of their weights"
    figures: dict[str, Callable[[SearchCost], str]] = {
        "index": lambda of: size(of.index_bytes),
        "a document": lambda of: size(of.index_bytes / of.documents),
        "left out of documents": lambda of: left_out if of is cost else "–",
        "a query, encoded and searched, median": lambda of: f"{of.query_ms:,.1f} ms",
        "a query, 99th percentile": lambda of: f"{of.query_ms_p99:,.1f} ms",
        "parameters that encode queries": lambda of: amount(of.parameters or 0),
    }
    caption = f"{cost.set}, {amount(cost.documents)} documents, {amount(cost.queries)} queries one at a time"
    return Section("cost", "Cost", [table_of(caption, costs, figures)])


def _times(report: ReportData) -> Section | None:
    seconds = {stage: spent for stage, spent in report.seconds.items() if is_number(spent)}
    total = sum(seconds.values())
    if total <= 0:
        return None
    rows = [(stage, duration(took), Bar(share(took / total), share=took / total)) for stage, took in seconds.items()]
    all_stages = (Strong("total"), Strong(duration(total)), "")
    table = Table("Time of each stage", ("stage", "time", "share"), [*rows, all_stages])
    return Section("times", f"Time: {duration(total)}", [table], folded=True)


def _reproduction(report: ReportData) -> Section | None:
    blocks: list[Block] = []
    if report.command:
        sentences = ["Run it in the same folder, with the versions below installed. Finished stages are not repeated."]
        for local, said in (
            (True, "These files and folders must be there"),
            (False, "From the Hugging Face hub (add --download if its local cache lacks them)"),
        ):
            names = dict.fromkeys(need.name for need in report.needs if need.local is local)
            sentences += [f"{said}: {', '.join(names)}."] if names else []
        blocks.append(Paragraph(shlex.join(report.command), "command", own_texts=True))
        blocks.append(Paragraph(" ".join(sentences), own_texts=True))
    facts = [f"Seed {report.seed}."] if report.seed is not None else []
    facts += [f"{', '.join(f'{name} {version}' for name, version in report.versions.items())}."] * bool(report.versions)
    if facts:
        blocks.append(Paragraph(" ".join(facts)))
    if report.recipe_toml:
        blocks.append(Paragraph(report.recipe_toml, "recipe", own_texts=True))
    return Section("reproduction", "To run it again", blocks) if blocks else None
