"""A model's folder can run no code and ask nothing; a relative folder is that folder."""

import ast
import json
import os
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
from support import refused
from tiny import model

from vtkit.encoder.checkpoint import load_encoder
from vtkit.encoder.dense import encode_dense, load_dense
from vtkit.encoder.model_folder import model_folder
from vtkit.system.errors import DataError
from vtkit.transfer.embedders import embed
from vtkit.transfer.methods.semantic import load_table

PACKAGE = Path(__file__).resolve().parents[1] / "vtkit"
CODE = """
from pathlib import Path
Path(__file__).with_name("MARKER").touch()
Path({marker!r}).touch()
from transformers import BertConfig as Config, BertForMaskedLM as Model, BertTokenizer as Tokenizer
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.bare(tmp_path_factory.mktemp("bare"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VTKIT_CACHE", str(tmp_path / "vtkit-cache"))


@pytest.fixture
def copy(bare: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bare, tmp_path / "model"))


def embedded(name: str) -> object:
    return embed(["a"], name)


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def with_code(folder: Path, where: str) -> Path:
    """Let ``folder`` name code of its own, and return the file that the code would make."""
    marker = folder / "RAN"
    (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    classes = {"AutoConfig": "own.Config", "AutoModel": "own.Model", "AutoModelForMaskedLM": "own.Model"}
    match where:
        case "config.json":
            change(folder / "config.json", model_type="own-kind", auto_map=classes)
        case "tokenizer_config.json":
            tokens = {"AutoTokenizer": ["own.Tokenizer", "own.Tokenizer"]}
            change(folder / "tokenizer_config.json", tokenizer_class="OwnTokenizer", auto_map=tokens)
        case "modules.json":
            modules = [
                {"idx": 0, "name": "0", "path": "", "type": "own.Model"},
                {"idx": 1, "name": "1", "path": "1", "type": "sentence_transformers.models.Pooling"},
            ]
            (folder / "modules.json").write_text(json.dumps(modules))
        case "attention":
            change(folder / "config.json", attn_implementation="somebody/kernel")
    return marker


@pytest.mark.parametrize("where", ["config.json", "tokenizer_config.json", "modules.json", "attention"])
def test_every_loader_refuses_code_of_the_models_own_and_names_the_file(
    where: str, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = with_code(copy, where)
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # transformers' question, answered as `yes` does
    named = where if where.endswith(".json") else r"config\.json"
    loaders = [load_encoder, embedded]
    if where != "modules.json":  # a table is looked for in the first module's folder, whatever its type
        loaders.append(load_table)
    for load in loaders:
        refused(DataError, rf"{named} names code that comes with the model", load, str(copy))
    assert not marker.exists()


def test_an_own_class_beside_a_known_architecture_and_pickles_of_a_training_are_passed_over(copy: Path) -> None:
    marker = with_code(copy, "none")
    for name in ("training_args.bin", "optimizer.pt"):
        (copy / name).write_bytes(b"anything")
    change(copy / "config.json", auto_map={"AutoConfig": "own.Config", "AutoModelForMaskedLM": "own.Model"})
    assert load_encoder(str(copy)).encode(["river stone"]).shape[0] == 1
    assert not marker.exists()


@pytest.mark.parametrize("name", ["model.pt", "weights.pkl", "adapter_model.bin"])
def test_pickles_under_other_names_are_no_weights(name: str, copy: Path) -> None:
    (copy / "model.safetensors").rename(copy / name)
    for load in (load_encoder, load_table, embedded):
        refused(DataError, r"holds no weights, neither model\.safetensors nor pytorch_model\.bin", load, str(copy))


def test_pickles_in_a_modules_folder_are_opened_by_the_weights_only_loader(copy: Path, tmp_path: Path) -> None:
    transformer = Transformer(str(copy))
    modules = [transformer, Pooling(32), Dense(32, 8)]
    folder = tmp_path / "dense"
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), safe_serialization=False)
    expected = SentenceTransformer(str(folder), device="cpu").encode(["river stone"])
    assert (folder / "2_Dense" / "pytorch_model.bin").is_file()
    vectors = encode_dense(load_dense(str(folder), "embedder"), ["river stone"], "query")
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(pickle.dumps(os.getcwd))
    refused(DataError, r"2_Dense/pytorch_model\.bin is refused", embedded, str(folder))


def test_sharded_safetensors_load_as_one_file_does_and_lead_nowhere_else(copy: Path, tmp_path: Path) -> None:
    whole = load_encoder(str(copy))
    (copy / "model.safetensors").unlink()
    model().save_pretrained(copy, max_shard_size="20KB")
    shards = sorted(copy.glob("model-*.safetensors"))
    assert len(shards) > 1
    text = ["river stone amber", "pebble"]
    assert torch.equal(load_encoder(str(copy)).encode(text).to_dense(), whole.encode(text).to_dense())
    shards[1].unlink()
    with pytest.raises(DataError, match=rf"lacks the shard {shards[1].name}, which model.safetensors.index.json names"):
        load_encoder(str(copy))
    for name in ("../outside.safetensors", "pytorch_model-1.bin"):
        (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
        refused(DataError, rf"lacks the shard {re.escape(name)}, which", load_encoder, str(copy))


@pytest.mark.parametrize("name", ["model", "some/model", "./some/model"])
def test_a_relative_folder_is_that_folder(
    name: str, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(bare, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert model_folder(name) == (tmp_path / name).absolute()
    if name == "some/model":  # as a hub id is spelled
        assert load_encoder(name).max_seq_length == 48


def test_what_is_no_folder_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    for name, message in (
        ("file", "is a file"), ("./nothing", "no such folder"), ("~/nothing-here", "no such folder"),
        ("nobody/nothing", r"nobody/nothing .*revision main\).* Run again with --download"),
        ("not a name", "neither a folder nor the name of a model"),
    ):  # fmt: skip
        refused(DataError, message, model_folder, name)


LOADERS = {"from_pretrained", "from_config"}
LIBRARY = {"SparseEncoder", "SentenceTransformer", "CrossEncoder", "Transformer"}


def test_every_call_that_loads_says_that_no_code_is_trusted_and_pickles_are_opened_in_one_place() -> None:
    """Left out, ``trust_remote_code`` is None, and transformers asks. Pickles: by the weights-only loader."""
    silent, opened = [], []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in LOADERS or (called in LIBRARY and node.args):
                said = ast.unparse(node)
                if "SAFELY" not in said and "trust_remote_code=False" not in said:
                    silent.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {said[:80]}")
            if called in ("load", "loads", "Unpickler", "read_pickle"):
                function = ast.unparse(node.func)
                own_pipe = path.name == "executors.py" and function == "pickle.loads"  # no file: SECURITY.md
                if function.split(".")[0] in ("torch", "pickle", "joblib", "dill", "pd", "pandas") and not own_pipe:
                    opened.append((path.name, function, "weights_only=True" in ast.unparse(node)))
    assert silent == []
    assert opened == [("model_folder.py", "torch.load", True)]
