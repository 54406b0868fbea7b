"""Commands without a tokenizer: what they find to look at, also where there is nothing at all."""

import json
import shlex
from pathlib import Path

import pytest
from command_line import invoke, python, succeeds
from tiny import tokenizer

ROOT = Path(__file__).resolve().parents[1]
TEXT = "The melting point of gold is 1064 degrees.\n금의 녹는점은 1064도이다.\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with nothing but a corpus in it; the hub's cache is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / ".hub"))
    (tmp_path / "corpus.txt").write_text(TEXT, "utf-8")
    return tmp_path


def in_cache(here: Path, name: str) -> None:
    folder, revision = here / ".hub" / f"models--{name.replace('/', '--')}", "1" * 40
    tokenizer().save_pretrained(str(folder / "snapshots" / revision))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(revision)


def test_on_a_fresh_machine_both_commands_end_well(tmp_path: Path) -> None:
    """As a user calls them: another process, an empty folder, no cache and no network."""
    (tmp_path / "corpus.txt").write_text(TEXT, "utf-8")
    environment = {"HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": str(ROOT), "https_proxy": "http://127.0.0.1:9"}
    for command in (["fragmentation", "corpus.txt"], ["inspect-vocab"]):
        said = python("-m", "vtkit", *command, cwd=tmp_path, without=("HF_",), **environment)
        lines = [line.strip() for line in said.splitlines() if line.startswith("  vtkit ")]
        assert len(lines) == 3
        assert all(line.startswith(f"vtkit {' '.join(command)} ") and " --download " in line for line in lines)


def test_what_is_in_the_cache_is_listed_with_commands_that_work_and_compared_where_none_is_named(here: Path) -> None:
    in_cache(here, "some/encoder")
    lines = [line for line in invoke("inspect-vocab").stdout.splitlines() if line.startswith("  vtkit ")]
    assert any("some/encoder" in line for line in lines)
    result = succeeds(*shlex.split(lines[0], comments=True)[1:], "--languages", "sembridge")
    assert len(json.loads(invoke("inspect-vocab", "--json").stdout)) == len(lines) == 1
    result = invoke("fragmentation", "corpus.txt", "--json")
    assert [each["name"] for each in json.loads(result.stdout)["tokenizers"]] == ["encoder"]
    assert "No tokenizer is named" in result.stderr


def test_a_recipe_names_its_source_and_its_vocabulary(here: Path) -> None:
    for name in ("source", "target"):
        tokenizer().save_pretrained(str(here / name))
    text = '[recipe]\nname = "r"\nlanguage = "en"\n[source]\nmodel = "{}"\n[vocabulary]\nkind = "existing"\n'
    text += 'tokenizer = "./target"\n[transfer]\nmethod = "mean"\n'
    (here / "r.toml").write_text(text.format("./source"), "utf-8")
    result = invoke("fragmentation", "corpus.txt", "--recipe", "r.toml", "--json")
    assert [one["name"] for one in json.loads(result.stdout)["tokenizers"]] == ["source", "target"]
    (here / "r.toml").write_text(text.format("not/fetched"), "utf-8")
    result = invoke("fragmentation", "corpus.txt", "--recipe", "r.toml", "--json")
    assert [one["name"] for one in json.loads(result.stdout)["tokenizers"]] == ["target"]
    assert "not/fetched (source of r.toml) is left out" in result.stderr
    assert invoke("fragmentation", "corpus.txt", "--run", ".").exit_code == 1


def test_what_lies_here_and_cannot_be_read_is_passed_over(here: Path) -> None:
    (here / "run.json").write_text("{", "utf-8")
    assert "is ignored" in succeeds("inspect-vocab").stderr
