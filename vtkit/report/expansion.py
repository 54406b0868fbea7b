"""How a vocabulary grew: its curve as a drawing, and a page with the curve, its numbers and the new tokens."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vtkit.report.page import CSS
from vtkit.report.plots import FIRST, INK, LINE, QUIET, SECOND, SETTINGS, SOFT, WIDTH_INCHES, Chart, _chart
from vtkit.report.wording import visible, visible_token, whole

PRINTED = {INK: "#2b323b", QUIET: "#5d6672", LINE: "#dfe2e6", FIRST: "#1f63c4", SECOND: "#c2571a", SOFT: "#a9bfdf"}
"""The colours of a drawing that is a picture, on white."""

HEIGHT_INCHES = 5.4
TOKENS_SHOWN = 500

COLUMNS = ("size", "new tokens", "tokens", "tokens per word", "I(C)", "gain", "of first gain")


def cells(increment: Mapping[str, Any]) -> list[str]:
    """A row of numbers under :data:`COLUMNS`, from an increment of ``Expansion.facts["curve"]``."""
    gain, share = increment["gain"], increment["share_of_first_gain"]
    return [
        f"{increment['size']:,}",
        f"{increment['added']:,}",
        f"{increment['tokens']:,}",
        f"{increment['tokens_per_word']:.4f}",
        f"{increment['entropy']:,.0f}",
        "" if gain is None else f"{100 * gain:.2f} %",
        "" if share is None else f"{100 * share:.1f} %",
    ]


def expansion_chart(facts: Mapping[str, Any]) -> Chart:
    """Unigram entropy, tokens per word and new tokens by vocabulary size, for an HTML page."""
    first, last = facts["curve"][0], facts["curve"][-1]
    words = (
        f"from {whole(first['size'])} to {whole(last['size'])} tokens: unigram entropy {first['entropy']:.4g} to "
        f"{last['entropy']:.4g} nats, tokens per word {first['tokens_per_word']:.3f} to {last['tokens_per_word']:.3f}"
    )
    caption = "Unigram entropy, tokens per word and new tokens by vocabulary size"
    return _chart("expansion", HEIGHT_INCHES, lambda figure: _draw(figure, facts["curve"], {}), caption, words)


def write_expansion_png(facts: Mapping[str, Any], path: Path) -> None:
    """The same drawing as a picture."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings = {
            key: PRINTED.get(value, value) if isinstance(value, str) else value for key, value in SETTINGS.items()
        }
        matplotlib.rcParams.update(settings | {"figure.facecolor": "white"})
        figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), dpi=160)
        FigureCanvasAgg(figure)
        _draw(figure, facts["curve"], PRINTED)
        figure.savefig(path, format="png", metadata={"Software": None})


def expansion_page(facts: Mapping[str, Any], name: str, corpora: Sequence[str], added: Sequence[str]) -> str:
    """A self-contained HTML page.

    Args:
        facts: :attr:`vtkit.vocabulary.expanded.Expansion.facts`.
        name: the tokenizer that was expanded.
        corpora: what it was expanded by.
        added: the new tokens, most frequent first.
    """
    chart = expansion_chart(facts)
    head = "".join(f'<th class="number" scope="col">{column}</th>' for column in COLUMNS)
    rows = "\n".join(
        "<tr>" + "".join(f'<td class="number">{cell}</td>' for cell in cells(increment)) + "</tr>"
        for increment in facts["curve"]
    )
    tokens = " ".join(f"<code>{_escaped(visible_token(token))}</code>" for token in added[:TOKENS_SHOWN])
    title = _escaped(f"{visible(name)}, expanded")
    said = (
        f"{whole(facts['added'])} tokens were added to the {whole(facts['base_size'])} of {visible(name)}; it stopped "
        f"because {facts['why']}. {whole(facts['unused'])} of the new tokens occur nowhere when the corpus is cut with "
        "the result."
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{CSS}</style>
</head>
<body>
<header>
<p class="kicker">vtkit expand · {_escaped(visible(", ".join(corpora)))}</p>
<h1>{title}</h1>
<p class="verdict">{_escaped(said)}</p>
</header>
<main>
<section><figure><figcaption>{_escaped(chart.caption)}</figcaption>{chart.svg}</figure></section>
<section><h2>Increments</h2><div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>
{rows}
</tbody></table></div>
<p class="quiet">I(C): unigram entropy of the corpus, Σ log p over its tokens, in nats. Gain: what it rose by, as a
share of its magnitude before; and as a share of what the first increment raised it by.</p></section>
<section><h2>New tokens, most frequent first</h2><p>{tokens}</p></section>
</main>
</body>
</html>
"""


def _draw(figure: Figure, curve: Sequence[Mapping[str, Any]], colours: Mapping[str, str]) -> None:
    sizes = [increment["size"] for increment in curve]
    entropy, per_word, added = figure.subplots(3, sharex=True)
    scale, unit = _scale(max(abs(increment["entropy"]) for increment in curve))
    for axes, values, label, colour in (
        (entropy, [increment["entropy"] / scale for increment in curve], f"I(C){unit}", FIRST),
        (per_word, [increment["tokens_per_word"] for increment in curve], "tokens per word", SECOND),
    ):
        axes.plot(sizes, values, color=colours.get(colour, colour), marker="o", markersize=3.5)
        axes.set_ylabel(label)
    width = 0.6 * min((later - earlier for earlier, later in pairwise(sizes) if later > earlier), default=1)
    added.bar(sizes, [increment["added"] for increment in curve], width=width, color=colours.get(SOFT, SOFT))
    added.set_ylabel("new tokens")
    added.yaxis.set_major_formatter(lambda value, _: whole(value))
    added.set_xlabel("vocabulary size")
    added.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    added.xaxis.set_major_formatter(lambda value, _: whole(value))
    for axes in (entropy, per_word, added):
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.grid(axis="y")
    figure.align_ylabels()


def _scale(largest: float) -> tuple[float, str]:
    for scale, unit in ((1e9, ", 10⁹ nats"), (1e6, ", 10⁶ nats"), (1e3, ", 10³ nats")):
        if largest >= scale:
            return scale, unit
    return 1.0, ", nats"


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)
