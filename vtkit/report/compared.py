"""Runs beside each other as values, and their page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vtkit.evaluation.results import SetResults
from vtkit.report.blocks import Block, Foreign, Page, Paragraph, Section, Table, Token
from vtkit.report.data import Outcomes, ReportData
from vtkit.report.pages import html_page
from vtkit.report.results import results_table
from vtkit.report.wording import is_number, p_value, score
from vtkit.search.results import readable
from vtkit.system.results import Result


@dataclass(frozen=True)
class ComparedRuns(Result):
    """Runs beside each other; the first is the baseline."""

    runs: tuple[str, ...]
    models: tuple[str, ...]  # whose results are compared, of each run
    settings: Mapping[str, tuple[Any, ...]]
    """Settings that are not the same in all runs, with the value in each; None if a run lacks it."""

    figures: Mapping[str, tuple[Any, ...]]
    """So all figures: vocabulary, overlap, origins of the rows, calibration, training and cost."""

    sets: tuple[SetResults, ...]  # a row for each run, and the queries of every run that pass the filters
    outcomes: tuple[Outcomes, ...]  # of each set, each run beside the baseline, by the main measure
    not_compared: Mapping[str, str]  # set -> why the runs cannot be compared on it
    not_explained: Mapping[str, str]  # set -> why the queries won and lost have no tokens
    notes: tuple[str, ...] = ()  # what could not be read, of runs that other versions of vtkit made


def compared_sections(comparison: ComparedRuns) -> list[Section]:
    """Results of each set, differences of the recipes, other figures, and queries won and lost."""
    runs, sets = comparison.runs, comparison.sets
    settings: Block = Paragraph("The recipes differ in their names only.")
    if comparison.settings:
        words = frozenset(range(1, len(runs) + 1))
        settings = _lines("Settings that are not the same in all runs", runs, comparison.settings, words)
    sections = [
        *(Section(f"set-{number}", of.set, _set(comparison, of)) for number, of in enumerate(sets)),
        Section("settings", "What differs in the recipes", [settings]),
        Section("figures", "Vocabulary, rows, training and cost", [_lines("Figures", runs, comparison.figures)]),
        *(
            Section(f"queries-{n}", f"Queries won and lost: {of.set}", [*_queries(comparison, of)])
            for n, of in enumerate(sets)
        ),
    ]
    return [section for section in sections if section.blocks]


def compared_page(comparison: ComparedRuns, reports: Mapping[str, ReportData]) -> str:
    """The page as HTML; ``reports`` of the runs that have one, by their names."""
    from vtkit.report.sweep_page import curve_charts, language_of

    runs, curves = comparison.runs, [*curve_charts({}, reports)]
    page = Page(
        " and ".join(runs) if len(runs) < 4 else f"{len(runs)} runs beside {runs[0]}",
        "vtkit compare",
        [*compared_sections(comparison), *([Section("curves", "Training", curves)] if curves else [])],
        summary=" ".join(comparison.notes),
        language=language_of(reports),
    )
    return html_page(page)


def _set(comparison: ComparedRuns, of: SetResults) -> list[Block]:
    if why := comparison.not_compared.get(of.set):
        return [Paragraph(f"{of.set} is not compared: {why}.")]
    blocks: list[Block] = []
    baseline = comparison.runs[0]
    for measure in of.measures:
        tests = [row.tested.get(measure) for row in of.rows]
        further = {
            "difference": ["" if test is None else f"{test.difference:+.4f}" for test in tests],
            "p (Holm)": ["" if test is None else p_value(test.randomization) for test in tests],
        }
        if measure == of.measure:  # by which queries are won
            counts = [f"{each.won} / {each.lost}" for each in comparison.outcomes if each.set == of.set]
            further["won / lost"] = ["", *counts]
        caption = f"{measure} on {of.set}, {of.queries} queries"
        blocks.append(results_table(caption, "run", of, further, measures=[measure], form="{:.4f}".format))
    note = (
        f"± half of the 95 % interval. p of a paired randomisation test against {baseline}, corrected for the runs. A "
        f"query is won where its {of.measure} is larger than in {baseline}."
    )
    return [*blocks, Paragraph(note, "quiet")]


def _lines(
    caption: str, runs: Sequence[str], lines: Mapping[str, Sequence[Any]], words: frozenset[int] = frozenset()
) -> Table:
    return Table(caption, ("", *runs), [(name, *map(_shown, values)) for name, values in lines.items()], words=words)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "–" if value is None else f"{value:,}" if is_number(value) else str(value)


def _queries(comparison: ComparedRuns, of: SetResults) -> Iterator[Block]:
    heads = ("query", of.measure, "relevant document", "rank", "what its tokens add to the score")
    for beside in [each for each in comparison.outcomes if each.set == of.set]:
        for word, some in (("Won", beside.most_won), ("Lost", beside.most_lost)):
            rows = []
            for query in some:
                ranks = " → ".join("not found" if rank is None else str(rank) for rank in query.ranks)
                tokens = (Token(readable(name), f"{before:.2f} → {after:.2f}") for name, before, after in query.changes)
                values = f"{score(query.baseline)} → {score(query.value)}"
                rows.append((Foreign(query.query), values, query.document, ranks, tuple(tokens)))
            caption = f"{word} by {beside.system} on {of.set}, the largest changes first"
            if rows:
                yield Table(caption, heads, rows, words=frozenset({2, 4}), own_texts=True)
    if why := comparison.not_explained.get(of.set):
        yield Paragraph(f"Queries are not explained: {why}")
