"""A recipe on the source's own vocabulary: the encoder stays as it is, bit for bit, until a stage trains it."""

import re
from pathlib import Path

import pytest
import tiny
import torch
from command_line import succeeds
from safetensors.torch import load_file

from vtkit.encoder.checkpoint import load_encoder, save_encoder
from vtkit.pipeline.plan import Plan
from vtkit.pipeline.run import run
from vtkit.pipeline.store import Store
from vtkit.recipe.load import load_recipe
from vtkit.system.errors import CollapseError

OWN = """\
[recipe]
name = "own"
[source]
model = "./model"
[vocabulary]
kind = "source"
[adapt]
corpus = ["text.txt"]
steps = 2
batch_size = 4
[index]
lexical = "bm25"
[evaluate]
sets = ["./collection"]
measures = ["nDCG@10"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recipe, its encoder, its text and its collection."""
    (tmp_path / "own.toml").write_text(OWN)
    save_encoder(tiny.encoder(tmp_path / "work", tied=True), tmp_path / "model")
    (tmp_path / "text.txt").write_text("\n".join(tiny.texts(60)))
    tiny.write_collection(tmp_path / "collection", tiny.collection(12))
    return tmp_path


def test_the_encoder_stays_as_it_is_and_nothing_is_warned_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = run(folder / "own.toml", runs=folder / "runs", until="transfer")
    shown = capsys.readouterr().err
    assert "gate unicode after vocabulary: pass" in shown
    assert "gate overlap" not in shown
    assert "warning" not in shown
    model = next((made.parent / "artifacts").glob("transfer-*")) / "model"
    before, after = (load_file(path / "model.safetensors") for path in (folder / "model", model))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    source, own = load_encoder(str(folder / "model")), load_encoder(str(model))
    texts = ["apple River stone", "unknownword, walnut!"]
    assert torch.equal(source.encode_document(texts).to_dense(), own.encode_document(texts).to_dense())
    assert source.tokenizer(texts)["input_ids"] == own.tokenizer(texts)["input_ids"]


def test_its_recipe_runs_to_the_report_and_shows_a_line_a_stage(folder: Path) -> None:
    ended = succeeds("run", str(folder / "own.toml"), "--runs", str(folder / "runs"))
    report = (folder / "runs" / "own" / "report.md").read_text("utf-8")
    assert "after adaptation" in report
    assert "with BM25 in one index" in report
    lines = ended.stderr.splitlines()
    stages = [line for line in lines if line.startswith("[")]
    assert [line.partition("] ")[0] for line in stages] == [f"[{n}/{len(stages)}" for n in range(1, len(stages) + 1)]
    assert all(len(line.split()) == 2 for line in stages)
    assert not [line for line in lines if "done in" in line]
    gates = [line for line in lines if line.startswith("gate ")]
    assert gates
    assert all(re.fullmatch(r"gate [\w ]+ after \w+: (pass|skipped)", line) for line in gates), gates
    results = ended.stdout.splitlines()
    head = next(line for line in results if line.startswith("model "))
    assert head.split()[:2] == ["model", "nDCG@10"]
    deployed = next(line for line in results if line.startswith("with BM25 in one index "))
    assert re.match(r"with BM25 in one index +[01]\.\d{3} .* (< )?[01]\.\d+ +–$", deployed)
    assert "the one index" in results[-1]
    assert "over BM25, p" in results[-1]


def test_no_gate_compares_the_source_with_itself_and_its_files_are_in_the_key(folder: Path) -> None:
    recipe = load_recipe(folder / "own.toml").recipe
    plan = Plan(recipe, Store(folder / "store"))
    assert {"vocabulary", "check:vocabulary", "transfer"} <= plan.steps.keys()
    assert "check:transfer" not in plan.steps
    keys = {name: plan.steps[name].dependencies.key for name in ("vocabulary", "transfer")}
    (folder / "model" / "README.md").write_text("another model")
    again = Plan(recipe, Store(folder / "elsewhere"))
    assert all(again.steps[name].dependencies.key != key for name, key in keys.items())
    (folder / "text.txt").write_text("слово дело река\n" * 60)  # which the source cannot read
    with pytest.raises(CollapseError, match="gate unicode after vocabulary"):
        run(folder / "own.toml", runs=folder / "runs", until="transfer")


@pytest.mark.parametrize("kind", ["source", "trimmed"])
def test_a_source_whose_modules_lower_case_texts_reads_capitals(
    kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = folder / "model" / "sentence_bert_config.json"
    settings.write_text(settings.read_text("utf-8").replace("false", "true"), "utf-8")
    (folder / "text.txt").write_text("\n".join(text.upper() for text in tiny.texts(60)))
    (folder / "own.toml").write_text(OWN.replace('kind = "source"', f'kind = "{kind}"'))
    made = run(folder / "own.toml", runs=folder / "runs", until="transfer")
    assert "gate unicode after" in capsys.readouterr().err
    model = next((made.parent / "artifacts").glob("transfer-*")) / "model"
    own = load_encoder(str(model)).tokenizer
    assert own.convert_ids_to_tokens(own(["Apple RIVER"])["input_ids"][0])[1:-1] == ["apple", "river"]


def test_another_recipe_s_model_can_be_the_source(folder: Path) -> None:
    second = OWN.replace('"own"', '"second"').replace('model = "./model"', 'recipe = "own.toml"')
    (folder / "second.toml").write_text(second)
    made = run(folder / "second.toml", runs=folder / "runs", until="transfer")
    models = {path.name.partition("-")[0]: path for path in (made.parent / "artifacts").glob("adapt-*")}
    transfers = list((made.parent / "artifacts").glob("transfer-*"))
    adapted = load_file(models["adapt"] / "model" / "model.safetensors")
    moved = [load_file(path / "model" / "model.safetensors") for path in transfers]
    assert sorted(tiny.same(adapted, weights) for weights in moved) == [False, True]
