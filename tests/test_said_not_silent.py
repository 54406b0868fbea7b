"""Input that a command cannot take as it is, and that could pass unseen: bytes that are not UTF-8, queries that are cut
or cannot be read, models that weigh nothing, files beside each other."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import command_line
import pytest
import tiny
from command_line import on_a_terminal

BAD = b"r\xff"


def vtkit(
    *arguments: str | bytes, folder: Path, started_by: tuple[str, ...] = (), **environment: str
) -> tuple[int, str]:
    """Exit code and messages of a command in a process of its own, as a shell starts it."""
    result = subprocess.run(
        [*started_by, sys.executable, "-m", "vtkit", *map(os.fsencode, arguments)],
        cwd=folder, capture_output=True, env={**os.environ, **environment}, check=False,
    )  # fmt: skip
    return result.returncode, result.stderr.decode()


def called(*arguments: str, folder: Path, typed: bytes = b"") -> tuple[int, str]:
    """The same, of a command that need not be started by a shell."""
    result = command_line.call(folder, arguments, os.environ, typed)
    return result.returncode, result.stderr


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


def test_a_working_folder_and_a_locale_that_are_not_utf_8_are_named(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + BAD))
    folder.mkdir()
    code, said = vtkit("recipe", "check", "r.toml", folder=folder)
    assert (code, said.count("the working folder")) == (2, 1)
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code, said = vtkit("search", ".", "집", folder=tmp_path, **ascii_only)  # not an empty query
    assert (code, "LC_ALL=C.UTF-8" in said) == (2, True)
    assert vtkit("--version", folder=tmp_path, **ascii_only)[0] == 0


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index to search, of a few sentences."""
    folder = tmp_path_factory.mktemp("bytes")
    tiny.encoder(folder).save(str(folder / "model"))
    (folder / "documents.txt").write_text("the river\na house\n", "utf-8")
    assert called("encode", "model", "documents.txt", "--out", "vectors", folder=folder)[0] == 0
    assert called("index", "vectors", "--out", "index", folder=folder)[0] == 0
    return folder


def test_a_line_of_standard_input_that_is_not_utf_8_is_named(index: Path) -> None:
    for more in ((), ("--batch", "-")):
        code, said = called("search", "index", *more, folder=index, typed=b"river\n\xffriver\n")
        assert code == 1
        assert "standard input: line 2 is not UTF-8: byte 0xff at position 1" in said
    assert called("search", "index", folder=index, typed="\ufeffriver\r\n".encode())[0] == 0
    code, said = called("search", "index", folder=index, typed=b"river\n" + b"a" * 2**21)
    assert (code, "standard input: line 2 is longer than 1 MiB" in said) == (1, True)


def test_what_is_typed_at_a_prompt_and_is_not_utf_8_is_named(index: Path) -> None:
    code, said = on_a_terminal(index, ["recipe", "new"], "my\udcffname\n")
    assert (code, "The answer is not UTF-8" in said) == (2, True)
    code, said = on_a_terminal(index, ["search", "index"], "r\udcff\nriver\n\x04")
    assert (code, said.count("The query is not UTF-8")) == (0, 1)


def test_an_index_without_permission_to_read_or_write_is_not_taken_for_a_damaged_one(index: Path) -> None:
    as_user: tuple[str, ...] = ()
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root may read everything, and setpriv is not there to take that away")
        as_user = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
    assert called("index", "vectors", "--out", "kept", "--set", "engine=seismic", folder=index)[0] == 0
    kept = index / "kept"
    for path in (kept, *kept.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert vtkit("search", "kept", "river", folder=index, started_by=as_user) == (0, "")
        for name in ("index.json", "generations/1/postings/counts.npy"):
            (kept / name).chmod(0)
            code, said = vtkit("search", "kept", "river", folder=index, started_by=as_user)
            (kept / name).chmod(0o444)
            assert code == 1
            assert said.startswith(f"error: kept/{name}: permission denied.")
        (index / "run").mkdir()
        (index / "run" / "run.json").touch(0)
        said = vtkit("search", "run", "river", folder=index, started_by=as_user)[1]
        assert said.startswith("error: run/run.json: permission denied.")
    finally:
        for path in (kept, *kept.rglob("*")):
            path.chmod(0o755)


def test_a_query_that_is_cut_or_cannot_be_read_is_named(index: Path) -> None:
    code, said = called("search", "index", "river " * 100 + "house", folder=index)
    assert code == 0
    assert 'warning: the query "river river' in said
    assert "is cut at 48 tokens (the model's limit)" in said
    code, said = called("search", "index", "река дом river", folder=index)
    assert code == 0
    assert 'cannot read 7 of the 12 letters of the query "река дом river" (рекадом)' in said
    assert "warning" not in called("search", "index", "the river", folder=index)[1]
    (index / "mixed.txt").write_text("the river\nрека\n", "utf-8")
    code, said = called("encode", "model", "mixed.txt", "--out", "mixed", folder=index)
    assert code == 0
    assert "cannot read 4 of the 12 letters of 2 texts (река)" in said


def test_a_model_that_weighs_nothing_makes_no_vectors(index: Path) -> None:
    encoder = tiny.encoder(index / "dead-parts")
    encoder[0].auto_model.get_output_embeddings().bias.data.fill_(-1e4)
    encoder.save(str(index / "dead"))
    code, said = called("encode", "dead", "documents.txt", "--out", "dead-vectors", folder=index)
    assert code == 1
    assert "dead gives no token of the 2 texts any weight" in said
    assert not (index / "dead-vectors").exists()


def test_a_corpus_beside_its_compressed_twin_is_named(tmp_path: Path) -> None:
    for name in ("corpus.jsonl", "corpus.jsonl.gz", "queries.jsonl"):
        (tmp_path / name).write_text('{"_id": "1", "text": "a river"}\n', "utf-8")
    code, said = called("gap", ".", ".", folder=tmp_path)
    assert code == 0
    assert said.count("corpus.jsonl is read; corpus.jsonl.gz beside it is ignored") == 1


@pytest.mark.parametrize(
    "command",
    [
        "encode ./nowhere d.txt --out v", "calibrate ./nowhere --corpus d.txt", "serve ./nowhere --port 0",
        "transfer ./nowhere ./tokenizer --out o", "export ./nowhere --for onnx --out e",
        "analyse ./nowhere --on d.txt", "expand-documents ./nowhere d.txt --out x",
    ],
    ids=lambda command: command.split()[0],
)  # fmt: skip
def test_a_model_that_is_not_there_is_refused_before_torch_is_imported(command: str, tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("a text\n", "utf-8")
    code = (
        f"import sys, vtkit.__main__ as m; sys.argv = ['vtkit', *{command.split()}]\n"
        "try: m.main()\nexcept SystemExit as left: print(left.code, 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.stdout.split() in (["1", "False"], ["2", "False"]), result.stderr
    assert re.search("nowhere(: there is no such folder| does not exist)", result.stderr)
