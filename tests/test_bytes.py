"""Bytes that are not UTF-8, wherever a command can be given some: one clear message, never a defect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

BAD = b"r\xff"


def vtkit(*arguments: str | bytes, folder: Path, typed: bytes = b"", **environment: str) -> tuple[int, str]:
    """Exit code and messages of a command in a process of its own, as a shell starts it."""
    result = subprocess.run(
        [sys.executable.encode(), b"-m", b"vtkit", *map(os.fsencode, arguments)],
        cwd=folder, input=typed, capture_output=True, env={**os.environ, **environment}, check=False,
    )  # fmt: skip
    return result.returncode, result.stderr.decode()


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", BAD), ("search", ".", BAD), ("explain", ".", "q", BAD), ("transfer", BAD, "b", "--out", "o"),
        ("recipe", "new", "--name", BAD, "--language", "ko", "--source", "a", "--tokenizer", "b"),
        ("run", "r.toml", "--set", b"source.model=" + BAD),
    ],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_arguments_that_are_not_utf_8_are_named(arguments: tuple[str | bytes, ...], tmp_path: Path) -> None:
    code, said = vtkit(*arguments, folder=tmp_path)
    assert code == 2
    assert said.startswith("error: not UTF-8: argument")
    assert r"r\xff" in said
    assert not list(tmp_path.iterdir())


def test_a_working_folder_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + BAD))
    folder.mkdir()
    code, said = vtkit("recipe", "check", "r.toml", folder=folder)
    assert (code, said.count("the working folder")) == (2, 1)


def test_a_locale_without_utf_8_is_named_instead_of_an_empty_query(tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code, said = vtkit("search", ".", "집", folder=tmp_path, **ascii_only)
    assert code == 2
    assert "the locale's encoding is" in said
    assert "LC_ALL=C.UTF-8" in said
    assert vtkit("--version", folder=tmp_path, **ascii_only)[0] == 0


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index to search, of a few sentences."""
    folder = tmp_path_factory.mktemp("bytes")
    tiny.encoder(folder).save(str(folder / "model"))
    (folder / "documents.txt").write_text("the river\na house\n", "utf-8")
    assert vtkit("encode", "model", "documents.txt", "--out", "vectors", folder=folder)[0] == 0
    assert vtkit("index", "vectors", "--out", "index", folder=folder)[0] == 0
    return folder


def test_a_line_of_standard_input_that_is_not_utf_8_is_named(index: Path) -> None:
    for more in ((), ("--batch", "-")):
        code, said = vtkit("search", "index", *more, folder=index, typed=b"river\n\xffriver\n")
        assert code == 1
        assert "standard input: line 2 is not UTF-8: byte 0xff at position 1" in said
    assert vtkit("search", "index", folder=index, typed="\ufeffriver\r\n".encode())[0] == 0
