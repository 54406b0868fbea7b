"""How a vocabulary grew: its curve as a drawing, and a page with the curve, its numbers and the new tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from vtkit.report.blocks import Chart, Page, Paragraph, Section, Table, Token
from vtkit.report.pages import html_page
from vtkit.report.plots import FIRST, SECOND, SOFT
from vtkit.report.wording import visible
from vtkit.vocabulary.statistics import ExpansionStats, Increment

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

TOKENS_SHOWN = 500
SCALES = ((1e9, "10⁹ "), (1e6, "10⁶ "), (1e3, "10³ "))  # units of the entropy's axis

COLUMNS = ("size", "new tokens", "tokens", "tokens per word", "I(C)", "gain", "of first gain")

NOTES = {
    "I(C)": "Unigram entropy of the corpus, Σ log p over its tokens, in nats.",
    "gain": "What the entropy rose by, as a share of its magnitude before.",
    "of first gain": "The gain as a share of what the first increment raised the entropy by.",
}


def cells(increment: Increment) -> list[str]:
    """A row of numbers under :data:`COLUMNS`, from an increment of :attr:`ExpansionStats.curve`."""
    gain, share = increment.gain, increment.share_of_first_gain
    return [
        f"{increment.size:,}",
        f"{increment.added:,}",
        f"{increment.tokens:,}",
        f"{increment.tokens_per_word:.4f}",
        f"{increment.entropy:,.0f}",
        "" if gain is None else f"{100 * gain:.2f} %",
        "" if share is None else f"{100 * share:.1f} %",
    ]


def expansion_chart(stats: ExpansionStats) -> Chart:
    """Unigram entropy, tokens per word and new tokens by vocabulary size."""
    curve = stats.curve
    first, last, sizes = curve[0], curve[-1], [increment.size for increment in curve]
    largest = max(abs(increment.entropy) for increment in curve)
    scale, unit = next((each for each in SCALES if largest >= each[0]), (1.0, ""))

    def draw(figure: FigureBase) -> None:
        from matplotlib.ticker import MaxNLocator

        entropy, per_word, added = figure.subplots(3, sharex=True)
        for axes, values, label, colour in (
            (entropy, [increment.entropy / scale for increment in curve], f"I(C), {unit}nats", FIRST),
            (per_word, [increment.tokens_per_word for increment in curve], "tokens per word", SECOND),
        ):
            axes.plot(sizes, values, color=colour, marker="o", markersize=3.5)
            axes.set_ylabel(label)
        width = 0.6 * min((later - earlier for earlier, later in pairwise(sizes) if later > earlier), default=1)
        added.bar(sizes, [increment.added for increment in curve], width=width, color=SOFT)
        added.set_ylabel("new tokens")
        added.set_xlabel("vocabulary size")
        added.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        for axis in (added.xaxis, added.yaxis):
            axis.set_major_formatter("{x:,.0f}")
        for axes in (entropy, per_word, added):
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.grid(axis="y")
        figure.align_ylabels()

    words = (
        f"from {first.size:,} to {last.size:,} tokens: unigram entropy {first.entropy:.4g} to "
        f"{last.entropy:.4g} nats, tokens per word {first.tokens_per_word:.3f} to {last.tokens_per_word:.3f}"
    )
    return Chart("Unigram entropy, tokens per word and new tokens by vocabulary size", words, 5.4, draw)


def expansion_page(stats: ExpansionStats, name: str, corpora: Sequence[str], added: Sequence[str]) -> str:
    """An HTML page about the tokenizer ``name``, expanded by ``corpora`` with the tokens ``added``."""
    summary = (
        f"{stats.added:,} tokens were added to the {stats.base_size:,} of {visible(name)}; it stopped "
        f"because {stats.why}. {stats.unused:,} of the new tokens occur nowhere when the corpus is cut with "
        "the result."
    )
    table = Table("Each increment", COLUMNS, [cells(increment) for increment in stats.curve], notes=NOTES)
    tokens = Paragraph(tuple(map(Token, added[:TOKENS_SHOWN])))
    sections = (
        Section("increments", "Increments", [table, expansion_chart(stats)]),
        Section("tokens", "New tokens, most frequent first", [tokens]),
    )
    kicker = f"vtkit expand · {', '.join(corpora)}"
    return html_page(Page(f"{name}, expanded", kicker, sections, summary=summary))
