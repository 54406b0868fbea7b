"""Damaged models, tokenizers and runs through the command line: one message that names the file, never a traceback."""

import json
import pickle
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file
from tiny import TOKENS, collection, encoder, tokenizer

from vtkit.cli import DEFECT, main
from vtkit.encoder.checkpoint import load_encoder, save_encoder
from vtkit.encoder.encoding import encode
from vtkit.pipeline.store import Dependencies, Store
from vtkit.search.exact import ExactIndex
from vtkit.search.measures.cost import Sparsity
from vtkit.search.segments import Manifest
from vtkit.system.results import Result
from vtkit.vocabulary.tokenizer_file import tokenizer_digest

Damage = Callable[[Path], object]
Call = Callable[..., tuple[int, str]]


@pytest.fixture
def vtkit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command line, in this process."""

    def call(*arguments: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["vtkit", *map(str, arguments)])
        code: object = 0
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code
        printed = capsys.readouterr()
        return int(code or 0), printed.out + printed.err

    return call


def refused(done: tuple[int, str], message: str) -> None:
    code, printed = done
    assert code in (1, 2), printed
    assert "Traceback" not in printed
    assert re.search(message, printed), printed


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.bare(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    tokenizer(TOKENS[:-5]).save_pretrained(str(folder))
    return folder


def text(name: str, content: str) -> Damage:
    return lambda folder: (folder / name).write_text(content)


def raw(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content)


def gone(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def cut(name: str, keep: int) -> Damage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:keep])


def edited(name: str, change: Callable[[dict[str, Any]], object]) -> Damage:
    def rewrite(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))

    return rewrite


def with_values(name: str, **values: object) -> Damage:
    return edited(name, lambda content: content.update(values))


def without(name: str, key: str) -> Damage:
    return edited(name, lambda content: content.pop(key))


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    def rewrite(folder: Path) -> None:
        content = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
        change(content)
        save_file(content, folder / "model.safetensors", {"format": "pt"})

    return rewrite


def vocabulary(change: Callable[[dict[str, int]], object]) -> Damage:
    """Another vocabulary in tokenizer.json; added tokens that it no longer has go with it."""

    def rewrite(content: dict[str, Any]) -> None:
        change(content["model"]["vocab"])
        content.update(added_tokens=[], post_processor=None)

    return edited("tokenizer.json", rewrite)


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n"
WORDS = "bert.embeddings.word_embeddings.weight"
LAYER = "bert.encoder.layer.1.output.dense.weight"
HEAD = "cls.predictions.transform.dense.weight"
SIZE = len(TOKENS)

MODELS: dict[str, tuple[Damage, str]] = {
    "config: cut": (text("config.json", "{"), r"config\.json is damaged: it is not valid JSON"),
    "config: a list": (text("config.json", "[]"), r"config\.json is damaged: it should hold a JSON object"),
    "config: deep": (text("config.json", "[" * 100_000), r"config\.json is damaged"),
    "config: gone": (gone("config.json"), r"config\.json"),
    "config: no model_type": (without("config.json", "model_type"), "cannot be loaded.*model_type"),
    "config: unknown model_type": (with_values("config.json", model_type="no-such"), r"config\.json says model_type"),
    "config: vocab_size less": (
        with_values("config.json", vocab_size=SIZE - 5), rf"config\.json makes .*\({SIZE - 5},.*\({SIZE},"
    ),
    "config: hidden_size other": (with_values("config.json", hidden_size=64), r"config\.json makes .* the shape .*64"),
    "config: hidden_size a word": (with_values("config.json", hidden_size="32"), "cannot be loaded"),
    "config: more layers": (with_values("config.json", num_hidden_layers=3), r"lack 16 of the tensors.*layer\.2"),
    "config: fewer positions": (
        with_values("config.json", max_position_embeddings=40), r"position_embeddings.*of the shape \(48"
    ),
    "weights: cut": (cut("model.safetensors", 5000), r"model\.safetensors is damaged or cut short"),
    "weights: empty": (cut("model.safetensors", 0), r"model\.safetensors is damaged or cut short"),
    "weights: a pointer of git": (text("model.safetensors", LFS), r"model\.safetensors is damaged or cut short"),
    "weights: gone": (gone("model.safetensors"), r"holds no weights, neither model\.safetensors nor"),
    "weights: a body tensor gone": (tensors(lambda t: t.pop(LAYER)), rf"lack 1 of the tensors of a Bert.*{LAYER}"),
    "weights: a head tensor gone": (tensors(lambda t: t.pop(HEAD)), rf"no trained masked.*lack {HEAD}"),
    "weights: another model's": (
        tensors(lambda t: [t.update({f"x.{k}": t.pop(k)}) for k in list(t)]), "lack .* of the tensors of a Bert"
    ),
    "weights: NaN": (tensors(lambda t: t[LAYER].fill_(torch.nan)), rf"not finite numbers.*{LAYER}"),
    "weights: infinite": (tensors(lambda t: t[WORDS][3].fill_(torch.inf)), rf"not finite numbers.*{WORDS}"),
    "weights: fewer rows": (
        tensors(lambda t: t.update({WORDS: t[WORDS][:100].clone()})), rf"makes .*\({SIZE}, 32\).*\(100, 32\)"
    ),
    "modules: cut": (text("modules.json", "[{"), r"modules\.json is damaged"),
    "modules: an object": (text("modules.json", "{}"), r"modules\.json is missing or damaged: it should list modules"),
    "modules: own class": (text("modules.json", '[{"type": "a.B", "path": ""}]'), r"modules\.json names code"),
    "modules: elsewhere": (
        text("modules.json", '[{"type": "sentence_transformers.models.Transformer", "path": "../x"}]'), "not inside"
    ),
    "modules: folder gone": (
        text("modules.json", '[{"type": "sentence_transformers.models.Transformer", "path": "x"}]'),
        "folder .*x .*missing"
    ),
    "tokenizer: cut": (cut("tokenizer.json", 300), r"tokenizer\.json is damaged: it is not valid JSON"),
    "tokenizer: gone": (gone("tokenizer.json"), r"holds no tokenizer"),
    "tokenizer: larger": (
        lambda folder: tokenizer((*TOKENS, "later")).save_pretrained(str(folder)),
        rf"do not belong together. The token 'later' has the id {SIZE}, and the weights have rows 0 to",
    ),
    "tokenizer: no unknown token": (vocabulary(lambda v: v.update({"[unk]": v.pop("[UNK]")})), "has no unknown token"),
    "tokenizer: settings cut": (text("tokenizer_config.json", "{"), r"tokenizer_config\.json is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("damage", MODELS)
def test_a_damaged_model_is_refused_by_file(damage: str, bare: Path, target: Path, tmp_path: Path, vtkit: Call) -> None:
    source = Path(shutil.copytree(bare, tmp_path / "source"))
    change, message = MODELS[damage]
    change(source)
    refused(vtkit("transfer", source, target, "-m", "mean", "--out", tmp_path / "moved"), message)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


TOKENIZERS: dict[str, tuple[Damage, str]] = {
    "cut": (cut("tokenizer.json", 300), r"tokenizer\.json is damaged: it is not valid JSON"),
    "a list": (text("tokenizer.json", "[]"), r"tokenizer\.json is damaged: it should hold a JSON object"),
    "deep": (text("tokenizer.json", "[" * 100_000), r"tokenizer\.json is damaged: it is not valid JSON"),
    "no model": (without("tokenizer.json", "model"), r"tokenizer\.json is not a tokenizer\.json"),
    "unknown model": (with_values("tokenizer.json", model={"type": "X"}), r"tokenizer\.json is not a tokenizer\.json"),
    "no unknown token": (vocabulary(lambda v: v.pop("[UNK]")), r"tokenizer\.json has no unknown token"),
    "empty vocabulary": (vocabulary(lambda v: v.clear()), r"tokenizer\.json has an empty vocabulary"),
    "ids are words": (vocabulary(lambda v: v.update(apple="one")), r"tokenizer\.json is not a tokenizer\.json"),
    "a negative id": (vocabulary(lambda v: v.update(apple=-1)), r"tokenizer\.json is not a tokenizer\.json"),
    "a huge id": (vocabulary(lambda v: v.update(apple=10**9)), "the id 1,000,000,000"),
    "two of one id": (vocabulary(lambda v: v.update(apple=v["amber"])), "tokenizer"),
    "settings cut": (text("tokenizer_config.json", "{"), r"tokenizer_config\.json is damaged: it is not valid JSON"),
    "all gone": (lambda f: [path.unlink() for path in f.iterdir()], "[Nn]o tokenizer"),
}  # fmt: skip


@pytest.mark.parametrize("damage", TOKENIZERS)
def test_a_damaged_tokenizer_is_refused(damage: str, bare: Path, target: Path, tmp_path: Path, vtkit: Call) -> None:
    folder = Path(shutil.copytree(target, tmp_path / "target"))
    change, message = TOKENIZERS[damage]
    change(folder)
    refused(vtkit("inspect-vocab", folder), message)
    refused(vtkit("transfer", bare, folder, "-m", "mean", "--out", tmp_path / "moved"), message)


def test_ids_that_are_left_out_are_named_at_once(bare: Path, target: Path, tmp_path: Path, vtkit: Call) -> None:
    folder = Path(shutil.copytree(target, tmp_path / "target"))
    vocabulary(lambda v: v.update(apple=SIZE + 2))(folder)
    left_out = [TOKENS.index("apple"), *range(SIZE - 5, SIZE + 2)]
    shown = ", ".join(map(str, left_out[:5]))
    refused(
        vtkit("transfer", bare, folder, "-m", "mean", "--out", tmp_path / "moved"),
        rf"tokenizer\.json has .* no token has the id {shown} and {len(left_out) - 5} more",
    )
    recipe = tmp_path / "x.toml"
    recipe.write_text(
        f'[recipe]\nname = "x"\nlanguage = "en"\n[source]\nmodel = "{bare}"\n[vocabulary]\nkind = "existing"\n'
        f'tokenizer = "{folder}"\n[transfer]\nmethod = "mean"\nbias.method = "mixture"\n'
    )
    refused(vtkit("run", recipe, "--runs", tmp_path / "runs"), rf"no token has the id {shown}")
    assert vtkit("inspect-vocab", folder, "--languages", "en,de")[0] == 0  # to look at, it is fine


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one model and one index, as ``vtkit run`` leaves them."""
    root = tmp_path_factory.mktemp("run")
    ours = encoder(root)
    found = collection(12)

    def save_model(out: Path) -> Result:
        save_encoder(ours, out / "model")
        return Result()

    def save_index(out: Path) -> dict[str, Sparsity]:
        ours = load_encoder(str(model_output / "model"))
        vectors = encode(ours, [d.text for d in found.documents], 48)
        generation, digest = out / "tiny" / "generations" / "1", tokenizer_digest(ours.tokenizer)
        ExactIndex.build(vectors).save(generation / "postings")
        Manifest(None, {}, "exact", digest, vectors.shape[1], (), 12).to_file(out / "tiny" / "index.json")
        lines = [json.dumps({"_id": d.id, "title": d.title, "text": d.text}) for d in found.documents]
        (generation / "documents.jsonl").write_text("\n".join(lines) + "\n")
        return {"tiny": Sparsity(0.0)}

    store = Store(root / "runs" / "artifacts")
    store.prepare()
    model_output = store.build(Dependencies("finetune", 1, {}, 0, {}), Result, save_model, afresh=True)
    index = store.build(Dependencies("index:finetune", 1, {}, 0, {}), dict[str, Sparsity], save_index, afresh=True)
    folder = root / "runs" / "tiny"
    folder.mkdir()
    facts = {
        "name": "tiny", "language": "en", "final_model": "finetune", "source": None,
        "index": {"query_length": 48},
        "steps": {"finetune": model_output.name, "index:finetune": index.name},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(facts))
    return folder


RUN, INDEX = "tiny/run.json", "artifacts/index-finetune-*/tiny"
GENERATION, RECORD = f"{INDEX}/generations/1", f"{INDEX}/index.json"
NPY, DOCUMENTS = f"{GENERATION}/postings/entries.npy", f"{GENERATION}/documents.jsonl"
RECORD_DAMAGED = r"index\.json is damaged"
BROKEN = r"documents\.jsonl is (damaged after \d|cut short)"


def first(pattern: str, damage: Callable[[str], Damage]) -> Damage:
    """``damage`` done to the file that ``pattern`` finds."""
    return lambda runs: damage(str(next(runs.glob(pattern)).relative_to(runs)))(runs)


SEARCHES: dict[str, tuple[Damage, str]] = {
    "run.json: cut": (cut(RUN, 40), r"run\.json is damaged"),
    "run.json: a list": (text(RUN, "[]"), r"run\.json is damaged"),
    "run.json: a word for a number": (with_values(RUN, index={"query_length": "long"}), r"run\.json is damaged"),
    "run.json: outputs gone": (with_values(RUN, steps={"finetune": "nothing"}), "stage outputs that are gone"),
    "run.json: gone": (gone(RUN), r"run\.json is missing"),
    "manifest: cut": (first("artifacts/index-*/manifest.json", lambda n: cut(n, 50)), "manifest is missing"),
    "index.json: cut": (first(RECORD, lambda n: cut(n, 20)), RECORD_DAMAGED),
    "index.json: no such engine": (first(RECORD, lambda n: with_values(n, engine="grep")), RECORD_DAMAGED),
    "index.json: another vocabulary": (
        first(RECORD, lambda n: with_values(n, tokenizer="0")), r"another vocabulary than the model"
    ),
    "index.json: gone": (first(RECORD, gone), r"index\.json is missing"),
    "documents: a line cut": (first(DOCUMENTS, lambda n: cut(n, 250)), BROKEN),
    "documents: no id": (first(DOCUMENTS, lambda n: text(n, '{"text": "a"}\n' * 12)), BROKEN),
    "documents: gone": (first(DOCUMENTS, gone), r"documents\.jsonl is missing"),
    "postings: cut": (first(NPY, lambda n: cut(n, 200)), r"entries\.npy is damaged or cut short"),
    "postings: pickle": (first(NPY, lambda n: raw(n, pickle.dumps([1]))), r"entries\.npy is damaged or cut short"),
    "postings: other numbers": (
        first(NPY, lambda n: lambda f: np.save(f / n, np.full(len(np.load(f / n)), 65_535, np.int32))),
        "files do not match",
    ),
    "postings: gone": (first(NPY, gone), r"entries\.npy.*missing"),
    "postings: facts": (
        first(f"{GENERATION}/postings/counts.npy", lambda n: text(n, "[]")), r"counts\.npy.*damaged"
    ),
    "postings: another vocabulary": (
        first(f"{GENERATION}/postings", lambda n: lambda f: ExactIndex.build(_matrix()).save(f / n)), "has 7 dimensions"
    ),
    "model: gone": (
        lambda runs: shutil.rmtree(next(runs.glob("artifacts/finetune-*/model"))), "the model of 'finetune' is missing"
    ),
    "model: weights cut": (
        first("artifacts/finetune-*/model/model.safetensors", lambda n: cut(n, 999)), r"model\.safetensors is damaged"
    ),
}  # fmt: skip


def _matrix() -> object:
    from scipy.sparse import csr_matrix

    return csr_matrix(np.eye(12, 7))


@pytest.mark.parametrize("damage", SEARCHES)
def test_a_damaged_run_is_refused_with_a_way_to_rebuild_it(damage: str, run: Path, tmp_path: Path, vtkit: Call) -> None:
    runs = Path(shutil.copytree(run.parent, tmp_path / "runs"))
    change, message = SEARCHES[damage]
    change(runs)
    for command in (("search", runs / "tiny", "river"), ("explain", runs / "tiny", "river", "d11")):
        code, printed = vtkit(*command)
        refused((code, printed), message)
        assert re.search("[Rr]un (its|the) recipe|vtkit run|Fetch", printed)
        assert "trust the file" not in printed


def test_a_defect_is_one_message_with_its_traceback_in_a_file(
    run: Path, vtkit: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object, **__: object) -> None:
        raise ZeroDivisionError("as only a defect raises it")

    monkeypatch.setattr("vtkit.pipeline.search.open_searcher", wrong)
    code, printed = vtkit("search", run, "river")
    assert code == DEFECT
    assert "this is a bug in vtkit" in printed
    assert "Traceback" not in printed
    written = Path(re.search(r"in (\S+\.txt)", printed)[1])
    monkeypatch.undo()
    for arguments in (("search", run, "river stone", "--json"), ("explain", run, "river", "d11")):
        code, shown = vtkit(*arguments)
        assert code == 0, shown  # undamaged, it is searched
    content = written.read_text()
    written.unlink()
    assert "ZeroDivisionError: as only a defect raises it" in content
    assert f"vtkit search {run} river" in content
