"""Shipped recipes as they ship, offline, out of a hub cache in the layouts of the hub: three of ``make rehearsal``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rehearsal.recipes import FAST, RECIPES, REHEARSED
from rehearsal.texts import ROOT


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the rehearsals run; the cache is made by the first."""
    return tmp_path_factory.mktemp("rehearsal")


def test_every_shipped_recipe_is_rehearsed() -> None:
    assert {rehearsed.recipe or name for name, rehearsed in REHEARSED.items()} == set(RECIPES)


@pytest.mark.parametrize("name", FAST)
def test_a_recipe_runs_as_it_ships_out_of_a_cache_of_the_hub(name: str, work: Path) -> None:
    # Without the real vocabularies, of which some have 50,000 tokens: small ones of the same kind.
    environment = {**os.environ, "VTKIT_DATA": str(work / "nothing"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.rehearsal", name, "--work", str(work)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr + (work / f"{name}.log").read_text()
    (report,) = (work / "runs" / name).glob("*/report.json")
    evaluated = json.loads(report.read_text())
    assert evaluated["results"]
