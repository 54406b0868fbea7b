"""What benchmarks have in common: their options, processes of their own, and the peak of memory of one."""

import argparse
import contextlib
import json
import resource
import subprocess
import sys
from pathlib import Path


def options(description: str | None, **defaults: float | str) -> argparse.ArgumentParser:
    """A parser with an option for each of ``defaults``, of its type."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser


def alone(*words: str) -> dict[str, float]:
    """The last line of what this benchmark says in a process of its own, asked with ``words`` too."""
    done = subprocess.run([sys.executable, *sys.argv, *words], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def forget_peak() -> float:
    """Begin a new measurement of the peak where the system can (Linux); the resident size now, in MiB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_mebibytes()


def peak_mebibytes() -> float:
    """Largest resident size of this process since :func:`forget_peak`, in MiB."""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
