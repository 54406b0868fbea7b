"""Pages as HTML and as GitHub-flavoured Markdown, by the templates beside this file, and their tables in a terminal.

Tokens, queries and documents come from other people's collections. Every string that a template writes is made visible
(:mod:`vtkit.report.wording`) and escaped, unless a template says ``safe``; and an HTML page forbids itself scripts and
anything from elsewhere, so that even a slip could not run.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from vtkit.report.blocks import Page, Paragraph, Section, Table, pieces, plain_text
from vtkit.report.plots import address
from vtkit.report.wording import amount, shorten, visible, visible_lines, visible_token
from vtkit.system import console
from vtkit.system.templates import templates_of

if TYPE_CHECKING:
    from jinja2 import Environment


def html_page(page: Page) -> str:
    """One page without JavaScript or a file beside it."""
    return _html().get_template("page.html").render(page=page)


def markdown_page(page: Page) -> str:
    """The same words without the charts."""
    return from_template("page.md", page=page)


def write_sections(sections: Sequence[Section]) -> None:
    """The tables and sentences of sections on standard output."""
    for block in (block for section in sections for block in section.blocks):
        if isinstance(block, Table):
            console.write(f"\n{block.caption}")
            console.write_table(block.columns, [[plain_text(cell) for cell in row] for row in block.rows])
        elif isinstance(block, Paragraph):
            console.write(console.one_line(plain_text(block.parts)))


def from_template(name: str, **values: object) -> str:
    """A Markdown template filled in."""
    return _markdown().get_template(name).render(**values).strip("\n") + "\n"


@cache
def _html() -> Environment:
    return _environment(
        visible,
        token=lambda text: escape(visible_token(text)),
        lines=lambda text: escape(visible_lines(text)),
        address=address,
    )


@cache
def _markdown() -> Environment:
    return _environment(
        lambda text: Markup(markdown_words(visible(text))),
        token=lambda text: Markup(markdown_words(visible_token(text))),
        # a line stays a paragraph, even if it begins like a list item or a rule
        line=lambda text: Markup(re.sub(r"^(\d*)([-+=]|[.)](?=\s|$))", r"\1\\\2", str(text))),
        code=lambda text: Markup(visible_lines(text).replace("`", "'")),
        fenced=_fenced,
    )


def _environment(shown: Callable[[str], str], **filters: Callable[..., str]) -> Environment:
    def finalize(value: Any) -> Any:
        return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = templates_of("vtkit.report", autoescape=True, finalize=finalize)
    filters |= {"kind": lambda part: type(part).__name__, "amount": amount, "shorten": shorten}
    environment.filters |= {"pieces": pieces, **filters}
    environment.globals["tight"] = _tight
    return environment


def _tight(before: object, after: object) -> bool:
    """Report whether two pieces of a sentence join without a space."""
    opens, closes = isinstance(before, str) and before.endswith("("), isinstance(after, str) and after[:1] in ".,;:)"
    return opens or closes


_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_[]|~$#"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def markdown_words(text: str) -> str:
    """``text``, already visible, so that it means nothing to Markdown, to HTML inside it, or to a table. Words written
    from right to left are isolated, or the numbers beside them would change places."""
    # The beginning of an address is written so that it does not become a link on its own.
    escaped = re.sub(r"(:/|www)([/.])", r"\1\\\2", text.translate(_SPECIAL), flags=re.IGNORECASE)
    rightward = any(unicodedata.bidirectional(char) in {"R", "AL", "AN"} for char in text)
    return f"\u2068{escaped}\u2069" if rightward else escaped


def _fenced(text: str, syntax: str) -> Markup:
    """Verbatim text between fences that it cannot close."""
    text = visible_lines(text)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return Markup(f"{fence}{syntax}\n{text}\n{fence}")
