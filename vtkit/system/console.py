"""The one place that writes to the terminal: results, messages, warnings, tables and one progress display.

Results (:func:`write`, :func:`write_json`) go to standard output, where a user may pipe them on. Everything else goes
to standard error, plain and without moving bars when that is not a terminal. While a run is under way each message is
also written, with the time, to the log file named by :func:`log_to`.

Ids, titles, tokens and queries are other people's data, and a terminal executes some of it: escape sequences recolour,
move or rename, direction overrides reverse text. Everything written here has passed :func:`clean`.
"""

import json
import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, TextIO, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from vtkit.system.errors import STANDARD_OUTPUT
from vtkit.system.variables import changed

T = TypeVar("T")

_terminal = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
_log_file: TextIO | None = None
_warned: list[str] = []  # since the log file was begun
_bar_is_shown = False
_details = _says_results = False
in_json = False  # whether the user asked for results in JSON
_draws_bars = True

QUIET_SECONDS_BETWEEN_LINES = 30.0
"""Without a terminal, a long loop reports its progress at this interval, so that a log file stays short."""

_COMMANDS_OF_TERMINALS = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of characters that terminals execute: control, format (directions), halves of surrogate pairs, line and
paragraph separators."""

LONGEST_WORD = 500
"""Letters of a word in an error or a warning; most systems allow 255 in a name."""

_JOINERS = "\u200c\u200d"  # format characters that belong to the spelling of Persian, Hindi and others, and to emoji


def write(text: str = "", *, exact: bool = False) -> None:
    """Write lines of a result to standard output. Data that may contain line ends passes :func:`one_line` first.

    Args:
        exact: whether other programs read it: it stays unchanged unless standard output is a terminal.
    """
    with standard_output():
        print(text if exact and not sys.stdout.isatty() else clean(text))


def write_json(value: Any, indent: int | None = 2) -> None:
    r"""``value``, in which dataclasses stand for their fields, as JSON on standard output; characters that a terminal
    executes are written as ``\u001b``."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=asdict)
    write("".join(json.dumps(each)[1:-1] if _is_command(each) and each != "\n" else each for each in text), exact=True)


def answered(value: Any, indent: int | None = 2) -> bool:
    """Whether the user asked for JSON, which is then written of ``value``."""
    if in_json:
        write_json(value, indent)
    return in_json


@contextmanager
def standard_output() -> Iterator[None]:
    """Name standard output in errors of the system that the block raises: no file of the user's is at fault. It takes
    nothing more then, so that the interpreter's own flush does not fail again."""
    try:
        yield
    except OSError as error:
        error.filename = STANDARD_OUTPUT
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output, in several parts if the terminal is too narrow for its columns."""
    for line in table_lines(columns, rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None):
        write(line)


def say(message: str, *, short: str | None = None) -> None:
    """One line for the user.

    Args:
        short: shown on the terminal instead, unless :func:`details` are shown; an empty text shows nothing. The log
            file has the whole message.
    """
    shown = message if short is None or _details else short
    if shown and _says_results:
        write(shown)
    elif shown:
        _terminal.print(escape(clean(shown)))
    note(message)


def details(shown: bool, *, results: bool = False) -> AbstractContextManager[None]:
    """Choose whether :func:`say` ignores the short forms of messages while the block runs, and whether messages are
    ``results``, such as the plan that a dry run is asked for."""
    return changed(globals(), _details=shown, _says_results=results)


def be_silent(silent: bool = True) -> None:
    """Choose whether this process shows nothing, because another one does."""
    _terminal.quiet = silent


def warn(message: str) -> None:
    """Something unexpected that works; problems that must be solved are errors."""
    _terminal.print(f"[yellow]warning:[/yellow] {escape(_readable(message))}")
    note(f"warning: {message}")
    if _log_file is not None:
        _warned.append(clean(message).strip())


@cache
def once(speak: Callable[[str], None], message: str) -> None:
    """Say or warn of something once in a process, however often it is met."""
    speak(message)


def warned() -> tuple[str, ...]:
    """The warnings of the run under way, or of the last one, in their order."""
    return tuple(_warned)


def fail(message: str) -> None:
    """The last line of a command that failed."""
    _terminal.print(f"[red]error:[/red] {escape(_readable(message))}")
    note(f"error: {message}")


def note(message: str) -> None:
    """One line for the log file only; it is dropped if the disk is full."""
    if _log_file is not None:
        with suppress(OSError):
            _log_file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {clean(message)}\n")
            _log_file.flush()


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Append every message to ``path`` while the block runs; its warnings are kept (:func:`warned`)."""
    _warned.clear()
    file = path.open("a", encoding="utf-8")
    try:
        with changed(globals(), _log_file=file):
            yield
    finally:
        with suppress(OSError):  # its buffer may hold lines that a full disk rejected
            file.close()


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> Iterator[str]:
    """The lines of a table: the first column left-aligned, the others right-aligned, as many side by side as fit into
    ``width`` cells; the remaining columns follow below, after the first column again."""
    cells = [[one_line(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(cell_len(row[position]) for row in cells) for position in range(len(columns))]
    parts: list[list[int]] = [[]]
    used = widths[0]
    for position in range(1, len(columns)):
        if width is not None and parts[-1] and used + 2 + widths[position] > width:
            parts.append([])
            used = widths[0]
        parts[-1].append(position)
        used += 2 + widths[position]
    for number, part in enumerate(parts):
        if number:
            yield ""
        for row in cells:
            first = row[0] + " " * (widths[0] - cell_len(row[0]))
            rest = (" " * (widths[position] - cell_len(row[position])) + row[position] for position in part)
            yield "  ".join([first, *rest]).rstrip()


class Bar:
    """One line of a progress display, with words after it."""

    def __init__(self, display: Progress, description: str, total: int | None, in_bytes: bool) -> None:
        self._display = display
        display.add_task(description, total=total, words="")
        (self._task,) = display.tasks
        self._shown = size if in_bytes else str
        self._spoke = time.monotonic()
        self._latest = ""
        self.aside = ""
        """Words that stay until they are replaced, such as the best validation score."""

    def advance(self, steps: int = 1, words: str | None = None) -> None:
        """Count ``steps``; ``words`` replace the earlier ones."""
        self._latest = self._latest if words is None else words
        words = "  ".join(filter(None, (self._latest, self.aside)))
        self._display.update(self._task.id, advance=steps, words=escape(one_line(words)))
        if self._display.disable and time.monotonic() - self._spoke >= QUIET_SECONDS_BETWEEN_LINES:
            self._spoke = time.monotonic()
            task = self._task
            of = "" if task.total is None else f"/{self._shown(task.total)}"
            left = "" if task.time_remaining is None else f", about {task.time_remaining:.0f} s left"
            say(f"  {task.description} {self._shown(task.completed)}{of}{left}{'  ' + words if words else ''}")

    def reach(self, steps: int) -> None:
        """Count up to ``steps`` in all."""
        if (left := int(steps - self._task.completed)) > 0:
            self.advance(left)

    def skip(self, steps: int) -> None:
        """Count steps of earlier work, which the time left does not go by."""
        self._task.completed += steps
        self.advance(0)


@contextmanager
def progress(description: str | Bar, total: int | None = None, *, in_bytes: bool = False) -> Iterator[Bar]:
    """The progress display of one loop, with the time left; its steps are bytes if ``in_bytes``. A bar in place of a
    description stays on display: the loop is a part of its work."""
    global _bar_is_shown
    if isinstance(description, Bar):
        yield description
        return
    columns = (
        TextColumn("  {task.description}"),
        BarColumn(),
        DownloadColumn() if in_bytes else MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
    )
    drawn = _draws_bars and sys.stderr.isatty() and not _bar_is_shown
    # The time left is estimated over the last hour: a step may take minutes.
    with Progress(
        *columns, console=_terminal, transient=True, speed_estimate_period=3600, disable=not drawn
    ) as display:
        _bar_is_shown |= drawn
        try:
            yield Bar(display, description, total, in_bytes)
        finally:
            _bar_is_shown &= not drawn


def tracked(
    items: Iterable[T], description: str | Bar, total: int | None = None, size: Callable[[T], int] = lambda _: 1
) -> Iterator[T]:
    """``items``, on whose progress display each advances by its ``size`` once the loop over them has done with it."""
    with progress(description, total) as bar:
        for item in items:
            yield item
            bar.advance(size(item))


def without_bars() -> AbstractContextManager[None]:
    """Show no progress in the block."""
    return changed(globals(), _draws_bars=False)


def size(count: float) -> str:
    """``count`` bytes for a person."""
    for unit, bytes_ in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= bytes_:
            return f"{count / bytes_:.1f} {unit}"
    return f"{count:.0f} B"


def clean(text: str, kept: str = "\n\t") -> str:
    """``text`` without characters that a terminal executes, but for those ``kept``: line ends and tabs.

    Other white space among them becomes a space, a byte order mark nothing, everything else a visible U+FFFD.
    """
    if text.isprintable():
        return text
    letters = text.replace("\ufeff", "")  # a byte order mark, which many files begin with
    commands = filter(_is_command, {*letters} - {*kept})
    return letters.translate({ord(each): " " if each.isspace() else "\ufffd" for each in commands})


def _readable(message: str) -> str:
    """``message``, cleaned and with very long words cut: a value that it quotes would hide its other sentences."""
    return re.sub(rf"(\S{{{LONGEST_WORD}}})\S+", r"\1…", clean(message))


def one_line(text: str, width: int | None = None) -> str:
    """``text`` on one line, line ends and tabs as spaces, cleaned as in :func:`clean` and cut at ``width``."""
    plain = clean(text, kept="")
    return plain if width is None or len(plain) <= width else plain[: width - 1] + "…"


def is_utf8(text: str) -> bool:
    """Whether ``text`` can be written as UTF-8: Python keeps undecodable bytes as lone surrogates."""
    return re.search("[\ud800-\udfff]", text) is None


def _is_command(letter: str) -> bool:
    return unicodedata.category(letter) in _COMMANDS_OF_TERMINALS and letter not in _JOINERS
