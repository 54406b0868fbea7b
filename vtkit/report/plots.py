"""The charts of a report as SVG text: effectiveness by stage, training curves, active dimensions.

Matplotlib's SVG is rewritten: colours become CSS variables that read on white and on black, text stays text in the
reader's own fonts, and what several drawings in one page would share goes. The same report gives the same bytes.
"""

import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vtkit.report.content import histogram
from vtkit.report.data import ReportData, Row
from vtkit.report.training import TRAININGS, curves_of, points
from vtkit.report.verdict import row_label
from vtkit.report.vocabularies import profiles, token_kinds
from vtkit.report.wording import amount, is_number, score, share, visible, whole
from vtkit.system.errors import DataError

WIDTH_INCHES = 5.2  # drawn at the width of a phone held upright, so that labels keep their size there
POINTS = 240  # points of a curve that are drawn; a longer one is averaged in so many equal runs of steps

# Stand-ins for the page's colours: matplotlib wants real ones, and none of these occurs in a drawing otherwise.
INK, QUIET, LINE, FIRST, SECOND, SOFT = "#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04", "#0a0b05", "#0a0b06"

COLOURS = {
    INK: "var(--plot-ink, #7d838c)",
    QUIET: "var(--plot-quiet, #858b94)",
    LINE: "var(--plot-line, #9aa0a866)",
    FIRST: "var(--plot-first, #3f7fd6)",
    SECOND: "var(--plot-second, #cf6a2b)",
    SOFT: "var(--plot-soft, #8fa6c4)",
}

PALETTE = ("#3f7fd6", "#cf6a2b", "#3d9a6b", "#b5497f", "#8a6fd1", "#c9a227", "#2f9fb0", "#a6543f", "#6f8f2f", "#d077b8")
"""Colours of the parts of a bar, in their order; they can be told apart on white and on black."""

SHADES = ("#d6e4f5", "#b5cfee", "#92b8e5", "#6f9fdb", "#4d86cf", "#346dba", "#24569c", "#173f78")  # of one quantity
REMAINDERS = ("#8fa6c4", "#9aa0a8", "#c3c8cf", "#70757d")  # of the parts that are no class of their own
ON_DARK, ON_LIGHT = "#fcfcfb", "#1c2128"  # lettering inside a part, whose colour light and dark pages share
LABELLED_SHARE = 0.06  # a part's share is written into it from this width of the bar on
BAR_INCHES = 0.42
LEGEND_COLUMNS = 4
LEGEND_WIDTH = 20  # characters of a name in a legend; longer ones stand below one another

PRINTED = {INK: "#2b323b", QUIET: "#5d6672", LINE: "#dfe2e6", FIRST: "#1f63c4", SECOND: "#c2571a", SOFT: "#a9bfdf"}
"""The colours of a drawing that is a picture, on white."""

FONT = "var(--plot-font, system-ui, sans-serif)"

SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "vtkit",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": QUIET,
    "axes.edgecolor": LINE,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 10,
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True)
class Chart:
    """A drawing, what it shows, and the same in words for readers who do not see it."""

    svg: str
    caption: str
    description: str


def charts(report: ReportData) -> dict[str, list[Chart]]:
    """All charts of a report, by the key of the section they belong to; a section without any is absent."""
    made = {
        "results": effectiveness_charts(report),
        "vocabulary": language_charts(report),
        "training": training_charts(report),
        "sparsity": active_dimensions_charts(report),
    }
    return {section: drawn for section, drawn in made.items() if drawn}


LABEL_WIDTH = 40  # characters a line of the name of a bar; a longer one would leave the bars no room


def effectiveness_charts(report: ReportData, bars: str = "stage") -> list[Chart]:
    """For each set, a bar for each stage (or what ``bars`` says): the first measure, BM25 as the mark to reach."""
    drawn = []
    for number, results in enumerate(report.results, start=1):
        measures = results.measures
        if not measures:
            continue
        values = [(row, float(value)) for row in results.rows if is_number(value := row.measures.get(measures[0]))]
        if values:
            caption = f"{measures[0]} by {bars}, {results.label}"
            drawn.append(_bars(f"effectiveness-{number}", values, caption))
    return drawn


def _bars(name: str, values: Sequence[tuple[Row, float]], caption: str) -> Chart:
    labels = [visible(row_label(row)) for row, _ in values]
    wrapped = [textwrap.fill(label, LABEL_WIDTH) for label in labels]
    heights = [value for _, value in values]
    encoders = [position for position, (row, _) in enumerate(values) if row.role == "encoder"]
    colours = [
        QUIET if row.peer or row.role == "bm25" else SECOND if row.role == "sum" or row.index else SOFT
        for row, _ in values
    ]
    if encoders:
        colours[encoders[-1]] = FIRST

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        positions = range(len(values))
        axes.barh(positions, heights, color=colours, height=0.68)
        for position, (row, value) in enumerate(values):
            # In a column at the right, where neither a bar nor BM25's line can cross it.
            axes.annotate(score(value), (1, position), xycoords=("axes fraction", "data"), ha="right", va="center")
            if row.model == "BM25":
                axes.axvline(value, color=QUIET, linewidth=1, linestyle=(0, (3, 3)), zorder=0)
                wrapped[position] = "BM25"
        axes.set_yticks(positions, wrapped)
        axes.tick_params(axis="y", labelcolor=INK, labelsize=11)
        axes.invert_yaxis()
        axes.set_xlim(0, max(max(heights) * 1.2, 1e-6))
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)

    words = ", ".join(f"{label} {score(value)}" for label, value in zip(labels, heights, strict=True))
    lines = sum(1 + label.count("\n") for label in wrapped)
    return chart(name, 0.35 * lines + 0.25, draw, caption, words)


def training_charts(report: ReportData) -> list[Chart]:
    """Loss of each training, active dimensions and FLOPS penalty while fine-tuning."""
    drawn = []
    for stage in report.curves:
        lines: dict[str, list[tuple[str, list[float], list[float]]]] = {}
        for curve in curves_of(report, stage):
            steps, values = points(report, stage, curve.name)
            if curve.chart and len(steps) > 1:
                lines.setdefault(curve.chart, []).append((curve.line, steps, values))
        for number, (chart, drawn_lines) in enumerate(lines.items()):
            drawn.append(_lines(f"{stage}-{number}", drawn_lines, f"{chart}, {TRAININGS.get(stage, stage)}"))
    return drawn


def _lines(name: str, lines: Sequence[tuple[str, list[float], list[float]]], caption: str) -> Chart:
    # Only counts of dimensions fall by orders of magnitude and stay above zero.
    logarithmic = "dimensions" in caption
    lowest = min(min(values) for _, _, values in lines)
    highest = max(max(values) for _, _, values in lines)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for (label, steps, values), colour in zip(lines, (FIRST, SECOND, QUIET), strict=False):
            axes.plot(thinned(steps), thinned(values), color=colour, label=label)
        if logarithmic and lowest > 0 and highest > 10 * lowest:
            axes.set_yscale("log")
            axes.set_ylim(bottom=10 ** math.floor(math.log10(lowest)))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
        else:
            axes.yaxis.set_major_locator(MaxNLocator(5))
            axes.set_ylim(bottom=0 if 0 <= lowest < 0.6 * highest else None)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(lambda value, _: whole(value))
        axes.grid(axis="y")
        axes.set_xlabel("optimiser step")
        axes.margins(x=0.01)
        if len(lines) > 1:
            columns = 3 if max(len(label) for label, _, _ in lines) <= LEGEND_WIDTH else 1
            axes.legend(ncols=columns, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)

    words = "; ".join(
        f"{label}: {amount(values[0])} at step {whole(steps[0])}, {amount(values[-1])} at step {whole(steps[-1])}"
        for label, steps, values in lines
    )
    return chart(name, 2.5, draw, caption, words)


def language_charts(report: ReportData) -> list[Chart]:
    """A bar for the old and one for the new vocabulary, cut into the languages of their tokens."""
    analysis = report.vocabularies
    if analysis is None:
        return []
    named = profiles(analysis)
    kinds = token_kinds(analysis)
    rows = {
        name: [counts[position] / max(one.size, 1) for counts in kinds.values()]
        for position, (name, one) in enumerate(named.items())
    }
    remainders = sum(kind in ("other scripts", "undecided", "no letters") for kind in kinds)
    return [stacked_bars("languages", StackedBars("Tokens by language", rows, tuple(kinds), remainders))]


@dataclass(frozen=True)
class StackedBars:
    """A bar for each row, cut into the same parts."""

    caption: str
    rows: Mapping[str, Sequence[float]]  # label of a bar -> share of each part, which add up to 1
    parts: Sequence[str]  # what the parts are
    remainders: int = 0  # so many parts at the end are drawn in grey
    ordered: bool = False  # the parts are steps of one quantity


def stacked_bars(name: str, bars: StackedBars) -> Chart:
    """The bars as a drawing for a page; ``name`` tells its ids from those of other drawings on it."""
    told = {
        label: [f"{part} {share(value)}" for part, value in zip(bars.parts, shares, strict=True) if value]
        for label, shares in bars.rows.items()
    }
    words = "; ".join(f"{label}: {', '.join(parts)}" for label, parts in told.items())
    return chart(name, _bars_height(bars), lambda figure: _stack(figure, [bars]), bars.caption, words)


def write_stacked_bars(drawn: Sequence[StackedBars], path: Path) -> None:
    """The drawings, one under the other on white, as a PNG file."""
    with_titles = partial(_stack, drawn=drawn, titles=True)
    write_picture(path, sum(map(_bars_height, drawn)) + 0.3 * len(drawn), with_titles)


def _stack(figure: Figure, drawn: Sequence[StackedBars], titles: bool = False) -> None:
    heights = [_bars_height(bars) for bars in drawn]
    parts = figure.subfigures(len(drawn), 1, squeeze=False, height_ratios=heights)
    for part, bars in zip(parts[:, 0], drawn, strict=True):
        axes = part.subplots()
        labels = [visible(label) for label in bars.rows]
        lefts = [0.0] * len(labels)
        ordinary, cycle = len(bars.parts) - bars.remainders, SHADES if bars.ordered else PALETTE
        greys = REMAINDERS[len(REMAINDERS) - bars.remainders :]  # the last is the same in every drawing
        colours = [*(cycle[position % len(cycle)] for position in range(ordinary)), *greys]
        for position, (name, colour) in enumerate(zip(bars.parts, colours, strict=True)):
            shares = [values[position] for values in bars.rows.values()]
            axes.barh(range(len(labels)), shares, left=lefts, color=colour, height=0.66, label=name, linewidth=0)
            for row, value in enumerate(shares):
                if value >= LABELLED_SHARE:
                    middle = (lefts[row] + value / 2, row)
                    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
                    ink = ON_DARK if 0.299 * red + 0.587 * green + 0.114 * blue < 150 else ON_LIGHT
                    axes.annotate(f"{100 * value:.0f}", middle, ha="center", va="center", color=ink, fontsize=9)
            lefts = [left + value for left, value in zip(lefts, shares, strict=True)]
        axes.set_yticks(range(len(labels)), labels)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
        axes.spines["bottom"].set_visible(False)
        if titles:
            part.suptitle(visible(bars.caption), x=0.01, ha="left", fontsize=11)
        part.legend(ncols=LEGEND_COLUMNS, columnspacing=1.2, loc="outside lower left", handlelength=1)


def _bars_height(bars: StackedBars) -> float:
    return BAR_INCHES * len(bars.rows) + 0.22 * -(-len(bars.parts) // LEGEND_COLUMNS) + 0.6


def thinned(values: Sequence[float]) -> list[float]:
    """``values`` averaged in at most :data:`POINTS` runs of nearly equal length."""
    if len(values) <= POINTS:
        return list(values)
    borders = [len(values) * position // POINTS for position in range(POINTS + 1)]
    return [sum(values[start:end]) / (end - start) for start, end in pairwise(borders)]


def active_dimensions_charts(report: ReportData) -> list[Chart]:
    """Histogram of documents by the number of dimensions they activate."""
    counts, edges = histogram(report)
    if not counts:
        return []

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        widths = [end - start for start, end in pairwise(edges)]
        axes.bar(edges[:-1], counts, width=[0.94 * width for width in widths], align="edge", color=FIRST)
        axes.grid(axis="y")
        axes.set_xlabel("active dimensions of a document")
        axes.set_ylabel("documents")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5, integer=True))
            axis.set_major_formatter(lambda value, _: whole(value))

    tallest = counts.index(max(counts))
    words = (
        f"{amount(sum(counts))} documents with {whole(edges[0])} to {whole(edges[-1])} active dimensions; "
        f"most, {amount(counts[tallest])}, have {whole(edges[tallest])} to {whole(edges[tallest + 1])}"
    )
    return [chart("document-dimensions", 2.4, draw, "Documents by active dimensions", words)]


def write_picture(path: Path, height_inches: float, draw: Callable[[Figure], None]) -> None:
    """A drawing on white as a PNG file."""
    with _settings(PRINTED):
        figure = Figure(figsize=(WIDTH_INCHES, height_inches), dpi=160, facecolor="white")
        FigureCanvasAgg(figure)
        draw(figure)
        try:
            figure.savefig(path, format="png", metadata={"Software": None})
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({error.strerror or error}).") from error


@contextmanager
def _settings(colours: Mapping[str, str]) -> Iterator[None]:
    """:data:`SETTINGS` with ``colours`` in place of the stand-ins, whatever the reader's own matplotlibrc says."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        # In a page the reader's fonts count, and in a picture a name with a missing glyph is still drawn.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {key: colours.get(value, value) if isinstance(value, str) else value for key, value in SETTINGS.items()}
        )
        yield


def chart(name: str, height_inches: float, draw: Callable[[Figure], None], caption: str, words: str) -> Chart:
    """A figure as an element of an HTML page, filled by ``draw``; ``words`` are for those who do not see it."""
    caption, words = visible(caption), visible(words)
    file = io.BytesIO()
    with _settings({}):
        figure = Figure(figsize=(WIDTH_INCHES, height_inches))
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return Chart(_for_page(file.getvalue(), name, caption, words), caption, words)


def _for_page(svg: bytes, name: str, title: str, description: str) -> str:
    """A drawing of matplotlib as an element of an HTML page; see the head of this file."""
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in {"metadata", "style"}:
                parent.remove(child)
    used = {name for element in root.iter() for value in element.attrib.values() for name in _references(value)}
    for element in root.iter():
        attributes = {_local(key): value for key, value in element.attrib.items()}
        if attributes.get("id") not in used:
            attributes.pop("id", None)
        element.tag = _local(element.tag)
        element.tail = None
        element.attrib.clear()
        element.attrib.update({key: _page_value(key, value, name) for key, value in attributes.items()})
    view = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib.update(
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": view,
            "role": "img",
            "aria-labelledby": f"{name}-title {name}-description",
            "style": "stroke-linejoin: round; stroke-linecap: butt",
        }
    )
    for tag, identifier, text in (("desc", "description", description), ("title", "title", title)):
        element = ElementTree.Element(tag, {"id": f"{name}-{identifier}"})
        element.text = text
        root.insert(0, element)
    return ElementTree.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    """An element's or attribute's name without its namespace."""
    return name.rpartition("}")[2]


def _references(value: str) -> list[str]:
    """Ids that an attribute's value refers to, as ``url(#id)`` or as ``#id``."""
    return [inside or whole for inside, whole in re.findall(r"url\(#([^)]+)\)|^#(.+)$", value)]


def _page_value(key: str, value: str, name: str) -> str:
    """An attribute's value with this drawing's own ids, the page's colours, and the reader's fonts."""
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return f"#{name}-{value.removeprefix('#')}"
    value = value.replace("url(#", f"url(#{name}-")
    for stand_in, colour in COLOURS.items():
        value = value.replace(stand_in, colour)
    return re.sub(r"(font: [\d.]+px) [^;]*", rf"\1 {FONT}", value)
