"""Runs beside each other as values, and their page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vtkit.evaluation.comparison import Cell
from vtkit.report.blocks import Block, Foreign, Page, Paragraph, Section, Table, Token
from vtkit.report.data import ReportData
from vtkit.report.wording import is_number, p_value, score
from vtkit.system.results import Result


@dataclass(frozen=True)
class Line(Result):
    """One setting or figure of every run, in their order; None where a run has none."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class TokenDifference(Result):
    """A token's part of the score of a query's relevant document, in the baseline and in the other run."""

    token: str
    before: float
    after: float


@dataclass(frozen=True)
class QueryDifference(Result):
    """A query on which a run and the baseline differ."""

    id: str
    text: str
    before: float  # the main measure in the baseline ...
    after: float  # ... and in the run
    document: str  # the relevant document whose scores are told
    ranks: tuple[int | None, int | None]  # of that document, in both
    tokens: tuple[TokenDifference, ...]  # the largest differences first


@dataclass(frozen=True)
class Beside(Result):
    """A run beside the baseline, on one evaluation set."""

    run: str
    won: int  # queries with a larger value of the main measure than in the baseline
    lost: int
    queries_won: tuple[QueryDifference, ...] = ()  # some of them, the largest differences first
    queries_lost: tuple[QueryDifference, ...] = ()


@dataclass(frozen=True)
class ComparedSet(Result):
    """All runs on one evaluation set."""

    set: str
    queries: int  # that were compared: those of every run, filtered as it was asked for
    measures: tuple[str, ...]
    cells: tuple[Cell, ...]  # a run each, in their order
    beside: tuple[Beside, ...]
    not_compared: str = ""  # why the runs cannot be compared on it
    not_explained: str = ""  # why no tokens are told of the queries won and lost


@dataclass(frozen=True)
class ComparedRuns(Result):
    """Runs beside each other; the first is the baseline."""

    runs: tuple[str, ...]
    models: tuple[str, ...]  # whose results are compared, of each run
    settings: tuple[Line, ...]  # that are not the same in all
    figures: tuple[Line, ...]  # vocabulary, overlap, origins of the rows, calibration, training and cost
    sets: tuple[ComparedSet, ...]
    notes: tuple[str, ...] = ()  # what could not be read, of runs that other versions of vtkit made


def compared_page(found: ComparedRuns, reports: Mapping[str, ReportData]) -> str:
    """The page as HTML; ``reports`` of the runs that have one, by their names."""
    from vtkit.report.pages import html_page
    from vtkit.report.sweep_page import curve_charts, language_of

    sections = [Section(f"set-{number}", of.set, tuple(_set(found, of))) for number, of in enumerate(found.sets)]
    same: Block = Paragraph("The recipes differ in their names only.")
    words = frozenset(range(1, len(found.runs) + 1))
    settings: Block = _lines("Settings that are not the same in all runs", found, found.settings, words)
    sections.append(Section("settings", "What differs in the recipes", (settings if found.settings else same,)))
    sections.append(
        Section("figures", "Vocabulary, rows, training and cost", (_lines("Figures", found, found.figures),))
    )
    charts = curve_charts({}, reports)
    if charts:
        sections.append(Section("curves", "Training", ()))
    for number, of in enumerate(found.sets):
        queries = tuple(_queries(of))
        if queries:
            sections.append(Section(f"queries-{number}", f"Queries won and lost: {of.set}", queries))
    page = Page(
        " and ".join(found.runs) if len(found.runs) < 4 else f"{len(found.runs)} runs beside {found.runs[0]}",
        "vtkit compare",
        tuple(sections),
        summary=" ".join(found.notes),
        language=language_of(reports),
    )
    return html_page(page, {"curves": charts})


def _set(found: ComparedRuns, of: ComparedSet) -> list[Block]:
    if of.not_compared:
        return [Paragraph(f"Not compared: {of.not_compared}.")]
    blocks: list[Block] = []
    for measure in of.measures:
        rows = []
        for cell, beside in zip(of.cells, (None, *of.beside), strict=True):
            low, high = cell.intervals[measure]
            row = [cell.system, f"{cell.evaluated.measures[measure]:.4f}", f"{score(low)} to {score(high)}"]
            if beside is not None:
                tested = cell.tested[measure]
                row += [f"{tested.difference:+.4f}", p_value(tested.randomization), f"{beside.won} / {beside.lost}"]
            rows.append(row + [""] * (6 - len(row)))
        heads = "run", measure, "95 %", "difference", "p", "won / lost"
        counted = len(heads) if measure == of.measures[0] else -1  # queries are won by the first measure
        blocks.append(Table(f"{measure}, {of.queries} queries", heads[:counted], [row[:counted] for row in rows]))
    note = (
        f"Differences are from {found.runs[0]}; p of a paired randomisation test, Holm over the runs. A query is won "
        f"where its {of.measures[0]} is larger."
    )
    blocks.append(Paragraph(note, quiet=True))
    return blocks


def _lines(caption: str, found: ComparedRuns, lines: Sequence[Line], words: frozenset[int] = frozenset()) -> Table:
    rows = [(line.name, *map(_shown, line.values)) for line in lines]
    return Table(caption, ("", *found.runs), rows, words=words)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "–" if value is None else f"{value:,}" if is_number(value) else str(value)


def _queries(of: ComparedSet) -> list[Block]:
    blocks: list[Block] = []
    for beside in of.beside:
        for word, some in (("won", beside.queries_won), ("lost", beside.queries_lost)):
            rows = []
            for query in some:
                ranks = " → ".join("not found" if rank is None else str(rank) for rank in query.ranks)
                tokens = tuple(Token(each.token, f"{each.before:.2f} → {each.after:.2f}") for each in query.tokens)
                values = f"{score(query.before)} → {score(query.after)}"
                rows.append((Foreign(query.text), values, query.document, ranks, tokens))
            if rows:
                heads = ("query", of.measures[0], "relevant document", "rank", "what its tokens add to the score")
                caption = f"{word.capitalize()} by {beside.run}, the largest changes first"
                blocks.append(Table(caption, heads, rows, words=frozenset({2, 4}), own_texts=True))
    if of.not_explained:
        blocks.append(Paragraph(f"Queries are not explained: {of.not_explained}"))
    return blocks
