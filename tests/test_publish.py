"""``vtkit publish``: a run's model on the hub, shown first, with what its card promises."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
import tiny
import yaml
from command_line import invoke
from hub_server import Hub, serving
from support import refused
from typer.testing import Result

from vtkit.pipeline.publish import prepare
from vtkit.system.errors import DataError, RecipeError


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("publish")
    tiny.finished_run(folder, tiny.collection(60))
    return folder


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving() as found:
        found.token = "hf_test"
        for module in (huggingface_hub.constants, huggingface_hub.hf_api, huggingface_hub._commit_api):
            if hasattr(module, "ENDPOINT"):
                monkeypatch.setattr(module, "ENDPOINT", found.url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        yield found


def licensed(folder: Path, name: str | None) -> None:
    card = folder / "encoder" / "README.md"
    card.write_text("# A model\n" if name is None else f"---\nlicense: {name}\n---\n", "utf-8")


def says(place: Path, *arguments: str) -> Result:
    return invoke("publish", str(place / "runs" / "tiny"), "me/tiny", *arguments)


def test_nothing_is_uploaded_until_it_is_said(place: Path, hub: Hub) -> None:
    licensed(place, "apache-2.0")
    shown = says(place)
    assert shown.exit_code == 0, shown.output
    assert "me/tiny (public)" in shown.stdout
    assert "model.safetensors" in shown.stdout
    assert "licence: apache-2.0 (source model: apache-2.0)" in shown.stdout
    assert not hub.asked


def test_what_was_shown_is_what_arrives_and_the_card_holds_the_figures(place: Path, hub: Hub) -> None:
    licensed(place, "apache-2.0")
    shown = says(place, "--yes")
    assert shown.exit_code == 0, shown.output
    (files,) = hub.repositories["me/tiny"].values()
    folder = place / "runs" / "tiny" / "model"
    own = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {name: content for name, content in files.items() if name != "README.md"} == {
        name: content for name, content in own.items() if name != "README.md"
    }
    card = files["README.md"].decode()
    header = yaml.safe_load(card.split("\n---\n")[0])
    assert header["license"] == "apache-2.0"
    (result,) = header["model-index"][0]["results"]
    first = result["metrics"][0]
    low, high = first["args"]["interval_95"]
    assert first["name"] == "nDCG@10"
    assert low < first["value"] < high
    assert (low + high) / 2 == pytest.approx(first["value"], abs=1e-5)
    parsed = huggingface_hub.ModelCard(card).data
    assert parsed.eval_results[0].metric_args == {"interval_95": [low, high]}
    for part in ('SparseEncoder("me/tiny")', "## Data", "## Limits", "## Licence"):
        assert part in card
    assert str(place) not in card


def test_licences_of_the_source_are_kept(place: Path) -> None:
    run = place / "runs" / "tiny"
    licensed(place, "cc-by-nc-sa-4.0")
    assert prepare(run, "me/tiny").license == "cc-by-nc-sa-4.0"
    refused(RecipeError, r"must keep the source's licence, cc-by-nc-sa-4\.0", prepare, run, "me/tiny", license="mit")
    licensed(place, "cc-by-nd-4.0")
    refused(RecipeError, "does not allow", prepare, run, "me/tiny")
    licensed(place, "mit")
    assert prepare(run, "me/tiny", license="apache-2.0").license == "apache-2.0"


def test_an_unknown_licence_and_other_obstacles_are_refused_in_words(place: Path, hub: Hub, tmp_path: Path) -> None:
    licensed(place, None)
    answer = says(place, "--yes")
    assert "licence is unknown" in str(answer.exception)
    hub.token = "another"
    answer = says(place, "--yes", "--license", "mit")
    assert isinstance(answer.exception, DataError)
    assert "hf auth login" in str(answer.exception)
    assert not hub.repositories
    refused(RecipeError, "OWNER/NAME", prepare, place / "runs" / "tiny", "tiny")
    unfinished = tmp_path / "unfinished"
    shutil.copytree(place / "runs" / "tiny", unfinished)
    (unfinished / "run.json").unlink()
    refused(Exception, "not a vtkit run", prepare, unfinished, "me/tiny")
