"""``vtkit recipe new`` in six situations: what it writes is checked and runs to its report, on a small collection."""

import gzip
import os
import re
import shlex
from itertools import islice
from pathlib import Path

import command_line
import pytest
from situations import SITUATIONS, part_of, run_situation

ROOT = Path(__file__).resolve().parents[1]

# So much less than a real run does.
QUICKLY = ["evaluate.max_queries=20", "index.document_length=64", "recipe.seed=1"]
ADAPTED = ["adapt.steps=2", "adapt.batch_size=4", "adapt.max_length=32"]
TRAINED = ["finetune.batch_size=4", "finetune.epochs=0.1", "finetune.document_length=32"]


@pytest.fixture(scope="module")
def beginnings(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared data with the first entries of dictionaries, of which some have a hundred thousand."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "data" / "parallel").mkdir(parents=True)
    for name in ("models", "vocab", *(f"data/{path.name}" for path in (shared / "data").iterdir())):
        if name != "data/parallel":
            (folder / name).symlink_to((shared / name).absolute())
    for path in (shared / "data" / "parallel").iterdir():
        with gzip.open(path, "rb") as file:
            (folder / "data" / "parallel" / path.name).write_bytes(gzip.compress(b"".join(islice(file, 5000))))
    return folder


@pytest.mark.parametrize("name", list(SITUATIONS))
def test_a_new_recipe_runs_to_its_report_and_its_index_is_not_below_bm25(
    name: str, beginnings: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def vtkit(*arguments: str) -> str:
        done = command_line.call(tmp_path, arguments, environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    situation = SITUATIONS[name]
    settings = [*QUICKLY, *(["source.steps=20"] if situation.embedder else ADAPTED)]
    settings += TRAINED if situation.judged else []
    last = "adapt" if name == "domain" else "finetune" if situation.judged else "calibrate"
    settings.append(f"evaluate.models={['transfer' if situation.embedder else last]}")
    found = run_situation(name, 60, tmp_path, settings, beginnings, vtkit)
    assert found["documents"] == 60
    assert found["index"] >= found["bm25"] or found["p"] >= 0.05


def test_the_first_commands_of_the_readme_run_as_written(shared: Path, tmp_path: Path) -> None:
    part_of(shared / "data" / "xquadr-en", tmp_path / "my_beir_folder", 100)
    block = re.search(r"(?:    .*\n)*    vtkit recipe new(?:.*\n    )*.*\n", (ROOT / "README.md").read_text("utf-8"))
    english = str(shared / "models" / "all-MiniLM-L6-v2")
    lines = block[0].replace("\\\n", " ").replace("intfloat/multilingual-e5-small", english)
    commands = [
        shlex.split(line, comments=True) for line in lines.replace("--language ko", "--language en").splitlines()
    ]
    assert [command[:2] for command in commands] == [["vtkit", name] for name in ("recipe", "recipe", "run", "search")]
    for command in commands:
        more = ["--set", "source.steps=20"] if command[1] == "run" else []
        done = command_line.call(tmp_path, [*command[1:], *more], {**os.environ, "PYTHONPATH": str(ROOT)})
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "runs" / "my-korean" / "report.html").is_file()
