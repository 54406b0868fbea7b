"""The page of a sweep: its tables, values against measures, FLOPS against effectiveness, training curves."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from vtkit.report.blocks import Cell, Page, Paragraph, Section, Strong, Table
from vtkit.report.data import ReportData
from vtkit.report.pages import html_page
from vtkit.report.plots import INK, LEGEND_WIDTH, LINE, PALETTE, QUIET, Chart, chart, thinned
from vtkit.report.sweep_tables import Place, SweepResults, SweepTable, table_rows
from vtkit.report.training import TRAININGS, curves_of, points
from vtkit.report.wording import amount, duration, visible

LEGEND = 10  # lines that a legend names; of more, colours would not be told apart
TICKS = 8  # values of a setting that each have a tick
Line = tuple[str, list[float], list[float], list[float]]  # name, x, y, deviation of y


def sweep_page(results: SweepResults, reports: Mapping[str, ReportData]) -> str:
    """The page as HTML; ``reports`` of the finished cells, by their names."""
    sections, charts = [], {}
    for table in results.tables:
        key = f"results-{table.system}"
        sections.append(Section(key, table.title, (_table(results, table), Paragraph(results.note, quiet=True))))
        charts[key] = value_charts(results, table)
    if results.tables:
        sections.append(Section("cost", "Cost", (_costs(results),)))
        charts["cost"] = pareto_charts(results)
    rows = {each.run: each.row for table in results.tables for of in table.values.values() for each in of}
    drawn = curve_charts(rows, reports)
    if drawn:
        sections.append(Section("curves", "Training", ()))
        charts["curves"] = drawn
    sections.append(Section("runs", "Runs", (_runs(results, reports),)))
    return html_page(Page(results.name, "vtkit sweep", tuple(sections), language=language_of(reports)), charts)


def language_of(reports: Mapping[str, ReportData]) -> str:
    """Of the page about these runs."""
    return next((report.language for report in reports.values() if report.language), "en")


def _table(results: SweepResults, table: SweepTable) -> Table:
    columns = [*results.heads, *(f"{place.label} {name}" for place in results.places for name in place.measures)]
    rows = []
    for labels, entries in table_rows(results, table):
        row: list[Cell] = [*labels]
        for entry in entries:
            further = f"{f'± {entry.deviation}' if entry.deviation else ''}{' †' if entry.significant else ''}".strip()
            first = Strong(entry.mean) if entry.best else entry.mean
            row.append((first, further) if further else (first,))
        rows.append(row)
    return Table(table.title, tuple(columns), rows, words=frozenset(range(1, len(results.heads))))


def _costs(results: SweepResults) -> Table:
    """Means over seeds, of the first table's system."""
    table, rows = results.tables[0], []
    for (row, place), found in table.values.items():
        costs = [
            [value for each in found if (value := getattr(each.evaluated, name)) is not None]
            for name in ("flops", "query_dimensions", "document_dimensions")
        ]
        shown = [amount(statistics.fmean(values)) if values else "–" for values in costs]
        rows.append((*results.rows[row], place.label, *shown))
    heads = (*results.heads, "set", "FLOPS", "query dimensions", "document dimensions")
    words = frozenset(range(1, len(results.heads) + 1))
    return Table(f"What searching costs: {table.title.lower()}", heads, rows, words=words)


def _runs(results: SweepResults, reports: Mapping[str, ReportData]) -> Table:
    done = [
        (name, str(report.seed), duration(sum(value or 0 for value in report.seconds.values())))
        for name, report in reports.items()
    ]
    waiting = [(name, "–", "not finished") for name in results.unfinished]
    heads = ("run", "seed", "time of its stages, shared ones included")
    return Table("The runs, each in a folder of its name", heads, [*done, *waiting])


def value_charts(results: SweepResults, table: SweepTable) -> list[Chart]:
    """The first measure against each setting whose values are numbers, a line for each choice of the others."""
    drawn = []
    for place in results.places:
        for position, head in enumerate(results.heads):
            values = {row: _number(labels[position]) for row, labels in results.rows.items()}
            lines: dict[str, list[tuple[float, float, float]]] = {}
            for row, labels in results.rows.items():
                x, y = values[row], table.mean(row, place, place.measures[0])
                others = ", ".join(label for at, label in enumerate(labels) if at != position)
                if x is not None and y is not None:
                    spread = table.deviation(row, place, place.measures[0]) or 0.0
                    lines.setdefault(others, []).append((x, y, spread))
            told = [
                (name, *(list(part) for part in zip(*sorted(of), strict=True)))
                for name, of in lines.items()
                if len(of) > 1
            ]
            if None not in values.values() and told:
                name = f"{table.system}-{results.places.index(place)}-{position}"
                caption = f"{place.measures[0]} by {head}, {place.label}"
                drawn.append(_line_chart(name, told, caption, head, place.measures[0]))  # type: ignore[arg-type]
    return drawn


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _line_chart(
    name: str, lines: Sequence[Line], caption: str, x_label: str, y_label: str, marks: bool = True
) -> Chart:
    colours = dict(zip(dict.fromkeys(line[0] for line in lines), PALETTE * len(lines), strict=False))
    named = len(colours) <= LEGEND and len(colours) > 1

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        seen = set()
        for label, xs, ys, spread in lines:
            style: dict[str, Any] = {"color": colours[label], "label": visible(label) if label not in seen else None}
            seen.add(label)
            if marks:
                axes.errorbar(xs, ys, yerr=spread if any(spread) else None, marker="o", capsize=3, **style)
            else:
                axes.plot(xs, ys, linewidth=1.2, **style)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        ticks = sorted({x for _, xs, _, _ in lines for x in xs})
        axes.xaxis.set_major_locator(FixedLocator(ticks) if marks and len(ticks) <= TICKS else MaxNLocator(5))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.grid(axis="y")
        axes.set_xlabel(visible(x_label))
        axes.set_ylabel(y_label)
        if named:
            axes.legend(
                ncols=1 if max(map(len, colours)) > LEGEND_WIDTH else 2,
                loc="lower left",
                bbox_to_anchor=(0, 1),
                borderaxespad=0.2,
            )

    words = "; ".join(
        f"{label or y_label}: {amount(ys[0])} at {amount(xs[0])}, {amount(ys[-1])} at {amount(xs[-1])}"
        for label, xs, ys, _ in lines
    )
    return chart(name, 2.6 + 0.2 * (len(colours) if named else 0), draw, caption, words)


def pareto_charts(results: SweepResults) -> list[Chart]:
    """FLOPS against the first measure for the encoder of each row; a line joins those that none beats in both."""
    drawn = []
    table = results.tables[0]
    for number, place in enumerate(results.places):
        found = []
        for row in results.rows:
            costs = (each.evaluated.flops for each in table.values.get((row, place), ()))
            flops = [cost for cost in costs if cost is not None]
            value = table.mean(row, place, place.measures[0])
            if flops and value is not None:
                found.append((statistics.fmean(flops), value, row))
        if len(found) > 1:
            drawn.append(_pareto_chart(f"flops-{number}", found, place))
    return drawn


def pareto_front(points_: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Those of (cost, value, name) than which none is both cheaper and better, the cheapest first."""
    front: list[tuple[float, float, str]] = []
    for point in sorted(points_, key=lambda each: (each[0], -each[1])):
        if not front or point[1] > front[-1][1]:
            front.append(point)
    return front


def _pareto_chart(name: str, found: Sequence[tuple[float, float, str]], place: Place) -> Chart:
    front = pareto_front(found)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.plot([x for x, _, _ in front], [y for _, y, _ in front], color=LINE, zorder=1)
        for number, (x, y, row) in enumerate(found):
            axes.scatter([x], [y], color=PALETTE[number % len(PALETTE)], zorder=2)
            axes.annotate(
                visible(row), (x, y), xytext=(5, 4), textcoords="offset points", fontsize=9,
                color=INK if (x, y, row) in front else QUIET,
            )  # fmt: skip
        axes.grid()
        axes.margins(x=0.2, y=0.15)
        axes.set_xlabel("FLOPS: products a query and document, on average")
        axes.set_ylabel(place.measures[0])

    words = "; ".join(f"{row}: {amount(x)} FLOPS, {y:.4f}" for x, y, row in found)
    words += f". On the front: {', '.join(row for _, _, row in front)}"
    return chart(name, 3.0, draw, f"FLOPS against {place.measures[0]}, {place.label}", words)


def curve_charts(rows: Mapping[str, str], reports: Mapping[str, ReportData]) -> list[Chart]:
    """The loss of each training stage, all runs over one another, the runs of a label (``rows``) in one colour."""
    drawn = []
    for stage in dict.fromkeys(stage for report in reports.values() for stage in report.curves):
        lines = []
        for run, report in reports.items():
            loss = next((curve for curve in curves_of(report, stage) if curve.name == "loss"), None)
            steps, values = points(report, stage, loss.name) if loss is not None else ([], [])
            if len(steps) > 1:
                lines.append((rows.get(run, run), thinned(steps), thinned(values), [0.0] * len(steps)))
        if lines:
            caption = f"Loss, {TRAININGS.get(stage, stage)}"
            drawn.append(_line_chart(f"loss-{stage}", lines, caption, "optimiser step", "loss", marks=False))
    return drawn
