"""Units of whole texts: a transformer layer more, whose first token holds the embedder's vector."""

import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

from vtkit.encoder.asymmetric import WholeEncoder, dimension_names, writes_units
from vtkit.encoder.checkpoint import load_encoder, load_with_new_head, save_encoder
from vtkit.encoder.dense import text_pooling
from vtkit.encoder.families import mlm_head
from vtkit.encoder.fitted import UnitsFit
from vtkit.encoder.masked import MASKED_BIAS
from vtkit.settings.source import Units
from vtkit.transfer import text_layer
from vtkit.transfer.latent_units import fit_units
from vtkit.transfer.text_layer import fit_text_layer, layers_of, takes_text_layer

TEXTS = tiny.texts(300, seed=1)
SECTION = Units(size=64, active=4)


@pytest.fixture(scope="module", autouse=True)
def fast() -> Iterator[None]:
    """A rate of learning for models of 32 dimensions."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_layer, "LEARNING_RATE", 5e-3)
        yield


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.dense(tmp_path_factory.mktemp("embedder") / "model")


@pytest.fixture(scope="module")
def learned(embedder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[WholeEncoder, UnitsFit]:
    """An encoder that writes units of tokens and of whole texts."""
    encoder, pooling = load_with_new_head(str(embedder)), text_pooling(str(embedder), "source.model")
    folder = tmp_path_factory.mktemp("states")
    return fit_units(encoder, TEXTS, SECTION, 0, folder, steps=300, pooling=pooling)[:2]


def states_of(encoder: SparseEncoder, text: str) -> torch.Tensor:
    """The last states of all tokens of ``text``, (tokens, width)."""
    inputs = encoder.tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        found: torch.Tensor = encoder[0].auto_model.base_model(**inputs).last_hidden_state[0]
    return found


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_the_first_token_holds_the_text_and_others_their_states(architecture: str, tmp_path: Path) -> None:
    folder = tiny.embedder(tmp_path / "model", architecture)
    encoder = load_with_new_head(str(folder))
    assert takes_text_layer(encoder) == (architecture != "modernbert")
    pickle.dumps(encoder)  # processes that read texts get it so
    if architecture == "modernbert":
        return
    text = TEXTS[3]
    before, body = states_of(encoder, text), encoder[0].auto_model.base_model
    kept = {name: weight.clone() for name, weight in body.named_parameters()}
    pooling = torch.nn.Sequential(Pooling(32, "mean"))
    whole = fit_text_layer(encoder, pooling, TEXTS, 0, tmp_path / "states", 400)
    assert whole.cosine > 0.5
    after = dict(body.named_parameters())
    assert all(torch.equal(after[name], weight) for name, weight in kept.items())
    assert encoder[0].auto_model.config.num_hidden_layers == 3 == len(layers_of(encoder[0].auto_model)[1])
    found, axis = states_of(encoder, text), whole.axis
    mean = torch.cat([states_of(load_with_new_head(str(folder)), each) for each in TEXTS[:50]]).mean(0)
    kept_states, wanted = (each - (each @ axis)[:, None] * axis for each in (found, before - mean))
    assert float(torch.nn.functional.cosine_similarity(kept_states, wanted)[1:-1].mean()) > 0.8
    assert float((found @ axis)[0]) > 2
    assert float((found @ axis)[1:-1].max()) < -2


@pytest.mark.parametrize("width", [None, 16, 48])
def test_the_vector_of_a_text_is_the_embedders(width: int | None, tmp_path: Path) -> None:
    modules = [Transformer(str(tiny.body(tmp_path / "body"))), Pooling(32, "cls")]
    if width is not None:
        modules.append(Dense(32, width, activation_function=torch.nn.Tanh()))
    library = SentenceTransformer(modules=[*modules, Normalize()], device="cpu")
    library.save(str(tmp_path / "dense"))
    pooling = text_pooling(str(tmp_path / "dense"), "source.model")
    encoder = load_with_new_head(str(tmp_path / "dense"))
    states = states_of(encoder, TEXTS[0])[None]
    found = pooling({"token_embeddings": states, "attention_mask": torch.ones(states.shape[:2])})["sentence_embedding"]
    np.testing.assert_allclose(found[0].numpy(force=True), library.encode(TEXTS[0]), atol=1e-5)
    assert fit_text_layer(encoder, pooling, TEXTS, 0, tmp_path / "states", 20).states.states.shape[1] == 32


def test_units_fire_for_tokens_or_for_whole_texts(learned: tuple[WholeEncoder, UnitsFit]) -> None:
    encoder, fit = learned
    assert (fit.units, fit.of_texts) == (96, 32)
    model, fires = encoder[0].auto_model, []
    for text in TEXTS[:50]:
        inputs = encoder.tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            logits = model(**inputs).logits[0, :, :96]
        parts = logits[0, :64], logits[0, 64:], logits[1:-1, :64], logits[1:-1, 64:]
        fires.append([float((part > 0).float().mean()) for part in parts])
    tokens_at_first, texts_at_first, tokens_at_tokens, texts_at_tokens = np.mean(fires, axis=0)
    assert tokens_at_first < 0.1 * tokens_at_tokens
    assert texts_at_tokens < 0.1 * texts_at_first
    assert tokens_at_tokens == pytest.approx(4 / 64, rel=0.3)


def test_plain_sentence_transformers_reads_them(learned: tuple[WholeEncoder, UnitsFit], tmp_path: Path) -> None:
    encoder, _ = learned
    save_encoder(encoder, tmp_path / "model")
    plain, again = SparseEncoder(str(tmp_path / "model"), device="cpu"), load_encoder(str(tmp_path / "model"))
    wanted = encoder.encode_document(TEXTS[:20]).to_dense()
    torch.testing.assert_close(plain.encode_document(TEXTS[:20]).to_dense(), wanted)
    torch.testing.assert_close(again.encode_document(TEXTS[:20]).to_dense(), wanted)
    assert writes_units(again)


def test_units_of_whole_texts_are_named_by_their_words(embedder: Path, tmp_path: Path) -> None:
    """Six kinds of texts with no word in common: the words of a unit come from one of them."""
    kinds = [tiny.WORDS[first : first + 6] for first in range(0, 36, 6)]
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(kinds[number % 6], 12)) for number in range(300)]
    encoder, pooling = load_with_new_head(str(embedder)), text_pooling(str(embedder), "source.model")
    made, _, _ = fit_units(encoder, texts, SECTION, 0, tmp_path / "states", steps=300, pooling=pooling)
    names = [name for name in dimension_names(made)[64:96] if ":" in name]
    assert all(re.fullmatch(r"\d+:\[[a-z ]+\]", name) for name in names)
    named = [set(re.findall("[a-z]+", name)) for name in names]
    of_one_kind = [any(words <= set(kind) for kind in kinds) for words in named]
    assert len(names) > 10
    assert np.mean(of_one_kind) > 0.7


def test_a_dictionary_brings_its_layer_and_its_names(
    learned: tuple[WholeEncoder, UnitsFit], embedder: Path, tmp_path: Path
) -> None:
    save_encoder(learned[0], tmp_path / "known")
    section, pooling = Units(dictionary=str(tmp_path / "known")), text_pooling(str(embedder), "source.model")
    made, fit, _ = fit_units(
        load_with_new_head(str(embedder)), ["maple otter, otter"] * 3, section, 0, tmp_path / "states", pooling=pooling
    )
    vectors = [each.encode_document(TEXTS[:20]).to_dense() for each in (learned[0], made)]
    torch.testing.assert_close(vectors[1], vectors[0])
    names = [dimension_names(each)[64:96] for each in (learned[0], made)]
    assert [new for new in names[1] if "[" in new] == [old for old in names[0] if "[" in old]
    assert fit.of_texts == sum("[" in name for name in names[0])
    dead = mlm_head(made[0].auto_model).decoder.bias[:96] <= MASKED_BIAS / 2
    assert fit.dead == int(dead.sum())
