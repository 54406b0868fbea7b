"""Parts of a collection, each a pure function of its items and of what the work depends on.

A collection is cut into shards of equally many items, whoever computes them, so that its results have the same bytes
for any number of processes and machines. A shard is a folder: written beside its place, its record last, then renamed.
A shard whose record fits is not computed again. An executor (:mod:`vtkit.system.executors`) computes the shards, or a
scheduler starts one command for each part, which is every n-th shard.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from vtkit.system import console
from vtkit.system.checksums import changes, files_of, read_record, write_record
from vtkit.system.errors import DataError, MachineError, RecipeError
from vtkit.system.executors import in_order
from vtkit.system.outputs import aside
from vtkit.system.results import Result

RECORD = "shard.json"

FEW = 8  # shards below which other processes are not worth starting, by default


@dataclass(frozen=True)
class Part:
    """Every ``of``-th shard of a collection, beginning with the shard ``number``."""

    number: int  # from 1
    of: int

    @staticmethod
    def parse(text: str) -> Part:
        """The part that ``3/16`` stands for."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise RecipeError(f"{text!r} is no part. Parts count from 1: 1/16, 2/16 and so on up to 16/16.")
        return Part(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


R = TypeVar("R", bound=Result)
Work = Callable[[Sequence[Any], Path, console.Bar | None], R]
"""``(items, out, bar) -> result``: fills the folder ``out``. Picklable; it may advance the bar by its items."""


@dataclass(frozen=True)
class Shard(Generic[R]):
    """A computed shard."""

    folder: Path
    items: int
    result: R
    taken_over: bool  # from an earlier try


def shards(
    work: Work[R],
    kind: type[R],
    blocks: Iterable[Sequence[Any]],
    folder: Path,
    made_from: Mapping[str, Any],
    bar: console.Bar,
    *,
    part: Part | None = None,
    join: int | None = None,
    few: int = FEW,
) -> list[Shard[R]]:
    """Compute a shard in ``folder`` for each of ``blocks``, which are read once, as they are needed.

    Args:
        kind: of the results of ``work``.
        made_from: everything beside its items that a shard depends on (plain JSON). Others do not fit.
        part: compute its shards only.
        join: compute nothing; the shards are those of so many parts.
        few: as :func:`vtkit.system.executors.in_order` takes it.

    Raises:
        DataError: shards of the parts to be joined are missing.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    computed: dict[int, Shard[R]] = {}
    missing: set[int] = set()
    waiting: deque[tuple[int, int]] = deque()
    reached = 0

    def left() -> Iterator[_Task]:
        nonlocal reached
        for number, items in enumerate(blocks):
            if part is not None and number % part.of != part.number - 1:
                continue
            digest = hashlib.sha256(json.dumps([made_from, items], sort_keys=True).encode()).hexdigest()
            result = _read(folder / f"{number:06d}", digest, kind)
            if result is not None:
                computed[number] = Shard(folder / f"{number:06d}", len(items), result, True)
                reached += len(items)
                bar.skip(len(items))
            elif join is not None:
                missing.add(number % join + 1)
            else:
                waiting.append((number, len(items)))
                yield _Task(number, digest, items)

    for result in in_order(_Writer(work, kind, folder), left(), bar, few):
        number, items = waiting.popleft()
        computed[number] = Shard(folder / f"{number:06d}", items, result, False)
        reached += items
        bar.reach(reached)
    if missing:
        raise DataError(
            f"{folder}: of {join} parts, these are missing, damaged, or made from other texts or settings: "
            f"{', '.join(map(str, sorted(missing)))}. Encode each of them (part {min(missing)}/{join}), then join "
            "again."
        )
    return [computed[number] for number in sorted(computed)]


@dataclass(frozen=True)
class _Task:
    number: int
    digest: str
    items: Sequence[Any]


@dataclass(frozen=True)
class _Writer(Generic[R]):
    """The job of an executor: computes a shard and puts it in its place."""

    work: Work[R]
    kind: type[R]
    folder: Path

    def __call__(self, task: _Task, bar: console.Bar | None) -> R:
        if not self.folder.is_dir():
            raise MachineError(
                f"{socket.gethostname()} does not see {self.folder}. All machines of a cluster need the folder under "
                "the same path: put it on a file system that they share."
            )
        place = self.folder / f"{task.number:06d}"
        fresh = aside(place)
        fresh.mkdir()
        result = self.work(task.items, fresh, bar)
        write_record(fresh / RECORD, {"made_from": task.digest, "result": result.to_json()}, files_of(fresh))
        shutil.rmtree(place, ignore_errors=True)
        try:
            fresh.rename(place)
        except OSError:  # another process has put the same shard there
            shutil.rmtree(fresh, ignore_errors=True)
            if _read(place, task.digest, self.kind) is None:
                raise
        return result


def _read(shard: Path, digest: str, kind: type[R]) -> R | None:
    """The result in the record of a shard; None if it cannot be used."""
    try:
        record = read_record(shard / RECORD, "-")
        if record["made_from"] != digest or changes(shard, record, fully=False):
            return None
        return kind.from_json(record["result"])
    except (DataError, OSError, KeyError, TypeError, ValueError, AttributeError):
        return None
