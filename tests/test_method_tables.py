"""[transfer]: a table and a class for each method, and what it takes to add one."""

import difflib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from command_line import invoke
from pydantic import ValidationError

import vtkit
from vtkit.cli import app
from vtkit.commands.options import option_name
from vtkit.recipe.load import LoadedRecipe, load_recipe
from vtkit.recipe.problems import section_of
from vtkit.recipe.write import resolved_toml
from vtkit.settings.calibrate import CalibrateSection
from vtkit.settings.casing import CasingSection
from vtkit.settings.transfer import METHODS, ROW_ORIGINS, ParallelTransfer, SembridgeTransfer, TransferSection
from vtkit.settings.types import Section
from vtkit.settings.vocabulary import ExpandedVocabulary, TrainedVocabulary
from vtkit.system.errors import DataError, RecipeError

ROOT = Path(__file__).resolve().parents[1]
RECIPE = """
[recipe]
name = "tables"
[source]
model = "org/model"
[vocabulary]
kind = "existing"
tokenizer = "org/tokenizer"
[transfer]
method = "wechsel"
[transfer.wechsel]
vectors = "ko.vec"
source_vectors = "en.vec"
dictionary = ["en-ko.tsv"]
[transfer.bias]
method = "mixture"
"""


def load(folder: Path, *overrides: str) -> LoadedRecipe:
    return load_recipe(folder / "r.toml", overrides, text=RECIPE)


def section(**settings: Any) -> TransferSection:
    return TransferSection.model_validate({"bias": {"method": "mixture"}, **settings})


def refused(folder: Path, *overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        load(folder, *overrides)
    return str(caught.value)


def used(settings: TransferSection) -> set[str]:
    """The settings read, but for those that all methods share."""
    names = (name.removeprefix("transfer.") for name in settings.settings_read if name.count(".") == 2)
    return {name for name in names if not name.startswith("bias.")}


def test_another_method_is_one_override_away_whatever_tables_stand_there(tmp_path: Path) -> None:
    for method in METHODS:
        lacking = METHODS[method].needs if method != "wechsel" else {}
        if lacking:
            message = refused(tmp_path, f"transfer.method={method}")
            assert all(f"transfer.{method}.{setting}" in message for setting in lacking)
        else:
            transfer = load(tmp_path, f"transfer.method={method}").recipe.transfer
            assert transfer.methods == (method,)
    transfer = load(tmp_path, "transfer.parallel.min_probability=0.2").recipe.transfer
    assert transfer.settings_of(ParallelTransfer) == ParallelTransfer(min_probability=0.2)
    assert "transfer.parallel.min_probability" not in transfer.settings_read  # wechsel is asked


def test_what_is_read_are_the_settings_of_the_methods_asked_and_of_those_they_use() -> None:
    parallel = {"parallel.files", "parallel.estimator", "parallel.min_probability"}
    sembridge = {"sembridge.embedder", "sembridge.alpha"}
    assert used(section(method="mean", parallel={"files": ("a",)})) == set()
    assert used(section(method="parallel", parallel={"files": ("a",)})) == parallel
    assert used(section(method="auto")) == parallel | sembridge
    both = section(method=("sembridge", "mean"), sembridge={"embedder": "e"})
    assert used(both) == sembridge
    assert used(section(method="focus")) == {"focus.vectors"}


def test_everything_that_methods_lack_is_said_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        section(method=("wechsel", "auto", "wechsel"))
    for said in (
        *(f"transfer.wechsel.{name}" for name in ("vectors", "source_vectors", "dictionary")),
        "a method is listed twice",
        "auto and random_all make every row",
    ):
        assert said in str(caught.value)


def test_defaults_are_written_out_with_the_table_that_they_hold_for(tmp_path: Path) -> None:
    text = resolved_toml(load(tmp_path, "transfer.method=auto").recipe)
    transfer = tomllib.loads(text)["transfer"]
    alphas = {name: transfer[name]["alpha"] for name in ("sembridge", "semantic")}
    assert alphas == {"sembridge": 4.0, "semantic": 2.0}  # each paper's
    lines = text.splitlines()
    unused = {name for name in METHODS if f"[transfer.{name}]" in lines
              and lines[lines.index(f"[transfer.{name}]") - 1].startswith("# Not used")}  # fmt: skip
    assert unused == {"semantic", "focus", "ofa", "wechsel"}
    assert load_recipe(tmp_path / "again.toml", text=text).recipe == load(tmp_path, "transfer.method=auto").recipe


def test_a_setting_beside_its_table_is_told_where_it_stands(tmp_path: Path) -> None:
    for override, meant in {
        "transfer.embedders=a/b": ["transfer.sembridge.embedder"],
        "transfer.min_probability=0.3": ["transfer.parallel.min_probability"],
        "transfer.vectors=a": ["transfer.focus.vectors", "transfer.ofa.vectors", "transfer.wechsel.vectors"],
    }.items():
        hint = " or ".join(f"'{setting}'" for setting in meant)
        assert f"Did you mean {hint}?" in refused(tmp_path, override), override


def test_every_method_says_what_its_rows_are() -> None:
    for name, kind in METHODS.items():
        assert name == kind.name
        assert kind.summary()
        assert set(kind.needs) <= set(kind.model_fields)
        if not kind.makes_every_row:
            assert name in ROW_ORIGINS
    assert not SembridgeTransfer(embedder="e").missing


METHOD = '''\
"""New tokens as one source row."""

import numpy as np
from scipy.sparse import csr_matrix

from vtkit.settings.transfer import SingleTransfer
from vtkit.transfer.mixture import Mixture, Part, Texts, mixture_of_parts
from vtkit.vocabulary.pair import VocabularyPair


def mixture(pair: VocabularyPair, settings: SingleTransfer, texts: Texts, seed: int) -> Mixture:
    new = pair.overlap.new_ids
    weights = csr_matrix((np.ones(len(new)), (np.arange(len(new)), np.full(len(new), int(settings.row or 0)))),
                         shape=(len(new), pair.overlap.source_size))
    return mixture_of_parts(pair, [Part("single", new, weights)])
'''

SETTINGS = '''\
class SingleTransfer(MethodSettings):
    """[transfer.single]: one row of the source for all. Settings are few."""

    name = "single"
    needs = {"row": "the id of a source token"}
    origins = {"single": ("one row", "the same row for all")}

    row: Alpha | None = None
    """Id of the source token."""

    table: VectorsName | None = None
    """A file."""


'''

CHECK = """
import sys
from pathlib import Path
import typer.testing
sys.path.insert(0, sys.argv[1])
from vocabularies import wordpiece
from vtkit.cli import app
from vtkit.recipe.load import load_recipe, required_things
from vtkit.recipe.reference import settings_reference
from vtkit.report.vocabularies import ROW_ORIGINS
from vtkit.transfer.dispatch import mixture_of
from vtkit.vocabulary.pair import pair_of

text = Path("recipe.toml").read_text()
section = load_recipe(Path("recipe.toml"), ["transfer.method=single", "transfer.single.row=6"], text=text).recipe
assert [thing.setting for thing in required_things(section) if "transfer" in thing.setting] == []
given = ["transfer.method=single", "transfer.single.row=6", "transfer.single.table=a.vec"]
recipe = load_recipe(Path("recipe.toml"), given, text=text).recipe
required = [thing.value for thing in required_things(recipe) if "transfer" in thing.setting]
assert required == [str(Path("a.vec").absolute())]
assert {"transfer.single.row", "transfer.single.table"} <= recipe.transfer.settings_read
pair = pair_of(wordpiece("school", "house"), wordpiece("school", "river"))
made = mixture_of(recipe.transfer, pair, lambda: iter(()), lambda: None, 0)
assert made.counts()["single"] == 1, made.counts()
page = settings_reference()
assert "### [transfer.single]" in page and "`single`: one row of the source for all." in page
assert ROW_ORIGINS["single"] == ("one row", "the same row for all")
help = typer.testing.CliRunner().invoke(app, ["transfer", "--help"], env={"COLUMNS": "200"}).output
assert "single" in help
print("added")
"""


def test_a_method_is_its_file_its_settings_one_entry_and_one_case(tmp_path: Path) -> None:
    copy = tmp_path / "vtkit"
    shutil.copytree(ROOT / "vtkit", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "transfer" / "methods" / "single.py").write_text(METHOD, encoding="utf-8")
    edits = {
        "settings/transfer.py": [
            ("BASELINES = {", SETTINGS + "BASELINES = {"),
            ("        WechselTransfer,\n", "        WechselTransfer,\n        SingleTransfer,\n"),
        ],
    }
    for name, replaced in edits.items():
        text = (copy / name).read_text("utf-8")
        for before, after in replaced:
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        (copy / name).write_text(text, encoding="utf-8")
    touched = 0
    for path in sorted((ROOT / "vtkit").rglob("*.py")):
        before, after = (p.read_text("utf-8").splitlines() for p in (path, copy / path.relative_to(ROOT / "vtkit")))
        if before != after:
            touched += sum(line[:2] in ("+ ", "- ") and len(line) > 2 for line in difflib.ndiff(before, after))
    own = sum(bool(line) for line in SETTINGS.splitlines())
    assert touched - own == 1  # the entry of the list
    (tmp_path / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", CHECK, str(ROOT / "tests")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "added", done.stderr


# Settings are declared once: options of commands and arguments of functions are made of the sections.


SECTIONS: dict[str, tuple[type[Section], set[str]]] = {
    "calibrate": (CalibrateSection, {"corpus"}),
    "casing": (CasingSection, set()),
    "expand": (ExpandedVocabulary, {"kind", "tokenizer", "corpus"}),
    "tokenizer train": (TrainedVocabulary, {"kind", "corpus"}),
}
"""Command -> the section that its options are, and the settings that it gives itself."""


def options(command: str) -> dict[str, click.Option]:
    found: Any = typer.main.get_command(app)
    for name in command.split():
        found = found.commands[name]
    return {option.name: option for option in found.params if option.param_type_name == "option"}


@pytest.mark.parametrize("command", SECTIONS)
def test_every_setting_of_the_section_is_an_option_with_its_default(command: str) -> None:
    section, own = SECTIONS[command]
    found = options(command)
    for name, field in section.model_fields.items():
        if name in own:
            assert name not in found or command == "calibrate"  # which has probe texts of its own
            continue
        option = found[name]
        assert {option_name(name), "--target", "--apply"} & set(option.opts)
        assert option.default is None
        if isinstance(field.default, str | int | float) and not isinstance(field.default, bool):
            assert option.help.endswith(f"Default: {field.default}.")


def test_all_that_is_wrong_is_said_under_the_names_of_the_options(tmp_path: Path) -> None:
    arguments = ["calibrate", "model", "--corpus", "x", "--target", "2", "--max-length", "0"]
    problems = str(invoke(*arguments).exception).splitlines()
    assert [line.partition(":")[0] for line in problems] == ["--target", "--max-length"]


def test_a_setting_that_is_not_there_is_named_with_the_one_that_is_meant() -> None:
    with pytest.raises(RecipeError, match=r"^no:\ninputt: .*'input'"):
        section_of(CasingSection, {"inputt": "keep"}, refused="no:")
    with pytest.raises(RecipeError, match=r"'paralel'.*parallel"):
        vtkit.transfer_encoder("source", "target", paralel="a.tsv")


def test_an_error_names_the_argument_as_python_does_whoever_called_it(tmp_path: Path) -> None:
    corpus, specification = tmp_path / "corpus.txt", tmp_path / "small.toml"
    corpus.write_text("some text\n", "utf-8")
    specification.write_text(
        '[vocabulary]\nkind = "trained"\ncorpus = ["corpus.txt"]\nalgorithm = "bpe"\nsize = 200\n', "utf-8"
    )
    with pytest.raises(DataError, match=r"^size = 200 is too small"):
        vtkit.train_tokenizer(corpus, algorithm="bpe", size=200)
    with pytest.raises(DataError, match=r"^size = 200 is too small"):
        vtkit.build_tokenizer(specification)
    train = ["tokenizer", "train", str(corpus), "--algorithm", "bpe", "--size", "200", "--out", str(tmp_path / "out")]
    assert str(invoke(*train).exception).startswith("size = 200 is too small")
