"""Shipped recipes as they ship, offline, out of a hub cache in the layouts of the hub; ``make rehearsal`` runs all."""

import json
from pathlib import Path

import pytest
from command_line import succeeds
from rehearsal import texts
from rehearsal.measure import rehearse
from rehearsal.recipes import CHECKED, FAST, RECIPES, REHEARSED, options
from rehearsal.stage import HUB, build


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recipes and a cache of small files. Without the real vocabularies, of which some have 50,000 tokens."""
    folder = tmp_path_factory.mktemp("rehearsal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "SHARED", folder / "nothing")
        patch.setattr(texts, "DOCUMENTS", 150)
        build(folder)
    return folder


def test_every_shipped_recipe_is_rehearsed() -> None:
    assert {rehearsed.recipe or name for name, rehearsed in REHEARSED.items()} == set(RECIPES)


@pytest.mark.parametrize("name", FAST)
def test_a_recipe_runs_as_it_ships_out_of_a_cache_of_the_hub(name: str, work: Path) -> None:
    outcome = rehearse(name, work)
    assert outcome.code == 0, outcome.log.read_text()
    (report,) = (work / "runs" / name).glob("*/report.json")
    evaluated = json.loads(report.read_text())
    assert evaluated["results"]


@pytest.mark.parametrize("name", CHECKED)
def test_what_a_recipe_names_is_read_out_of_a_cache_of_the_hub(
    name: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(work / HUB))
    monkeypatch.setenv("VTKIT_CACHE", str(work / "cache"))
    monkeypatch.chdir(work)
    succeeds("recipe", "check", f"recipes/{name}.toml", "--data", *options(name))
