"""``vtkit recipe`` as a user meets it: in a process of its own, off a terminal and on one."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import command_line
import pytest
import tiny
from command_line import environment, on_a_terminal

from vtkit import __version__
from vtkit.recipe.new import NewRecipe, new_recipe
from vtkit.settings.casing import CasingSection
from vtkit.vocabulary.existing import with_casing

ROOT = Path(__file__).resolve().parents[1]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
RECIPE = """\
[recipe]
name = "small"
about = "한국어"
[source]
model = "./model"
[vocabulary]
kind = "existing"
tokenizer = "vocab.txt"
[transfer]
method = "mean"
[evaluate]
sets = ["./judged"]
"""


@pytest.fixture
def vtkit(tmp_path: Path) -> Run:
    """Runs the command in an empty folder."""

    return lambda *arguments: command_line.call(tmp_path, arguments, environment())


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe with everything it names beside it."""
    for name, text in {
        "small.toml": RECIPE,
        "model/config.json": "{}",
        "vocab.txt": "a\n",
        "judged/corpus.jsonl": "",
        "judged/queries.jsonl": "",
        "judged/qrels/test.tsv": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "small.toml"


def test_help_version_and_schema(vtkit: Run) -> None:
    assert vtkit("--version").stdout == f"vtkit {__version__}\n"
    described = vtkit("recipe", "--help").stdout
    for command in ("check", "show", "schema", "new"):
        assert command in described
        result = vtkit("recipe", command, "-h")
        assert result.returncode == 0
        assert "Usage: vtkit recipe" in result.stdout
    assert "SECTION.KEY=VALUE" in vtkit("recipe", "check", "--help").stdout
    schema = json.loads(vtkit("recipe", "schema").stdout)
    assert {"extends", "recipe", "source", "vocabulary"} <= set(schema["properties"])


def test_a_recipe_is_fine_or_refused_with_one_message_and_exit_code_2(vtkit: Run, recipe: Path) -> None:
    fine = vtkit("recipe", "check", "small.toml")
    assert (fine.returncode, fine.stderr) == (0, "")
    assert "vtkit run small.toml" in fine.stdout
    result = vtkit("recipe", "check", "small.toml", "--set", "transfer.method=meen", "--set", "adapt.steps=0")
    assert (result.returncode, result.stdout) == (2, "")
    head, method, steps = result.stderr.splitlines()
    assert head.startswith("error: small.toml")
    assert method.startswith("  --set 1  transfer.method: ")
    assert steps.startswith("  --set 2  adapt.steps: ")
    absent = vtkit("recipe", "check", "smal.toml")
    assert absent.returncode == 2
    assert "Did you mean 'small.toml'?" in absent.stderr


def test_what_cannot_be_had_is_reported_with_bad_measures(vtkit: Run, recipe: Path) -> None:
    (recipe.parent / "vocab.txt").unlink()
    result = vtkit("recipe", "check", "small.toml", "--set", 'evaluate.measures=["nDCGG@10"]')
    assert result.returncode == 2
    assert f"line 8  vocabulary.tokenizer: {recipe.parent}/vocab.txt does not exist." in result.stderr
    assert "'nDCGG@10': no such measure" in result.stderr
    assert "Traceback" not in result.stderr


def test_show_prints_a_recipe_that_stands_on_its_own(vtkit: Run, recipe: Path) -> None:
    result = vtkit("recipe", "show", "small.toml", "--set", "recipe.seed=7")
    assert result.returncode == 0
    shown = tomllib.loads(result.stdout)
    assert shown["recipe"] == {"name": "small", "seed": 7, "language": "en", "about": "한국어"}
    assert shown["source"]["model"] == str(recipe.parent / "model")
    moved = recipe.parent / "deep" / "down" / "moved.toml"
    moved.parent.mkdir(parents=True)
    moved.write_text(result.stdout, encoding="utf-8")
    assert vtkit("recipe", "show", str(moved)).stdout == result.stdout


def test_show_survives_a_terminal_that_cannot_show_the_text(recipe: Path) -> None:
    command = [sys.executable, "-m", "vtkit", "recipe", "show", "small.toml"]
    environ = environment(PYTHONIOENCODING="ascii")
    result = subprocess.run(command, cwd=recipe.parent, env=environ, capture_output=True, encoding="ascii", check=False)
    assert result.returncode == 0
    assert tomllib.loads(result.stdout)["recipe"]["about"] == "한국어"


def test_new_writes_a_recipe_that_check_finds_fine(vtkit: Run, recipe: Path) -> None:
    (recipe.parent / "text.txt").write_text("text\n")
    answers = ["--name", "mine", "--language", "ko", "--source", "model", "--tokenizer", "vocab.txt"]
    answers += ["--corpus", "text.txt", "--evaluate", "judged", "--out", "recipes/mine.toml"]
    result = vtkit("recipe", "new", *answers)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    written = (recipe.parent / "recipes" / "mine.toml").read_text()
    assert 'model = "../model"' in written
    assert vtkit("recipe", "check", "recipes/mine.toml").returncode == 0
    again = vtkit("recipe", "new", *answers)
    assert again.returncode == 2
    assert "error: recipes/mine.toml already exists" in again.stderr
    assert (recipe.parent / "recipes" / "mine.toml").read_text() == written


@pytest.mark.parametrize(("fast", "lines"), [(False, 0), (True, 1)])
def test_new_computes_in_bf16_where_the_machine_is_fast_at_it(
    fast: bool, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtkit.recipe.new.bf16_is_fast", lambda: fast)
    answers = NewRecipe(name="one", language="en", embedder="org/model", corpus=("./text.txt",))
    text = new_recipe(answers, Path.cwd())
    assert text.count('precision = "bf16"') == lines


def test_new_names_what_is_missing_off_a_terminal_and_answers_that_no_recipe_may_have(
    vtkit: Run, tmp_path: Path
) -> None:
    result = vtkit("recipe", "new", "--language", "ko")
    assert result.returncode == 2
    assert re.findall(r"--[a-z]+", result.stderr) == ["--name", "--source", "--embedder", "--tokenizer", "--corpus"]
    refused = vtkit("recipe", "new", "--name", "a b", "--language", "Korean", "--source", "a/b", "--tokenizer", "a/b")
    assert refused.returncode == 2
    # the file is not written, so it has no lines to name
    assert [line.split(":")[0] for line in refused.stderr.splitlines()][1:] == ["  recipe.name", "  recipe.language"]
    assert list(tmp_path.iterdir()) == []


def test_new_warns_where_nothing_leads_from_one_language_to_the_other(vtkit: Run, recipe: Path) -> None:
    answers = ["recipe", "new", "--language", "ru", "--source", "model", "--corpus", "judged"]
    bridge = "there is no bridge from en to ru"
    assert bridge in " ".join(vtkit(*answers, "--name", "first").stderr.split())
    assert bridge not in " ".join(vtkit(*answers, "--name", "second", "--parallel", "pairs.tsv").stderr.split())
    assert bridge not in " ".join(vtkit(*answers, "--name", "third", "--source-language", "ru").stderr.split())
    kinds = [
        tomllib.loads((recipe.parent / f"{name}.toml").read_text())["vocabulary"]["kind"]
        for name in ("first", "second", "third")
    ]
    assert kinds == ["trained", "trained", "source"]


def test_new_keeps_upper_case_for_a_source_that_reads_it(vtkit: Run, recipe: Path) -> None:
    answers = ["recipe", "new", "--language", "ko", "--source", "model", "--corpus", "judged"]
    wanted: tuple[tuple[str, Literal["keep", "lowercase"]], ...] = (("cased", "keep"), ("uncased", "lowercase"))
    for name, casing in wanted:
        with_casing(tiny.tokenizer(), CasingSection(input=casing)).save_pretrained(str(recipe.parent / "model"))
        assert vtkit(*answers, "--name", name).returncode == 0
        assert tomllib.loads((recipe.parent / f"{name}.toml").read_text())["casing"] == {"input": casing}


def test_new_asks_on_a_terminal_for_what_is_not_given(recipe: Path) -> None:
    (recipe.parent / "others").mkdir()
    answers = "\nmine\nko\nmodel\nvocab.txt\n\n\n\n\njudged, others\n"  # a name is asked for until there is one
    code, shown = on_a_terminal(recipe.parent, ["recipe", "new"], answers)
    assert code == 0, shown
    assert "Name of the run" in shown
    written = tomllib.loads((recipe.parent / "mine.toml").read_text())
    assert written["vocabulary"]["tokenizer"] == "./vocab.txt"
    assert written["evaluate"]["sets"] == ["./judged", "./others"]
    assert written["transfer"]["method"] == "auto"


def test_a_wrong_command_or_option_leaves_with_2(vtkit: Run, recipe: Path) -> None:
    for arguments in (["recip"], ["recipe", "chek"], ["recipe", "check"], ["recipe", "check", "small.toml", "--sett"]):
        result = vtkit(*arguments)
        assert result.returncode == 2
        assert "Traceback" not in result.stderr
        assert "Usage: vtkit" in result.stderr


def test_a_reader_that_leaves_early_gives_no_traceback(recipe: Path) -> None:
    command = f"{sys.executable} -m vtkit recipe show small.toml | true"
    result = subprocess.run(
        command, shell=True, cwd=recipe.parent, env=environment(), capture_output=True, text=True, check=False
    )
    assert result.stderr == ""


def test_a_run_without_evaluation_says_how_to_make_an_index(tmp_path: Path) -> None:
    tiny.tokenizer().save_pretrained(str(tmp_path / "target"))
    (tmp_path / "plain.toml").write_text(tiny.scratch_recipe("plain"), "utf-8")
    said = command_line.invoke("run", tmp_path / "plain.toml", "--runs", tmp_path / "runs").stderr
    model = tmp_path / "runs" / "plain" / "model"
    assert f"make an index: vtkit encode {model} TEXTS --out VECTORS, then vtkit index VECTORS --out INDEX" in said
