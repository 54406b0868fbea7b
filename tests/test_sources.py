"""Sources in other layouts than an encoder's: adapters, BGE-M3's sparse part, embedders made of decoders, and what is
refused with its name. The references are peft's own unmerged model, BGE-M3's equation, and plain sentence-transformers.
"""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import decoders
import numpy as np
import pytest
import tiny
import torch
from command_line import invoke, succeeds
from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder
from support import refused
from transformers import AutoModel, AutoModelForMaskedLM

from vtkit.deploy.network import TermWeights
from vtkit.encoder.asymmetric import dimension_names
from vtkit.encoder.checkpoint import load_encoder, load_source_tokenizer, load_with_new_head, save_encoder
from vtkit.encoder.dense import encode_dense, load_dense
from vtkit.encoder.fitted_head import token_states
from vtkit.encoder.kinds import as_splade
from vtkit.encoder.sides import encode_side
from vtkit.settings.source import Units
from vtkit.system.errors import DataError
from vtkit.transfer.latent_units import fit_units
from vtkit.transfer.surgery.graft import trim_encoder
from vtkit.vocabulary.trimmed import trim_vocabulary

# of peft over transformers 5, while it makes adapters
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

TEXTS = ["river stone", "falcon heron maple and the wild river", "willow"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VTKIT_CACHE", str(tmp_path / "cache"))


def lora(**settings: object) -> object:
    peft = pytest.importorskip("peft", reason="peft merges adapters")
    torch.manual_seed(1)
    return peft.LoraConfig(r=4, lora_alpha=16, target_modules=["query", "dense"], init_lora_weights=False, **settings)


@pytest.mark.parametrize("saved_by", ["sentence-transformers", "peft"])
def test_an_embedders_adapter_gives_the_vectors_of_peft(saved_by: str, tmp_path: Path) -> None:
    get_peft_model = pytest.importorskip("peft", reason="peft merges adapters").get_peft_model

    base = tiny.dense(tmp_path / "base", "cls")
    embedder = SentenceTransformer(str(base), device="cpu")
    before = embedder.encode(TEXTS)
    if saved_by == "peft":
        model = get_peft_model(AutoModel.from_pretrained(base), lora())
        model.save_pretrained(tmp_path / "adapter")
        embedder[0].model = model.eval()
        wanted = embedder.encode(TEXTS)
    else:
        embedder.add_adapter(lora(task_type="FEATURE_EXTRACTION"))
        wanted = embedder.encode(TEXTS)
        embedder.save(str(tmp_path / "adapter"))
    assert not (tmp_path / "adapter" / "config.json").exists()
    assert np.abs(wanted - before).max() > 0.05
    for _ in range(2):  # merged, and as it was kept
        found = encode_dense(load_dense(str(tmp_path / "adapter"), "evaluate.peers"), TEXTS, "document")
        np.testing.assert_allclose(found, wanted, atol=2e-6)
    states = token_states(load_with_new_head(str(tmp_path / "adapter")), TEXTS, tmp_path / "states")
    others = token_states(load_with_new_head(str(base)), TEXTS, tmp_path / "others")
    assert np.abs(states.states - others.states).max() > 0.05


def test_a_sparse_encoders_adapter_is_a_source_and_its_index_is_searched(tmp_path: Path) -> None:
    get_peft_model = pytest.importorskip("peft", reason="peft merges adapters").get_peft_model

    model = get_peft_model(AutoModelForMaskedLM.from_pretrained(tiny.bare(tmp_path / "base")), lora()).eval()
    model.save_pretrained(tmp_path / "adapter")
    encoder = load_encoder(str(tmp_path / "adapter"))
    inputs = encoder.tokenizer(TEXTS, padding=True, return_tensors="pt")
    logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
    wanted = (logits.relu().log1p() * inputs["attention_mask"].unsqueeze(2)).amax(1).detach().numpy()
    np.testing.assert_allclose(encode_side(encoder, TEXTS, "document", 48).toarray(), wanted, atol=2e-6)


def test_an_adapter_that_cannot_be_merged_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    get_peft_model = pytest.importorskip("peft", reason="peft merges adapters").get_peft_model

    folder, base = tmp_path / "adapter", tiny.bare(tmp_path / "base")
    get_peft_model(AutoModelForMaskedLM.from_pretrained(base), lora()).save_pretrained(folder)
    settings = folder / "adapter_config.json"
    written = json.loads(settings.read_text())
    monkeypatch.setattr("vtkit.encoder.model_folder.find_spec", lambda name: None)
    refused(Exception, r"needs peft, which is not installed: pip install 'vtkit\[peft\]'", load_encoder, str(folder))
    monkeypatch.undo()
    monkeypatch.setenv("VTKIT_CACHE", str(tmp_path / "cache"))
    settings.write_text(json.dumps(written | {"base_model_name_or_path": None}))
    refused(DataError, "does not name the model that the adapter was trained on", load_encoder, str(folder))
    settings.write_text(json.dumps(written | {"base_model_name_or_path": "nobody/nothing"}))
    refused(DataError, r"nobody/nothing .*is not in the cache", load_encoder, str(folder))
    settings.write_text(json.dumps(written | {"target_modules": ["key"]}))
    refused(DataError, r"cannot be merged into .*missing adapter keys", load_encoder, str(folder))
    settings.write_text(json.dumps(written))
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    (folder / "adapter_model.bin").write_bytes(pickle.dumps(print))
    refused(DataError, r"lacks adapter_model\.safetensors; no other form loads", load_encoder, str(folder))


def bge_m3(folder: Path) -> tuple[Path, torch.nn.Linear]:
    """A folder laid out as BAAI/bge-m3, and its sparse part."""
    modules = [Transformer(str(tiny.embedder(folder / "body", "roberta"))), Pooling(32, "cls"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"))
    torch.manual_seed(0)
    linear = torch.nn.Linear(32, 1)
    with torch.no_grad():
        linear.weight.normal_()
        linear.bias.fill_(2.0)
    torch.save(linear.state_dict(), folder / "model" / "sparse_linear.pt")
    return folder / "model", linear


def test_the_sparse_part_of_bge_m3_weighs_tokens_by_its_equation(tmp_path: Path) -> None:
    """w_j = max over the occurrences of token j of ReLU(v · h + c); special tokens weigh nothing."""
    folder, linear = bge_m3(tmp_path)
    plain = SentenceTransformer(str(folder), device="cpu")
    encoder = load_encoder(str(folder))
    texts = [*TEXTS, "river river [MASK] river stone"]
    found = encode_side(encoder, texts, "query", 48).toarray()
    for text, vector in zip(texts, found, strict=True):
        inputs = plain.tokenizer(text, return_tensors="pt")
        states = plain[0].model(input_ids=inputs["input_ids"]).last_hidden_state[0]
        wanted = np.zeros_like(vector)
        for token, weight in zip(
            inputs["input_ids"][0].tolist(), linear(states).relu().flatten().tolist(), strict=True
        ):
            if token not in plain.tokenizer.all_special_ids:
                wanted[token] = max(wanted[token], weight)
        np.testing.assert_allclose(vector, wanted, atol=1e-5)
    assert (found > 0).sum() >= 6
    save_encoder(encoder, tmp_path / "saved")
    np.testing.assert_array_equal(
        encode_side(load_encoder(str(tmp_path / "saved")), texts, "query", 48).toarray(), found
    )
    torch.save({"weight": torch.ones(1, 8), "bias": torch.ones(1)}, folder / "sparse_linear.pt")
    refused(DataError, r"sparse_linear\.pt does not belong to its transformer", load_encoder, str(folder))
    (folder / "sparse_linear.pt").write_bytes(pickle.dumps(print))
    refused(DataError, r"sparse_linear\.pt is refused by torch's weights-only loader", load_encoder, str(folder))


@pytest.mark.parametrize("make", [decoders.qwen3, decoders.embedding_gemma])
def test_units_of_a_decoders_states_are_the_same_in_plain_sentence_transformers(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder, corpus = make(tmp_path), tiny.texts(200, seed=1)
    trimmed, _ = trim_vocabulary(load_source_tokenizer(str(folder)), corpus, 380)
    source = load_with_new_head(str(folder))
    before = token_states(source, TEXTS[:1], tmp_path / "before").states
    source = trim_encoder(source, trimmed, tmp_path / "trimmed")
    np.testing.assert_array_equal(token_states(source, TEXTS[:1], tmp_path / "after").states, before)
    encoder, fit, _ = fit_units(source, corpus, Units(size=64, active=4), 0, tmp_path / "work", steps=120)
    assert fit.unexplained < 0.7
    vectors = encode_side(encoder, TEXTS, "document", 64).toarray()
    save_encoder(encoder, tmp_path / "saved")
    again = load_encoder(str(tmp_path / "saved"))
    np.testing.assert_allclose(encode_side(again, TEXTS, "document", 64).toarray(), vectors, atol=1e-5)
    plain = SparseEncoder(str(tmp_path / "saved"), device="cpu").encode_document(TEXTS).to_dense().numpy()
    np.testing.assert_allclose(plain, vectors**2, atol=1e-4)
    alone = encode_side(again, TEXTS[:1], "document", 64).toarray()
    np.testing.assert_allclose(alone[0], vectors[0], atol=1e-5)
    assert len(again.tokenizer) == len(trimmed) < 420
    ready = Units(dictionary=str(tmp_path / "saved"))
    source = trim_encoder(load_with_new_head(str(folder)), trimmed, tmp_path / "trimmed")
    named, _, _ = fit_units(source, corpus, ready, 0, tmp_path / "ready")
    np.testing.assert_allclose(encode_side(named, TEXTS, "document", 64).toarray(), vectors, atol=1e-4)
    assert [name.partition(":")[0] for name in dimension_names(again)] == list(map(str, range(64)))


@pytest.mark.parametrize("make", [bge_m3, decoders.qwen3])
def test_other_sources_end_in_an_index_that_is_searched(make: Callable[[Path], object], tmp_path: Path) -> None:
    made = make(tmp_path)
    folder = made[0] if isinstance(made, tuple) else made
    fitted = "[source.units]\nsize = 64\nactive = 4\n" if make is decoders.qwen3 else ""
    tiny.write_collection(tmp_path / "collection", tiny.collection(120))
    learned = 'corpus = ["./collection"]\nsteps = 60\n' if fitted else ""
    (tmp_path / "tiny.toml").write_text(
        f'[recipe]\nname = "tiny"\nlanguage = "en"\n[source]\nmodel = "{folder}"\n{learned}{fitted}'
        '[vocabulary]\nkind = "source"\n[index]\ndocuments = "./collection"\n'
    )
    succeeds("run", tmp_path / "tiny.toml", "--runs", tmp_path / "runs")
    shown = succeeds("search", tmp_path / "runs" / "tiny", tiny.collection(120).documents[7].text)
    assert "d7" in "".join(shown.output.splitlines()[:3])


def test_a_decoder_and_a_csr_encoder_are_named_with_what_to_do(tmp_path: Path) -> None:
    folder = decoders.qwen3(tmp_path / "qwen3")
    with pytest.raises(DataError, match=r"is a qwen3 model.*learn latent units from it with \[source\.units\]"):
        load_encoder(str(folder))
    csr = [Transformer(str(tiny.body(tmp_path / "body"))), Pooling(32, "mean"), SparseAutoEncoder(32, 64, 8)]
    SparseEncoder(modules=csr, device="cpu").save(str(tmp_path / "csr"))
    with pytest.raises(DataError, match=r"is a CSR encoder.*Name the embedder that it was made from"):
        load_encoder(str(tmp_path / "csr"))
    with pytest.raises(DataError, match=r"a sparse encoder, whose dimensions are .* or an autoencoder's"):
        load_with_new_head(str(tmp_path / "csr"))


def recipe(folder: Path, model: Path, source: str, *sections: str) -> Path:
    """A recipe in ``folder``, with the collection that its sections name."""
    tiny.write_collection(folder / "collection", tiny.collection(120))
    file = folder / "tiny.toml"
    file.write_text(
        f'[recipe]\nname = "tiny"\nlanguage = "en"\n[source]\nmodel = "{model}"\n{source}\n' + "\n".join(sections)
    )
    return file


UNITS = 'corpus = ["./collection"]\nsteps = 20\n[source.units]\nsize = 64\nactive = 4'
CALIBRATE = '[calibrate]\ntarget_activation = 0.05\ncorpus = ["./collection"]'
ADAPT = '[adapt]\nobjective = "crop"\ncorpus = ["./collection"]\nsteps = 2\nbatch_size = 4'
TRIMMED = '[vocabulary]\nkind = "trimmed"\nsize = 400\ncorpus = ["./collection"]'
WHOLE = '[vocabulary]\nkind = "source"'


@pytest.mark.parametrize("section", [CALIBRATE, ADAPT])
def test_units_of_a_decoder_are_neither_calibrated_nor_trained(section: str, tmp_path: Path) -> None:
    file = recipe(tmp_path, decoders.qwen3(tmp_path / "qwen3"), UNITS, TRIMMED, section)
    ended = invoke("run", file, "--runs", tmp_path / "runs")
    assert isinstance(ended.exception, DataError)
    assert "this encoder has none: its latent units come from dense layers" in str(ended.exception)
    model = next(path.parent for path in (tmp_path / "runs").rglob("modules.json"))
    encoder = load_encoder(str(model))
    refused(DataError, "no engine can run it", TermWeights, encoder)


def test_a_head_alone_is_not_fitted_to_a_decoder(tmp_path: Path) -> None:
    source = 'corpus = ["./collection"]\nsteps = 20\n[source.head]'
    file = recipe(tmp_path, decoders.qwen3(tmp_path / "qwen3"), source, WHOLE)
    ended = invoke("run", file, "--runs", tmp_path / "runs")
    assert "has no masked-language-model head, so that no head can be fitted alone" in str(ended.exception)


def test_the_sparse_part_of_bge_m3_does_not_become_splade(tmp_path: Path) -> None:
    encoder = load_encoder(str(bge_m3(tmp_path)[0]))
    save_encoder(encoder, tmp_path / "saved")
    for each in (encoder, load_encoder(str(tmp_path / "saved"))):
        refused(DataError, "BGE-M3 has no masked-language-model head", as_splade, each)


def test_positions_without_a_padding_id_are_named(tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path / "model", "roberta")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": None}))
    with pytest.raises(DataError, match=r"counts positions from its padding id, and its config\.json has none"):
        load_with_new_head(str(folder))
