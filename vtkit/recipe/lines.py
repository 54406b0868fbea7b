"""Where each key of a TOML file stands: the standard library's reader does not tell, and every error must."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_KEY = r"""(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_DOTTED = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"
_LINE = re.compile(rf"[ \t]*(?:\[\[?[ \t]*(?P<table>{_DOTTED})[ \t]*\]|(?P<key>{_DOTTED})[ \t]*=)", re.ASCII)
_LONG_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}', re.DOTALL)


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line, counted from 1, on which each key and each table of ``text``, valid TOML, first stands.

    Keys are full paths: ``alpha = 2`` below ``[transfer]`` is ``("transfer", "alpha")``, and so is
    ``transfer.alpha = 2``. A table that is only implied, as ``transfer`` in the last one, stands where it is first
    mentioned. Keys of inline tables are not entered.
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    without_long_strings = _LONG_STRING.sub(lambda found: '""' + "\n" * found[0].count("\n"), text)
    for number, line in enumerate(without_long_strings.split("\n"), 1):
        if not (match := _LINE.match(line)):
            continue
        path = tuple(
            next(iter(tomllib.loads(f"{part} = 0"))) for part in re.findall(_KEY, match["table"] or match["key"])
        )
        if match["table"]:
            table = path
        else:
            path = table + path
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], number)
    return lines


def one_value(text: str) -> tuple[Any, bool]:
    """``text`` read as one TOML value, and whether it is one (nothing before, after or beside it)."""
    try:
        read = tomllib.loads(f"value = {text}")
    except ValueError:
        return None, False
    return (read["value"], True) if set(read) == {"value"} else (None, False)
