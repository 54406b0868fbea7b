"""Removing from the store what no run refers to. Outputs pile up there: each change of a setting makes new ones."""

from __future__ import annotations

import re
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from vtkit.pipeline.folder import LOCK, RUN_RECORD, finished_steps
from vtkit.pipeline.listing import run_folders, running_by
from vtkit.pipeline.store import CHECKPOINTS
from vtkit.settings.recipe import STORE
from vtkit.system.errors import VtkitError

_OUTPUT = re.compile(r".+-[0-9a-f]{20}")
"""What the folders of finished outputs are called: a stage, and the beginning of a key."""


@dataclass(frozen=True)
class Unused:
    """A folder in the store that no run refers to."""

    folder: Path
    bytes: int  # that are free once it is removed: files that a run's folder has links to are not among them
    unfinished: bool = False  # whether it is work that was interrupted, which the same recipe goes on from


def unused(runs: Path) -> list[Unused]:
    """What no run in ``runs`` refers to, the largest first.

    Raises:
        VtkitError: there is no such folder, or it cannot be told what a run refers to.
    """
    folders = run_folders(runs)
    unreadable = [str(folder) for folder in folders if (folder / RUN_RECORD).exists() and not finished_steps(folder)]
    if unreadable:
        raise VtkitError(
            f"{RUN_RECORD} is damaged in {', '.join(unreadable)}, so its outputs are unknown. Run its recipe again, "
            "or remove the folder."
        )
    referred = {output for folder in folders for output in finished_steps(folder).values()}
    store = runs / STORE
    found = [
        Unused(folder, _bytes(folder))
        for folder in _folders(store)
        if folder.name not in referred and _OUTPUT.fullmatch(folder.name)
    ]
    found += [
        Unused(folder, _bytes(folder), (folder / CHECKPOINTS).is_dir()) for folder in _folders(store / ".partial")
    ]
    return sorted(found, key=lambda each: (-each.bytes, each.folder.name))


def remove(runs: Path, *, unfinished: bool = False) -> list[Unused]:
    """Remove what :func:`unused` finds, while no run of ``runs`` goes on or begins again; returns what was removed.

    Args:
        unfinished: remove interrupted work too, checkpoints of training among it.

    Raises:
        VtkitError: as :func:`unused`, or a run is going on.
    """
    removed = []
    with ExitStack() as locks:
        for folder in run_folders(runs):
            try:
                locks.enter_context(FileLock(folder / LOCK).acquire(timeout=0))
            except Timeout:
                raise VtkitError(
                    f"{folder} is running ({running_by(folder) or 'another process'}) and may still need unused "
                    "outputs. Clean up when it has ended."
                ) from None
        for each in unused(runs):
            if each.unfinished and not unfinished:
                continue
            try:
                with FileLock(runs / STORE / ".locks" / f"{each.folder.name}.lock").acquire(timeout=0):
                    if each.folder.parent.name != ".partial":  # what is half removed is no output any more
                        aside = runs / STORE / ".partial" / f"{each.folder.name}.removed"
                        each.folder.rename(aside)
                        shutil.rmtree(aside)
                    else:
                        shutil.rmtree(each.folder)
            except Timeout:  # a run that has no folder yet is making it
                continue
            removed.append(each)
    return removed


def _folders(parent: Path) -> list[Path]:
    if not parent.is_dir():
        return []
    hidden = parent.name == ".partial"
    return [path for path in sorted(parent.iterdir()) if path.is_dir() and (hidden or not path.name.startswith("."))]


def _bytes(folder: Path) -> int:
    """Of the files that have no other name than the one in ``folder``."""
    files = (path.stat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(stat.st_size for stat in files if stat.st_nlink == 1)
