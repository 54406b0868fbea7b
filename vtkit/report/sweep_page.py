"""The page of a sweep: its tables, values against measures, FLOPS against effectiveness, training curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import isnan
from typing import TYPE_CHECKING

from vtkit.report.blocks import Cell, Chart, Inlines, Page, Paragraph, Section, Strong, Table
from vtkit.report.data import ReportData
from vtkit.report.plots import INK, LINE, PALETTE, QUIET, Line, line_chart
from vtkit.report.sweep_tables import COSTS, TITLES, SweepResults, label_of, table_rows
from vtkit.report.training import TRAININGS, points
from vtkit.report.wording import amount, duration, visible
from vtkit.search.measures.significance import Difference

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase


def sweep_page(results: SweepResults, reports: Mapping[str, ReportData]) -> Page:
    """The page; ``reports`` of the finished cells, by their names."""
    rows = dict(zip(results.frame["run"], results.frame["row"], strict=True))
    note = Paragraph(results.note, "quiet")
    sections = [
        Section(f"results-{system}", TITLES[system], [*_tables(results, system), note, *value_charts(results, system)])
        for system in results.systems
    ]
    if results.systems:
        sections.append(Section("cost", "Cost", [_costs(results), *pareto_charts(results)]))
    sections.append(Section("runs", "Runs", [_runs(results, reports), *curve_charts(rows, reports)]))
    return Page(results.name, "vtkit sweep", sections, language=language_of(reports))


def language_of(reports: Mapping[str, ReportData]) -> str:
    """The language of the page about these runs."""
    return next((report.language for report in reports.values() if report.language), "en").partition(",")[0]


def _tables(results: SweepResults, system: str) -> list[Table]:
    """The results, and the differences from the baseline with their intervals."""
    columns = [(*place, measure) for place, measures in results.places.items() for measure in measures]
    heads = (*results.heads, *(f"{label_of(place)} {measure}" for *place, measure in columns))
    words = frozenset(range(1, len(results.heads)))
    rows: list[tuple[Cell, ...]] = [(*labels, *cells) for labels, cells in table_rows(results, system, _cell)]
    tested = [
        (*labels, *(_difference(results.tested.get((system, *column, row))) for column in columns))
        for row, labels in results.rows.items()
        if any((system, *column, row) in results.tested for column in columns)
    ]
    caption = f"Difference from {results.baseline} ± half of its 95 % interval, and p"
    tables = [Table("Means", heads, rows, words=words)]
    return [*tables, Table(caption, heads, tested, words=words)] if tested else tables


def _cell(mean: str, deviation: str, best: bool, significant: bool) -> Inlines:
    further = f"{f'± {deviation}' if deviation else ''}{' †' if significant else ''}".strip()
    return (Strong(mean) if best else mean, *([further] if further else []))


def _difference(of: Difference | None) -> str:
    return "–" if of is None else f"{of.mean:+.4f} ± {of.half:.4f}, p = {of.p:.3f}"


def _costs(results: SweepResults) -> Table:
    """Means over seeds, of the first table's system."""
    system, rows = results.systems[0], []
    for place, measures in results.places.items():
        costs = [results.figures(system, *place, name) for name in COSTS]
        judged = results.figures(system, *place, measures[0])
        for row in [row for row in results.rows if row in judged]:
            shown = (amount(of[row][0]) if row in of else "–" for of in costs)
            rows.append((*results.rows[row], label_of(place), *shown))
    heads = (*results.heads, "set", *COSTS)
    words = frozenset(range(1, len(results.heads) + 1))
    return Table(f"What searching costs: {TITLES[system].lower()}", heads, rows, words=words)


def _runs(results: SweepResults, reports: Mapping[str, ReportData]) -> Table:
    done = [
        (name, str(report.seed), duration(sum(value or 0 for value in report.seconds.values())))
        for name, report in reports.items()
    ]
    waiting = [(name, "–", "not finished") for name in results.unfinished]
    heads = ("run", "seed", "time of its stages, shared ones included")
    return Table("The runs, each in a folder of its name", heads, [*done, *waiting])


def value_charts(results: SweepResults, system: str) -> Iterator[Chart]:
    """The first measure against each setting whose values are numbers, a line for each choice of the others."""
    for place, (measure, *_) in results.places.items():
        figures = results.figures(system, *place, measure)
        for position, head in enumerate(results.heads):
            lines: dict[str, list[tuple[float, float, float]]] = {}
            with suppress(ValueError):  # a value that is no number
                numbers = {row: float(labels[position]) for row, labels in results.rows.items()}
                for row in [row for row in results.rows if row in figures]:
                    others = ", ".join(label for at, label in enumerate(results.rows[row]) if at != position)
                    mean, deviation = figures[row]
                    lines.setdefault(others, []).append((numbers[row], mean, 0.0 if isnan(deviation) else deviation))
            told = [(name, *zip(*sorted(of), strict=True)) for name, of in lines.items() if len(of) > 1]
            if told:
                caption = f"{measure} by {head}, {label_of(place)}"
                yield line_chart(caption, told, head, measure, marks=True)  # type: ignore[arg-type]


def pareto_charts(results: SweepResults) -> Iterator[Chart]:
    """FLOPS against the first measure for the encoder of each row; a line joins those that none beats in both."""
    for place, (measure, *_) in results.places.items():
        flops, means = (results.figures(results.systems[0], *place, name) for name in ("FLOPS", measure))
        encoders = [(flops[row][0], means[row][0], row) for row in results.rows if row in flops and row in means]
        if len(encoders) > 1:
            yield _pareto_chart(encoders, measure, label_of(place))


def pareto_front(points_: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """The points (cost, value, name) that no other point beats in both cost and value, the cheapest first."""
    front: list[tuple[float, float, str]] = []
    for point in sorted(points_, key=lambda each: (each[0], -each[1])):
        if not front or point[1] > front[-1][1]:
            front.append(point)
    return front


def _pareto_chart(encoders: Sequence[tuple[float, float, str]], measure: str, label: str) -> Chart:
    front = pareto_front(encoders)

    def draw(figure: FigureBase) -> None:
        axes = figure.add_subplot()
        axes.plot([x for x, _, _ in front], [y for _, y, _ in front], color=LINE, zorder=1)
        for number, (x, y, row) in enumerate(encoders):
            axes.scatter([x], [y], color=PALETTE[number % len(PALETTE)], zorder=2)
            axes.annotate(
                visible(row), (x, y), xytext=(5, 4), textcoords="offset points", fontsize=9,
                color=INK if (x, y, row) in front else QUIET,
            )  # fmt: skip
        axes.grid()
        axes.margins(x=0.2, y=0.15)
        axes.set_xlabel("FLOPS: products a query and document, on average")
        axes.set_ylabel(measure)

    words = "; ".join(f"{row}: {amount(x)} FLOPS, {y:.4f}" for x, y, row in encoders)
    words += f". On the front: {', '.join(row for _, _, row in front)}"
    return Chart(f"FLOPS against {measure}, {label}", words, 3.0, draw)


def curve_charts(rows: Mapping[str, str], reports: Mapping[str, ReportData]) -> Iterator[Chart]:
    """The loss of each training stage, all runs over one another, the runs of a label (``rows``) in one colour."""
    for stage in dict.fromkeys(stage for report in reports.values() for stage in report.curves):
        drawn = [(rows.get(run, run), *points(report, stage, "loss"), ()) for run, report in reports.items()]
        lines: list[Line] = [line for line in drawn if len(line[1]) > 1]
        if lines:
            yield line_chart(f"Loss, {TRAININGS.get(stage, stage)}", lines, "step", "loss")
