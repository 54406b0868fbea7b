"""Threads: what is asked for holds for torch and numba alike, whichever starts its own first."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys, torch
torch.set_num_threads(1)
torch.ones(300, 300) @ torch.ones(300, 300)
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
from vtkit.runtime import limit_threads
limit_threads({threads})
import numba
print(torch.get_num_threads(), numba.get_num_threads(), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(("asked", "stated", "expected"), [("1", "2", 1), ("None", "1", 1)])
def test_threads_are_limited_when_numba_starts_its_own(asked: str, stated: str, expected: int) -> None:
    """numba's first call sets OpenMP's threads too: a stage with BM25 computed on two threads only if it was the first
    of its process, so that a killed run ended in other numbers than an undisturbed one."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(threads=asked)],
        env=os.environ | {"OMP_NUM_THREADS": stated},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(expected)] * 2
