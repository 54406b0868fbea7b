"""Threads: what is asked for holds for torch, and a search leaves it its number. Memory: what is freed is
used again, and given back between stages."""

import json
import os
import platform
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from command_line import invoke, python, succeeds
from packaging.requirements import Requirement

from vtkit.pipeline.doctor import FOR_AUTHORS, _wrong, examine
from vtkit.system.runtime import reuse_memory

SCRIPT = """
import os, sys, torch
torch.set_num_threads(1)
torch.ones(300, 300) @ torch.ones(300, 300)
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
from vtkit.system.runtime import threads, want_threads
want_threads({threads})
torch.set_num_threads(threads())
print(torch.get_num_threads(), flush=True)
os._exit(0)
"""


def printed(code: str, **environment: str) -> list[str]:
    return python("-c", code, **environment).split()


@pytest.mark.parametrize(("asked", "stated", "expected"), [("1", "2", "1"), ("None", "1", "1")])
def test_the_setting_limits_threads_and_the_environment_otherwise(asked: str, stated: str, expected: str) -> None:
    assert printed(SCRIPT.format(threads=asked), OMP_NUM_THREADS=stated) == [expected]


WAITING = """
import sys
from vtkit.cli import POLICY, SPIN, share_cores
share_cores()
import os
print("torch" in sys.modules, os.environ.get(POLICY), os.environ.get(SPIN))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep OpenMP's defaults")
def test_threads_sleep_while_they_wait_if_other_programs_use_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a second run, the quickstart took seven times its seconds: threads span for the core they waited for."""
    for variable in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):  # a command that a test before this one called sets them
        monkeypatch.delenv(variable, raising=False)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        assert printed(WAITING) == ["False", "PASSIVE", "None"]
        assert printed(WAITING, GOMP_SPINCOUNT="7") == ["False", "None", "7"]  # what the user says counts
    finally:
        for process in busy:
            process.kill()
            process.wait()


SEARCH = """
import os, torch
import numpy as np
import scipy.sparse as sp
torch.ones(300, 300) @ torch.ones(300, 300)
torch.set_num_threads({threads})
from vtkit.search.exact import ExactIndex
vectors = sp.random(64, 32, 0.5, format="csr", dtype=np.float32, random_state=0)
ExactIndex.build(vectors).search(vectors, 3)
print(torch.get_num_threads(), flush=True)
"""


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_search_leaves_torch_its_threads(threads: str) -> None:
    """From Python, encoding after the first search computed on as many threads as the machine has cores."""
    assert printed(SEARCH.format(threads=threads), OMP_NUM_THREADS="1") == [threads]


PRECISION = """
import torch
from vtkit.system.runtime import bf16_is_fast
print(bf16_is_fast())
"""


def test_the_environment_decides_on_bf16_and_the_tests_compute_without_it() -> None:
    assert [printed(PRECISION, VTKIT_BF16=stated) for stated in "01"] == [["False"], ["True"]]
    assert printed(PRECISION) == [str(os.environ["VTKIT_BF16"] == "1")]  # what conftest.py sets, processes inherit


PAGES = """
import resource
from vtkit.system.runtime import reuse_memory
{call}
import torch
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() // 2**20
def fill():
    sum(float(torch.full((2**23,), 1.0)[0]) for _ in range(6))
fill()
before = faults()
fill()
print(faults() - before, end=" ")
before = resident()
{call}
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are those of glibc")
def test_freed_memory_is_used_again_without_asking_the_system() -> None:
    def counted(call: str) -> list[int]:
        said = python("-c", PAGES.format(call=call), without=("MALLOC_", "GLIBC_"))
        return [int(number) for number in said.split()]

    # six tensors of 32 MiB: 49,152 pages of 4 KiB, or 96 of 2 MiB, unless they are there already; and the next stage
    # starts without them; a machine short of memory may take some away meanwhile, so one of six tries is enough
    otherwise, _ = counted("pass")
    tries = (counted("reuse_memory()") for _ in range(6))
    assert any(asked < otherwise / 2 and given_back > 24 for asked, given_back in tries)


BLOCKS = """
import resource
from vtkit.system.runtime import release_memory
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() // 2**20
blocks = [bytes(1000) for _ in range(200_000)]
last = blocks[-1]
del blocks
before = resident()
release_memory()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other systems return freed blocks themselves")
def test_freed_blocks_below_one_in_use_go_back_to_the_system() -> None:
    """A large tokenizer is millions of them; without it, 190 MiB stay with the process."""
    assert int(printed(BLOCKS)[0]) > 100


def test_an_allocator_with_settings_of_its_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)
    reuse_memory()
    assert "THP_MEM_ALLOC_ENABLE" not in os.environ


# ``vtkit doctor``: what it finds on this machine, and that it says what to do.


ROOT = Path(__file__).resolve().parents[1]


def test_a_package_that_is_missing_or_too_old_is_named() -> None:
    assert _wrong(Requirement("no-such-package>=1")) == "no-such-package is missing"
    assert str(_wrong(Requirement("torch>=999"))).endswith("is not >=999")
    assert _wrong(Requirement("torch>=1")) is None


def test_this_machine_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "hub" / "models--a--b").mkdir(parents=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    found = {each.about: each for each in examine(tmp_path / "runs")}
    assert {"vtkit", "packages", "accelerator", "bf16", "hub", "disk, runs", "extra serve"} <= set(found)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {f"extra {extra}" for extra in set(extras) - set(FOR_AUTHORS)} <= set(found)
    assert "torch " in found["packages"].found
    assert "HF_HUB_OFFLINE keep it offline" in found["hub"].found
    assert str(tmp_path / "runs") in found["disk, runs"].found
    assert all(each.remedy for each in found.values() if each.state != "ok")


def test_the_command_prints_a_line_for_each_finding(tmp_path: Path) -> None:
    lines = succeeds("doctor", "--runs", tmp_path).stdout.splitlines()
    assert all(line.split()[0] in ("ok", "note") for line in lines)
    listed = json.loads(invoke("doctor", "--runs", tmp_path, "--json").stdout)
    assert len(listed) == len(lines)
    assert set(listed[0]) == {"about", "found", "state", "remedy"}
