"""A full disk at ten places of a run: one message each time, nothing lost, and the same command goes on."""

import os
import random
import shutil
import subprocess
import time
from pathlib import Path

from harness import Findings, finish, numbers, start, vtkit, write_tiny_run

PLACES = 10


def soak(finished: Path, draw: random.Random) -> Findings:
    """A file system whose room is taken away once a run has begun, until that happened at ten places."""
    found = Findings("disk", finished.parent / "disk.log")
    used = sum(path.stat().st_size for path in (finished / "runs").rglob("*") if path.is_file())
    room = finished.parent / "small-disk"
    room.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(room)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        print(f"    skipped: a small file system cannot be mounted here ({mounted.stderr.strip()})")
        return found
    folder = finished.parent / "full"
    write_tiny_run(folder)
    arguments = ("run", "korean.toml", "--runs", str(room / "runs"))
    try:
        for _ in range(3 * PLACES):
            _resize(room, 6 * used)
            log = folder.parent / f"{folder.name}.log"
            began = time.monotonic()
            child = start(folder, *arguments, log=log)
            before = set((room / "runs").glob("artifacts/.partial/*"))
            while time.monotonic() - began < 120:
                if set((room / "runs").glob("artifacts/.partial/*")) - before or (
                    log.exists() and "] " in log.read_text("utf-8")
                ):
                    break  # the estimate is behind it, a stage runs
                time.sleep(0.01)
            _resize(room, _in_use(room) + draw.randrange(4096, max(8192, used // 6)))
            done = finish(child, log, began)
            if found.note("a disk that fills up", done, (0, 1)) and done.code == 1 and "room" not in done.out:
                found.fail(f"the message does not speak of room: {done.message}")
            if done.code == 0 or found.codes[1] == PLACES:
                break
        _resize(room, 6 * used)
        done = vtkit(folder, *arguments)
        if found.note("the same command with room", done, (0,)):
            shutil.copytree(room / "runs", folder / "runs")
            if numbers(folder) != numbers(finished):
                found.fail("other numbers than undisturbed")
    finally:
        subprocess.run(["umount", "-l", str(room)], check=False)
    return found


def _resize(room: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(room)], check=False, capture_output=True)


def _in_use(room: Path) -> int:
    figures = os.statvfs(room)
    return (figures.f_blocks - figures.f_bfree) * figures.f_frsize
