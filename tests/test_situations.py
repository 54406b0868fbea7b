"""``vtkit recipe new`` in each situation: its recipe passes the check and is planned; one runs to its report."""

import gzip
import json
import os
import re
import shlex
import shutil
from itertools import islice
from pathlib import Path

import command_line
import pytest
from situations import SITUATIONS, Command, part_of, run_recipe, write_recipe

ROOT = Path(__file__).resolve().parents[1]

# Much less than a real run does.
QUICKLY = [
    "evaluate.max_queries=20", "evaluate.models=['finetune']", "index.document_length=48", "recipe.seed=1",
    "adapt.steps=2", "adapt.batch_size=4", "adapt.max_length=32",
    "finetune.batch_size=4", "finetune.epochs=0.03", "finetune.document_length=32",
]  # fmt: skip

BRIDGED = ["vocabulary", "check", "transfer", "adapt", "calibrate"]
MADE = {
    "pairs": BRIDGED,
    "judgements": [*BRIDGED, "finetune"],
    "dictionary": BRIDGED,
    "no-bridge": BRIDGED,
    "domain": ["vocabulary", "check", "transfer", "adapt"],
    "tokenizer": BRIDGED,
    "embedder": ["vocabulary", "check", "transfer"],
}
"""Stages up to the last model, in each situation."""


@pytest.fixture(scope="module")
def beginnings(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared data with the first entries of dictionaries, of which some have a hundred thousand, and the first
    layers of the encoder."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "data" / "parallel").mkdir(parents=True)
    sparse = folder / "models" / "minilm-splade-en"
    shutil.copytree(shared / "models" / "minilm-splade-en", sparse, copy_function=os.symlink)
    layers = json.loads((sparse / "config.json").read_text("utf-8")) | {"num_hidden_layers": 2}
    (sparse / "config.json").unlink()
    (sparse / "config.json").write_text(json.dumps(layers), "utf-8")
    for name in ("models/all-MiniLM-L6-v2", "vocab", *(f"data/{path.name}" for path in (shared / "data").iterdir())):
        if name != "data/parallel":
            (folder / name).symlink_to((shared / name).absolute())
    for name in {name for situation in SITUATIONS.values() for name in situation.parallel}:
        with gzip.open(shared / "data" / "parallel" / f"{name}.tsv.gz", "rb") as file:
            first = b"".join(islice(file, 1000))
        (folder / "data" / "parallel" / f"{name}.tsv.gz").write_bytes(gzip.compress(first))
    return folder


def vtkit_in(folder: Path) -> Command:
    def vtkit(*arguments: str) -> str:
        done = command_line.call(folder, arguments, {**os.environ, "PYTHONPATH": str(ROOT)})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return vtkit


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_new_recipe_passes_the_check_of_its_data_and_has_its_plan(
    name: str, beginnings: Path, tmp_path: Path
) -> None:
    vtkit = vtkit_in(tmp_path)
    recipe = write_recipe(name, 60, tmp_path, beginnings, vtkit)
    plan = vtkit("run", str(recipe), "--dry-run")
    stages = re.search(r"^  (vocabulary, .*): not made yet", plan, re.MULTILINE)
    rest = ["encode", "index", "fusion", "evaluate", "profile", "report"]
    assert stages[1].split(", ") == [*MADE[name], *rest], plan


def test_a_new_recipe_runs_to_its_report_and_its_index_is_not_below_bm25(beginnings: Path, tmp_path: Path) -> None:
    """With parallel text and judgements, of which every stage is trained; the README's commands begin with an embedder,
    and the other situations have fewer of these stages."""
    vtkit = vtkit_in(tmp_path)
    found = run_recipe(write_recipe("judgements", 60, tmp_path, beginnings, vtkit), QUICKLY, vtkit)
    assert found["documents"] == 60
    assert found["index"] >= found["bm25"] or found["p"] >= 0.05


def test_the_first_commands_of_the_readme_run_as_written(shared: Path, tmp_path: Path) -> None:
    part_of(shared / "data" / "xquadr-en", tmp_path / "my_beir_folder", 50)
    block = re.search(r"(?:    .*\n)*    vtkit recipe new(?:.*\n    )*.*\n", (ROOT / "README.md").read_text("utf-8"))
    english = str(shared / "models" / "all-MiniLM-L6-v2")
    lines = block[0].replace("\\\n", " ").replace("intfloat/multilingual-e5-small", english)
    commands = [
        shlex.split(line, comments=True) for line in lines.replace("--language ko", "--language en").splitlines()
    ]
    assert [command[:2] for command in commands] == [["vtkit", name] for name in ("recipe", "recipe", "run", "search")]
    for command in commands:
        more = ["--set", "source.steps=5"] if command[1] == "run" else []
        done = command_line.call(tmp_path, [*command[1:], *more], {**os.environ, "PYTHONPATH": str(ROOT)})
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "runs" / "my-korean" / "report.html").is_file()
