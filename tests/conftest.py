"""Fixtures shared by the tests: the folder of real collections, and hypothesis without deadlines.

Everything computes in float32, whatever the processor has, also in processes that tests start; with VTKIT_BF16=1 in the
environment, everything that can does so in bf16 (``make test`` runs the tests with the mark ``bf16`` that way too).
"""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ["VTKIT_BF16"] = os.environ.get("VTKIT_BF16") or "0"  # read at the first use, so before any test is imported

settings.register_profile(
    "vtkit", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("vtkit")
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in a shell's background, and what they start, ignore it


LONGEST = (
    *("test_live", "test_exports", "test_run_cli", "test_situations", "test_export", "test_distributed"),
    *("test_rehearsal", "test_python_api", "test_command_lines", "test_elsewhere", "test_sweep", "test_negatives"),
)
"""Files that take longest, and so begin first: each is run by one process, and the last one is not to be waited for."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one process run all files of ``tests/servers``, whose tests share a server."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "servers" if "servers/" in nodeid else super()._split_scope(nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real collections, vocabularies and models; VTKIT_DATA says where, ``../shared`` by default."""
    folder = Path(os.environ.get("VTKIT_DATA", Path(__file__).resolve().parents[2] / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"needs the real collections: {folder} is not there (set VTKIT_DATA to their folder)")
    return folder.resolve()
