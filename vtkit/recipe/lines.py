"""Where each key of a TOML file stands: the standard library's reader does not tell, and every error must.

The walker only follows text that ``tomllib`` has accepted, so it steps over values without judging them.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from contextlib import suppress
from typing import Any

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'  # up to two quotes may stand right before the closing three
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\]|\\.)*"'
    r"|'[^']*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}\n#]+")


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line, counted from 1, on which each key and each table of ``text`` first stands.

    Keys are full paths: ``alpha = 2`` below ``[transfer]`` is ``("transfer", "alpha")``, and so are
    ``transfer.alpha = 2`` and ``transfer = {alpha = 2}``. A table that is only implied, as ``transfer`` is
    in the last two, stands where it is first mentioned. Tables inside lists are not entered.
    """
    walker = _Walker(text)
    with suppress(_Lost):  # the lines found before are of use all the same
        walker.walk()
    return walker.lines


def one_value(text: str) -> tuple[Any, bool]:
    """``text`` read as one TOML value, and whether it is one (nothing before, after or beside it)."""
    try:
        read = tomllib.loads(f"value = {text}")
    except ValueError:
        return None, False
    walker = _Walker(text)
    try:
        walker.skip_value(None)
    except _Lost:
        return None, False
    return (read["value"], True) if not text[walker.at :].strip() else (None, False)


class _Lost(Exception):
    """The text is not the TOML the walker takes it for."""


class _Walker:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.lines: dict[tuple[str, ...], int] = {}
        self._ends = [position for position, letter in enumerate(text) if letter == "\n"]

    def walk(self) -> None:
        table: tuple[str, ...] = ()
        self._match(_BLANK)
        while self.at < len(self.text):
            if self._next("["):
                listed = self._next("[")
                start, table = self.at, self._key()
                self._note(table, start)
                self.at += 2 if listed else 1
            else:
                self._entry(table)
            self._match(_BLANK)

    def skip_value(self, path: tuple[str, ...] | None) -> None:
        """Step over the value that starts here; the keys of an inline table are noted below ``path``."""
        self._match(_BLANK)
        if self._next("["):
            self._match(_BLANK)
            while not self._next("]"):
                self.skip_value(None)
                self._match(_BLANK)
                self._next(",")
                self._match(_BLANK)
        elif self._next("{"):
            self._match(_BLANK)
            while not self._next("}"):
                self._entry(path)
                self._match(_BLANK)
                self._next(",")
                self._match(_BLANK)
        elif self.text[self.at : self.at + 1] in ('"', "'"):
            self._expect(_STRING)
        else:
            self._expect(_SCALAR)

    def _entry(self, table: tuple[str, ...] | None) -> None:
        start, key = self.at, self._key()
        if not self._next("="):
            raise _Lost
        path = None if table is None else table + key
        if path is not None:
            self._note(path, start)
        self.skip_value(path)

    def _key(self) -> tuple[str, ...]:
        parts: list[str] = []
        while True:
            self._match(_BLANK)
            quoted = self.text[self.at : self.at + 1] in ('"', "'")
            part = self._expect(_STRING if quoted else _BARE_KEY)
            parts.append(next(iter(tomllib.loads(f"{part} = 0"))) if quoted else part)
            self._match(_BLANK)
            if not self._next("."):
                return tuple(parts)

    def _note(self, path: tuple[str, ...], start: int) -> None:
        line = bisect_right(self._ends, start - 1) + 1
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], line)

    def _next(self, letter: str) -> bool:
        if self.text[self.at : self.at + 1] != letter:
            return False
        self.at += 1
        return True

    def _expect(self, pattern: re.Pattern[str]) -> str:
        found = self._match(pattern)
        if not found:
            raise _Lost
        return found

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found.group()
