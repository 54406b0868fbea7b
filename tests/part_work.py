"""Work on parts that any process can import in no time: no model, no torch."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.parts import Part, Shard, shards
from vtkit.system.results import Result

BLOCKS = [[f"text {number}", f"another {number}"] for number in range(7)]


@dataclass(frozen=True)
class Letters(Result):
    letters: int


@dataclass(frozen=True)
class CountLetters:
    """Keeps texts, and a mark for each time that it is asked; ``deaths`` times the process dies at ``fatal``."""

    marks: Path
    fatal: str = ""
    deaths: int = 0
    seconds: float = 0.0

    def __call__(self, texts: Sequence[str], out: Path, bar: console.Bar | None) -> Letters:
        place = self.marks / texts[0]
        with place.open("a") as mark:
            mark.write(f"{os.getpid()}\n")
        if texts[0] == self.fatal:
            if len(place.read_text().splitlines()) <= self.deaths:
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.deaths < 0:
                raise DataError(f"{texts[0]} cannot be read")
        time.sleep(self.seconds)
        (out / "texts").write_text("\n".join(texts))
        return Letters(len("".join(texts)))

    def asked(self) -> dict[str, int]:
        return {place.name: len(place.read_text().splitlines()) for place in sorted(self.marks.iterdir())}


def computed(
    work: CountLetters, folder: Path, part: Part | None = None, join: int | None = None
) -> list[Shard[Letters]]:
    with console.progress("counting") as bar:
        return shards(work, Letters, BLOCKS, folder, {"kind": "test"}, bar, part=part, join=join)
