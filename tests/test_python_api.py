"""The public names of ``vtkit``, and the examples of docs/python.md and the notebooks, run as they stand there."""

import ast
import gzip
import json
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tiny
from command_line import call, python
from sentence_transformers import SparseEncoder
from situations import part_of
from support import refused

import vtkit
from vtkit.encoder.checkpoint import save_encoder

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TARGET = (*tiny.shuffled(2), "home", "house", "집")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with something small under every name that the page uses."""
    made = tmp_path_factory.mktemp("api")
    encoder = tiny.encoder(made / "work", tokens=(*tiny.TOKENS, "house", "home"))
    save_encoder(encoder, made / "naver" / "splade-v3")
    for name in ("monologg/kobigbird-bert-base", "bert-base-uncased", "my-tokenizer"):
        tiny.tokenizer(TARGET).save_pretrained(str(made / name))
    text = "".join(f"{text} 집\n" for text in tiny.texts(400))
    for name in ("corpus.txt", "msmarco.txt"):
        (made / name).write_text(text, "utf-8")
    pairs = "".join(f"{word} house\t{word} 집\n" for word in tiny.WORDS for _ in range(3))
    (made / "en-ko.tsv.gz").write_bytes(gzip.compress(pairs.encode()))
    tiny.write_collection(made / "my_beir_folder", tiny.collection(20))
    (made / "my-korean.toml").write_text(
        '[recipe]\nname = "my-korean"\nlanguage = "ko"\n[source]\nmodel = "./naver/splade-v3"\n'
        '[vocabulary]\nkind = "existing"\ntokenizer = "./my-tokenizer"\n[transfer]\nmethod = "subtoken"\n'
        '[evaluate]\nsets = ["my_beir_folder"]\n',
        "utf-8",
    )
    return made


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: re.findall(r"vtkit\.(\w+)", text)[0])
def test_an_example_runs_as_it_stands(
    example: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    exec(compile(example, "docs/python.md", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) >= 2
    if '"korean"' in example:
        vectors = SparseEncoder("korean", device="cpu").encode(["river 집"])
        assert vectors.to_dense().shape == (1, len(TARGET))


@pytest.mark.parametrize("example", [each for each in EXAMPLES if "_tokenizer" in each or "fragmentation" in each])
@pytest.mark.parametrize("language", ["ko", "zh"])
def test_an_example_about_vocabularies_runs_on_texts_of_any_language(
    example: str, language: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(folder, tmp_path / "there"))
    texts = list(vtkit.read_corpus(ROOT / "recipes" / "quickstart_data" / "elements-ko"))[:100]
    if language == "zh":  # two thousand characters, as Chinese has them, in sentences
        letters = [chr(0x4E00 + number) for number in range(2000)]
        texts = ["".join(letters[start::97]) + "。" for start in range(97)] * 3
    Path("corpus.txt").write_text("\n".join(texts), "utf-8")
    exec(compile(example, "docs/python.md", "exec"), {})


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_offline_on_what_ships(notebook: Path, tmp_path: Path) -> None:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    script = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    small = ("elements-en", "elements-ko")  # of which a part is enough
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes", ignore=shutil.ignore_patterns(*small))
    for name in small:
        part_of(*(folder / "recipes" / "quickstart_data" / name for folder in (ROOT, tmp_path)), 120)
    (tmp_path / "notebooks").mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HOME": str(tmp_path / "empty"), "VTKIT_DOWNLOAD": ""}
    done = call(tmp_path / "notebooks", ["-c", script], environment)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 5


def test_the_page_has_examples_and_every_name_and_the_package_is_typed() -> None:
    assert len(EXAMPLES) >= 3
    named = re.findall(r"`(\w+)`", PAGE.partition("## All names")[2].partition("`help")[0])
    assert set(vtkit.__all__) - {"__version__"} == set(named)
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]
    assert "py.typed" in packaged["vtkit"]
    assert (ROOT / "vtkit" / "py.typed").is_file()


def test_every_public_name_is_there_at_runtime_and_for_type_checkers() -> None:
    tree = ast.parse((ROOT / "vtkit" / "__init__.pyi").read_text("utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    origins = {alias.name: node.module for node in imports for alias in node.names}
    assert set(origins) == set(vtkit.__all__)
    for name in vtkit.__all__:
        assert getattr(vtkit, name) is not None
    for name, module in origins.items():
        assert getattr(vtkit, name) is getattr(sys.modules[str(module)], name)
    assert set(vtkit.__all__) <= set(dir(vtkit))
    with pytest.raises(AttributeError, match="no attribute 'transfer_encodr'"):
        vtkit.transfer_encodr  # noqa: B018


def test_importing_vtkit_loads_its_version_and_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import vtkit; print(*sorted(set(sys.modules) - before))"
    names = python("-c", code, cwd=ROOT).split()
    loaded = {name.partition(".")[0] for name in names}
    assert "vtkit" in loaded
    assert loaded <= {"vtkit", "importlib", "typing", "collections", "re", "copyreg", *sys.stdlib_module_names}
    own = {name for name in names if name.startswith("vtkit")}
    assert own == {"vtkit", "vtkit.system", "vtkit.system.version"}


def test_names_and_loaded_objects_give_the_same_encoder_and_the_source_stays(folder: Path) -> None:
    source, target = folder / "naver" / "splade-v3", folder / "my-tokenizer"
    loaded = vtkit.load_encoder(source, device="cpu")
    before = tiny.weights(loaded)
    by_name = vtkit.transfer_encoder(source, target, method=["subtoken", "mean"])
    by_object = vtkit.transfer_encoder(loaded, vtkit.load_tokenizer(target), method=["subtoken", "mean"])
    assert tiny.same(tiny.weights(by_name.encoder), tiny.weights(by_object.encoder))
    assert tiny.same(before, tiny.weights(loaded))
    first = vtkit.encode(by_name.encoder, ["river house"])
    assert first.shape == (1, len(TARGET))
    saved = folder / "saved"
    vtkit.save_encoder(by_object.encoder, saved)
    assert np.array_equal(first.toarray(), vtkit.encode(saved, ["river house"]).toarray())
    refused(vtkit.RecipeError, "not be overwritten", vtkit.save_encoder, by_object.encoder, saved)


def test_what_cannot_be_is_named(folder: Path) -> None:
    source, target = folder / "naver" / "splade-v3", folder / "my-tokenizer"
    loaded = vtkit.load_encoder(source)
    with pytest.raises(vtkit.RecipeError, match=r"transfer\.alpah.*[\s\S]*alpha"):
        vtkit.transfer_encoder(source, target, settings={"transfer.alpah": 2.5})
    refused(vtkit.RecipeError, r"nowhere\.tsv", vtkit.transfer_encoder, loaded, target, parallel="nowhere.tsv")
    with pytest.raises(vtkit.RecipeError, match="target_activation"):
        vtkit.calibrate_encoder(loaded, folder / "corpus.txt", target_activation=3)
    with pytest.raises(vtkit.RecipeError, match="a dictionary or a list"):
        vtkit.load_recipe(folder / "my-korean.toml", "transfer.method=mean")
    refused(vtkit.DataError, "no such file", vtkit.corpus_gap, "nowhere.txt", ["a text"])
    with pytest.raises(vtkit.RecipeError, match=r"cannot be trained like this[\s\S]*size: .*\n.*clean: "):
        vtkit.train_tokenizer(["a text"], size=-1, clean="NFQ")
    refused(vtkit.RecipeError, "epsilon belongs to", vtkit.expand_tokenizer, target, ["a text"], epsilon=0.1)
    refused(vtkit.RecipeError, "needs input", vtkit.change_tokenizer_casing, target, output="map")


def test_a_specification_is_built_as_its_settings_say(folder: Path) -> None:
    text = f'[vocabulary]\nkind = "trained"\ncorpus = ["{folder / "corpus.txt"}"]\nsize = 300\n'
    (folder / "small.toml").write_text(text, "utf-8")
    built = vtkit.build_tokenizer(folder / "small.toml", {"vocabulary.size": 200})
    trained = vtkit.train_tokenizer(folder / "corpus.txt", size=200)
    assert built.tokenizer.get_vocab() == trained.tokenizer.get_vocab()
    assert built.corpus == trained.corpus
    assert len(built.tokenizer) <= 200


def test_a_string_is_one_text_and_what_is_no_text_is_named(folder: Path) -> None:
    source = folder / "naver" / "splade-v3"
    alone, listed = vtkit.encode(source, "river house"), vtkit.encode(source, ["river house"])
    assert alone.shape == listed.shape == (1, len(vtkit.load_tokenizer(source)))
    assert np.array_equal(alone.toarray(), listed.toarray())
    refused(vtkit.DataError, r"texts\[1\] is None, not a string", vtkit.encode, source, ["river", None])
    refused(vtkit.DataError, r"corpus\[2\] is of the type float", vtkit.corpus_gap, ["a b", "c", float("nan")], ["d"])
    refused(vtkit.RecipeError, "not 'passage'", vtkit.encode, source, ["river"], side="passage")
    with pytest.raises(vtkit.RecipeError, match='not "doc"'):
        vtkit.encode_texts(source, folder / "corpus.txt", folder / "never", side="doc")
    assert not (folder / "never").exists()
