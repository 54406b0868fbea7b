"""The report of a run as GitHub-flavoured Markdown: what the HTML page says, without the charts.

Made from the blocks of :mod:`vtkit.report.content`. Every string is escaped where it is written: tokens, queries and
documents come from other people's collections.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence
from typing import assert_never

from vtkit.report.content import (
    Bar,
    Block,
    Command,
    Folded,
    Foreign,
    Hit,
    Inline,
    Inlines,
    Paragraph,
    Section,
    Strong,
    Table,
    Token,
    sections,
)
from vtkit.report.data import ReportData
from vtkit.report.verdict import DEMONSTRATION, recommendation, verdict
from vtkit.report.wording import visible, visible_lines, visible_token


def markdown_page(report: ReportData) -> str:
    """The report as Markdown."""
    byline = "".join(f" · {markdown_words(visible(part))}" for part in (report.language, report.created) if part)
    lines = [f"# {markdown_words(visible(report.name or 'run'))}", "", f"vtkit report{byline}", ""]
    if report.demonstration:
        lines += [f"> **Demonstration.** {DEMONSTRATION}", ""]
    advice = recommendation(report)
    if advice is not None:
        lines += [f"**{markdown_words(advice.text)}**", ""]
    for words in (report.about or "", verdict(report)):
        if visible(words):
            lines += [markdown_paragraph(words), ""]
    for section in sections(report):
        lines += [markdown_section(section), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_[]|~$#"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def markdown_words(text: str) -> str:
    """``text``, already visible, so that it means nothing to Markdown, to HTML inside it, or to a table.

    Words written from right to left are isolated, or the numbers beside them would change places.
    """
    escaped = re.sub(r"://|www\.", _unlinked, text.translate(_SPECIAL), flags=re.IGNORECASE)
    rightward = any(unicodedata.bidirectional(char) in {"R", "AL", "AN"} for char in text)
    return f"\u2068{escaped}\u2069" if rightward else escaped


def _unlinked(start: re.Match[str]) -> str:
    """The beginning of an address, written so that it does not become a link on its own."""
    return f"{start[0][:-1]}\\{start[0][-1]}"


def _markdown_line(text: str) -> str:
    """A line that is a paragraph, not a list item or a rule, whatever it begins with."""
    return re.sub(r"^(\d*)([-+=]|[.)](?=\s|$))", r"\1\\\2", text)


def markdown_paragraph(text: str) -> str:
    """``text`` as a paragraph of its own."""
    return _markdown_line(markdown_words(visible(text)))


def markdown_section(section: Section) -> str:
    """One section as GitHub-flavoured Markdown, its heading first."""
    return "\n\n".join([f"## {section.title}", *(_markdown_block(block) for block in section.blocks)])


def _markdown_block(block: Block) -> str:
    match block:
        case Paragraph():
            return _markdown_line(_markdown_inlines(block.parts))
        case Table():
            return _markdown_table(block)
        case Hit():
            return _markdown_hit(block)
        case Folded():
            summary = html.escape(block.summary, quote=True)
            return f"<details><summary>{summary}</summary>\n\n{_fenced(block.text, block.syntax)}\n\n</details>"
        case Command():
            return _fenced(block.text, "sh")
        case _:
            assert_never(block)


def _fenced(text: str, syntax: str) -> str:
    """Verbatim text between fences that it cannot close."""
    text = visible_lines(text)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{syntax}\n{text}\n{fence}"


def _markdown_table(table: Table) -> str:
    """A table with its caption above it."""
    marks = [":--" if position == 0 or position in table.words else "--:" for position in range(len(table.columns))]
    lines = [
        markdown_paragraph(table.caption),
        "",
        _markdown_row([markdown_words(visible(column)) for column in table.columns]),
        _markdown_row(marks),
    ]
    lines += [_markdown_row([_markdown_inlines(cell) for cell in row]) for row in table.rows]
    return "\n".join(lines)


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_hit(hit: Hit) -> str:
    name, title = markdown_words(visible(hit.identifier)), markdown_words(visible(hit.title))
    head = f"**{hit.rank}.** {f'{title} ({name})' if title else name}, score {hit.score}"
    rest = [markdown_paragraph(hit.text), _markdown_line(_markdown_inlines(hit.tokens))]
    return "\n\n".join([head, *(part for part in rest if part)])


def _markdown_inlines(parts: Inlines) -> str:
    """The pieces one after another; a comma between tokens."""
    text = ""
    for position, part in enumerate(parts):
        between = "" if position == 0 else ", " if isinstance(parts[position - 1], Token) else " "
        text += between + _markdown_inline(part)
    return text


def _markdown_inline(part: Inline) -> str:
    match part:
        case str():
            return markdown_words(visible(part))
        case Token():
            return f"{markdown_words(visible_token(part.text))} {markdown_words(part.weight)}".rstrip()
        case Foreign():
            return f"**{markdown_words(visible(part.text))}**"
        case Strong():
            return f"**{markdown_words(visible(part.text))}**"
        case Bar():
            return markdown_words(part.text)
        case _:
            assert_never(part)
