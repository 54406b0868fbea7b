"""Every command line and Python example of README and docs, run as it stands, in a folder with small stand-ins.

Those in backticks, in the help and in the heads of recipes are read by the command's own parser, and those in backticks
are run where nothing is left out of them.

Hub ids are local folders of these names. The only changes: a shell's ``> FILE`` and comments are dropped, of a synopsis
what stands in brackets is left out, recipes and specifications that ship with vtkit (they take minutes, or the hub) are
looked at instead of run.
"""

import gzip
import os
import re
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import tiny
import typer
from command_line import call, invoke
from typer.testing import CliRunner

import vtkit
from vtkit.cli import app
from vtkit.data.document_files import read_corpus
from vtkit.data.retrieval import Document, RetrievalSet
from vtkit.encoder.checkpoint import save_encoder
from vtkit.settings.recipe import Recipe

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "log.md")]
"""The log tells of experiments; its lines name what lay where they were run."""

ENCODERS = [
    *("SOURCE", "MODEL", "MODEL_OR_TOKENIZER", "naver/splade-v3", "models/english"),
    *("runs/my-korean/model", "runs/quickstart/model"),
]
TOKENIZERS = [
    *("TARGET", "TOKENIZER", "bert-base-uncased", "google-bert/bert-base-uncased", "monologg/kobigbird-bert-base"),
    *("my-tokenizer", "kobigbird", "bert-base-chinese", "ModernBERT-base", "tokenizers/my_tokenizer", "BASE"),
]
COLLECTIONS = ["scifact", "xquad-en", "xquad-hi", "med-en", "CORPUS", "CORPUS_A", "CORPUS_B"]
CORPORA = ["corpus.txt", "msmarco.txt", "abstracts.txt.gz", "chemistry.txt.gz"]


def command_lines(text: str) -> Iterator[str]:
    """What stands behind ``vtkit`` at the beginning of a line of a code block, joined over backslashes."""
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    fenced = [block for language, block in fence.findall(text) if language in {"", "bash", "sh", "console"}]
    for block in [*fenced, *re.findall(r"(?:^    .*\n)+", fence.sub("", text), re.MULTILINE)]:
        joined = re.sub(r"\\\n\s*", " ", block)
        yield from (line.strip() for line in joined.splitlines() if line.strip().startswith("vtkit "))


def arguments_of(line: str) -> list[str]:
    words = shlex.split(line, comments=True)[1:]
    if ">" in words:
        words = words[: words.index(">")]
    kept: list[str] = []
    inside = False
    for word in words:
        inside = inside or (word.startswith("[") and "=" not in word)
        if not inside:
            kept.append(word.removesuffix("..."))
        inside = inside and not word.endswith("]")
    return kept


def inline_lines(text: str) -> Iterator[str]:
    """What stands between backticks and begins with ``vtkit``, also over the end of a line."""
    for line in re.findall(r"(?<!`)`{1,2}(vtkit [^`]+)`{1,2}(?!`)", text):
        yield " ".join(line.split())


def comment_lines(text: str) -> Iterator[str]:
    """Command lines in the comments of a recipe or specification: alone on a line, or behind a colon."""
    joined = re.sub(r"\\\n#\s*", " ", text)
    yield from re.findall(r"^# (?:  |.*: +)(vtkit .*)$", joined, re.MULTILINE)


EXAMPLES = {
    f"{page.name}-{number}": example
    for page in PAGES
    if page.name not in {"python.md", "architecture.md"}  # test_python_api.py; the form of a stage
    for number, example in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S))
}


ROOT_COMMAND: Any = typer.main.get_command(app)


def commands(command: Any = ROOT_COMMAND, name: str = "vtkit") -> Iterator[tuple[str, Any]]:
    """Every command with its full name."""
    yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{name} {word}")


def help_texts(command: Any) -> list[str]:
    texts = [command.help, command.epilog, *(getattr(each, "help", None) for each in command.params)]
    return [text for text in texts if text]


def missing_of(arguments: list[str]) -> list[str]:
    """The required arguments and options that a command line leaves out, once everything in it is known.

    Raises:
        Exception: of the parser: an unknown command or option, or an option without its value.
    """
    command, rest = ROOT_COMMAND, list(arguments)
    while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"there is no command {rest[0]!r}"
        command = command.commands[rest.pop(0)]
    context = command.context_class(command, info_name="vtkit")
    given, too_many, _ = command.make_parser(context).parse_args(rest)
    assert not too_many, f"takes no {too_many}"
    if "help" in given:
        return []
    wanted = [each for each in command.params if each.required]
    return [each.name for each in wanted if not given.get(each.name)] + ["COMMAND"] * hasattr(command, "commands")


SOURCES = {path: path.read_text("utf-8") for path in [*PAGES, *sorted((ROOT / "vtkit").rglob("*.py"))]}
INLINE = list(dict.fromkeys(line for text in SOURCES.values() for line in inline_lines(text)))
SHIPPED = [*sorted((ROOT / "recipes").glob("*.toml")), *sorted((ROOT / "tokenizers").glob("*.toml"))]
NEW_RECIPE = SOURCES[ROOT / "vtkit" / "recipe" / "new.py"].replace('        "#', "#").replace('",\n', "\n")
HEADS = [*(path.read_text("utf-8") for path in SHIPPED), NEW_RECIPE]
COMMENTS = [line for text in HEADS for line in comment_lines(text)]
LINES = [line for page in PAGES for line in command_lines(page.read_text("utf-8"))]
LINES = list(dict.fromkeys(LINES + [line for line in INLINE if not missing_of(arguments_of(line))]))


FIELDS = {"year": 2021, "source": "a"}  # that the pages filter by


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with something small under every name that the pages use."""
    made = tmp_path_factory.mktemp("lines")
    found = tiny.collection(20)
    named = [Document(name, "", "apple", FIELDS) for name in ("DOC_ID", "Hg-safety")]
    found = RetrievalSet("x", [*found.documents, *named], found.queries, found.qrels)
    tiny.finished_run(made, found, "my-korean", "my_beir_folder")
    for name in ("other", "quickstart"):
        shutil.copytree(made / "runs" / "my-korean", made / "runs" / name, symlinks=True)
    encoder = tiny.encoder(made / "work2", tokens=(*tiny.TOKENS, "house", "home"))
    for name in ENCODERS:
        if not (made / name).exists():
            save_encoder(encoder, made / name)
    for name in ("intfloat/multilingual-e5-small", "sentence-transformers/all-MiniLM-L6-v2"):
        tiny.bare(made / name)
    for name in TOKENIZERS:
        tiny.tokenizer((*tiny.shuffled(2), "home", "house", "집")).save_pretrained(str(made / name))
    for name in [*COLLECTIONS, "my_beir_folder"]:
        if not (made / name).exists():
            tiny.write_collection(made / name, found)
        tiny.add_training_queries(made / name, found)
    text = "".join(f"{text}\n" for text in tiny.texts(400))
    text += "".join(f"{text}\n" for text in read_corpus(ROOT / "recipes/quickstart_data/elements-en/corpus.jsonl"))
    for name in CORPORA:
        opened = gzip.open if name.endswith(".gz") else open
        with opened(made / name, "wt", encoding="utf-8") as file:
            file.write(text)
    pairs = "".join(f"{word} house\t{word} 집\n" for word in tiny.WORDS for _ in range(3))
    for name in ("en-ko.tsv.gz", "b.tsv.gz"):
        (made / name).write_bytes(gzip.compress(pairs.encode()))
    (made / "a.tsv").write_text(pairs, "utf-8")
    rows = [f"{number},{text},{2000 + number}\n" for number, text in enumerate(tiny.texts(30))]
    rows += [f"{name},apple cedar,2001\n" for name in ("d17", "d18", "ID")]  # of commands that delete documents
    for name in ("my_documents.csv", "new_documents.csv"):
        (made / name).write_text("id,text,year\n" + "".join(rows), "utf-8")
    for name in ("my_texts", "my_pdfs"):
        (made / name).mkdir()
        (made / name / "one.txt").write_text(" ".join(tiny.texts(30)), "utf-8")
    (made / "queries.tsv").write_text("1\tapple\n2\tcedar\n", "utf-8")
    tiny.write_collection(made / "collection", found)
    vtkit.encode_texts(made / "MODEL", made / "collection", made / "vectors")
    vtkit.index_vectors(made / "vectors", made / "index")
    vtkit.encode_texts(made / "MODEL", made / "my_documents.csv", made / "vectors-of-rows")
    vtkit.index_vectors(made / "vectors-of-rows", made / "news")
    for name in ("texts", "built"):
        (made / name).symlink_to(made / "news")
    (made / "RECIPE").write_bytes((made / "my-korean.toml").read_bytes())
    (made / "my-grid.toml").write_text('extends = "my-korean.toml"\n[sweep.values]\n"recipe.seed" = [1]\n', "utf-8")
    (made / "RUN").symlink_to(made / "runs" / "my-korean")
    (made / "artifacts").symlink_to(made / "runs" / "artifacts")
    (made / "recipes").symlink_to(ROOT / "recipes")
    for path in (ROOT / "tokenizers").glob("*.toml"):
        specification = '[vocabulary]\nkind = "trained"\ncorpus = ["../corpus.txt"]\nsize = 300\n'
        (made / "tokenizers").mkdir(exist_ok=True)
        (made / "tokenizers" / path.name).write_text(specification, "utf-8")
    return made


def test_the_lines_are_found() -> None:
    assert len(LINES) > 40
    assert len(INLINE) > 20
    assert len(COMMENTS) > 12
    assert {line.split()[1] for line in LINES} >= {"run", "search", "explain", "recipe", "tokenizer", "fragmentation"}


@pytest.mark.parametrize("line", [*INLINE, *COMMENTS])
def test_a_command_line_in_passing_has_a_command_and_options_that_there_are(line: str) -> None:
    missing_of(arguments_of(line))


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_help_names_commands_and_options_that_there_are(name: str, command: Any) -> None:
    options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    names = {full for full, _ in commands()}
    for text in help_texts(command):
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) <= options, text
        for line in re.findall(r"\bvtkit ([a-z-]+)", text):
            assert f"vtkit {line}" in names, text


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_help_gives_settings_as_examples_that_their_section_has(name: str, command: Any) -> None:
    for text in help_texts(command):
        for section, setting in re.findall(r"A setting of \[(\w+)\], e\.g\. (\w+)=\w+\. ", text):
            annotation = Recipe.model_fields[section].annotation
            kinds = [kind for kind in (annotation, *get_args(annotation)) if hasattr(kind, "model_fields")]
            assert any(setting in kind.model_fields for kind in kinds), text
        assert "19530" not in text  # the port of Milvus, which is no engine of an index


def test_the_help_lists_every_command_in_a_group_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = invoke("--help").output
    assert {"--install-completion", "--show-completion"} <= set(shown.split())
    titles = re.findall(r"^(\S.*):$", shown, re.MULTILINE)
    assert titles == ["Options", "Build", "Search", "Evaluate", "Inspect", "Deploy"]
    listed = dict(re.findall(r"^  ([a-z-]+) {2,}(\S.*)$", shown.partition("Build:")[2], re.MULTILINE))
    assert set(listed) == set(ROOT_COMMAND.commands)
    for name, text in listed.items():
        first, *_ = " ".join(ROOT_COMMAND.commands[name].help.split("\n\n")[0].split()).split(". ")
        assert text == first
        assert text.endswith("."), name


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_help_calls_values_by_names_without_types_of_the_parser(name: str) -> None:
    shown = invoke(*name.split()[1:], "--help").output
    assert not re.search(r"<\w|[{}]|\.{4}", shown), shown


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("vtkit enc", ["encode"]),
        ("vtkit recipe ", ["check", "show", "schema", "new"]),
        ("vtkit encode --pre", ["--precision"]),
        ("vtkit encode --precision ", ["float32", "bf16"]),
        ("vtkit encode fol", []),  # the shell completes names of files
    ],
)
def test_a_shell_completes_commands_options_and_values(typed: str, completed: list[str], tmp_path: Path) -> None:
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), "_VTKIT_COMPLETE": "complete_bash"}
    answer = call(tmp_path, [], dict(os.environ) | asked)
    assert (answer.returncode, answer.stdout.split(), answer.stderr) == (0, completed, "")


def end_when_it_serves() -> None:
    """End the server that this process becomes, as soon as it answers signals itself."""
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        time.sleep(0.05)
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_works_as_it_stands(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    arguments = arguments_of(line)
    if arguments[0] == "run":
        arguments += ["--dry-run"]
    if arguments[0] == "build":
        monkeypatch.setattr("vtkit.transfer.latent_units.FEWEST_TOKENS", 50)
        arguments += shlex.split("--set source.units.size=32 --set source.units.active=4 --set source.steps=20")
    if arguments[0] == "sweep":
        arguments += ["--dry-run", "--set", 'sweep.values={"recipe.seed" = [1, 2]}']
    if arguments[:2] == ["recipe", "new"]:
        if "--name" not in arguments:  # asks
            arguments += shlex.split("--name asked --language ko --source naver/splade-v3 --tokenizer TARGET")
        (folder / f"{arguments[arguments.index('--name') + 1]}.toml").unlink(missing_ok=True)
    out = folder / arguments[arguments.index("--out") + 1] if "--out" in arguments else None
    aside = folder / "aside"
    if out is not None and out.exists():
        out.rename(aside)
    if "--join" in arguments:  # the few texts of the stand-in are all in the first part
        number = arguments.index("--join")
        part = ["--part", f"1/{arguments[number + 1]}"]
        assert CliRunner().invoke(app, arguments[:number] + part).exit_code == 0
    if arguments[0] == "serve":
        threading.Thread(target=end_when_it_serves, daemon=True).start()
        arguments += ["--port", "0"]
    result = CliRunner().invoke(app, arguments, input="apple\n")
    if out is not None and aside.exists():  # the stand-in is smaller than what was made
        shutil.rmtree(out, ignore_errors=True)
        aside.rename(out)
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_python_example_runs_as_it_stands(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    values: dict[str, Any] = {}
    exec(compile(EXAMPLES[name], name, "exec"), values)
    if "same" in values:
        assert np.allclose(values["folded"].toarray(), values["same"].toarray(), atol=1e-5)
