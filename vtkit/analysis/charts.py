"""Stacked bars, one a vocabulary, as SVG for a page and as a PNG file.

Unusual: the SVG's lettering takes the colour of the text around it and the reader's own fonts, so that one drawing
serves light and dark pages and no script lacks glyphs. The same numbers give the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from vtkit.errors import DataError

WIDTH_INCHES = 7.2

INK = "#0a0b01"
"""Stands for the colour of the page's text in an SVG; no other part of a drawing has it."""

PALETTE = ("#3f7fd6", "#cf6a2b", "#3d9a6b", "#b5497f", "#8a6fd1", "#c9a227", "#2f9fb0", "#a6543f", "#6f8f2f", "#d077b8")
"""Colours of the parts, in their order; they can be told apart on white and on black."""

SHADES = ("#d6e4f5", "#b5cfee", "#92b8e5", "#6f9fdb", "#4d86cf", "#346dba", "#24569c", "#173f78")
"""Colours of parts that are steps of one quantity, from the least to the most."""

REMAINDERS = ("#8fa6c4", "#9aa0a8", "#c3c8cf", "#70757d")
"""Greys of the parts that are no class of their own (other, undecided, no letters)."""

LABELLED_SHARE = 0.06
"""A part's share is written into it from this width of the bar on."""

SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "vtkit",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.spines.bottom": False,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.12,
}


@dataclass(frozen=True)
class StackedBars:
    """One chart: a bar for each row, cut into the same parts."""

    title: str
    rows: Mapping[str, Sequence[float]]
    """Label of a bar -> share of each part, which add up to 1."""

    parts: Sequence[str]
    """What the parts are."""

    remainders: int = 0
    """So many parts at the end are drawn in grey."""

    ordered: bool = False
    """The parts are steps of one quantity."""


def svg(chart: StackedBars) -> str:
    """The chart as an ``<svg>`` element for an HTML page; it takes the width of the page."""
    file = io.BytesIO()
    with _settings():
        figure = Figure(figsize=_size([chart]))
        FigureCanvasSVG(figure)
        _draw(figure, [chart])
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue().decode()
    text = text[text.index("<svg ") :]
    text = re.sub(r'(<svg [^>]*?)width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?)height="[^"]*"', r'\1role="img"', text, count=1)
    text = re.sub(r"(font: [\d.]+px) [^;\"]*", r"\1 system-ui, sans-serif", text)
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL).replace(INK, "currentColor").strip()


def write_png(charts: Sequence[StackedBars], path: Path) -> None:
    """The charts, one under the other on white, as a PNG file.

    Raises:
        DataError: the file cannot be written.
    """
    with _settings(), matplotlib.rc_context({"figure.facecolor": "white"}):
        figure = Figure(figsize=_size(charts), dpi=160)
        FigureCanvasAgg(figure)
        _draw(figure, charts)
        try:
            figure.savefig(path, format="png", metadata={"Software": None})
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({error.strerror or error}).") from error


def _draw(figure: Figure, charts: Sequence[StackedBars]) -> None:
    heights = [_height(chart) for chart in charts]
    grid = figure.subplots(len(charts), 1, squeeze=False, height_ratios=heights)
    for axes, chart in zip(grid[:, 0], charts, strict=True):
        colours = _colours(chart)
        labels = [*chart.rows]
        lefts = [0.0] * len(labels)
        for place, (part, colour) in enumerate(zip(chart.parts, colours, strict=True)):
            shares = [chart.rows[label][place] for label in labels]
            axes.barh(range(len(labels)), shares, left=lefts, color=colour, height=0.66, label=part, linewidth=0)
            for row, share in enumerate(shares):
                if share >= LABELLED_SHARE:
                    axes.annotate(
                        f"{100 * share:.0f}",
                        (lefts[row] + share / 2, row),
                        ha="center",
                        va="center",
                        color="white" if _is_dark(colour) else "black",
                        fontsize=8,
                    )
            lefts = [left + share for left, share in zip(lefts, shares, strict=True)]
        axes.set_yticks(range(len(labels)), labels)
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
        axes.set_title(chart.title)
        axes.legend(
            ncols=6,
            columnspacing=1.2,
            loc="upper left",
            bbox_to_anchor=(0, -0.3 / (0.42 * len(labels))),
            handlelength=1,
        )


def _colours(chart: StackedBars) -> list[str]:
    """A colour for each part; the last remainder is the same grey in every chart."""
    ordinary = len(chart.parts) - chart.remainders
    cycle = SHADES if chart.ordered else PALETTE
    greys = REMAINDERS[len(REMAINDERS) - chart.remainders :]
    return [*(cycle[place % len(cycle)] for place in range(ordinary)), *greys]


def _is_dark(colour: str) -> bool:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 150


def _size(charts: Sequence[StackedBars]) -> tuple[float, float]:
    return WIDTH_INCHES, sum(map(_height, charts))


def _height(chart: StackedBars) -> float:
    return 0.42 * len(chart.rows) + 0.22 * -(-len(chart.parts) // 6) + 0.85


@contextmanager
def _settings() -> Iterator[None]:
    with matplotlib.rc_context(), warnings.catch_warnings():
        # In a page the reader's fonts count, and in a PNG a name with a missing glyph is still drawn.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()  # a reader's own matplotlibrc must not change the drawing
        matplotlib.rcParams.update(SETTINGS)
        yield
