"""What a run will take in time and memory: the work against counting it, and the truth beside the estimate."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
from test_disk import RECIPE
from typer.testing import CliRunner

from vtkit.cli import app
from vtkit.pipeline import cost, sizes
from vtkit.pipeline.disk import made_by
from vtkit.pipeline.plan import Plan, Step
from vtkit.pipeline.store import Store
from vtkit.recipe.load import load_recipe


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tiny.encoder(tmp_path / "work").save_pretrained(str(tmp_path / "source"))
    tiny.tokenizer(tiny.shuffled(3)).save_pretrained(str(tmp_path / "target"))
    tiny.write_collection(tmp_path / "judged", tiny.collection(60))
    (tmp_path / "recipe.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def steps(folder: Path, *overrides: str) -> dict[str, Step]:
    return Plan(load_recipe(folder / "recipe.toml", overrides).recipe, Store(folder / "runs" / "artifacts")).steps


def work(step: Step) -> cost.Work:
    found = cost.work_of(step)
    assert found is not None
    return found


def test_the_work_of_encoding_is_every_token_through_the_transformer_and_its_head(folder: Path) -> None:
    step = steps(folder)["encode:adapt"]
    assert step.recipe.evaluate is not None
    encoder, counts = made_by(step.recipe), sizes.counts_of(step.recipe.evaluate.sets[0])
    assert encoder is not None
    assert counts is not None
    assert counts.documents == 60
    tokens = counts.bytes / sizes.CHARACTERS_A_TOKEN
    assert work(step).encoded == pytest.approx(tokens * (encoder.other + encoder.vocabulary * encoder.width))


def test_the_work_of_training_grows_with_steps_and_batches_and_searching_with_results(folder: Path) -> None:
    plain = steps(folder)
    twice = steps(folder, "adapt.steps=60", "adapt.batch_size=64", "evaluate.depth=20")
    assert work(twice["adapt"]).trained == pytest.approx(4 * work(plain["adapt"]).trained)
    more = [work(plan["evaluate:adapt"]).programs for plan in (plain, twice)]
    assert more[1] - more[0] == pytest.approx(60 * 10 * (sizes.FOUND_S + sizes.RANKED_S))


def test_a_faster_machine_takes_less() -> None:
    one = cost.Work(encoded=8e9, trained=3.2e10, programs=2)
    assert one.seconds(cost.Speed(8e9, 1.6e10)) == pytest.approx(1 + 2 + 2)
    assert one.seconds(cost.Speed(1.6e10, 3.2e10, 2)) == pytest.approx(2.5)


def test_this_machine_can_be_measured() -> None:
    speed = cost.measured()
    assert 1e7 < speed.float32 < 1e15
    assert 1e7 < speed.bf16 < 1e15
    assert 0.001 < speed.programs < 1000


def test_a_dry_run_says_what_each_step_takes_and_the_log_what_it_took(folder: Path) -> None:
    planned = CliRunner().invoke(app, ["run", "recipe.toml", "--dry-run"])
    assert "time: about" in planned.stderr
    lines = [line.split("  about ")[0].strip() for line in planned.stderr.splitlines() if "  about " in line]
    assert lines == list(steps(folder))
    assert CliRunner().invoke(app, ["run", "recipe.toml", "--until", "vocabulary"]).exit_code == 0
    log = (folder / "runs" / "tiny" / "run.log").read_text("utf-8")
    assert "of processor time), estimated" in log
    again = CliRunner().invoke(app, ["run", "recipe.toml", "--dry-run"])
    assert "vocabulary  about" not in again.stderr
