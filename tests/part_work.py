"""Work on parts that any process can import in no time: no model, no torch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from signal import SIGKILL
from typing import Any
from unittest.mock import patch

import numpy as np

from vtkit.data import shards as cut
from vtkit.data.shards import Arrays, Part, Shard, Work, shards
from vtkit.system import console
from vtkit.system.errors import DataError

BLOCKS = [[f"text {number}", f"another {number}"] for number in range(7)]


@dataclass(frozen=True)
class CountLetters:
    """Keeps texts, and a mark for each time that it is asked; ``deaths`` times the process dies at ``fatal``."""

    marks: Path
    fatal: str = ""
    deaths: int = 0
    seconds: float = 0.0

    def __call__(self, texts: Sequence[str], bar: console.Bar | None) -> Arrays:
        place = self.marks / texts[0]
        with place.open("a") as mark:
            mark.write(f"{os.getpid()}\n")
        if texts[0] == self.fatal:
            if len(place.read_text().splitlines()) <= self.deaths:
                os.kill(os.getpid(), SIGKILL)
            elif self.deaths < 0:
                raise DataError(f"{texts[0]} cannot be read")
        time.sleep(self.seconds)
        letters = [np.frombuffer(text.encode(), dtype=np.uint8) for text in texts]
        return {"letters": np.concatenate(letters), "lengths": np.array(list(map(len, letters)))}

    def asked(self) -> dict[str, int]:
        return {place.name: len(place.read_text().splitlines()) for place in sorted(self.marks.iterdir())}


@dataclass(frozen=True)
class Together:
    """Several works on the same texts."""

    works: tuple[Work, ...]

    def __call__(self, texts: Sequence[str], bar: console.Bar | None) -> Arrays:
        of_works = [work(texts, None) for work in self.works]
        return {f"{n}-{name}": array for n, arrays in enumerate(of_works) for name, array in arrays.items()}


@dataclass(frozen=True)
class Marking:
    """A job whose tasks, with their numbers, leave marks. The first sixth part of any job kills the ``victim``; the
    driver and the head once two processes are at work.

    The victim is the process of this part ("worker"), the process ``driver`` that started it ("driver"), or the
    control process of the driver's Ray ("head").
    """

    job: Callable[[Any, console.Bar | None], Any]
    number: int
    marks: Path
    victim: str
    driver: int

    def __call__(self, numbered: tuple[int, Any], bar: console.Bar | None) -> Any:
        number, task = numbered
        if isinstance(task, tuple) and isinstance(task[0], Path):  # shards have their own numbers
            number = int(task[0].name)
        with (self.marks / f"{self.number}-{number}").open("a") as mark:
            mark.write(f"{os.getpid()}\n")
        if number == 5 and self.victim and not (killed := self.marks / ".killed").exists():
            while self.victim != "worker" and len(self.at_work()) < 2:
                time.sleep(0.02)
            killed.write_text(f"{self.number}-{number}")
            running = descendants(self.driver) if self.driver else {}
            names = ("serve(", "default_worker", "ray::IDLE", "ray::vtkit")
            workers = [pid for pid, line in running.items() if any(name in line for name in names)]
            (self.marks / ".workers").write_text("\n".join(map(str, workers)))
            head = next((pid for pid, line in running.items() if "gcs_server" in line), 0)
            os.kill({"worker": os.getpid(), "driver": self.driver, "head": head}[self.victim], SIGKILL)
            while self.victim == "driver":  # which takes this process along
                time.sleep(1)
        return self.job(task, bar)

    def at_work(self) -> set[str]:
        """The processes that have left marks."""
        marks = [mark for mark in self.marks.iterdir() if not mark.name.startswith(".")]
        return {line for mark in marks for line in mark.read_text().splitlines()}


def descendants(process: int) -> dict[int, str]:
    """The processes that a process started, and those that these did, with their command lines."""
    children, lines = dict[int, list[int]](), dict[int, str]()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            lines[int(place.name)] = (place / "cmdline").read_text(errors="replace").replace("\0", " ")
            children.setdefault(parent, []).append(int(place.name))
    found = [process]
    for each in found:  # which grows
        found += children.get(each, [])
    return {each: lines.get(each, "") for each in found[1:]}


@dataclass(frozen=True)
class LookAtWeights:
    """The bytes of weights, and whether each of them lies in memory that processes share."""

    weights: Sequence[Any]

    def __call__(self, texts: Sequence[str], bar: console.Bar | None) -> Arrays:
        maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        spans = [(*(int(end, 16) for end in span.split("-")), kind) for span, kind, *_ in maps]
        places = [each.data_ptr() for each in self.weights]
        shared = [kind.endswith("s") for place in places for start, stop, kind in spans if start <= place < stop]
        kinds = [f"{each.dtype} {tuple(each.shape)}" for each in self.weights]
        content = [each.detach().float().numpy().tobytes() for each in self.weights]
        return {"shared": np.array([shared]), "kinds": np.array([kinds]), "content": np.array([b"".join(content)])}


def computed(work: CountLetters, folder: Path, part: Part | None = None) -> list[Shard]:
    with console.progress("counting") as bar, patch.object(cut, "ITEMS_A_SHARD", 2):
        return shards(work, chain(*BLOCKS), folder, {"kind": "test"}, bar, part)
