"""Hostile and unlucky input: each ends in a sentence, neither in a traceback nor without end."""

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import command_line
import pytest
import tiny
from command_line import invoke, succeeds
from safetensors.torch import load_file, save_file
from support import refused
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

import vtkit
from vtkit.data.problems import numbers
from vtkit.data.text import read_jsonl
from vtkit.deploy.batching import Batcher
from vtkit.encoder.query_tables import with_static_queries
from vtkit.system.errors import DataError, RecipeError, VtkitError
from vtkit.system.outputs import new_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("model")
    vtkit.save_encoder(tiny.encoder(root / "made"), root / "encoder")
    return root / "encoder"


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text("utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


ENDLESS = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}


def test_a_panic_of_a_library_fails_one_request_and_not_the_thread() -> None:
    endless = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    endless.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")

    async def answers() -> list[Any]:
        batcher = Batcher(lambda _, works: [endless.encode(work).ids for work in works], 10, lambda *_: None)
        asked = [batcher.submit("text", work, 1) for work in ("b", "a" * 60 + "b")]
        answered = await asyncio.gather(*asked, return_exceptions=True)
        return [*answered, await batcher.submit("text", "b", 1)]

    first, panicked, later = asyncio.run(answers())
    assert first == later == [0]
    assert isinstance(panicked, DataError)
    assert "a compiled library gave up (PanicException: " in str(panicked)


def test_a_panic_of_a_library_ends_a_command_with_a_sentence(model: Path, tmp_path: Path) -> None:
    bad = Path(shutil.copytree(model, tmp_path / "bad"))
    for path in bad.rglob("tokenizer.json"):
        edit(path, lambda content: content.update(pre_tokenizer=ENDLESS))
    (tmp_path / "texts.txt").write_text("a" * 60 + "b\n")
    done = command_line.call(tmp_path, ["encode", "bad", "texts.txt", "--out", "vectors"], os.environ)
    assert done.returncode == 1
    assert "error: a compiled library gave up" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "texts.txt"]


def test_of_two_processes_that_make_one_folder_the_second_waits_and_says_so(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out") as work:
        (work / "file").write_text("first")
        program = "import sys; from pathlib import Path; from vtkit.system.outputs import new_folder\n"
        program += "with new_folder(Path(sys.argv[1])) as work: (work / 'file').write_text('second')"
        other = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "out")],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )  # fmt: skip
        assert other.stderr is not None
        assert f"waiting for process {os.getpid()}" in other.stderr.readline()
    _, said = other.communicate(timeout=60)
    assert "out already exists and will not be overwritten" in said
    assert (tmp_path / "out" / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["encode", "index", "export"])
def test_a_killed_command_leaves_nothing_and_two_at_once_then_make_one_result(
    name: str, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(tiny.texts(40)), encoding="utf-8")
    vtkit.encode_texts(model, tmp_path / "texts.txt", tmp_path / "vectors")
    arguments = {
        "encode": ["encode", str(model), str(tmp_path / "texts.txt"), "--out"],
        "index": ["index", str(tmp_path / "vectors"), "--language", "en", "--set", "lexical=bm25", "--out"],
        "export": ["export", str(model), "--for", "onnx", "--out"],
    }[name]
    succeeds(*arguments, tmp_path / "undisturbed")
    place, outputs = tmp_path / "place", [tmp_path / "first", tmp_path / "second"]
    for folder in (place, *outputs):
        folder.mkdir()

    def started(number: int) -> BaseProcess:
        return command_line.start(place, [*arguments, "out"], os.environ, outputs[number])

    killed = started(0)
    while killed.is_alive() and not list(place.glob(".out.new-*")):
        time.sleep(0.002)
    killed.kill()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert not (place / "out").exists()
    both = [started(0), started(1)]
    for process in both:
        process.join()
    said = "".join((folder / "stderr").read_text("utf-8") for folder in outputs)
    assert sorted(process.exitcode or 0 for process in both) == [0, RecipeError.exit_code], said
    assert "out already exists and will not be overwritten" in said
    assert content(place / "out") == content(tmp_path / "undisturbed")
    assert [path.name for path in place.iterdir() if path.suffix != ".lock"] == ["out"]


def content(folder: Path) -> dict[str, bytes]:
    """The files of a folder; those that are hidden hold times."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that takes no files")
def test_a_folder_that_takes_no_files_is_refused() -> None:
    with pytest.raises(VtkitError, match="/proc takes no folders"), new_folder(Path("/proc/x")):
        pass


RECIPES = {
    "nested brackets": ("x = " + "[" * 20_000 + "]" * 20_000, "nested too deeply"),
    "a long dotted key": (".".join("a" * 20_000) + " = 1", "a key has more than 50 parts"),
    "a huge number": (f"[recipe]\nseed = 0x{'f' * 5000}", "a whole number has more than 300 digits"),
}


SWEPT = '[recipe]\nname = "a"\nlanguage = "en"\n[source]\nmodel = "./m"\n[vocabulary]\nkind = "source"\n[index]\n'
RECIPES |= {
    "a sweep of sweeps": (f'{SWEPT}documents = "./d"\n[sweep.rows.x]\nsweep.rows.a.b.c = 1', "cannot vary itself"),
    "a row without a name": (f'{SWEPT}documents = "./d"\n[sweep.rows.""]\nrecipe.seed = 1', "need names"),
}


@pytest.mark.parametrize("case", RECIPES)
def test_a_recipe_without_bounds_is_refused(case: str, tmp_path: Path) -> None:
    text, said = RECIPES[case]
    (tmp_path / "recipe.toml").write_text(text)
    refused(RecipeError, said, vtkit.load_recipe, tmp_path / "recipe.toml")


def test_a_file_that_many_extend_is_read_once_and_keeps_its_places(tmp_path: Path) -> None:
    for number in range(30):  # 2 to the power of 30 ways lead to the last
        (tmp_path / f"{number}.toml").write_text(f'extends = ["{number + 1}.toml", "./{number + 1}.toml"]\n')
    (tmp_path / "30.toml").write_text("[recipe]\nname = 1\n")
    refused(RecipeError, r"30\.toml line 2", vtkit.load_recipe, tmp_path / "0.toml")
    for number in range(30, 150):
        (tmp_path / f"{number}.toml").write_text(f'extends = "{number + 1}.toml"\n')
    (tmp_path / "150.toml").write_text("")
    refused(RecipeError, "extend more than 100 files", vtkit.load_recipe, tmp_path / "0.toml")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    refused(RecipeError, "it is no regular file", vtkit.load_recipe, tmp_path / "pipe.toml")
    refused(DataError, "is no regular file", read_jsonl, tmp_path / "pipe.toml")


@pytest.mark.parametrize(
    "address",
    ["https://h/?token=SECRET", "https://h/#SECRET", "https://u%3ASECRET%40h", "https://u:SECRET@h", "SECRET"],
)
def test_an_address_with_a_secret_is_refused_and_not_shown(address: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(f'[index]\nengine = "opensearch"\nurl = "{address}"\n')
    said = refused(RecipeError, "", vtkit.load_recipe, tmp_path / "recipe.toml")
    assert "index.url" in said
    assert "SECRET" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_a_full_standard_output_is_named() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vtkit", "--version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output: no space left on device. Write it to another place.")


def test_numbers_that_only_python_reads_are_refused() -> None:
    assert numbers(["1", "-2.5", "1e3"]) == [1, -2.5, 1000]
    for odd in ("1_0", "١٢", "１"):
        refused(ValueError, "not a number", numbers, [odd])


def test_an_object_with_two_ids_is_refused(tmp_path: Path) -> None:
    lines = ['{"_id": "a", "_id": "b"}', '{"_id": "a", "metadata": {"_id": "b"}}', '{"_id": "a", "text": "\\"_id\\""}']
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    first, *others = [entry for _, entry in read_jsonl(tmp_path / "corpus.jsonl")]
    assert first == 'has "_id" twice'
    assert [entry["_id"] for entry in others] == ["a", "a"]


@pytest.mark.parametrize(("weight", "said"), [(float("nan"), "not finite numbers"), (-1.0, "weights below zero")])
def test_weights_of_a_query_table_are_checked(weight: float, said: str, tmp_path: Path) -> None:
    encoder = with_static_queries(tiny.encoder(tmp_path / "made"), "binary", ())
    vtkit.save_encoder(encoder, tmp_path / "encoder")
    (table,) = [
        path for path in (tmp_path / "encoder").rglob("model.safetensors") if list(load_file(path)) == ["weight"]
    ]
    weights = load_file(table)
    weights["weight"][7] = weight
    save_file(weights, table)
    (tmp_path / "queries.txt").write_text("maple\n")
    refused = invoke("encode", tmp_path / "encoder", tmp_path / "queries.txt", "--queries", "--out", tmp_path / "out")
    assert said in str(refused.exception)


BEYOND: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "a billion layers": ("config.json", lambda c: c.update(num_hidden_layers=10**9), "num_hidden_layers 1000000000"),
    "heads below zero": ("config.json", lambda c: c.update(num_attention_heads=-1), "num_attention_heads -1"),
    "a billion layers of a part": (
        "config.json",
        lambda c: c.update(text_config={"encoder": [{"num_hidden_layers": 10**9}]}),
        "text_config.encoder.num_hidden_layers 1000000000,",
    ),
    "a wide part": (
        "config.json", lambda c: c.update(vision_config={"hidden_sizes": [8, 2**40]}), "hidden_sizes 109951"
    ),
    "a length in words": (
        "tokenizer_config.json", lambda c: c.update(model_max_length="long"), "model_max_length should be a number"
    ),
    "a length of inputs in words": (
        "sentence_bert_config.json", lambda c: c.update(max_seq_length="long"), "max_seq_length should be a number"
    ),
    "a billion labels": ("config.json", lambda c: c.update(num_labels=10**9), "num_labels 1000000000"),
    "a long prompt": (
        "config_sentence_transformers.json", lambda c: c.update(prompts={"query": "x" * 10**7}), "10,000,000 characters"
    ),
    "replacements that grow": (
        "tokenizer.json",
        lambda c: c.update(normalizer={"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}] * 9}),
        "replacements make a text",
    ),
    "endless padding": (
        "tokenizer.json",
        lambda c: c.update(padding={"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None,
                                    "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}),
        "pads texts to more than a million",
    ),
    "300 tokens around a text": (
        "tokenizer.json",
        lambda c: c["post_processor"].update(
            type="TemplateProcessing", single=[{"SpecialToken": {"id": "[CLS]", "type_id": 0}}] * 300),
        "more than 64 pieces",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BEYOND)
def test_a_model_without_bounds_is_refused_before_a_library_opens_it(case: str, model: Path, tmp_path: Path) -> None:
    name, change, said = BEYOND[case]
    bad = Path(shutil.copytree(model, tmp_path / "bad"))
    for path in bad.rglob(name):
        edit(path, change)
    refused(DataError, said, vtkit.load_encoder, bad)


@pytest.mark.parametrize(
    "odd",
    [{"added_tokens_decoder": {"0": [1]}}, {"added_tokens_decoder": {"x": "[PAD]"}}, {"pad_token": 0.5},
     {"extra_special_tokens": 7}, {"added_tokens_decoder": {"0": {}}}],
)  # fmt: skip
def test_odd_tokens_of_a_configuration_are_refused_in_words(odd: dict[str, Any], tmp_path: Path) -> None:
    tiny.tokenizer().save_pretrained(str(tmp_path / "tokenizer"))
    edit(tmp_path / "tokenizer" / "tokenizer_config.json", lambda content: content.update(odd))
    refused = invoke("overlap", tmp_path / "tokenizer", tmp_path / "tokenizer")
    assert isinstance(refused.exception, DataError), refused.exception


def test_a_run_is_not_compared_with_itself(tmp_path: Path) -> None:
    assert "A run is named twice" in str(invoke("compare", tmp_path, tmp_path / ".." / tmp_path.name).exception)


@pytest.mark.parametrize("megabytes", [100, 300, 600, 1000])
def test_too_little_memory_is_told(megabytes: int, model: Path, tmp_path: Path) -> None:
    """Of the address space, which imports alone fill: each library fails in its own way. Not between 180 and 200 MB,
    where OpenBLAS ends the process itself, with a message of its own."""
    (tmp_path / "texts.txt").write_text("maple otter\n", encoding="utf-8")
    limit = (2**20 * megabytes,) * 2
    called = subprocess.run(
        [sys.executable, "-m", "vtkit", "encode", str(model), "texts.txt", "--out", "vectors"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
    )
    assert called.returncode == 1, called.stderr
    assert "error: The machine has too little memory" in called.stderr
    assert "Traceback" not in called.stderr


def test_a_query_of_a_book_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("maple otter\n", encoding="utf-8")
    vtkit.encode_texts(model, tmp_path / "texts.txt", tmp_path / "vectors")
    vtkit.index_vectors(tmp_path / "vectors", tmp_path / "index", language="en", lexical="bm25")
    refused = invoke("search", tmp_path / "index", "otter " * 20_000)
    assert refused.exit_code == 1
    too_long = "has 120,000 characters. Cut it: a query has at most 100,000."
    assert str(refused.exception) == f"A query {too_long}"
    lines = tmp_path / "queries.txt"
    lines.write_text(f"maple\n\n{'otter ' * 20_000}x\n", encoding="utf-8")
    rows = tiny.write_collection(tmp_path / "beir", tiny.collection(3)) / "queries.jsonl"
    edited = [json.loads(line) for line in rows.read_text("utf-8").splitlines()]
    edited[1]["text"] = "otter " * 20_000
    rows.write_text("".join(json.dumps(each) + "\n" for each in edited), "utf-8")
    for arguments, place in (
        (("search", tmp_path / "index", "--batch", lines), f"{lines}: line 3: query '3' has 120,001"),
        (
            ("export", model, "--for", "onnx", "--queries", lines, "--out", "out"),
            f"{lines}: line 3: query '3' has 120,001",
        ),
        (
            ("encode", model, rows, "--queries", "--out", "out"),
            f"{rows}: line 2: query {edited[1]['_id']!r} has 120,000",
        ),
        (("evaluate", "bm25", "--on", rows.parent), f"{rows}: line 2: query {edited[1]['_id']!r} has 120,000"),
    ):
        refused = invoke(*arguments)
        assert refused.exit_code == 1
        assert f"{place} characters. Cut it: a query has at most 100,000." in str(refused.exception)
