"""How a vocabulary grew: its curves as drawings, and a page with the curves, their numbers and the new tokens."""

from __future__ import annotations

from collections.abc import Sequence

from vtkit.report.blocks import Chart, Page, Paragraph, Section, Table, Token
from vtkit.report.pages import html_page
from vtkit.report.plots import line_chart
from vtkit.report.wording import visible
from vtkit.vocabulary.statistics import ExpansionStats, Increment

TOKENS_SHOWN = 500

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


def expansion_charts(stats: ExpansionStats) -> list[Chart]:
    """Unigram entropy, tokens per word and new tokens by vocabulary size."""
    sizes = [increment.size for increment in stats.curve]
    curves: dict[str, Sequence[float]] = {
        "unigram entropy I(C), nats": [increment.entropy for increment in stats.curve],
        "tokens per word": [increment.tokens_per_word for increment in stats.curve],
        "new tokens": [increment.added for increment in stats.curve],
    }
    return [
        line_chart(f"{label[:1].upper()}{label[1:]}", [("", sizes, values, ())], "vocabulary size", label, marks=True)
        for label, values in curves.items()
    ]


def expansion_page(stats: ExpansionStats, name: str, corpora: Sequence[str], added: Sequence[str]) -> str:
    """An HTML page about the tokenizer ``name``, expanded by ``corpora`` with the tokens ``added``."""
    summary = (
        f"{stats.added:,} tokens were added to the {stats.base_size:,} of {visible(name)}; it stopped "
        f"because {stats.why}. {stats.unused:,} of the new tokens occur nowhere when the corpus is cut with "
        "the result."
    )
    table = Table("Each increment", COLUMNS, [cells(increment) for increment in stats.curve], notes=NOTES)
    sections = (
        Section("increments", "Increments", [table, *expansion_charts(stats)]),
        Section("tokens", "New tokens, most frequent first", [Paragraph(tuple(map(Token, added[:TOKENS_SHOWN])))]),
    )
    return html_page(Page(f"{name}, expanded", f"vtkit expand · {', '.join(corpora)}", sections, summary=summary))
