"""Problems of the user's files, collected and reported together: every correction of a large file costs another run."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from vtkit.system.errors import DataError

Row = TypeVar("Row")


def numbers(values: Iterable[Any]) -> list[float]:
    """``values`` as finite numbers, ValueError if one is none. Every number from outside passes through here; Python
    alone reads ``1_0`` and the digits of other scripts."""
    finite = []
    for value in values:
        try:
            odd = isinstance(value, bool) or (isinstance(value, str) and ("_" in value or not value.isascii()))
            number = math.nan if odd else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"a score is missing, NaN, infinite or not a number: {value!r:.40}")
        finite.append(number)
    return finite


SHOWN = 5  # different problems of a file that are listed; the others are counted


@dataclass
class Problems:
    """The problems of some files. After the first problem, a reader continues to find the others, without giving
    data."""

    found: dict[Path, dict[str, str]] = field(default_factory=dict)
    """File -> what is wrong -> the same with its first line; the first SHOWN of each file."""

    counts: Counter[tuple[Path, str]] = field(default_factory=Counter)  # of lines by file, and what is wrong in them

    def add(self, path: Path, complaint: str) -> None:
        """Add a problem of ``path``; a line number at its beginning becomes a row number for parquet files. Lines with
        the same problem are counted, so that it stands once."""
        if path.suffix == ".parquet":
            complaint = re.sub(r"^line (\d+)\b", r"row \1", complaint)
        listed, wrong = self.found.setdefault(path, {}), re.sub(r"^(line|row) \d+\b", "", complaint)
        if len(listed) < SHOWN:
            listed.setdefault(wrong, complaint)
        self.counts[path, wrong if wrong in listed else ""] += 1

    def add_repeated(self, path: Path, line: int, name: str, before: tuple[Path, int]) -> None:
        """Add an id that occurred before."""
        first = f"{'row' if before[0].suffix == '.parquet' else 'line'} {before[1]}"
        where = first if before[0] == path else f"{first} of {before[0].name}"
        self.add(path, f"line {line}: id {name!r} occurs twice (first on {where})")

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """An unreadable file in the block becomes one more problem, beside those of other files."""
        try:
            yield
        except DataError as error:
            self.add(path, str(error).removeprefix(f"{path}: "))

    def sound(self, path: Path, rows: Iterable[tuple[int, Row | str]]) -> Iterator[tuple[int, Row]]:
        """Number and content of the ``rows`` of ``path`` but for those that are a complaint, which become problems."""
        with self.reading(path):
            for number, row in rows:
                if isinstance(row, str):
                    self.add(path, f"line {number}: {row}")
                else:
                    yield number, row

    def parsed(
        self, path: Path, rows: Iterable[tuple[int, Any]], parse: Callable[[Any], Iterable[Row]]
    ) -> Iterator[Row]:
        """Everything that ``parse`` makes of the sound ``rows`` of ``path``; its ValueErrors become problems."""
        for number, row in self.sound(path, rows):
            try:
                items = list(parse(row))
            except ValueError as error:
                self.add(path, f"line {number}: {error}")
            else:
                yield from items

    def stop_if_any(self, advice: str = "") -> None:
        """Raise one DataError with the first few problems of each file and their count, and ``advice`` at its end."""
        if not self.found:
            return
        blocks = []
        for path, listed in self.found.items():
            numbers = [self.counts[path, wrong] for wrong in (*listed, "")]
            said = [
                f"{first.removesuffix(wrong)}{f' and {number - 1:,} more' if number > 1 else ''}{wrong}"
                for (wrong, first), number in zip(listed.items(), numbers, strict=False)
            ]
            said += [f"... and {numbers[-1]} more"] if numbers[-1] else []
            several = "\n  ".join([f"{path}: {sum(numbers)} problems", *said])
            blocks.append(several if len(said) > 1 else f"{path}: {said[0].removesuffix('.')}.")
        if advice:
            blocks.append(advice)
        raise DataError((" " if self.counts.total() == 1 else "\n").join(blocks))
