"""``vtkit runs`` and ``vtkit clean``: what a list says of runs, and that cleaning takes nothing that a run needs."""

import json
import shutil
from pathlib import Path

import pytest
import tiny
from command_line import invoke, succeeds
from filelock import FileLock
from support import refused

from vtkit.pipeline.folder import open_run, report_of
from vtkit.pipeline.listing import list_runs, remove, unused
from vtkit.pipeline.plan import Plan
from vtkit.pipeline.run import run
from vtkit.pipeline.search import open_searcher
from vtkit.pipeline.store import Store
from vtkit.recipe.load import load_recipe
from vtkit.settings.recipe import STORE
from vtkit.system.errors import VtkitError


def vtkit(*arguments: str) -> str:
    return succeeds(*arguments).stdout


def steps_run(recipe: Path, *settings: str) -> int:
    """How many steps a run of ``recipe`` would make, but for its report, which names paths."""
    plan = Plan(load_recipe(recipe, settings).recipe, Store(recipe.parent / "runs" / "artifacts"))
    return sum(each.runs and each.step.name != "report" for each in plan.decide({}))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that share their vocabulary and source, and the leavings of settings that were tried before."""
    folder = tmp_path_factory.mktemp("listing")
    tiny.finished_run(folder, tiny.collection(20))
    recipe = folder / "tiny.toml"
    run(recipe, ("index.query_length=5",), runs=folder / "runs", threads=1)
    run(recipe, ("recipe.name=other", "transfer.method=mean"), runs=folder / "runs", threads=1)
    run(recipe, runs=folder / "runs", threads=1)
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """A copy."""
    for name in ("encoder", "target", "collection", "tiny.toml"):
        (tmp_path / name).symlink_to(made / name)
    shutil.copytree(made / "runs", tmp_path / "runs")
    return tmp_path / "runs"


def test_a_list_has_state_figures_size_and_time(runs: Path) -> None:
    other, listed = list_runs(runs)
    assert (other.name, listed.name) == ("other", "tiny")
    assert other.state == listed.state == "finished"
    assert listed.measure == "nDCG@10"
    report = json.loads((runs / "tiny" / "report.json").read_text("utf-8"))
    values = [row["measures"]["nDCG@10"] for row in report["results"][0]["rows"] if row["role"] == "encoder"]
    assert listed.value == values[-1]
    assert listed.bm25 is not None
    assert listed.verdict is not None
    assert 0 < listed.own_bytes < listed.bytes
    assert listed.seconds > 0
    said = vtkit("runs", str(runs))
    assert "nDCG@10" in said
    assert f"tiny: finished; {listed.verdict}" in said
    assert [each["name"] for each in json.loads(vtkit("runs", str(runs), "--json"))] == ["other", "tiny"]


def test_bytes_are_counted_once_however_many_links_there_are(made: Path) -> None:
    runs = made / "runs"
    for listed in list_runs(runs):
        steps = json.loads((runs / listed.name / "run.json").read_text("utf-8"))["steps"].values()
        folders = [runs / "artifacts" / step for step in steps] + [runs / listed.name]
        files = [path.stat() for folder in folders for path in folder.rglob("*") if path.is_file()]
        assert listed.bytes == sum({file.st_ino: file.st_size for file in files}.values())


def test_states(runs: Path, tmp_path: Path) -> None:
    record = json.loads((runs / "tiny" / "run.json").read_text("utf-8"))

    def state_with(steps: dict[str, str]) -> str:
        (runs / "tiny" / "run.json").write_text(json.dumps(record | {"steps": steps}), "utf-8")
        return list_runs(runs)[1].state

    steps = record["steps"]
    until = dict(list(steps.items())[:3])
    assert state_with(until) == f"stopped after {list(until)[-1]}"
    other = json.loads((runs / "other" / "run.json").read_text("utf-8"))["steps"]
    assert state_with(steps | {"transfer": other["transfer"]}) == "stopped after transfer; its report is older"
    assert state_with(steps | {"transfer": "transfer-" + "0" * 20}).startswith("outputs are gone: transfer")
    (runs / "tiny" / "run.json").write_text("{", "utf-8")
    assert list_runs(runs)[1].state.startswith("damaged")
    (runs / "begun").mkdir()
    (runs / "begun" / ".lock").touch()
    (runs / "begun" / ".lock.holder").write_text("process 1 on here", "utf-8")
    assert list_runs(runs)[0].state == "stopped before its first step ended"
    with FileLock(runs / "begun" / ".lock"):
        assert list_runs(runs)[0].state == "running: process 1 on here"


def test_cleaning_shows_first_and_takes_only_what_no_run_refers_to(runs: Path) -> None:
    store = runs / "artifacts"
    before = {path.name for path in store.iterdir()}
    referred = {
        step
        for run in ("tiny", "other")
        for step in json.loads((runs / run / "run.json").read_text("utf-8"))["steps"].values()
    }
    said = vtkit("clean", str(runs))
    assert "Add --yes" in said
    assert {path.name for path in store.iterdir()} == before
    found = {each.folder.name for each in unused(runs)}
    assert found
    assert not found & referred
    assert all(name in said for name in found)
    assert f"removed {len(found)} folders" in vtkit("clean", str(runs), "--yes")
    assert {path.name for path in store.iterdir()} == before - found
    assert not list((store / ".partial").iterdir())
    assert steps_run(runs.parent / "tiny.toml") == 0
    assert steps_run(runs.parent / "tiny.toml", "transfer.method=mean") == 0
    assert steps_run(runs.parent / "tiny.toml", "index.query_length=5") > 0
    (runs / "link").symlink_to(runs / "tiny")
    assert [listed.name for listed in list_runs(runs)] == ["other", "tiny"]
    assert "nothing to remove" in vtkit("clean", str(runs), "--yes")


def test_a_removed_run_frees_what_it_had_alone(runs: Path) -> None:
    remove(runs)
    alone = list_runs(runs)[0].own_bytes
    own_folder = sum(path.stat().st_size for path in (runs / "other").rglob("*") if path.is_file())
    shutil.rmtree(runs / "other")
    assert own_folder + sum(each.bytes for each in unused(runs)) == alone
    assert remove(runs)
    assert steps_run(runs.parent / "tiny.toml") == 0


def test_interrupted_work_is_kept_unless_it_is_asked_for(runs: Path) -> None:
    remove(runs)
    (runs / "artifacts" / ".partial" / "adapt-x" / "checkpoints").mkdir(parents=True)
    (runs / "artifacts" / ".partial" / "adapt-x" / "checkpoints" / "weights").write_bytes(b"1" * 5000)
    (runs / "artifacts" / ".partial" / "index-y").mkdir()
    (each,) = [each for each in unused(runs) if each.unfinished]
    assert each.bytes == 5000
    assert [each.folder.name for each in remove(runs)] == ["index-y"]
    assert [each.folder.name for each in remove(runs, unfinished=True)] == ["adapt-x"]


def test_nothing_is_removed_beside_a_run_that_goes_on_or_cannot_be_read(runs: Path, tmp_path: Path) -> None:
    before = sorted((runs / "artifacts").iterdir())
    with FileLock(runs / "other" / ".lock"):
        result = invoke("clean", str(runs), "--yes")
    assert "is running" in str(result.exception)
    (runs / "other" / "run.json").write_text("[", "utf-8")
    for arguments in (["clean", str(runs)], ["clean", str(runs), "--yes"]):
        assert "run.json is damaged" in str(invoke(*arguments).exception)
    assert sorted((runs / "artifacts").iterdir()) == before
    for command in ("runs", "clean"):
        assert "is not a folder of runs" in str(invoke(command, str(tmp_path / "no")).exception)


# A run's folder that was copied or moved away from its store: what it holds itself goes on working.


@pytest.fixture(scope="module", params=["none", "bm25"])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, with one index of encoder and BM25 or without."""
    lexical = f'[index]\nlexical = "{request.param}"\n'
    return tiny.finished_run(tmp_path_factory.mktemp("moved"), tiny.collection(30), more=lexical)


def found(folder: Path) -> list[list[tuple[str, float]]]:
    searcher = open_searcher(folder, model=None, collection=None)
    return [
        [(result.id, result.score) for result in each.results] for each in searcher.search(["river house", "tree"], 5)
    ]


def test_a_copy_elsewhere_is_searched_explained_and_reported_as_the_run(finished: Path, tmp_path: Path) -> None:
    expected = found(finished)
    assert expected[0]
    whole = report_of(finished)
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(finished, copy)
    aside = finished.parent / "aside"
    (finished.parent / STORE).rename(aside)
    try:
        assert found(copy) == found(finished) == expected
        assert report_of(copy) == whole is not None
        first = expected[0][0]
        explained = open_searcher(copy, model=None, collection=None).explain("river house", first[0])
        assert explained.score == pytest.approx(first[1])
        refused(VtkitError, "no index for 'source'", open_searcher, copy, model="source", collection=None)
        shutil.rmtree(copy / "model")
        shutil.rmtree(copy / "index")
        refused(VtkitError, r"stage outputs that are gone.*no model of its own", open_run, copy)
    finally:
        aside.rename(finished.parent / STORE)


def test_its_vocabularies_are_listed_and_measured_where_none_is_named(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished.parents[1])
    listed = invoke("inspect-vocab").stdout
    assert "final model of runs/tiny" in listed
    assert "source of runs/tiny" in listed
    Path("text.txt").write_text("the river house\n", "utf-8")
    for more in ([], ["--run", "runs/tiny"]):
        measured = invoke("fragmentation", "text.txt", *more, "--json").stdout
        assert any(one["name"].endswith("model") for one in json.loads(measured)["tokenizers"])
