"""Pages of HTML: the shell that all of vtkit's pages share, the blocks inside it, and the report of a run.

Tokens, queries and documents come from other people's collections: every string is escaped where it is written, and a
page forbids itself scripts and anything from elsewhere, so that even a slip could not run. No JavaScript, no file
beside it.
"""

from __future__ import annotations

import html
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
from vtkit.report.plots import Chart, charts
from vtkit.report.verdict import DEMONSTRATION, KeyFigure, key_figures, recommendation, verdict
from vtkit.report.wording import visible, visible_lines, visible_token


def html_page(report: ReportData) -> str:
    """The report as one self-contained HTML page, with inline styles and inline SVG charts."""
    name = visible(report.name or "run")
    byline = "".join(f" · {visible(part)}" for part in (report.language, report.created) if part)
    said = verdict(report)
    head = []
    if report.demonstration:
        head.append(f'<p class="notice" role="note"><strong>Demonstration.</strong> {_escape(DEMONSTRATION)}</p>')
    if report.about:
        head.append(f'<p class="about">{_escape(visible(report.about))}</p>')
    advice = recommendation(report)
    if advice is not None:
        head.append(f'<p class="verdict"><strong>{_escape(advice.text)}</strong></p>')
    if said:
        head.append(verdict_html(said))
    head.append(_key_figures(key_figures(report)))
    parts = sections(report)
    links = "".join(f'<a href="#{part.key}">{_escape(part.title)}</a>' for part in parts)
    drawn = charts(report)
    language = visible(report.language or "en")
    body = "\n".join(section_html(part, drawn.get(part.key, ()), language) for part in parts)
    return page(
        title=name,
        kicker=f"vtkit report{byline}",
        head="\n".join(part for part in head if part),
        body=f'<nav aria-label="Sections">{links}</nav>\n<main>\n{body}\n</main>',
    )


def page(title: str, kicker: str, head: str, body: str) -> str:
    """The shell of every page.

    Args:
        title: heading, and with :data:`TITLE_END` the title of the window; text.
        kicker: the line above the heading; text.
        head: what follows the heading, as HTML.
        body: everything else, as HTML.
    """
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{_escape(visible(title))}{TITLE_END}</title>
<style>
{CSS}</style>
</head>
<body>
<header>
<p class="kicker">{_escape(visible(kicker))}</p>
<h1>{_escape(visible(title))}</h1>
{head}
</header>
{body}
</body>
</html>
"""


TITLE_END = " – vtkit"


def verdict_html(text: str) -> str:
    """What came of it, in large letters under the heading."""
    return f'<p class="verdict">{_escape(visible(text))}</p>'


def _escape(text: str) -> str:
    return html.escape(text, quote=True)


def _key_figures(figures: Sequence[KeyFigure]) -> str:
    if not figures:
        return ""
    items = (f"<div><dd>{_escape(f.value)}</dd><dt>{_escape(visible(f.label))}</dt></div>" for f in figures)
    return f'<dl class="figures">{"".join(items)}</dl>'


def section_html(section: Section, drawn: Sequence[Chart] = (), language: str = "en") -> str:
    """A part of a page: its blocks, explanations last, and its charts.

    Args:
        language: of words and tokens that are not this program's own.
    """
    parts = [f'<section id="{section.key}">', f"<h2>{_escape(visible(section.title))}</h2>"]
    notes = [block for block in section.blocks if isinstance(block, Paragraph) and block.quiet]
    parts += [_html_block(block, language) for block in section.blocks if block not in notes]
    parts += [_html_block(block, language) for block in notes]
    if drawn:
        figures = (f"<figure><figcaption>{_escape(c.caption)}</figcaption>{c.svg}</figure>" for c in drawn)
        parts.append(f'<div class="charts">{"".join(figures)}</div>')
    parts.append("</section>")
    return "\n".join(parts)


def _html_block(block: Block, language: str) -> str:
    match block:
        case Paragraph():
            kind = ' class="quiet"' if block.quiet else ""
            return f"<p{kind}>{_html_inlines(block.parts, language)}</p>"
        case Table():
            return _html_table(block, language)
        case Hit():
            return _html_hit(block, language)
        case Folded():
            text = _escape(visible_lines(block.text))
            return f"<details><summary>{_escape(block.summary)}</summary><pre><code>{text}</code></pre></details>"
        case Command():
            return f'<pre class="command"><code>{_escape(visible_lines(block.text))}</code></pre>'
        case _:
            assert_never(block)


def _html_table(table: Table, language: str) -> str:
    kinds = [
        "" if position == 0 or position in table.words else ' class="number"' for position in range(len(table.columns))
    ]
    head = "".join(
        f'<th scope="col"{kind}>{_escape(visible(column))}</th>'
        for column, kind in zip(table.columns, kinds, strict=True)
    )
    rows = []
    for row in table.rows:
        cells = [f'<th scope="row">{_html_inlines(row[0], language)}</th>']
        cells += [
            f"<td{kind}>{_html_inlines(cell, language)}</td>" for cell, kind in zip(row[1:], kinds[1:], strict=True)
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    caption, body = _escape(visible(table.caption)), "\n".join(rows)
    return (
        f'<div class="scroll" role="region" aria-label="{caption}" tabindex="0"><table><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _html_hit(hit: Hit, language: str) -> str:
    title = visible(hit.title) or visible(hit.identifier)
    text = f'<p lang="{_escape(language)}" dir="auto">{_escape(visible(hit.text))}</p>' if visible(hit.text) else ""
    name = f'<p class="quiet"><bdi>{_escape(visible(hit.identifier))}</bdi></p>' if visible(hit.title) else ""
    tokens = f'<p class="tokens">{_html_inlines(hit.tokens, language)}</p>' if hit.tokens else ""
    return (
        f'<article class="hit"><h3><span class="rank">{_escape(hit.rank)}</span> '
        f'<bdi lang="{_escape(language)}">{_escape(title)}</bdi> '
        f'<span class="score">{_escape(hit.score)}</span></h3>'
        f"{name}{text}{tokens}</article>"
    )


def _html_inlines(parts: Inlines, language: str) -> str:
    return " ".join(_html_inline(part, language) for part in parts)


def _html_inline(part: Inline, language: str) -> str:
    match part:
        case str():
            return _escape(visible(part))
        case Token():
            weight = f" <small>{_escape(part.weight)}</small>" if part.weight else ""
            name = f'<bdi lang="{_escape(language)}">{_escape(visible_token(part.text))}</bdi>'
            return f'<span class="token" style="--strength: {part.strength:.2f}">{name}{weight}</span>'
        case Foreign():
            return f'<bdi class="foreign" lang="{_escape(language)}">{_escape(visible(part.text))}</bdi>'
        case Strong():
            return f"<strong>{_escape(visible(part.text))}</strong>"
        case Bar():
            return f'<span class="bar" style="--share: {part.share:.4f}"><span>{_escape(part.text)}</span></span>'
        case _:
            assert_never(part)


# Style

CSS = """\
:root {
  --page: #fcfcfb; --ink: #1c2128; --quiet: #5d6672; --line: #dfe2e6; --raised: #ffffff;
  --accent: #1f63c4; --tint: 31 99 196; --notice: #fff3d6; --notice-ink: #6b4700; --shade: #1c212866;
  --plot-ink: #2b323b; --plot-quiet: #667080; --plot-line: #dfe2e6;
  --plot-first: #1f63c4; --plot-second: #c2571a; --plot-soft: #a9bfdf;
  --plot-font: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --ink: #e4e7eb; --quiet: #98a2af; --line: #2d333b; --raised: #1b1f25;
    --accent: #7db0f7; --tint: 125 176 247; --notice: #3a2f12; --notice-ink: #f3d48a; --shade: #000000cc;
    --plot-ink: #d5dae1; --plot-quiet: #98a2af; --plot-line: #333a44;
    --plot-first: #6aa5f5; --plot-second: #f0945a; --plot-soft: #3f5879;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body {
  margin: 0 auto; padding: 2.5rem 1.25rem 5rem; max-width: 58rem; background: var(--page); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK KR", sans-serif;
  overflow-wrap: break-word;
}
h1 { margin: 0 0 .6rem; font-size: clamp(1.8rem, 5vw, 2.6rem); line-height: 1.15; letter-spacing: -.02em; }
h2 { margin: 0 0 .9rem; font-size: 1.35rem; letter-spacing: -.01em; }
p { margin: 0 0 .9rem; max-width: 46rem; }
.kicker { margin: 0 0 .3rem; color: var(--quiet); font-size: .875rem; }
.about { color: var(--quiet); }
.verdict { font-size: 1.15rem; line-height: 1.55; }
.quiet { color: var(--quiet); font-size: .875rem; }
.notice {
  padding: .7rem 1rem; border-radius: .5rem; background: var(--notice); color: var(--notice-ink); max-width: none;
}
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem; margin: 1.5rem 0; }
.figures div {
  display: flex; flex-direction: column; padding: .9rem 1rem; border: 1px solid var(--line);
  border-radius: .6rem; background: var(--raised);
}
.figures dd { margin: 0; font-size: 1.7rem; font-weight: 650; line-height: 1.2; font-variant-numeric: tabular-nums; }
.figures div:first-child dd { color: var(--accent); }
.figures dt { color: var(--quiet); font-size: .8125rem; line-height: 1.35; }
nav { display: flex; flex-wrap: wrap; gap: .4rem 1.1rem; padding: .8rem 0; border-block: 1px solid var(--line); }
nav a { color: var(--accent); font-size: .875rem; text-decoration: none; }
nav a:hover { text-decoration: underline; }
section { margin-top: 2.75rem; scroll-margin-top: 1rem; }
/* A table wider than the page shows a shadow at its right edge for as long as there is more to scroll to. */
.scroll {
  overflow-x: auto; margin: 0 0 1.1rem;
  background:
    linear-gradient(to left, var(--page) 35%, transparent) right / 3.5rem 100% no-repeat local,
    linear-gradient(to left, var(--shade), transparent) right / 1.4rem 100% no-repeat scroll;
}
table { border-collapse: collapse; font-size: .9375rem; line-height: 1.45; min-width: min(100%, 30rem); }
caption {
  position: sticky; left: 0; max-width: calc(100vw - 2rem); padding: 0 0 .45rem; text-align: start;
  color: var(--quiet); font-size: .875rem;
}
th, td {
  padding: .42rem 1.1rem .42rem 0; border-bottom: 1px solid var(--line); text-align: start; vertical-align: baseline;
}
thead th { color: var(--quiet); font-size: .8125rem; font-weight: 500; vertical-align: bottom; white-space: nowrap; }
tbody th { font-weight: 400; white-space: nowrap; }
th.number, td.number { text-align: end; font-variant-numeric: tabular-nums; white-space: nowrap; }
th:last-child, td:last-child { padding-inline-end: 0; }
tbody th, thead th:first-child { position: sticky; left: 0; background: var(--page); }
td { overflow-wrap: normal; }
td:last-child:not(.number) { min-width: 14rem; }
.bar { display: inline-flex; align-items: baseline; gap: .4rem; }
.bar span { min-width: 3.6rem; }
.bar::before {
  content: ""; width: 7rem; height: .55rem; border-radius: .2rem;
  background: linear-gradient(var(--accent) 0 0) 0 / calc(var(--share) * 100%) 100% no-repeat, var(--line);
}
.token {
  display: inline-block; margin: .1rem .1rem .1rem 0; padding: .02rem .42rem; border: 1px solid var(--line);
  border-radius: .35rem; background: rgb(var(--tint) / calc(var(--strength) * .28)); font-size: .9375rem;
  max-width: 100%; white-space: normal;
}
.token small { color: var(--quiet); font-size: .75rem; font-variant-numeric: tabular-nums; }
.foreign { font-weight: 600; }
.hit {
  padding: .9rem 1.1rem; margin: 0 0 .8rem; border: 1px solid var(--line); border-radius: .6rem;
  background: var(--raised);
}
.hit h3 { display: flex; gap: .6rem; align-items: baseline; margin: 0 0 .15rem; font-size: 1.05rem; }
.hit .rank { color: var(--quiet); font-weight: 400; }
.hit .score { margin-inline-start: auto; color: var(--accent); font-variant-numeric: tabular-nums; }
.hit p { margin: 0 0 .4rem; max-width: none; }
.hit .tokens, .hit p:last-child { margin-bottom: 0; }
.charts {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
  gap: 1.5rem 2rem; margin-top: 1.4rem;
}
figure { margin: 0; min-width: 0; max-width: 30rem; }
figcaption { margin-bottom: .4rem; color: var(--quiet); font-size: .875rem; }
figure svg { display: block; width: 100%; height: auto; }
details { border: 1px solid var(--line); border-radius: .6rem; background: var(--raised); }
summary { padding: .7rem 1.1rem; cursor: pointer; font-weight: 500; }
pre {
  margin: 0; padding: 0 1.1rem 1rem; overflow-x: auto; font-size: .8125rem; line-height: 1.5; overflow-wrap: normal;
}
.command {
  margin: 0 0 1.1rem; padding: .8rem 1.1rem; border: 1px solid var(--line); border-radius: .6rem;
  background: var(--raised); white-space: pre-wrap; overflow-wrap: anywhere;
}
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Noto Sans Mono", monospace; }
@media (max-width: 36rem) {
  body { padding: 1.5rem 1rem 3rem; }
  th, td { padding-inline-end: .8rem; }
  tbody th { white-space: normal; overflow-wrap: normal; min-width: 5rem; }
  td:last-child:not(.number) { min-width: 10rem; }
  .bar::before { width: 3.5rem; }
}
@media print {
  nav { display: none; }
  section, .hit, figure, tr { break-inside: avoid; }
}
"""
