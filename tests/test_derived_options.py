"""Settings are declared once: options of commands and arguments of functions are made of the sections."""

from pathlib import Path
from typing import Any

import click
import pytest
import typer
from command_line import invoke

import vtkit
from vtkit.cli import app
from vtkit.commands.options import option_name
from vtkit.recipe.problems import section_of
from vtkit.settings.calibrate import CalibrateSection
from vtkit.settings.casing import CasingSection
from vtkit.settings.types import Section
from vtkit.settings.vocabulary import ExpandedVocabulary, TrainedVocabulary
from vtkit.system.errors import DataError, RecipeError

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
