"""The charts of pages: each is drawn by matplotlib when a page or picture needs it.

On a page a chart is an image in the page's own text, with its words as the alternative. Text stays text in the reader's
fonts. The same report gives the same bytes.
"""

from __future__ import annotations

import base64
import io
import math
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vtkit.evaluation.results import SetResults
from vtkit.report.blocks import Chart
from vtkit.report.wording import amount, score, share, visible
from vtkit.system.outputs import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

WIDTH_INCHES = 5.2  # drawn at the width of a phone held upright, so that labels keep their size there
POINTS = 240  # points of a curve that are drawn; a longer one is averaged in so many equal runs of steps

PALETTE = ("#3f7fd6", "#cf6a2b", "#3d9a6b", "#b5497f", "#8a6fd1", "#c9a227", "#2f9fb0", "#a6543f", "#6f8f2f", "#d077b8")
"""Colours of lines and of the parts of a bar, in their order; they can be told apart on white and on black."""

FIRST, SECOND, SOFT = *PALETTE[:2], "#8fa6c4"
INK, QUIET, LINE = "#2b323b", "#667080", "#9aa0a866"  # the colours of text, of quiet text and of lines
COLOURS = {"bm25": QUIET, "peer": QUIET, "peer-sum": QUIET, "sum": SECOND, "deployed": SECOND}  # of bars, by role
ON_BLACK = {INK: "#d5dae1", QUIET: "#98a2af"}
SHADES = ("#d6e4f5", "#b5cfee", "#92b8e5", "#6f9fdb", "#4d86cf", "#346dba", "#24569c", "#173f78")  # of one quantity
REMAINDERS = ("#8fa6c4", "#9aa0a8", "#c3c8cf", "#70757d")  # of the parts that are no class of their own
ON_DARK, ON_LIGHT = "#fcfcfb", "#1c2128"  # lettering inside a part, whose colour light and dark pages share
LABELLED_SHARE = 0.06  # a part's share is written into it from this width of the bar on
BAR_INCHES = 0.42
LABEL_WIDTH = 40  # characters a line of the name of a bar; a longer one would leave the bars no room
LEGEND_COLUMNS = 4
LEGEND_WIDTH = 20  # characters of a name in a legend; longer ones stand below one another
LEGEND = 10  # lines that a legend names; of more, colours would not be told apart
TICKS = 8  # values of a setting that each have a tick
Line = tuple[str, Sequence[float], Sequence[float], Sequence[float]]  # name, x, y, deviation of y (empty: not known)

TICK_SETTINGS = {"color": QUIET, "labelsize": 10, "major.size": 0, "minor.size": 0}
SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "vtkit",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": QUIET,
    "axes.edgecolor": LINE,
    "axes.labelsize": 10,
    "axes.axisbelow": True,
    "axes.unicode_minus": False,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 10,
    "figure.constrained_layout.use": True,
    **{f"axes.spines.{side}": False for side in ("top", "right", "left")},
    **{f"{axis}tick.{name}": value for axis in "xy" for name, value in TICK_SETTINGS.items()},
}


def svg(chart: Chart) -> str:
    """A chart as SVG. Its text is lighter on a page that the reader wants dark."""
    from matplotlib.figure import Figure

    file = io.BytesIO()
    with _settings():
        figure = Figure(figsize=(WIDTH_INCHES, chart.inches))
        chart.draw(figure)
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    lighter = "".join(f'text[style*="{dark}"] {{ fill: {light} !important }}' for dark, light in ON_BLACK.items())
    style = f"<style>@media (prefers-color-scheme: dark) {{ {lighter} }}</style>"
    return file.getvalue().decode().replace("</svg>", f"{style}</svg>")


def address(chart: Chart) -> str:
    """A chart as the address of an image in a page."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg(chart).encode()).decode()}"


def write_png(charts: Sequence[Chart], path: Path) -> None:
    """Charts under one another on white, as a PNG file."""
    from matplotlib.figure import Figure

    heights = [chart.inches + 0.3 for chart in charts]
    with _settings():
        figure = Figure(figsize=(WIDTH_INCHES, sum(heights)), dpi=160, facecolor="white")
        parts = figure.subfigures(len(charts), 1, squeeze=False, height_ratios=heights)
        for part, chart in zip(parts[:, 0], charts, strict=True):
            part.suptitle(chart.caption, x=0.01, ha="left", fontsize=11)
            chart.draw(part)
        file = io.BytesIO()
        figure.savefig(file, format="png", metadata={"Software": None})
    write_file(path, file.getvalue())


@contextmanager
def _settings() -> Iterator[None]:
    """:data:`SETTINGS`, whatever the reader's own matplotlibrc says."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        # In a page the reader's fonts count, and in a picture a name with a missing glyph is still drawn.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def effectiveness_chart(caption: str, results: SetResults) -> Chart | None:
    """A bar for each system by the main measure; BM25 is the mark to reach, the last encoder stands out. None if no
    system has a value."""
    rows = [row for row in results.rows if results.value(row) is not None]
    names = [visible(row.name) for row in rows]
    values = [value for row in rows if (value := results.value(row)) is not None]
    if not values:
        return None
    wrapped = [textwrap.fill(name, LABEL_WIDTH) for name in names]
    colours = [COLOURS.get(row.role, SOFT) for row in rows]
    for position in [number for number, row in enumerate(rows) if row.role == "encoder"][-1:]:
        colours[position] = FIRST

    def draw(figure: FigureBase) -> None:
        axes = figure.add_subplot()
        axes.barh(range(len(values)), values, color=colours, height=0.68)
        for position, value in enumerate(values):
            # The values form a column at the right, which no bar and no line crosses.
            axes.annotate(score(value), (1, position), xycoords=("axes fraction", "data"), ha="right", va="center")
            if names[position].upper() == "BM25":
                axes.axvline(value, color=QUIET, linewidth=1, linestyle=(0, (3, 3)), zorder=0)
        _name_bars(axes, wrapped)
        axes.set_xlim(0, max(max(values) * 1.2, 1e-6))
        axes.set_xticks([])

    words = ", ".join(f"{name} {score(value)}" for name, value in zip(names, values, strict=True))
    lines = sum(1 + label.count("\n") for label in wrapped)
    return Chart(caption, words, 0.35 * lines + 0.25, draw)


def _name_bars(axes: Axes, labels: Sequence[str]) -> None:
    """Names of horizontal bars, the first bar on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.invert_yaxis()
    axes.spines["bottom"].set_visible(False)


def line_chart(
    caption: str, lines: Sequence[Line], x_label: str, y_label: str = "", *, marks: bool = False, falls: bool = False
) -> Chart:
    """Lines, those of one name in one colour.

    Args:
        marks: the points are few, and each has a mark.
        falls: the values may fall by orders of magnitude and stay above zero.
    """
    colours = dict(zip(dict.fromkeys(line[0] for line in lines), PALETTE * len(lines), strict=False))
    legend = 1 < len(colours) <= LEGEND
    columns = 1 if max(map(len, colours)) > LEGEND_WIDTH else 2
    lowest, highest = (of(of(ys) for _, _, ys, _ in lines) for of in (min, max))

    def draw(figure: FigureBase) -> None:
        from matplotlib.ticker import FixedLocator, MaxNLocator

        axes = figure.add_subplot()
        named = set[str]()
        for name, xs, ys, deviations in lines:
            style: dict[str, Any] = {"color": colours[name], "label": None if name in named else visible(name)}
            named.add(name)
            if marks:
                axes.errorbar(xs, ys, yerr=deviations if any(deviations) else None, marker="o", capsize=3, **style)
            else:
                axes.plot(thinned(xs), thinned(ys), linewidth=1.2 if len(lines) > LEGEND else 1.8, **style)
        if falls and lowest > 0 and highest > 10 * lowest:
            axes.set_yscale("log")
            axes.set_ylim(bottom=10 ** math.floor(math.log10(lowest)))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        else:
            axes.yaxis.set_major_locator(MaxNLocator(5))
            axes.set_ylim(bottom=0 if not marks and 0 <= lowest < 0.6 * highest else None)
        ticks = sorted({x for _, xs, _, _ in lines for x in xs}) if marks else []
        few = 0 < len(ticks) <= TICKS
        axes.xaxis.set_major_locator(FixedLocator(ticks) if few else MaxNLocator(5, integer=not marks))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.grid(axis="y")
        axes.set_xlabel(visible(x_label))
        axes.set_ylabel(visible(y_label))
        if legend:
            axes.legend(ncols=columns, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)

    words = "; ".join(
        f"{name or y_label}: {amount(ys[0])} at {x_label} {xs[0]:,.10g}, {amount(ys[-1])} at {x_label} {xs[-1]:,.10g}"
        for name, xs, ys, _ in lines
    )
    return Chart(caption, words, 2.5 + 0.2 * legend * -(-len(colours) // columns), draw)


def thinned(values: Sequence[float]) -> list[float]:
    """``values`` averaged in at most :data:`POINTS` runs of nearly equal length."""
    return [float(np.mean(part)) for part in np.array_split(values, min(len(values), POINTS))]


def stacked_bars(
    caption: str,
    names: Sequence[str],
    counts: Mapping[str, Sequence[int]],
    remainders: int = 0,
    *,
    ordered: bool = False,
) -> Chart:
    """A bar for each of ``names``, cut into the same parts; a part that no bar has is left out.

    Args:
        counts: part -> its count in each bar; the counts of a bar are drawn as shares of their sum.
        remainders: so many parts at the end are drawn in grey.
        ordered: the parts are steps of one quantity.
    """
    sums = np.maximum(np.sum(list(counts.values()), axis=0), 1)
    greys = sum(any(of) for of in list(counts.values())[len(counts) - remainders :])
    shares = {part: np.asarray(of) / sums for part, of in counts.items() if any(of)}
    cycle = SHADES if ordered else PALETTE
    colours = [cycle[position % len(cycle)] for position in range(len(shares) - greys)]
    colours += REMAINDERS[len(REMAINDERS) - greys :]  # the last is the same in every drawing

    def draw(figure: FigureBase) -> None:
        from matplotlib.colors import to_rgb

        axes = figure.add_subplot()
        lefts = np.zeros(len(names))
        for (part, widths), colour in zip(shares.items(), colours, strict=True):
            style: dict[str, Any] = {"color": colour, "height": 0.66, "label": visible(part), "linewidth": 0}
            bars = axes.barh(range(len(names)), widths, left=lefts, **style)
            ink = ON_DARK if np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) < 0.59 else ON_LIGHT
            labels = [f"{100 * width:.0f}" if width >= LABELLED_SHARE else "" for width in widths]
            axes.bar_label(bars, labels, label_type="center", color=ink, fontsize=9)
            lefts = lefts + widths
        _name_bars(axes, [visible(name) for name in names])
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
        figure.legend(ncols=LEGEND_COLUMNS, columnspacing=1.2, loc="outside lower left", handlelength=1)

    words = "; ".join(
        f"{name}: {', '.join(f'{part} {share(of[row])}' for part, of in shares.items() if of[row])}"
        for row, name in enumerate(names)
    )
    inches = BAR_INCHES * len(names) + 0.22 * -(-len(shares) // LEGEND_COLUMNS) + 0.6
    return Chart(caption, words, inches, draw)


def histogram_chart(counts: Sequence[int], edges: Sequence[float]) -> Chart:
    """Documents by the number of dimensions they activate."""

    def draw(figure: FigureBase) -> None:
        from matplotlib.ticker import MaxNLocator

        axes = figure.add_subplot()
        widths = [0.94 * (end - start) for start, end in pairwise(edges)]
        axes.bar(edges[:-1], counts, width=widths, align="edge", color=FIRST)
        axes.grid(axis="y")
        axes.set_xlabel("active dimensions of a document")
        axes.set_ylabel("documents")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5, integer=True))
            axis.set_major_formatter(lambda value, _: amount(value))

    tallest = counts.index(max(counts))
    words = (
        f"{amount(sum(counts))} documents with {amount(edges[0])} to {amount(edges[-1])} active dimensions; "
        f"most, {amount(counts[tallest])}, have {amount(edges[tallest])} to {amount(edges[tallest + 1])}"
    )
    return Chart("Documents by active dimensions", words, 2.4, draw)
