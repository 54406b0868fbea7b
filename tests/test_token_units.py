"""Latent units as the modules of sentence-transformers' pull request 3796, by that text's definitions."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from command_line import invoke, succeeds
from safetensors.torch import load_file, save_file
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder import modules as library
from transformers import AutoModel, AutoTokenizer

from vtkit import save_encoder
from vtkit.encoder.asymmetric import WholeEncoder, dimension_names, named, sums_units, with_sides, writes_units
from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, load_with_new_head
from vtkit.encoder.documents import Dimensions
from vtkit.encoder.families import mlm_head
from vtkit.encoder.layout import sums_units_in
from vtkit.encoder.sides import EncoderQueries, encode_side
from vtkit.report.data import ReportData
from vtkit.report.model_card import model_card
from vtkit.settings.source import Units
from vtkit.system.errors import DataError
from vtkit.transfer.latent_units import fit_units
from vtkit.transfer.surgery.head_only import graft_head

TEXTS = tiny.texts(12, words=(1, 30), seed=3)


def units_over(folder: Path, architecture: str, pooling: str = "max") -> WholeEncoder:
    """An encoder of 40 units at random behind a transformer whose head has random numbers too."""
    source = tiny.encoder(folder / "source", architecture)
    torch.manual_seed(1)
    model = graft_head(source[0].auto_model, source.tokenizer, 2 * torch.randn(40, 32), 6 * torch.randn(40) - 8)
    head = [part for name, part in model.named_parameters() if "norm" in name.lower() and "layer" not in name]
    with torch.no_grad():
        for weights in head:
            weights.add_(0.2 * torch.randn_like(weights))
    plain = as_sparse_encoder(model, source.tokenizer, folder / "units", pooling)
    return with_sides(plain, plain, output=named(f"{number}:unit" for number in range(40)))


def part(folder: Path, name: str) -> Path:
    (found,) = [
        folder / module["path"]
        for module in json.loads((folder / "modules.json").read_text())
        if module["type"].endswith(f".{name}")
    ]
    return found


def by_definition(folder: Path, texts: list[str]) -> np.ndarray:
    """Vectors as the pull request's text defines them, from the saved files alone, one text at a time."""
    model, tokenizer = AutoModel.from_pretrained(str(folder)).eval(), AutoTokenizer.from_pretrained(str(folder))
    pooling = "SparseTokenPooling" if list(folder.glob("*_SparseTokenPooling")) else "SpladePooling"
    encoder = part(folder, "SparseAutoEncoderTokenEncoder")
    settings, pools = (json.loads((p / "config.json").read_text()) for p in (encoder, part(folder, pooling)))
    assert settings.get("replace_token_embeddings", False) == (pooling == "SpladePooling")
    weights = {name: tensor.numpy() for name, tensor in load_file(encoder / "model.safetensors").items()}
    rows = []
    for text in texts:
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        for dense in sorted(folder.glob("*_Dense")):
            config, layer = json.loads((dense / "config.json").read_text()), load_file(dense / "model.safetensors")
            assert config["module_input_name"] == config["module_output_name"] == "token_embeddings"
            states = states @ layer["linear.weight"].T + layer["linear.bias"]
            if config["activation_function"] == "torch.nn.modules.activation.GELU":
                states = torch.nn.functional.gelu(states)
        pooled: dict[int, float] = {}
        for state in states.numpy().astype(np.float64):
            state = state - weights.get("data_mean", 0.0)
            state = state * settings["input_dim"] ** 0.5 / max(np.linalg.norm(state), 1e-8)
            units = (state - weights["b_pre"]) @ weights["W_enc"] + weights["b_enc"]
            if settings.get("variant", "standard") == "jumprelu":
                units = np.where(units > weights["theta"], units, 0.0)
            for unit in np.argsort(-units)[: settings["k"]]:
                if units[unit] > 0:
                    before = pooled.get(int(unit), 0.0)
                    pooled[int(unit)] = {
                        "sum": before + (np.log1p(units[unit]) if pooling == "SpladePooling" else units[unit]),
                        "max": max(before, units[unit]),
                        "max_log1p": max(before, np.log1p(units[unit])),
                    }[pools["pooling_strategy"]]
        rows.append([pooled.get(unit, 0.0) for unit in range(pools["embedding_dimension"])])
    return np.array(rows)


@pytest.mark.parametrize("pooling", ["sum", "max"])
def test_the_code_on_the_card_gives_the_vectors_of_vtkit_without_vtkit(tmp_path: Path, pooling: str) -> None:
    encoder = units_over(tmp_path, "bert", pooling)
    save_encoder(encoder, tmp_path / "model")
    summed = sums_units_in(tmp_path / "model")
    assert summed == sums_units(encoder) == (pooling == "sum")
    card = model_card(ReportData(named_apart=True, summed=summed))
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert ("vtkit" in code) == summed  # only a comment on the roots names it
    found: dict[str, Any] = {}
    exec(code.replace("path/to/this/folder", str(tmp_path / "model")), found)
    for side, texts in {
        "query": ["what is searched for"], "document": ["text of a document", "text of another"]
    }.items():  # fmt: skip
        wanted = encode_side(encoder, texts, side, 64).toarray()
        power = Dimensions.of(encoder).power if side == "document" else 1
        vectors = found["queries" if side == "query" else "documents"].to_dense().numpy()
        np.testing.assert_allclose(vectors, wanted**power, atol=1e-5)
        assert (wanted > 0).any()


def test_tokens_that_are_summed_are_no_units(tmp_path: Path) -> None:
    save_encoder(tiny.encoder(tmp_path / "work", pooling="sum"), tmp_path / "model")
    assert not sums_units_in(tmp_path / "model")
    plain = tiny.encoder(tmp_path / "other work", pooling="sum")
    save_encoder(with_sides(plain, plain, output=tiny.tokenizer()), tmp_path / "apart")
    assert (tmp_path / "apart" / "output_tokenizer").is_dir()
    assert not sums_units_in(tmp_path / "apart")


@pytest.mark.parametrize(
    ("architecture", "pooling"), [("bert", "sum"), *((architecture, "max") for architecture in tiny.ARCHITECTURES)]
)
def test_both_layouts_give_the_vectors_of_the_definition(tmp_path: Path, architecture: str, pooling: str) -> None:
    encoder = units_over(tmp_path, architecture, pooling)
    save_encoder(encoder, tmp_path / "head")
    save_encoder(encoder, tmp_path / "autoencoder", layout="autoencoder")
    wanted = encode_side(load_encoder(str(tmp_path / "head")), TEXTS, "document", 64).toarray()
    assert 3 < (wanted > 0).sum(axis=1).mean() < 39
    assert not wanted[:, 40:].any()
    power = 2 if pooling == "sum" else 1  # of sums, vtkit takes the root
    np.testing.assert_allclose(by_definition(tmp_path / "autoencoder", TEXTS), wanted[:, :40] ** power, atol=1e-4)
    again = load_encoder(str(tmp_path / "autoencoder"))
    assert writes_units(again)
    assert dimension_names(again) == [f"{number}:unit" for number in range(40)]
    for side in ("query", "document"):
        found = encode_side(again, TEXTS, side, 64).toarray()
        np.testing.assert_allclose(found**power, wanted[:, :40] ** power, atol=1e-4)
    np.testing.assert_allclose(again.encode_document(TEXTS).to_dense().cpu(), wanted[:, :40] ** power, atol=1e-4)
    alone, ends = EncoderQueries(again).by_token(TEXTS[0], 64)
    expected = EncoderQueries(encoder).by_token(TEXTS[0], 64)
    np.testing.assert_allclose(alone.toarray(), expected[0].toarray()[:, :40], atol=1e-4)
    assert ends == expected[1]
    save_encoder(again, tmp_path / "once more")
    for name in ("modules.json", "1_Dense/config.json"):
        assert (tmp_path / "once more" / name).read_text() == (tmp_path / "autoencoder" / name).read_text()
    np.testing.assert_allclose(by_definition(tmp_path / "once more", TEXTS), wanted[:, :40] ** power, atol=1e-4)


def test_units_and_words_of_an_embedder_are_one_autoencoder(tmp_path: Path) -> None:
    """Learned, with dead units, and words behind them."""
    dense = str(tiny.embedder(tmp_path / "dense"))
    learned = fit_units(
        load_with_new_head(dense), tiny.texts(200, seed=1), Units(size=64, active=4), 0, tmp_path / "states", 0.03, 60
    )[0]
    save_encoder(learned, tmp_path / "autoencoder", layout="autoencoder")
    again = load_encoder(str(tmp_path / "autoencoder"))
    wanted = encode_side(learned, TEXTS, "document", 64).toarray()
    found = encode_side(again, TEXTS, "document", 64).toarray()
    np.testing.assert_allclose(found[:, :64] ** 2, wanted[:, :64] ** 2, atol=1e-3)
    np.testing.assert_allclose(found, wanted[:, : found.shape[1]], atol=0.1)  # rows of words amplify rounding
    assert not wanted[:, found.shape[1] :].any()
    assert dimension_names(again) == [name for name in dimension_names(learned) if name]


@pytest.mark.parametrize("pooling", ["sum", "max", "max_log1p"])
@pytest.mark.parametrize("variant", ["standard", "jumprelu"])
def test_an_autoencoder_of_others_is_searched(tmp_path: Path, pooling: str, variant: str) -> None:
    """As Latent Terms publishes one: the states as they are, a hard k, a decoder, and no names."""
    folder = tmp_path / "model"
    shutil.copytree(tiny.embedder(tmp_path / "dense"), folder)
    write_autoencoder(folder, pooling, variant)
    encoder = load_encoder(str(folder))
    wanted = by_definition(folder, TEXTS)
    assert (wanted > 0).sum() > 20
    found = encode_side(encoder, TEXTS, "document", 64).toarray()
    if pooling == "sum":  # of sums, vtkit takes the root, as Latent Terms does
        found = found**2
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert dimension_names(encoder) == [str(number) for number in range(24)]
    if (pooling, variant) == ("max", "jumprelu"):
        tiny.write_collection(tmp_path / "texts", tiny.collection(12))
        vectors, index = tmp_path / "vectors", tmp_path / "index"
        for arguments in (("encode", folder, tmp_path / "texts", "--out", vectors), ("index", vectors, "--out", index)):
            succeeds(*map(str, arguments))
        text = tiny.collection(12).documents[3]
        best, *_ = json.loads(invoke("search", str(index), text.contents, "--why", "--json").stdout)["results"]
        assert best["id"] == text.id
        exported = invoke("export", str(folder), "--for", "onnx", "--out", str(tmp_path / "out"))
        assert isinstance(exported.exception, DataError)
        assert "autoencoder without a masked-language-model head" in str(exported.exception)
    save_encoder(encoder, tmp_path / "saved")
    kept = load_file(part(tmp_path / "saved", "SparseAutoEncoderTokenEncoder") / "model.safetensors")
    given = load_file(part(folder, "SparseAutoEncoderTokenEncoder") / "model.safetensors")
    torch.testing.assert_close(kept, given)


def write_autoencoder(folder: Path, pooling: str, variant: str, **pools: Any) -> None:
    """The pull request's files beside a transformer."""
    torch.manual_seed(2)
    place = "sentence_transformers.sparse_encoder.modules"
    modules = [
        ("", "sentence_transformers.base.modules.transformer.Transformer"),
        (
            "1_SparseAutoEncoderTokenEncoder",
            f"{place}.sparse_auto_encoder_token_encoder.SparseAutoEncoderTokenEncoder",
        ),
        ("2_SparseTokenPooling", f"{place}.sparse_token_pooling.SparseTokenPooling"),
    ]
    listed = [{"idx": n, "name": str(n), "path": path, "type": kind} for n, (path, kind) in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "SparseEncoder"}))
    settings = {
        "input_dim": 32, "hidden_dim": 24, "k": 4, "variant": variant, "output_format": "topk",
        "replace_token_embeddings": False, "checkpoint_format_version": 1, "has_decoder": True, "k_aux": 512,
        "frozen": True, "rms_scale": None, "token_batch_size": None,
    }  # fmt: skip
    weights = {
        "W_enc": torch.randn(32, 24), "b_enc": torch.randn(24), "b_pre": torch.randn(32),
        "W_dec": torch.randn(24, 32), "data_mean": 0.1 * torch.randn(32),
    }  # fmt: skip
    if variant == "jumprelu":
        weights["theta"] = 4 * torch.rand(24)
    for path, config in ((modules[1][0], settings), (modules[2][0], pooling_settings(pooling) | pools)):
        (folder / path).mkdir()
        (folder / path / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / modules[1][0] / "model.safetensors")


def pooling_settings(pooling: str) -> dict[str, Any]:
    return {
        "embedding_dimension": 24, "pooling_strategy": pooling, "include_prompt": True,
        "values_key": "token_sparse_values", "indices_key": "token_sparse_indices",
    }  # fmt: skip


def test_the_librarys_own_modules_read_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encoder = units_over(tmp_path, "bert")
    save_encoder(encoder, tmp_path / "autoencoder", layout="autoencoder")
    if not hasattr(library, "SparseAutoEncoderTokenEncoder"):
        assert "has no SparseAutoEncoderTokenEncoder and cannot load" in capsys.readouterr().err
        pytest.skip("this sentence-transformers has no SparseAutoEncoderTokenEncoder")
    found = SparseEncoder(str(tmp_path / "autoencoder"), device="cpu").encode_document(TEXTS).to_dense()
    np.testing.assert_allclose(found, encode_side(encoder, TEXTS, "document", 64).toarray()[:, :40], atol=1e-4)


def test_what_has_no_such_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Save this encoder with its head"):
        save_encoder(tiny.encoder(tmp_path), tmp_path / "out", layout="autoencoder")
    folder = tmp_path / "model"
    shutil.copytree(tiny.embedder(tmp_path / "dense"), folder)
    write_autoencoder(folder, "sum", "standard", include_prompt=False)
    settings = {"model_type": "SparseEncoder", "prompts": {"query": "find "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    with pytest.raises(DataError, match="leaves its prompts out"):
        load_encoder(str(folder))
    settings["prompts"] = {}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    with pytest.raises(DataError, match="no masked-language-model head that vtkit can move"):
        mlm_head(load_encoder(str(folder))[0].auto_model)
