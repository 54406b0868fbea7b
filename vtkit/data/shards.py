"""Shards of a collection: parts of it, each a pure function of its items and of what the work depends on.

A collection is cut into shards of equally many items, whoever computes them, so that its results have the same bytes
for any number of processes and machines. A shard is a folder of arrays: written beside its place, its record last, then
renamed. A shard whose record fits is not computed again. An executor (:mod:`vtkit.data.executors`) computes the shards,
or a scheduler starts one command for each part, which is every n-th shard.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtkit.data.executors import in_order
from vtkit.data.text import batches
from vtkit.settings.encode import EncodeSettings
from vtkit.system import console
from vtkit.system.checksums import changes, files_of, read_record, write_record
from vtkit.system.errors import DataError, MachineError, RecipeError
from vtkit.system.outputs import aside

RECORD = "shard.json"

ITEMS_A_SHARD = 512
"""Texts of one shard: ten seconds or more of a model's work for one core. Batches are made of the texts of a shard, so
that their padding, and with it every number, does not depend on who computes them."""

FEW = 8  # shards below which other processes are not worth starting, by default

Arrays = Mapping[str, NDArray[Any]]

Work = Callable[[Sequence[Any], console.Bar | None], Arrays]
"""``(items, bar) -> arrays``, each with the rows of all items, one item after the other. Picklable; it may advance the
bar by its items."""


@dataclass(frozen=True)
class Part:
    """Every ``of``-th shard of a collection, beginning with the shard ``number``."""

    number: int | None  # from 1; None: all of them, which others have computed
    of: int

    @staticmethod
    def of_settings(settings: EncodeSettings) -> Part | None:
        """The part that ``part`` or ``join`` stands for; None: everything, computed here."""
        if settings.part is None:
            return None if settings.join is None else Part(number=None, of=settings.join)
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", settings.part, re.ASCII)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise RecipeError(f"{settings.part!r} is no part. Parts count from 1: 1/16, 2/16 and so on up to 16/16.")
        return Part(number=int(match[1]), of=int(match[2]))


@dataclass(frozen=True)
class Shard:
    """A computed shard."""

    folder: Path
    items: int
    taken_over: bool  # from an earlier try

    def array(self, name: str) -> NDArray[Any]:
        """One of its arrays."""
        return np.asarray(np.load(self.folder / f"{name}.npy", allow_pickle=False))


def arrays_of(
    work: Work, items: Sequence[Any], description: str | console.Bar, folder: Path | None = None
) -> dict[str, NDArray[Any]]:
    """The arrays of all ``items``, one at least, shard after shard by the executor of ``[run]``.

    Args:
        folder: where the arrays are kept, and their shards beside it until all are there; the arrays are mapped into
            memory. Its name stands for everything that they depend on beside the items, and the items too once it is
            there: then nothing is computed. None: they are in memory only.
    """
    if folder is None:
        parts = []
        with console.progress(description, len(items)) as bar:
            for arrays in in_order(work, batches(items, ITEMS_A_SHARD), bar, FEW):
                parts.append(arrays)
                bar.reach(min(len(items), ITEMS_A_SHARD * len(parts)))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if not folder.is_dir():
        beside = folder.with_name(f"{folder.name}.parts")
        with console.progress(description, len(items)) as bar:
            done = shards(work, items, beside, {}, bar)
        fresh = aside(folder)
        fresh.mkdir()
        for path in done[0].folder.glob("*.npy"):
            join_arrays(done, path.stem, fresh / path.name)
        fresh.rename(folder)
        shutil.rmtree(beside)
    return {path.stem: np.load(path, mmap_mode="r", allow_pickle=False) for path in folder.glob("*.npy")}


def join_arrays(done: Sequence[Shard], name: str, file: Path) -> None:
    """Write the rows of an array of all shards into ``file``, with one shard in memory at a time."""
    shapes = [np.load(shard.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False).shape for shard in done]
    kind = np.lib.format.dtype_to_descr(done[0].array(name).dtype)
    shape = (sum(shape[0] for shape in shapes), *shapes[0][1:])
    with file.open("wb") as out:
        np.lib.format.write_array_header_1_0(out, {"descr": kind, "fortran_order": False, "shape": shape})
        for shard in done:
            out.write(np.ascontiguousarray(shard.array(name)).data)


def shards(
    work: Work,
    items: Iterable[Any],
    folder: Path,
    made_from: Mapping[str, Any],
    bar: console.Bar,
    part: Part | None = None,
) -> list[Shard]:
    """Compute the shards of ``items``, which are read once, as they are needed, in ``folder``.

    Args:
        made_from: everything beside its items that a shard depends on (plain JSON). Others do not fit.
        part: compute its shards only; without a number, compute nothing: the shards are there.

    Raises:
        DataError: shards of the parts to be joined are missing.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    computed: dict[int, Shard] = {}
    missing: set[int] = set()
    reached = 0

    def left() -> Iterator[_Task]:
        nonlocal reached
        for number, block in enumerate(batches(items, ITEMS_A_SHARD)):
            if part is not None and part.number is not None and number % part.of != part.number - 1:
                continue
            place = folder / f"{number:06d}"
            digest = hashlib.sha256(json.dumps([made_from, block], sort_keys=True).encode()).hexdigest()
            if _is_whole(place, digest):
                computed[number] = Shard(place, len(block), True)
                reached += len(block)
                bar.skip(len(block))
            elif part is not None and part.number is None:
                missing.add(number % part.of + 1)
            else:
                yield place, digest, block

    for shard in in_order(partial(_write_shard, work), left(), bar, FEW):
        computed[int(shard.folder.name)] = shard
        reached += shard.items
        bar.reach(reached)
    if part is not None and missing:
        raise DataError(
            f"{folder}: of {part.of} parts, these are missing, damaged, or made from other texts or settings: "
            f"{', '.join(map(str, sorted(missing)))}. Encode each of them (part {min(missing)}/{part.of}), then join "
            "again."
        )
    return [computed[number] for number in sorted(computed)]


def write_arrays(folder: Path, arrays: Arrays) -> None:
    """Write each array into ``folder`` as ``NAME.npy``; a missing folder is created."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)


_Task = tuple[Path, str, Sequence[Any]]  # the place of a shard, the digest of what it is made from, and its items


def _write_shard(work: Work, task: _Task, bar: console.Bar | None) -> Shard:
    """The job of an executor: compute a shard and put it in its place."""
    place, digest, items = task
    if not place.parent.is_dir():
        raise MachineError(
            f"{socket.gethostname()} does not see {place.parent}. All machines of a cluster need the folder under "
            "the same path: put it on a file system that they share."
        )
    fresh = aside(place)
    write_arrays(fresh, work(items, bar))
    write_record(fresh / RECORD, {"made_from": digest}, files_of(fresh))
    shutil.rmtree(place, ignore_errors=True)
    try:
        fresh.rename(place)
    except OSError:  # another process has put the same shard there
        shutil.rmtree(fresh, ignore_errors=True)
        if not _is_whole(place, digest):
            raise
    return Shard(place, len(items), False)


def _is_whole(shard: Path, digest: str) -> bool:
    """Report whether a shard has its record, and all of its files as they were written."""
    try:
        record = read_record(shard / RECORD, "-")
        return record["made_from"] == digest and not changes(shard, record, fully=False)
    except (DataError, OSError, KeyError, TypeError, ValueError, AttributeError):
        return False
