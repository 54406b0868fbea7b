"""A full disk at ten places of a run: one message each time, nothing lost, and the same command goes on."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

from harness import Findings, numbers, vtkit, write_tiny_run

PLACES = 10


def soak(finished: Path, draw: random.Random) -> Findings:
    """A small file system that grows a little after every failure, until the run has room to end."""
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
    try:
        for place in range(PLACES):
            size = int(used * (0.004 + 0.06 * place + 0.03 * draw.random()))
            subprocess.run(["mount", "-o", f"remount,size={size}", str(room)], check=True)
            done = vtkit(folder, "run", "korean.toml", "--runs", str(room / "runs"))
            if found.note(f"{size:,} bytes of disk", done, (0, 1)) and done.code == 1 and "space" not in done.out:
                found.fail(f"{size:,} bytes of disk: the message does not speak of space: {done.message}")
        subprocess.run(["mount", "-o", f"remount,size={4 * used}", str(room)], check=True)
        done = vtkit(folder, "run", "korean.toml", "--runs", str(room / "runs"))
        if found.note("the same command with room", done, (0,)):
            shutil.copytree(room / "runs", folder / "runs")
            if numbers(folder) != numbers(finished):
                found.fail("other numbers than undisturbed")
    finally:
        subprocess.run(["umount", str(room)], check=False)
    return found
