"""What is shown while training goes on: the progress line, and curves for TensorBoard and Weights & Biases."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_finetuning import DATA, section
from test_validation import validated
from tiny import add_training_queries, encoder, scratch_recipe, tokenizer, write_collection

from vtkit.pipeline.run import run
from vtkit.system import console
from vtkit.system.errors import MissingExtra
from vtkit.training import reporting, resuming
from vtkit.training.finetune import finetune
from vtkit.training.resuming import Speed


def test_the_progress_line_has_parts_dimensions_strengths_speed_and_the_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "QUIET_SECONDS_BETWEEN_LINES", 0.0)
    settings = {"every": 5}
    validated(tmp_path, settings, steps=12, target_active={"query": 20, "document": 40}, ramp=0.2)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  fine-tuning 11/12")]
    assert lines[0].startswith("  fine-tuning 11/12, about ")
    parts = (
        " s left", "loss", "contrastive", "query flops", "document flops", " active", "λ ", "tokens/s", "nDCG@10 0.",
    )  # fmt: skip
    for part in (*parts, "best 0."):
        assert part in lines[0], part


def test_the_speed_is_that_since_the_last_point(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 10.0
    monkeypatch.setattr(resuming.time, "monotonic", lambda: now)
    speed = Speed()
    speed.tokens, now = 300, 12.0
    assert speed.take() == 150.0
    speed.tokens, now = 400, 13.0
    assert speed.take() == 100.0


def test_curves_are_written_for_tensorboard(tmp_path: Path) -> None:
    curves = finetune(encoder(tmp_path), DATA, section(), "en", 5, tmp_path / "checkpoints", report_to=["tensorboard"])
    read = EventAccumulator(str(tmp_path / "checkpoints" / "curves" / "tensorboard"))
    read.Reload()
    tags = read.Tags()["scalars"]
    assert {"train/loss", "train/contrastive", "train/query_dimensions", "train/tokens_per_second"} <= {*tags}
    written = [(point.step, point.value) for point in read.Scalars("train/contrastive")]
    assert [step for step, _ in written] == curves["steps"]
    assert [value for _, value in written] == pytest.approx(curves["contrastive"], rel=1e-5)


RECIPE = scratch_recipe(
    "shown",
    '[finetune]\ndata = "./collection"\nbatch_size = 6\nsteps = 3\n[report]\ntraining = ["tensorboard"]\n',
)


def test_a_run_keeps_them_and_other_programs_change_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer().save_pretrained(str(tmp_path / "target"))
    add_training_queries(write_collection(tmp_path / "collection", DATA), DATA)
    recipe = tmp_path / "shown.toml"
    recipe.write_text(RECIPE, "utf-8")
    monkeypatch.setattr(reporting, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'report\.training = \["tensorboard"\] needs tensorboard, which is not '):
        run(recipe, runs=tmp_path / "runs", threads=1, dry_run=True)
    monkeypatch.undo()
    folder = run(recipe, runs=tmp_path / "runs", threads=1, until="finetune")
    assert list((folder / "curves" / "finetune" / "tensorboard").glob("events.out.*"))
    made = [path.name for path in (tmp_path / "runs" / "artifacts").glob("finetune-*")]
    run(recipe, ("report.training=[]",), runs=tmp_path / "runs", threads=1, until="finetune")
    assert [path.name for path in (tmp_path / "runs" / "artifacts").glob("finetune-*")] == made
