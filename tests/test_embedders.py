"""Embedders and their cache: a text has one vector, whatever it is embedded with, and is embedded once."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import command_line
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
from vtkit.transfer import embedders
from vtkit.transfer.embedders import Cache, Embedder, embed
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
    monkeypatch.setattr("vtkit.system.runtime.bf16_is_fast", lambda: False)
    states = hidden_states(plain, "copper river apple")
    expected = {"plain": states.mean(axis=0), "sentence": states[0]}[kind]
    found = embed(["copper river apple"], Embedder(plain if kind == "plain" else sentence))
    assert found[0] == pytest.approx(unit(expected), abs=1e-5)


def test_prompts_of_the_model_itself_are_not_used(sentence: str, tmp_path: Path) -> None:
    prompted = tmp_path / "prompted"
    shutil.copytree(sentence, prompted)
    settings = json.loads((prompted / "config_sentence_transformers.json").read_text())
    settings |= {"prompts": {"query": "copper "}, "default_prompt_name": "query"}
    (prompted / "config_sentence_transformers.json").write_text(json.dumps(settings))
    texts = ["river", "apple"]
    assert np.array_equal(embed(texts, Embedder(str(prompted))), embed(texts, Embedder(sentence)))


def test_a_static_embedder_needs_no_batches_of_equal_length(tmp_path: Path) -> None:
    table = torch.randn(len(tiny.TOKENS), 8, generator=torch.Generator().manual_seed(1))
    module = StaticEmbedding(tiny.tokenizer(), embedding_weights=table)
    SentenceTransformer(modules=[module], device="cpu").save(str(tmp_path / "static"))
    found = embed(["river", "apple"], Embedder(str(tmp_path / "static")))
    wanted = table[[tiny.TOKENS.index("river"), tiny.TOKENS.index("apple")]].numpy()
    assert np.abs(found - np.stack([unit(row) for row in wanted])).max() < 1e-2  # bf16 where there is one


def test_a_real_embedder_gives_every_text_one_vector(
    minilm: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = load_tokenizer(str(shared / "vocab" / "bert-base-uncased"))
    texts = [text.strip() for text, _ in Vocabulary(vocabulary).surfaces[2000:12000:40]]
    embedder = Embedder(minilm)
    together = embed(texts, embedder)
    monkeypatch.setenv("VTKIT_CACHE", str(user_cache("embeddings").parent / "another"))
    few = texts[::-7]
    assert np.array_equal(embed(few, Embedder(minilm)), together[::-7])  # made anew, with other texts around them
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    monkeypatch.setattr("vtkit.system.runtime.bf16_is_fast", lambda: False)
    model = SentenceTransformer(minilm, device="cpu").float()
    expected = model.encode(few, show_progress_bar=False, normalize_embeddings=True)
    assert np.abs(embed(few, Embedder(minilm)) - expected).max() < 1e-5
    similar = together[::-7] @ together.T
    assert np.abs(similar - expected @ embed(texts, Embedder(minilm)).T).max() < 0.01  # of bf16, where there is one


class Counted:
    """The texts that vtkit's embedder was asked to embed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: list[str] = []
        original = Embedder.encode

        def encode(embedder: Embedder, texts: Sequence[str]) -> Iterator[Any]:
            for batch, vectors in original(embedder, texts):
                self.texts += batch
                yield batch, vectors

        monkeypatch.setattr(Embedder, "encode", encode)


def test_what_two_recipes_share_is_embedded_once(plain: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted = Counted(monkeypatch)
    first = embed(["apple", "river", "apple"], Embedder(plain))
    assert sorted(counted.texts) == ["apple", "river"]
    assert np.array_equal(first[0], first[2])
    moved = shutil.copytree(plain, tmp_path / "elsewhere")  # the same content under another name
    second = embed(["river", "stone"], Embedder(str(moved)))
    assert counted.texts[2:] == ["stone"]
    assert np.array_equal(second[0], first[1])
    with monkeypatch.context() as patched:  # with nothing to embed, the model is not even loaded
        patched.setattr(embedders, "load_dense", None)
        assert np.array_equal(embed(["stone", "apple"], Embedder(plain)), np.stack([second[1], first[0]]))
    weights = load_file(moved / "model.safetensors")  # another content is another embedder
    save_file({name: tensor * 1.5 for name, tensor in weights.items()}, moved / "model.safetensors", {"format": "pt"})
    assert Cache(Embedder(str(moved)).identity).folder != Cache(Embedder(plain).identity).folder


def test_a_damaged_file_is_a_miss(
    plain: str, monkeypatch: pytest.MonkeyPatch, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embedders, "TEXTS_A_SHARD", 1)
    monkeypatch.setattr(embedders, "BATCH", 1)
    expected = embed(["apple", "river", "stone"], Embedder(plain))
    files = sorted(cache.rglob("*.safetensors"))
    content = bytearray(files[0].read_bytes())
    content[-3] ^= 1  # one bit of one number
    files[0].write_bytes(content)
    files[1].write_bytes(files[1].read_bytes()[:40])
    counted = Counted(monkeypatch)
    assert np.array_equal(embed(["apple", "river", "stone"], Embedder(plain)), expected)
    assert len(counted.texts) == 2
    assert capsys.readouterr().err.count("is damaged and is left out") == 2
    assert len(list(cache.rglob("*.safetensors"))) == 3


def test_two_processes_may_embed_at_once(plain: str, cache: Path, tmp_path: Path) -> None:
    code = (
        "import sys, numpy, torch; torch.set_num_threads(1)\n"
        "from vtkit.transfer.embedders import Embedder, embed\n"
        "numpy.save(sys.argv[2], embed(sys.argv[3:], Embedder(sys.argv[1])))\n"
    )
    outputs = [tmp_path / "0.npy", tmp_path / "1.npy"]
    halves = [tiny.WORDS[:40], tiny.WORDS[20:]]
    started = [
        command_line.start(tmp_path, ["-c", code, plain, str(output), *words], os.environ, tmp_path)
        for output, words in zip(outputs, halves, strict=True)
    ]
    for process in started:
        process.join(300)
    assert [process.exitcode for process in started] == [0, 0]
    torch.set_num_threads(1)
    for output, words in zip(outputs, halves, strict=True):
        assert np.array_equal(np.load(output), embed(words, Embedder(plain)))
    files = cache.rglob("*.safetensors")
    kept = [text for path in files for text in json.loads(load_file(path)["texts"].numpy().tobytes())]
    assert sorted(kept) == sorted(tiny.WORDS)  # none of them twice


def test_a_killed_process_leaves_vectors_and_no_lock(
    plain: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, signal, sys, torch; torch.set_num_threads(1)\n"
        "from vtkit.transfer import embedders\n"
        "embedders.BATCH, embedders.TEXTS_A_SHARD = 4, 8\n"
        "write, written = embedders.Cache.write, []\n"
        "def counted(cache, vectors):\n"
        "    if len(written) == 2:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    written.append(write(cache, vectors))\n"
        "embedders.Cache.write = counted\n"
        "embedders.embed(sys.argv[2:], embedders.Embedder(sys.argv[1]))\n"
    )
    killed = command_line.call(tmp_path, ["-c", code, plain, *tiny.WORDS], os.environ)
    assert killed.returncode == -9
    monkeypatch.setattr(embedders, "BATCH", 4)
    torch.set_num_threads(1)
    assert len(list(cache.rglob("*.safetensors"))) == 2
    counted = Counted(monkeypatch)
    found = embed(tiny.WORDS, Embedder(plain))  # waits for nobody
    assert len(counted.texts) == len(tiny.WORDS) - 16  # those of two whole files are not embedded again
    shutil.rmtree(cache)
    assert np.array_equal(found, embed(tiny.WORDS, Embedder(plain)))


def test_a_cache_that_cannot_be_written_is_said_and_done_without(
    plain: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("VTKIT_CACHE", str(tmp_path / "file"))
    assert embed(["apple"], Embedder(plain)).shape == (1, 32)
    assert "Embeddings are not kept" in capsys.readouterr().err


def test_vectors_that_are_not_numbers_are_refused_and_not_kept(plain: str, tmp_path: Path, cache: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(plain, broken)
    weights = load_file(broken / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][tiny.TOKENS.index("river")] = torch.nan
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match=r"not finite numbers \(NaN or infinite\), for 'river'"):
        embed(["apple", "river"], Embedder(str(broken)))
    assert not list(cache.rglob("*.safetensors"))


def test_models_of_another_kind_and_what_is_no_model_are_refused(plain: str, tmp_path: Path) -> None:
    def refused(name: Path | str, said: str) -> None:
        with pytest.raises(DataError, match=said):
            embed(["apple"], Embedder(str(name)))

    refused(tmp_path, r"neither modules\.json nor config\.json")
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
    assert len(embed([], Embedder(str(cross)))) == 0
    (cross / "model.safetensors").unlink()
    refused(cross, r"embedder = .* holds no weights")


def test_loading_prints_no_notices_of_other_libraries(plain: str, capfd: pytest.CaptureFixture[str]) -> None:
    embed(["apple"], Embedder(plain))  # the folder has no pooler, which transformers would report at length
    assert "pooler" not in "".join(capfd.readouterr())


def test_the_cache_lies_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert user_cache("embeddings") == tmp_path / "cache" / "embeddings"
    monkeypatch.delenv("VTKIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache("embeddings") == tmp_path / "vtkit" / "embeddings"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert user_cache("embeddings") == Path.home() / ".cache" / "vtkit" / "embeddings"
