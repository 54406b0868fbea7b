"""SIGKILL at any moment: the same command goes on, and ends in the numbers of an undisturbed run."""

import os
import random
import signal
import time
from pathlib import Path

from harness import Findings, finish, numbers, start, vtkit, write_tiny_run

KILLS = 20


def soak(finished: Path, draw: random.Random) -> Findings:
    """Runs that are killed after random times until ``KILLS`` of them were, then left to end."""
    found = Findings("kills", finished.parent / "kills.log")
    killed = attempt = 0
    while killed < KILLS:
        attempt += 1
        folder = finished.parent / f"killed-{attempt}"
        write_tiny_run(folder)
        for _ in range(5):
            log = folder.parent / f"{folder.name}.log"
            began = time.monotonic()
            child = start(folder, "run", "korean.toml", log=log)
            time.sleep(draw.uniform(0.2, 6.0))
            os.killpg(child, signal.SIGKILL)
            killed += finish(child, log, began).code == -signal.SIGKILL
        done = vtkit(folder, "run", "korean.toml")
        if found.note(f"run after kills ({folder.name})", done, (0,), 300) and numbers(folder) != numbers(finished):
            found.fail(f"{folder.name}: other numbers than undisturbed")
        if found.defects:
            return found
        if left := [path.name for path in (folder / "runs").rglob(".*.new-*")]:
            found.fail(f"left behind: {left[:3]}")
    found.codes[-signal.SIGKILL] += killed
    return found
