"""What is wrong with the user's files, gathered so that it can be said at once: each correction of a large file costs
its owner a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vtkit.system.errors import DataError

SHOWN = 5
"""Problems of a file that are listed; of the others there is a count."""


@dataclass
class Problems:
    """The problems of some files. A reader that has found one reads on to find the others, and gives no more data."""

    found: dict[Path, list[str]] = field(default_factory=dict)
    """The first :data:`SHOWN` of each file."""

    counts: Counter[Path] = field(default_factory=Counter)

    def add(self, path: Path, complaint: str) -> None:
        """Remember that ``complaint`` holds of ``path``; the line it begins with is a row where files have no lines."""
        if path.suffix == ".parquet":
            complaint = re.sub(r"^line (\d+)\b", r"row \1", complaint)
        self.counts[path] += 1
        listed = self.found.setdefault(path, [])
        if len(listed) < SHOWN:
            listed.append(complaint)

    def add_repeated(self, path: Path, line: int, name: str, before: tuple[Path, int]) -> None:
        """Remember that an id stood in another place already."""
        first = f"{'row' if before[0].suffix == '.parquet' else 'line'} {before[1]}"
        where = first if before[0] == path else f"{first} of {before[0].name}"
        self.add(path, f"line {line}: id {name!r} occurs twice (first on {where})")

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """A file that cannot be read to its end is one problem more, beside those of the other files."""
        try:
            yield
        except DataError as error:
            self.add(path, str(error).removeprefix(f"{path}: "))

    def stop_if_any(self, advice: str = "") -> None:
        """Raise one DataError with the first few problems of each file and their count, and ``advice`` at its end."""
        if not self.found:
            return
        blocks = [self._block(path, complaints) for path, complaints in self.found.items()]
        if advice:
            blocks.append(advice)
        raise DataError((" " if self.counts.total() == 1 else "\n").join(blocks))

    def _block(self, path: Path, complaints: list[str]) -> str:
        count = self.counts[path]
        if count == 1:
            return f"{path}: {complaints[0].removesuffix('.')}."
        more = [f"  ... and {count - len(complaints)} more"] if count > len(complaints) else []
        return "\n".join([f"{path}: {count} problems", *(f"  {complaint}" for complaint in complaints), *more])
