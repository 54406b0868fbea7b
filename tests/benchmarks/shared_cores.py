"""How OpenMP's threads wait: seconds of a run alone, of two at once, and of four at once with one thread each.

Each way of waiting runs the quickstart recipe, from its vocabulary to its report: ``default`` is GNU OpenMP's own (a
thread spins for up to 3 ms), ``short`` spins for about 30 µs, ``passive`` sleeps at once, and ``chosen`` is the command
line's choice at its start (:func:`vtkit.cli.share_cores`). Quiet machine, Linux.

    python tests/benchmarks/shared_cores.py [--recipe RECIPE] [--ways default short passive chosen] [--at-once 1 2 4]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vtkit.cli import POLICY, SHORT_SPIN, SPIN

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "quickstart.toml"
WAYS = {
    "default": {SPIN: "300000"},  # what GNU OpenMP takes if nothing is set
    "short": {SPIN: SHORT_SPIN},
    "passive": {POLICY: "PASSIVE"},
    "chosen": {},
}
ONE_THREAD_EACH = 4  # from so many runs at once, each has one thread


def seconds(recipe: Path, way: str, at_once: int) -> float:
    """The mean seconds of runs that start together, each in a folder of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in (SPIN, POLICY, "OMP_NUM_THREADS")}
    environment |= WAYS[way] | ({"OMP_NUM_THREADS": "1"} if at_once >= ONE_THREAD_EACH else {})
    with tempfile.TemporaryDirectory() as folder:
        started, times = time.perf_counter(), dict[int, float]()
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "vtkit", "run", str(recipe), "--runs", f"{folder}/{number}"],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for number in range(at_once)
        ]
        while len(times) < at_once:
            time.sleep(0.1)
            for number, process in enumerate(processes):
                if number not in times and process.poll() is not None:
                    assert process.returncode == 0, f"a run ended with {process.returncode}"
                    times[number] = time.perf_counter() - started
    return sum(times.values()) / at_once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--at-once", nargs="+", type=int, default=[1, 2, 4])
    given = parser.parse_args()
    found: dict[str, dict[int, float]] = {}
    for way in given.ways:
        for at_once in given.at_once:
            found.setdefault(way, {})[at_once] = seconds(given.recipe, way, at_once)
            print(f"{way}: {at_once} at once {found[way][at_once]:.0f} s", flush=True)
    print(json.dumps({"cores": os.cpu_count(), "recipe": given.recipe.stem, "seconds": found}))


if __name__ == "__main__":
    main()
