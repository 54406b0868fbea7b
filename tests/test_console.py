"""What reaches the terminal: other people's text is shown, never obeyed."""

import ast
import json
import tomllib
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtkit.recipe.write import toml_value
from vtkit.system import console

ESC, CSI, OSC_8, RLO, NUL = "\x1b[31m", "\x9b2J", "\x1b]8;;http://e.vil\x1b\\", "\u202e", "\0"
HOSTILE = f"a{ESC}b{CSI}c{OSC_8}d{RLO}e{NUL}f\ng\rh\u2028i\u2066j\ud800k"


def obeyed(text: str) -> set[str]:
    """Characters of ``text`` that a terminal does not show but acts on, line ends left out."""
    found = {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return found - {"\n", "\u200c", "\u200d"}


@pytest.mark.parametrize("path", sorted(Path(console.__file__).parents[1].rglob("*.py")), ids=lambda path: path.stem)
def test_only_the_console_prints(path: Path) -> None:
    # reference.py prints docs/settings.md, all of it our own text; __main__.py speaks where there is no console yet;
    # the scripts of an export are programs of their own
    if path.name in ("console.py", "reference.py", "__main__.py") or path.parent.name == "scripts":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("print", "typer.echo", "click.echo", "sys.stdout.write", "sys.stderr.write"), called


@given(st.text(st.characters(), max_size=60))
def test_nothing_that_is_written_is_obeyed_by_a_terminal(text: str) -> None:
    assert not obeyed(console.clean(text)) - {"\t"}
    assert not obeyed(console.one_line(text))
    assert "\n" not in console.one_line(text)
    shown = text.replace("\ufeff", "")  # a byte order mark
    assert len(console.clean(text)) == len(console.one_line(text)) == len(shown)
    assert console.one_line(f"\ufeff{shown}") == console.one_line(shown)


def test_every_way_to_the_terminal_is_clean(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with console.log_to(tmp_path / "run.log"):
        console.write(HOSTILE)
        console.write_json({HOSTILE.replace("\ud800", ""): "\x7f"})
        console.say(HOSTILE)
        console.warn(HOSTILE)
        console.fail(HOSTILE)
        console.write_table([HOSTILE, "b"], [["1", HOSTILE]])
        with console.details(False, results=True):
            console.say(HOSTILE)
        with console.progress("reading", total=2) as bar:
            bar.advance(words=HOSTILE)
    out, err = capfd.readouterr()
    assert out.startswith("a\ufffd[31mb\ufffd2Jc\ufffd]8;;http://e.vil\ufffd\\d\ufffde\ufffdf\ng h i\ufffdj\ufffdk\n")
    for text in (out, err, (tmp_path / "run.log").read_text(encoding="utf-8").replace("\t", "")):
        assert not obeyed(text)


def test_a_value_without_end_does_not_hide_the_rest_of_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    for say in (console.fail, console.warn):
        say(f"index.alias: '{'a' * 20_000}' cannot name an index\n  {'b' * 400}: is missing")
        said = capsys.readouterr().err
        assert len(said) < 1000
        assert "a… cannot name an index" in said
        assert f"  {'b' * 400}: is missing" in said


def test_json_says_the_same_with_such_characters_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"id": HOSTILE.replace("\ud800", ""), "text": "한국어 \U000e0041 می\u200cخواهم"}
    console.write_json(value)
    out = capsys.readouterr().out
    assert json.loads(out) == value
    assert "한국어" in out
    assert "\\u001b[31m" in out
    assert "\\udb40\\udc41" in out  # a tag character, as JSON writes what is beyond 16 bits
    text = toml_value(value["id"] + "\U000e0041")
    assert not obeyed(text)
    assert tomllib.loads(f"a = {text}")["a"] == value["id"] + "\U000e0041"


def test_text_of_any_language_is_left_alone() -> None:
    for text in ("naïve 한국어 日本語 हिन्दी ไทย", "می\u200cخواهم", "👩\u200d🔬", "a\u00a0b\u3000c", ""):
        assert console.clean(text) == console.one_line(text) == text
    assert console.clean("a\n\tb") == "a\n\tb"
    assert console.one_line("a\r\n\tb") == "a   b"
    assert console.one_line("abcdef", 4) == "abc…"


def test_a_short_form_is_shown_and_the_log_has_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with console.log_to(tmp_path / "log"):
        console.say("gate ties after transfer: pass; 0.0% are tied", short="gate ties after transfer: pass")
        console.say("  done in 1.0 s", short="")
        assert capsys.readouterr().err == "gate ties after transfer: pass\n"
        with console.details(True):
            console.say("  done in 2.0 s", short="")
        assert capsys.readouterr().err == "  done in 2.0 s\n"
        console.say("  done in 3.0 s", short="")  # a later command in the same process chooses for itself
        assert not capsys.readouterr().err
    logged = (tmp_path / "log").read_text("utf-8")
    assert "0.0% are tied" in logged
    assert logged.count("done in") == 3
