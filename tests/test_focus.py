"""FOCUS: its equation against entmax's sparsemax, its training, the authors' package where it is installed."""

import random
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from entmax import sparsemax
from support import refused
from vocabularies import wordpiece, write_vectors

from vtkit.data.document_files import read_corpus
from vtkit.settings.transfer import FocusTransfer
from vtkit.system.errors import DataError, MissingExtra
from vtkit.transfer.methods import focus
from vtkit.transfer.methods.focus import train_vectors
from vtkit.transfer.mixture import Mixture
from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.forms import Vocabulary, tokens
from vtkit.vocabulary.pair import VocabularyPair, pair_of

SOURCE = wordpiece("house", "dog", "water", "tree", "##s", "7")
TARGET = wordpiece("house", "tree", "7", "##s", "villa", "forest", "##er", "hut")
PAIR = pair_of(SOURCE, TARGET)
VECTORS = {
    "house": [1, 0, 0],
    "tree": [0, 1, 0],
    "7": [0, 0, 1],
    "villa": [0.9, 0.1, 0],
    "forest": [0.3, 0.8, 0.1],
    "er": [0, 0.4, 0.6],
    "[UNK]": [5, 5, 5],
    "elsewhere": [1, 1, 1],
}


def focus_mixture(
    pair: VocabularyPair, vectors: Path | None = None, texts: Iterable[str] = (), seed: int = 0
) -> Mixture:
    given = FocusTransfer(vectors=None if vectors is None else str(vectors))
    return focus.mixture(pair, given, lambda: texts, seed)


def target_id(token: str) -> int:
    return tokens(TARGET).index(token)


def test_weights_are_the_sparsemax_of_cosines_to_the_shared_tokens(tmp_path: Path) -> None:
    path = write_vectors(tmp_path / "a.vec", VECTORS)
    mixture = focus_mixture(PAIR, vectors=path)
    assert mixture.counts() == {"overlap": 9, "focus": 3, "multivariate": 1}  # there is no vector of "hut"
    anchors = ["house", "tree", "7"]  # no special token, and no "##s", which has no vector
    table = np.array([VECTORS[name] for name in anchors], dtype=np.float64)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    embeddings = np.random.default_rng(1).normal(size=(len(SOURCE), 5)).astype(np.float32)
    rows = mixture.rows(embeddings)
    for token, word in (("villa", "villa"), ("forest", "forest"), ("##er", "er")):
        vector = np.array(VECTORS[word]) / np.linalg.norm(VECTORS[word])
        weights = sparsemax(torch.tensor(table @ vector)[None], dim=1)[0].numpy()
        expected = weights @ embeddings[[tokens(SOURCE).index(name) for name in anchors]]
        assert np.allclose(rows[target_id(token)], expected, atol=1e-5)
    assert tokens(SOURCE)[mixture.sources(target_id("villa"))[0][0]] == "house"
    assert focus_mixture(pair_of(SOURCE, SOURCE), vectors=path).counts() == {"overlap": len(SOURCE)}


def test_a_file_of_tokens_is_told_from_one_of_words(tmp_path: Path) -> None:
    path = write_vectors(tmp_path / "tokens.vec", {**VECTORS, "##s": [0, 1, 1]})
    mixture = focus_mixture(PAIR, vectors=path)
    assert mixture.methods[target_id("##er")] == "multivariate"  # "er" is another token there
    assert mixture.methods[target_id("villa")] == "focus"


def two_topics(lines: int) -> list[str]:
    draw = random.Random(4)
    topics = (["house", "villa", "hut", "7"], ["tree", "forest", "##"])
    return [" ".join(draw.choices(topics[number % 2][:3], k=12)) for number in range(lines)]


def test_trained_vectors_bring_tokens_of_one_topic_together() -> None:
    vectors = train_vectors(Vocabulary(TARGET), iter(two_topics(3000)), seed=3)
    assert vectors.shape == (len(TARGET), 100)
    assert not vectors[target_id("##er")].any()
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    villa, hut, tree = (unit[target_id(token)] for token in ("villa", "hut", "tree"))
    assert villa @ hut > villa @ tree


def test_the_same_seed_gives_the_same_mixture() -> None:
    made = [focus_mixture(PAIR, texts=iter(two_topics(300)), seed=seed) for seed in (1, 1, 2)]
    assert np.array_equal(made[0].weights.data, made[1].weights.data)
    assert made[0].weights.nnz != made[2].weights.nnz or not np.array_equal(made[0].weights.data, made[2].weights.data)
    assert made[0].counts() == {"overlap": 9, "focus": 3, "multivariate": 1}


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    for words, said in (
        ({"บ้าน": [1.0, 2.0]}, "none of its words"),
        ({"villa": [1.0, 2.0]}, "none of the tokens that both"),
        ({"house": [1.0, 2.0]}, "none of the new tokens"),
    ):
        with pytest.raises(DataError, match=rf"a\.vec: {said}"):
            focus_mixture(PAIR, vectors=write_vectors(tmp_path / "a.vec", words))
    refused(DataError, r"bias\.corpus", focus_mixture, PAIR, texts=["house villa"] * 3)


def test_the_authors_package_gives_the_same_rows(shared: Path, tmp_path: Path) -> None:
    """Skipped unless it is installed: it is no test dependency, since fasttext, which it needs, has no wheels."""
    deepfocus = pytest.importorskip("deepfocus", reason="needs the authors' package (pip install deepfocus)")
    fasttext = pytest.importorskip("fasttext", reason="needs fasttext, which the authors' package trains with")
    source = load_tokenizer(str(shared / "vocab" / "bert-base-uncased"))
    target = load_tokenizer(str(shared / "vocab" / "kobigbird"))
    texts = list(read_corpus(shared / "data" / "text" / "klue-sentences-ko.txt.gz"))
    tokenized = tmp_path / "tokenized.txt"
    # The unknown token is an anchor there and not here, so it is left out.
    lines = (" ".join(token for token in target.tokenize(text) if token != "[UNK]") for text in texts)
    tokenized.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    model = fasttext.train_unsupervised(
        str(tokenized), model="cbow", dim=30, epoch=3, minCount=10, bucket=20_000, thread=1, verbose=0
    )
    model.save_model(str(tmp_path / "model.bin"))
    words = {word: model.get_word_vector(word) for word in model.get_words() if word != "</s>"}
    embeddings = np.random.default_rng(5).normal(size=(len(source), 16)).astype(np.float32)
    settings = {"fasttext_model_path": str(tmp_path / "model.bin"), "target_training_data_path": None}
    expected = deepfocus.FOCUS(
        target, source, torch.from_numpy(embeddings), match_symbols=True, verbosity="silent", **settings
    ).numpy()
    mixture = focus_mixture(pair_of(source, target), vectors=write_vectors(tmp_path / "model.vec", words))
    made = np.flatnonzero(np.array(mixture.methods) == "focus")
    assert len(made) > 1000
    off = np.abs(mixture.rows(embeddings)[made] - expected[made]).max(axis=1)
    assert off.max() < 1e-5


def test_without_gensim_the_error_has_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models", None)  # as where it is not installed
    refused(MissingExtra, r"needs gensim, .*pip install 'vtkit\[focus\]'", train_vectors, SOURCE, ["a text"])
