"""The runs of a folder at a glance: state, key figures, size on disk and time; and the outputs in their store that no
run refers to, which pile up because each change of a setting makes new ones."""

import re
import shutil
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from vtkit.pipeline.folder import LOCK, RUN_RECORD, finished_steps, report_of
from vtkit.pipeline.steps.write_report import REPORT
from vtkit.pipeline.store import CHECKPOINTS, read_manifest
from vtkit.report.verdict import recommendation
from vtkit.settings.recipe import STORE
from vtkit.system.errors import VtkitError
from vtkit.system.outputs import holder_of

Inode = tuple[int, int]


@dataclass(frozen=True)
class ListedRun:
    """A run as a list shows it."""

    name: str
    state: str  # `finished`, `running: …` with who, `stopped after STEP`, or what is damaged or missing
    steps: int  # that are done
    seconds: float  # that its steps took when they were made; shared steps count in every run
    bytes: int  # on disk: the run's folder and the stage outputs it was made from
    own_bytes: int  # bytes freed by deleting this run and running `vtkit clean`
    changed: str  # when its last step was done, ISO 8601
    measure: str | None = None  # of its first evaluation set; this and the next three where that was judged
    value: float | None = None  # of the index that is to be used, else of the final model
    bm25: float | None = None
    verdict: str | None = None  # whether to deploy it, in one line


def run_folders(runs: Path) -> list[Path]:
    """The folders of runs in ``runs`` by name, including runs that have just begun."""
    if not runs.is_dir():
        raise VtkitError(f"{runs} is not a folder of runs. Name the --runs folder of vtkit run, by default runs.")
    folders: dict[Path, Path] = {}
    for folder in sorted(runs.iterdir(), key=lambda path: (path.is_symlink(), path.name)):  # a link is no second run
        begun = (folder / RUN_RECORD).exists() or (folder / LOCK).exists()
        if folder.name != STORE and folder.is_dir() and begun:
            folders.setdefault(folder.resolve(), folder)
    return sorted(folders.values())


def list_runs(runs: Path) -> list[ListedRun]:
    """Every run in ``runs``, by name."""
    folders = run_folders(runs)
    outputs = {folder: [runs / STORE / output for output in finished_steps(folder).values()] for folder in folders}
    inodes = {  # by device and inode: a run's files are links to those of the store
        folder: {
            (stat.st_dev, stat.st_ino): stat.st_size
            for place in (folder, *outputs[folder])
            for path in place.rglob("*")
            if path.is_file() and not path.is_symlink() and (stat := path.stat())
        }
        for folder in folders
    }
    users = Counter(inode for files in inodes.values() for inode in files)
    return [
        _list_run(folder, outputs[folder], inodes[folder], {each for each, count in users.items() if count == 1})
        for folder in folders
    ]


def running_by(folder: Path) -> str | None:
    """Who is running the run in ``folder``, in words; None if nobody is."""
    lock = folder / LOCK
    if not lock.exists():
        return None
    try:
        with FileLock(lock).acquire(timeout=0):
            return None
    except Timeout:
        return holder_of(lock)


def _list_run(folder: Path, outputs: list[Path], inodes: dict[Inode, int], alone: set[Inode]) -> ListedRun:
    manifests = [manifest for output in outputs if (manifest := read_manifest(output)) is not None]
    record = folder / RUN_RECORD
    changed = record.stat().st_mtime if record.exists() else folder.stat().st_mtime
    report, state = None, _state(folder)
    if state == "finished":
        try:
            report = report_of(folder)
        except VtkitError as error:
            state = f"finished; {str(error).splitlines()[0]}"
    advice = recommendation(report) if report is not None else None
    listed = ListedRun(
        folder.name,
        state,
        len(outputs),
        round(sum(float(manifest["seconds"]) for manifest in manifests), 1),
        sum(inodes.values()),
        sum(size for inode, size in inodes.items() if inode in alone),
        time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(changed)),
        verdict=advice.text if advice is not None else None,
    )
    for first in report.judged[:1] if report is not None else ():
        value, bm25 = first.value(first.planned), first.value(first.bm25)
        return replace(listed, measure=first.measure, value=value, bm25=bm25)
    return listed


def _state(folder: Path) -> str:
    who = running_by(folder)
    if who is not None:
        return f"running: {who}"
    if not (folder / RUN_RECORD).exists():
        return "stopped before its first step ended"
    steps = finished_steps(folder)
    if not steps:
        return f"damaged: {RUN_RECORD} cannot be read"
    store = folder.parent / STORE
    gone = [name for name, output in steps.items() if not (store / output).is_dir()]
    if gone:
        return f"outputs are gone: {', '.join(gone[:3])}{' …' if len(gone) > 3 else ''}"
    if REPORT.name not in steps:
        return f"stopped after {list(steps)[-1]}"
    reported = (read_manifest(store / steps[REPORT.name]) or {}).get("inputs", {})
    newer = [
        name
        for name, output in steps.items()
        if name in reported and not reported[name].startswith(output.rpartition("-")[2])
    ]
    return f"stopped after {newer[-1]}; its report is older" if newer else "finished"


_OUTPUT = re.compile(r"[^.].*-[0-9a-f]{20}")  # a finished output's folder: a stage, and the beginning of a key


@dataclass(frozen=True)
class Unused:
    """A folder in the store that no run refers to."""

    folder: Path
    bytes: int  # that are free once it is removed: files that a run's folder has links to are not among them
    unfinished: bool = False  # whether it is work that was interrupted, which the same recipe goes on from


def unused(runs: Path) -> list[Unused]:
    """Outputs that no run in ``runs`` refers to, the largest first."""
    folders = run_folders(runs)
    unreadable = [str(folder) for folder in folders if (folder / RUN_RECORD).exists() and not finished_steps(folder)]
    if unreadable:
        raise VtkitError(
            f"{RUN_RECORD} is damaged in {', '.join(unreadable)}, so its outputs are unknown. Run its recipe again, "
            "or remove the folder."
        )
    referred = {output for folder in folders for output in finished_steps(folder).values()}
    store = runs / STORE
    leftovers = [
        Unused(folder, _bytes(folder))
        for folder in store.glob("*-*")
        if folder.is_dir() and folder.name not in referred and _OUTPUT.fullmatch(folder.name)
    ]
    leftovers += [
        Unused(folder, _bytes(folder), (folder / CHECKPOINTS).is_dir())
        for folder in (store / ".partial").glob("*")
        if folder.is_dir()
    ]
    return sorted(leftovers, key=lambda each: (-each.bytes, each.folder.name))


def remove(runs: Path, *, unfinished: bool = False) -> list[Unused]:
    """Remove unused outputs (:func:`unused`), with interrupted work and its checkpoints if ``unfinished``; returns the
    removed folders. No run of ``runs`` can go on or begin meanwhile."""
    removed = []
    with ExitStack() as locks:
        for folder in run_folders(runs):
            try:
                locks.enter_context(FileLock(folder / LOCK).acquire(timeout=0))
            except Timeout:
                raise VtkitError(
                    f"{folder} is running ({holder_of(folder / LOCK)}) and may still need unused "
                    "outputs. Clean up when it has ended."
                ) from None
        for each in unused(runs):
            if each.unfinished and not unfinished:
                continue
            try:
                with FileLock(runs / STORE / ".locks" / f"{each.folder.name}.lock").acquire(timeout=0):
                    gone = each.folder
                    if gone.parent.name != ".partial":  # a half removed folder is no output any more
                        gone = gone.rename(runs / STORE / ".partial" / f"{gone.name}.removed")
                    shutil.rmtree(gone)
            except Timeout:  # a run that has no folder yet is making it
                continue
            removed.append(each)
    return removed


def _bytes(folder: Path) -> int:
    """Bytes of the files that have no other name than the one in ``folder``."""
    files = (path.stat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(stat.st_size for stat in files if stat.st_nlink == 1)
