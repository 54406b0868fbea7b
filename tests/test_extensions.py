"""An extension is two edits: a function or module, and its entry in a table. One of each kind is added to a copy of the
package, and then used as anybody would."""

from __future__ import annotations

import json
import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from command_line import python

from vtkit.data.text_files import FORMS
from vtkit.deploy.target import TargetName
from vtkit.settings.finetune import LOSSES, PENALTIES
from vtkit.training import losses, regularizers

ROOT = Path(__file__).resolve().parents[1]


class Edit(NamedTuple):
    """``text`` in front of the last ``before`` in ``file``, or at its end."""

    file: str
    text: str
    before: str = ""


EXTENSIONS: dict[str, tuple[Edit, ...]] = {
    "engine": (
        Edit(
            "deploy/shelf.py",
            "import json\nfrom vtkit.deploy.target import Target\n\n\n"
            "def write(source, collection, folder):\n"
            "    weights = [entry.vector() for entry in collection.entries()]\n"
            "    (folder / 'shelf.json').write_text(json.dumps(weights))\n"
            "    return {}\n\n\n"
            "TARGET = Target(name='shelf', write=write, needs_documents=True, bits=4)\n",
        ),
        Edit("deploy/target.py", ', "shelf"', "]\n\nNO_NAME"),
    ),
    "loss": (
        Edit(
            "training/losses.py",
            "\n\ndef margin_l1(student, teacher):\n"
            "    return ((student[:, :1] - student[:, 1:]) - (teacher[:, :1] - teacher[:, 1:])).abs().mean()\n",
        ),
        Edit(
            "settings/finetune.py",
            '    "margin_l1": Loss("margin_l1", "absolute margins, over hard negatives", learns="own"),\n',
            "}\n\n\nclass Penalty(",
        ),
    ),
    "penalty": (
        Edit("training/regularizers.py", "\n\ndef l2(weights):\n    return weights.square().sum(dim=1).mean()\n"),
        Edit(
            "settings/finetune.py",
            '    "l2": Penalty("l2", "ℓ₂, the sum of squared weights", query=0.02, document=0.01),\n',
            "}\n\nLossName",
        ),
    ),
    "file form": (
        Edit(
            "data/text_files.py",
            "def _shouted(path):\n    return path.stem, path.read_text().lower()\n\n\n",
            "FORMS = (",
        ),
        Edit("data/text_files.py", '    Form(_shouted, (".loud",)),\n', ")\nREADERS"),
    ),
}

PROGRAM = """
import json
from pathlib import Path
import tiny
import vtkit
from vtkit.settings.finetune import FinetuneSection

here = Path.cwd()
training = '[finetune]\\ndata = "collection"\\nloss = "margin_l1"\\nhard_negatives = 1\\nteachers = ["bm25"]\\n' \
    'document_penalty = "l2"\\nsteps = 3\\nbatch_size = 4\\n'
run = tiny.finished_run(here, tiny.collection(30), more=training)
report = (run / "report.md").read_text("utf-8")
exported = vtkit.export_for(run, "shelf", here / "out")
(here / "loud").mkdir()
(here / "loud" / "a.loud").write_text("RIVER STONE MAPLE")
vtkit.encode_texts(here / "encoder", here / "loud", here / "vectors")
try:
    FinetuneSection(data="collection", loss="margin_l1")
except ValueError as error:
    refused = str(error)
print(json.dumps({
    "report": report, "step": exported.step, "results_kept": exported.results_kept, "refused": refused,
    "weights": json.loads((here / "out" / "shelf.json").read_text()),
    "readme": (here / "out" / "README.md").read_text(),
    "read": [json.loads(line) for line in (here / "vectors" / "documents.jsonl").open()],
    "reads": sorted(FinetuneSection(data="c", loss="margin_l1", hard_negatives=1).settings_read),
}))
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package that has all extensions. Rooms that none touches are links, or what numba
    keeps of them would be compiled again."""
    folder = tmp_path_factory.mktemp("extended")
    every = [edit for edits in EXTENSIONS.values() for edit in edits]
    (folder / "vtkit").mkdir()
    for place in (ROOT / "vtkit").iterdir():
        if place.name in {edit.file.partition("/")[0] for edit in every}:
            shutil.copytree(place, folder / "vtkit" / place.name)
        else:
            (folder / "vtkit" / place.name).symlink_to(place)
    for edit in every:
        path = folder / "vtkit" / edit.file
        source = path.read_text("utf-8") if path.exists() else ""
        place = source.rindex(edit.before) if edit.before else len(source)
        path.write_text(source[:place] + edit.text + source[place:], "utf-8")
    return folder


@pytest.fixture(scope="module")
def used(extended: Path) -> dict[str, Any]:
    """What the extensions do."""
    place = extended / "work"
    place.mkdir()
    path = f"{extended}:{Path(__file__).parent}"
    return json.loads(python("-c", PROGRAM, cwd=place, PYTHONPATH=path).splitlines()[-1])


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_an_extension_is_two_edits(kind: str) -> None:
    assert len(EXTENSIONS[kind]) == 2
    assert (ROOT / "vtkit" / EXTENSIONS[kind][1].file).is_file()  # a line of a table that is there


def test_an_engine_gets_the_documents_in_its_form(used: dict[str, Any]) -> None:
    assert len(used["weights"]) == 30
    assert max(weight for vector in used["weights"] for weight in vector.values()) == 15  # of four bits
    assert used["step"] > 0
    assert 0 < used["results_kept"] <= 1
    assert "# tiny for shelf" in used["readme"]
    assert "index.py" not in used["readme"]  # which it does not bring


def test_a_loss_and_a_penalty_are_trained_with_and_named_in_the_report(used: dict[str, Any]) -> None:
    text = " ".join(used["report"].split())
    assert "absolute margins" in text
    assert "ℓ₂ penalty of documents" in text
    assert "the loss margin_l1 compares a query's relevant document with its hard negatives" in used["refused"]
    assert {"finetune.teacher_scale", "finetune.teachers"} <= set(used["reads"])
    assert "finetune.infonce_scale" not in used["reads"]


def test_a_form_of_files_is_read_from_a_folder(used: dict[str, Any]) -> None:
    (document,) = used["read"]
    assert (document["_id"], document["title"], document["text"]) == ("a.loud", "a", "river stone maple")


@pytest.mark.parametrize(
    ("command", "words"),
    [("export", "vespa|shelf"), ("encode", ".docx and .loud files")],
)
def test_help_lists_it(extended: Path, command: str, words: str) -> None:
    shown = python("-m", "vtkit", command, "-h", cwd=extended, PYTHONPATH=str(extended), COLUMNS="400")
    assert words in shown


def test_the_help_of_an_export_needs_no_engine() -> None:
    code = "import sys, vtkit.commands.export\nprint(sorted({'torch', 'transformers', 'onnx'} & set(sys.modules)))"
    assert python("-c", code).strip() == "[]"


def test_every_entry_of_a_table_has_its_function() -> None:
    assert all(callable(getattr(losses, loss.function)) for loss in LOSSES.values())
    assert all(callable(getattr(regularizers, penalty.function)) for penalty in PENALTIES.values())


@pytest.mark.parametrize("name", get_args(TargetName))
def test_every_engine_is_called_as_its_module(name: str) -> None:
    assert import_module(f"vtkit.deploy.{name}").TARGET.name == name


def test_the_pages_list_engines_losses_penalties_and_forms() -> None:
    def first_cells(page: str, head: str) -> list[str]:
        table = (ROOT / "docs" / page).read_text("utf-8").partition(head)[2].partition("\n\n")[0]
        return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)

    assert first_cells("export.md", "| `--for` |") == list(get_args(TargetName))
    assert first_cells("training.md", "| `loss` |") == list(LOSSES)
    assert first_cells("training.md", "| penalty |") == list(PENALTIES)
    *others, last = (f"`{form.endings[0]}`" for form in FORMS)
    assert f"a folder of {', '.join(others)} and {last} files" in (ROOT / "docs" / "data.md").read_text("utf-8")
