"""What the report of a run says: its page, made of sections; a part of the run without data gives none."""

import shlex
from collections.abc import Callable

from vtkit.report.blocks import Bar, Block, Command, Folded, Page, Paragraph, Section, Strong, Table
from vtkit.report.data import ReportData
from vtkit.report.diagnosis import diagnose
from vtkit.report.results import queries_section, results_section
from vtkit.report.training import calibration_section, training_section
from vtkit.report.verdict import DEMONSTRATION, key_figures, recommendation, row_label, verdict
from vtkit.report.vocabularies import coverage_section, fragmentation_section, neighbours_section, vocabulary_section
from vtkit.report.wording import amount, duration, is_number, share, visible, whole
from vtkit.search.measures.cost import SearchCost
from vtkit.system.console import size


def report_page(report: ReportData) -> Page:
    """The page of a run: verdict, figures and advice, then the sections."""
    advice = recommendation(report)
    return Page(
        title=visible(report.name) or "run",
        kicker=" · ".join(visible(part) for part in ("vtkit report", report.language, report.created) if part),
        notice=f"Demonstration. {DEMONSTRATION}" if report.demonstration else "",
        about=report.about or "",
        headline="" if advice is None else f"{advice.text}.",
        harmful=advice is not None and advice.harmful,
        figures=tuple(key_figures(report)),
        advice=tuple(finding.text for finding in diagnose(report)),
        summary=verdict(report),
        sections=tuple(sections(report)),
        language=visible(report.language or "en"),
    )


def sections(report: ReportData) -> list[Section]:
    """The sections of the page, in reading order."""
    found = [
        results_section(report),
        queries_section(report),
        _cost(report),
        vocabulary_section(report),
        training_section(report),
        calibration_section(report),
        _gates(report),
        _sparsity(report),
        coverage_section(report),
        fragmentation_section(report),
        neighbours_section(report),
        _times(report),
        _reproduction(report),
    ]
    return [section for section in found if section is not None]


def _gates(report: ReportData) -> Section | None:
    if not report.gates:
        return None
    rows = [(gate.gate, gate.stage, gate.finding, f"{gate.seen} {gate.advice}".strip()) for gate in report.gates]
    title = "Whether each stage can have worked"
    table = Table(title, ("gate", "after", "finding", "seen"), rows, frozenset({1, 2, 3}))
    return Section("gates", "Gates", (table,), folded=all(gate.finding == "pass" for gate in report.gates))


def _sparsity(report: ReportData) -> Section | None:
    sparsity = report.sparsity
    if sparsity is None:
        return None
    said = [
        f"{share(sparsity.dead_dimensions)} of the dimensions that can be active are dead: no document activates them."
    ]
    frequencies = sparsity.document_frequencies
    if frequencies is not None:
        said.append(
            f"Of the others, the most used is active in {share(frequencies.largest)} of the documents, "
            f"the middle one in {share(frequencies.median)}."
        )
    counts, edges = histogram(report)
    if counts:
        half, seen, bin = sum(counts) / 2, 0.0, 0
        while seen + counts[bin] < half:
            seen += counts[bin]
            bin += 1
        said.append(
            f"Of {amount(sum(counts))} documents the middle one has {whole(edges[bin])} to {whole(edges[bin + 1])} "
            f"active dimensions; all lie between {whole(edges[0])} and {whole(edges[-1])}."
        )
    return Section("sparsity", "Sparsity", tuple(map(Paragraph, said)), folded=True)


def histogram(report: ReportData) -> tuple[list[int], list[float]]:
    """Counts and edges (one more) of documents by active dimensions; both empty where there are none."""
    recorded = report.sparsity.documents_histogram if report.sparsity is not None else None
    if recorded is None:
        return [], []
    counts, edges = list(recorded.counts), list(recorded.edges)
    if len(edges) != len(counts) + 1 or not all(map(is_number, edges)) or sum(counts) <= 0:
        return [], []
    return counts, edges


def _cost(report: ReportData) -> Section | None:
    cost = report.cost
    if cost is None:
        return None
    costs = {"deployed index": cost}
    for row in report.results[0].rows if report.results else ():
        if row.search_cost is not None:
            costs[row_label(row)] = row.search_cost
    kinds: dict[str, Callable[[SearchCost], str]] = {
        "index": lambda of: size(of.index_bytes),
        "a document": lambda of: size(of.index_bytes / of.documents),
        "a query, encoded and searched, median": lambda of: f"{of.query_ms:,.1f} ms",
        "a query, 99th percentile": lambda of: f"{of.query_ms_p99:,.1f} ms",
        "parameters that encode queries": lambda of: amount(of.parameters or 0),
    }
    cells = [(label, *map(shown, costs.values())) for label, shown in kinds.items()]
    said = f"{cost.set}, {amount(cost.documents)} documents, {amount(cost.queries)} queries one at a time"
    return Section("cost", "Cost", (Table(said, ("", *costs), cells),))


def _times(report: ReportData) -> Section | None:
    seconds = {stage: spent for stage, spent in report.seconds.items() if is_number(spent)}
    total = sum(seconds.values())
    if total <= 0:
        return None
    rows = [(stage, duration(spent), Bar(share(spent / total), spent / total)) for stage, spent in seconds.items()]
    all_stages = (Strong("total"), Strong(duration(total)), "")
    table = Table("Time of each stage", ("stage", "time", "share"), [*rows, all_stages])
    return Section("times", f"Time: {duration(total)}", (table,), folded=True)


def _reproduction(report: ReportData) -> Section | None:
    blocks: list[Block] = []
    if report.command:
        blocks.append(Command(shlex.join(report.command)))
        said = ["Run it in the same folder, with the versions below installed. Finished stages are not repeated."]
        files = [need.name for need in report.needs if need.local]
        hub = [need.name for need in report.needs if not need.local]
        if files:
            said.append(f"These files and folders must be there: {', '.join(dict.fromkeys(files))}.")
        if hub:
            names = ", ".join(dict.fromkeys(hub))
            said.append(f"From the Hugging Face hub (add --download if its local cache lacks them): {names}.")
        blocks.append(Paragraph(" ".join(said), own_texts=True))
    sentences = [f"Seed {report.seed}."] if report.seed is not None else []
    if report.versions:
        sentences.append(f"{', '.join(f'{name} {version}' for name, version in report.versions.items())}.")
    if sentences:
        blocks.append(Paragraph(" ".join(sentences)))
    if report.recipe_toml:
        blocks.append(Folded("The resolved recipe", report.recipe_toml, "toml"))
    return Section("reproduction", "To run it again", tuple(blocks)) if blocks else None
