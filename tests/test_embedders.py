"""Embedders and their cache: a text has one vector, whatever it is embedded with, and is embedded once."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, Transformer

from vtkit.system.errors import DataError
from vtkit.system.runtime import user_cache
from vtkit.transfer.embedders import embed
from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.forms import Vocabulary


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VTKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "embeddings"


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A bare transformers model of random weights."""
    return str(tiny.body(tmp_path_factory.mktemp("plain")))


@pytest.fixture(scope="session")
def sentence(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same as a sentence-transformers model that pools by its first token."""
    return str(tiny.dense(tmp_path_factory.mktemp("sentence") / "model", "cls"))


@pytest.fixture
def minilm(shared: Path) -> str:
    return str(shared / "models" / "all-MiniLM-L6-v2")


def hidden_states(plain: str, text: str) -> NDArray[np.float32]:
    """Of each token, [CLS] and [SEP] among them: the reference for pooling."""
    model = Transformer(plain).auto_model.eval()
    with torch.no_grad():
        found = model(**tiny.tokenizer()(text, return_tensors="pt")).last_hidden_state[0]
    return found.numpy()


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("kind", ["plain", "sentence"])
def test_pooling_is_the_models_own_and_the_mean_where_it_has_none(
    kind: str, plain: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtkit.transfer.embedders.bf16_is_fast", lambda: False)
    states = hidden_states(plain, "copper river apple")
    expected = {"plain": states.mean(axis=0), "sentence": states[0]}[kind]
    found = embed(["copper river apple"], plain if kind == "plain" else sentence)
    assert found[0] == pytest.approx(unit(expected), abs=1e-5)


def test_prompts_of_the_model_itself_are_not_used(sentence: str, tmp_path: Path) -> None:
    prompted = tmp_path / "prompted"
    shutil.copytree(sentence, prompted)
    settings = json.loads((prompted / "config_sentence_transformers.json").read_text())
    settings |= {"prompts": {"query": "copper "}, "default_prompt_name": "query"}
    (prompted / "config_sentence_transformers.json").write_text(json.dumps(settings))
    texts = ["river", "apple"]
    assert np.array_equal(embed(texts, str(prompted)), embed(texts, sentence))


def test_a_static_embedder_needs_no_batches_of_equal_length(tmp_path: Path) -> None:
    table = torch.randn(len(tiny.TOKENS), 8, generator=torch.Generator().manual_seed(1))
    module = StaticEmbedding(tiny.tokenizer(), embedding_weights=table)
    SentenceTransformer(modules=[module], device="cpu").save(str(tmp_path / "static"))
    found = embed(["river", "apple"], str(tmp_path / "static"))
    wanted = table[[tiny.TOKENS.index("river"), tiny.TOKENS.index("apple")]].numpy()
    assert np.abs(found - np.stack([unit(row) for row in wanted])).max() < 1e-2  # bf16 where there is one


def test_a_real_embedder_gives_every_text_one_vector(
    minilm: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = load_tokenizer(str(shared / "vocab" / "bert-base-uncased"))
    texts = [text.strip() for text, _ in Vocabulary(vocabulary).surfaces[2000:12000:40]]
    together = embed(texts, minilm)
    monkeypatch.setenv("VTKIT_CACHE", str(user_cache("embeddings").parent / "another"))
    few = texts[::-7]
    assert np.array_equal(embed(few, minilm), together[::-7])  # made anew, with other texts around them
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    monkeypatch.setattr("vtkit.transfer.embedders.bf16_is_fast", lambda: False)
    model = SentenceTransformer(minilm, device="cpu").float()
    expected = model.encode(few, show_progress_bar=False, normalize_embeddings=True)
    assert np.abs(embed(few, minilm) - expected).max() < 1e-5
    similar = together[::-7] @ together.T
    assert np.abs(similar - expected @ embed(texts, minilm).T).max() < 0.01  # of bf16, where there is one


def test_texts_are_embedded_once_by_the_same_content(plain: str, cache: Path, tmp_path: Path) -> None:
    first = embed(["apple", "river", "apple"], plain)
    assert np.array_equal(first[0], first[2])
    moved = Path(shutil.copytree(plain, tmp_path / "elsewhere"))  # the same content under another name
    (file,) = cache.iterdir()
    np.save(file, np.eye(2, 32, dtype=np.float32))  # what is read now is what was kept
    assert np.array_equal(embed(["river", "apple"], str(moved)), np.eye(2, 32)[::-1])
    file.write_bytes(file.read_bytes()[:140])
    assert np.array_equal(embed(["apple", "river", "apple"], str(moved)), first)
    embed(["river", "stone"], plain)
    assert len(list(cache.iterdir())) == 2
    weights = load_file(moved / "model.safetensors")  # another content is another embedder
    save_file({name: tensor * 1.5 for name, tensor in weights.items()}, moved / "model.safetensors", {"format": "pt"})
    embed(["river", "stone"], str(moved))
    assert len(list(cache.iterdir())) == 3


def test_a_cache_that_refuses_the_vectors_does_not_make_them_be_embedded_again(
    plain: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refusing = Path("/sys/kernel")  # in which not even the administrator can make a file
    if not refusing.is_dir():
        pytest.skip(f"{refusing} is not there")
    (tmp_path / "embeddings").symlink_to(refusing)
    monkeypatch.setenv("VTKIT_CACHE", str(tmp_path))
    encode, batches = SentenceTransformer.encode, list[int]()
    monkeypatch.setattr(
        SentenceTransformer, "encode", lambda *given, **settings: batches.append(1) or encode(*given, **settings)
    )
    assert embed(["apple"], plain).shape == (1, 32)
    assert batches == [1]
    assert "Embeddings are not kept" in capsys.readouterr().err
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("VTKIT_CACHE", str(tmp_path / "file"))
    assert embed(["apple"], plain).shape == (1, 32)


def test_vectors_that_are_not_numbers_are_refused_and_not_kept(plain: str, tmp_path: Path, cache: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(plain, broken)
    weights = load_file(broken / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][tiny.TOKENS.index("river")] = torch.nan
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match=r"not finite numbers \(NaN or infinite\), for 'river'"):
        embed(["apple", "river"], str(broken))
    assert not list(cache.iterdir())


def test_models_of_another_kind_and_what_is_no_model_are_refused(plain: str, tmp_path: Path) -> None:
    def refused(name: Path | str, said: str) -> None:
        with pytest.raises(DataError, match=said):
            embed(["apple"], str(name))

    refused(tmp_path, r"neither config\.json nor modules\.json")
    refused(tmp_path / "nowhere", "no such folder")
    refused("nobody/no-such-embedder", "--download")
    tiny.encoder(tmp_path).save(str(tmp_path / "sparse"))
    refused(tmp_path / "sparse", "is a sparse encoder")
    cross = Path(shutil.copytree(plain, tmp_path / "cross"))
    config = json.loads((cross / "config.json").read_text())
    (cross / "config.json").write_text(json.dumps(config | {"architectures": ["BertForSequenceClassification"]}))
    refused(cross, "is a cross-encoder")
    (cross / "config.json").write_text(json.dumps(config))
    for settings, said in (('{"model_type": "CrossEncoder"}', "is a cross-encoder"), ("{", "is damaged")):
        (cross / "config_sentence_transformers.json").write_text(settings)
        refused(cross, said)
    (cross / "config_sentence_transformers.json").unlink()
    (cross / "model.safetensors").unlink()
    refused(cross, r"embedder = .* holds no weights")


def test_the_cache_lies_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert user_cache("embeddings") == tmp_path / "cache" / "embeddings"
    monkeypatch.delenv("VTKIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache("embeddings") == tmp_path / "vtkit" / "embeddings"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert user_cache("embeddings") == Path.home() / ".cache" / "vtkit" / "embeddings"


def test_loading_prints_no_notices_of_other_libraries(plain: str, capfd: pytest.CaptureFixture[str]) -> None:
    embed(["apple"], plain)  # the folder has no pooler, which transformers would report at length
    assert "pooler" not in "".join(capfd.readouterr())
