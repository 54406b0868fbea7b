"""Runs beside each other as values, and their page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vtkit.evaluation.comparison import Cell
from vtkit.report.blocks import Block, Foreign, Page, Paragraph, Section, Table, Token
from vtkit.report.data import ReportData
from vtkit.report.pages import html_page
from vtkit.report.results import results_table
from vtkit.report.wording import is_number, p_value, score
from vtkit.search.results import readable
from vtkit.system.results import Result


@dataclass(frozen=True)
class Line(Result):
    """One setting or figure of every run, in their order; None if a run lacks it."""

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
    document: str  # the relevant document whose scores are compared
    ranks: tuple[int | None, int | None]  # of that document, in both runs
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
    queries: int  # those of every run that pass the filters
    measures: tuple[str, ...]
    cells: tuple[Cell, ...]  # a run each, in their order
    beside: tuple[Beside, ...]
    not_compared: str = ""  # why the runs cannot be compared on it
    not_explained: str = ""  # why the queries won and lost have no tokens


@dataclass(frozen=True)
class ComparedRuns(Result):
    """Runs beside each other; the first is the baseline."""

    runs: tuple[str, ...]
    models: tuple[str, ...]  # whose results are compared, of each run
    settings: tuple[Line, ...]  # that are not the same in all
    figures: tuple[Line, ...]  # vocabulary, overlap, origins of the rows, calibration, training and cost
    sets: tuple[ComparedSet, ...]
    notes: tuple[str, ...] = ()  # what could not be read, of runs that other versions of vtkit made


def compared_sections(comparison: ComparedRuns) -> list[Section]:
    """Results of each set, differences of the recipes, other figures, and queries won and lost."""
    runs, sets = comparison.runs, comparison.sets
    settings: Block = Paragraph("The recipes differ in their names only.")
    if comparison.settings:
        words = frozenset(range(1, len(runs) + 1))
        settings = _lines("Settings that are not the same in all runs", runs, comparison.settings, words)
    sections = [
        *(Section(f"set-{number}", of.set, _set(of, runs[0])) for number, of in enumerate(sets)),
        Section("settings", "What differs in the recipes", [settings]),
        Section("figures", "Vocabulary, rows, training and cost", [_lines("Figures", runs, comparison.figures)]),
        *(Section(f"queries-{n}", f"Queries won and lost: {of.set}", [*_queries(of)]) for n, of in enumerate(sets)),
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


def _set(of: ComparedSet, baseline: str) -> list[Block]:
    if of.not_compared:
        return [Paragraph(f"{of.set} is not compared: {of.not_compared}.")]
    blocks: list[Block] = []
    for measure in of.measures:
        tests = [cell.tested.get(measure) for cell in of.cells]
        further = {
            "difference": ["" if test is None else f"{test.difference:+.4f}" for test in tests],
            "p (Holm)": ["" if test is None else p_value(test.randomization) for test in tests],
        }
        if measure == of.measures[0]:  # by which queries are won
            further["won / lost"] = ["", *(f"{beside.won} / {beside.lost}" for beside in of.beside)]
        rows = [
            (cell.system, {measure: cell.evaluated.measures[measure]}, {measure: cell.intervals[measure]})
            for cell in of.cells
        ]
        caption = f"{measure} on {of.set}, {of.queries} queries"
        blocks.append(results_table(caption, "run", rows, further, form="{:.4f}".format))
    note = (
        f"± half of the 95 % interval. p of a paired randomisation test against {baseline}, corrected for the runs. A "
        f"query is won where its {of.measures[0]} is larger than in {baseline}."
    )
    return [*blocks, Paragraph(note, "quiet")]


def _lines(caption: str, runs: Sequence[str], lines: Sequence[Line], words: frozenset[int] = frozenset()) -> Table:
    return Table(caption, ("", *runs), [(line.name, *map(_shown, line.values)) for line in lines], words=words)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "–" if value is None else f"{value:,}" if is_number(value) else str(value)


def _queries(of: ComparedSet) -> Iterator[Block]:
    heads = ("query", *of.measures[:1], "relevant document", "rank", "what its tokens add to the score")
    for beside in of.beside:
        for word, some in (("Won", beside.queries_won), ("Lost", beside.queries_lost)):
            rows = []
            for query in some:
                ranks = " → ".join("not found" if rank is None else str(rank) for rank in query.ranks)
                named = ((readable(each.token), f"{each.before:.2f} → {each.after:.2f}") for each in query.tokens)
                values = f"{score(query.before)} → {score(query.after)}"
                rows.append((Foreign(query.text), values, query.document, ranks, tuple(Token(*each) for each in named)))
            caption = f"{word} by {beside.run} on {of.set}, the largest changes first"
            if rows:
                yield Table(caption, heads, rows, words=frozenset({2, 4}), own_texts=True)
    if of.not_explained:
        yield Paragraph(f"Queries are not explained: {of.not_explained}")
