"""A recipe run as a user runs it, in a process of its own, with its time and its peak memory."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .recipes import REHEARSED, options
from .stage import HUB
from .texts import ROOT


@dataclass(frozen=True)
class Outcome:
    """How a rehearsal ended."""

    name: str
    code: int
    seconds: float
    processor_seconds: float
    """Of all its processes; beside other jobs the fairer figure."""

    peak_mb: float
    """Largest resident memory of the process and those that it started."""

    log: Path
    """What the run printed."""

    @property
    def message(self) -> str:
        """``report``, or the beginning of the error."""
        if not self.code:
            return "report"
        if self.code < 0:
            return f"killed by signal {-self.code}"
        lines = [line for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        start = next((n for n, line in enumerate(lines) if line.startswith("error: ")), len(lines) - 1)
        return " ".join(" ".join(lines[max(start, 0) : start + 4]).split())[:400]

    def line(self) -> str:
        times = f"{self.seconds:.0f} s ({self.processor_seconds:.0f} s of processor)"
        return f"  {times}, {self.peak_mb:,.0f} MB: {self.message}"


def rehearse(name: str, folder: Path) -> Outcome:
    """Run a recipe in ``folder`` (:func:`tests.rehearsal.stage.build`), offline, to its report."""
    recipe = REHEARSED[name].recipe or name
    runs = folder / "runs" / name
    log = folder / f"{name}.log"
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "HF_HOME": str(folder / "hf"), "HF_HUB_CACHE": str(folder / HUB),
        "HF_HUB_OFFLINE": "1", "VTKIT_CACHE": str(folder / "cache"), "NO_COLOR": "1",
    }  # fmt: skip
    environment.pop("VTKIT_DOWNLOAD", None)
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "vtkit", "run", f"recipes/{recipe}.toml", "--runs", str(runs), *options(name)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    code = process.returncode
    if not code and not any(runs.glob("*/report.md")):
        code = 1
    seconds, processor = time.monotonic() - began, usage.ru_utime + usage.ru_stime
    return Outcome(name, code, seconds, processor, usage.ru_maxrss / 1024, log)


def table(outcomes: Iterable[Outcome]) -> str:
    """Recipe, settings that were lowered, time, memory and end, in Markdown."""
    rows = [
        "| recipe | lowered | seconds | of processor | peak memory, MB | ends with |",
        "|---|---|---:|---:|---:|---|",
    ]
    for outcome in outcomes:
        lowered = ", ".join(f"{key} {value}" for key, value in REHEARSED[outcome.name].lowered.items())
        message = outcome.message.replace("|", "\\|")
        figures = f"{outcome.seconds:.0f} | {outcome.processor_seconds:.0f} | {outcome.peak_mb:,.0f}"
        rows.append(f"| {outcome.name} | {lowered} | {figures} | {message} |")
    return "\n".join(rows)
