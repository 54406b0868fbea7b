"""WECHSEL: Procrustes by hand, subword vectors by definition, the authors' package where it is installed."""

import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast
from vocabularies import byte_level, wordpiece, write_vectors

from vtkit.data.parallel import read_pairs
from vtkit.settings.transfer import OfaTransfer, WechselTransfer
from vtkit.system.errors import DataError
from vtkit.transfer import word_space as word_space_module
from vtkit.transfer.methods import ofa
from vtkit.transfer.methods import wechsel as method
from vtkit.transfer.mixture import Mixture
from vtkit.transfer.word_space import nearest, unit, word_space
from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.forms import Vocabulary, tokens
from vtkit.vocabulary.pair import VocabularyPair, pair_of

EN = wordpiece("house", "dog", "water", "tree", "##s", "!")
KO = wordpiece("집", "개", "물", "나무", "##들", "!")
EN_WORDS = {"house": [1, 0, 0, 0.1], "dog": [0, 1, 0.1, 0], "water": [0, 0, 1, 0], "tree": [0.1, 0, 0, 1]}
TURN = np.array([[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=np.float64)
KO_WORDS = {
    ko: (np.array(EN_WORDS[en]) @ TURN).tolist()
    for ko, en in (("집", "house"), ("개", "dog"), ("물", "water"), ("나무", "tree"))
}
DICTIONARY = "house\t집\ndog\t개\nwater\t물\ntree\t나무\n"


def files(folder: Path, dictionary: str = DICTIONARY) -> dict[str, Any]:
    (folder / "dictionary.tsv").write_text(dictionary)
    return {
        "vectors": write_vectors(folder / "ko.vec", KO_WORDS),
        "source_vectors": write_vectors(folder / "en.vec", EN_WORDS),
        "dictionary": [folder / "dictionary.tsv"],
    }


def wechsel_mixture(pair: VocabularyPair, dictionary: Sequence[Path], **vectors: Path) -> Mixture:
    named = {name: str(path) for name, path in vectors.items()}
    settings = WechselTransfer(dictionary=tuple(map(str, dictionary)), **named)
    return method.mixture(pair, settings, list, 0)


def test_translations_become_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pair_of(EN, KO)
    monkeypatch.setattr(word_space_module, "NEIGHBOURS", 2)
    mixture = wechsel_mixture(pair, **files(tmp_path))
    names = {tokens(KO)[n]: tokens(EN)[mixture.sources(n)[0][0]] for n in pair.overlap.new_ids.tolist()[:4]}
    assert names == {"집": "house", "개": "dog", "물": "water", "나무": "tree"}
    assert mixture.counts() == {"overlap": 6, "wechsel": 4, "multivariate": 1}  # no word contains ##들
    house = mixture.sources(tokens(KO).index("집"))
    assert len(house) == 2
    other = np.array(EN_WORDS["tree"]) / np.linalg.norm(EN_WORDS["tree"])
    cosine = other @ EN_WORDS["house"] / np.linalg.norm(EN_WORDS["house"])
    assert house[0][1] / house[1][1] == pytest.approx(np.exp((1 - cosine) / 0.1), rel=1e-4)


def test_spellings_of_the_dictionary_are_tried_and_few_pairs_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = pair_of(EN, KO)
    as_written = wechsel_mixture(pair, **files(tmp_path))
    shouted = wechsel_mixture(pair, **files(tmp_path, DICTIONARY.upper()))
    assert (as_written.weights != shouted.weights).nnz == 0
    wechsel_mixture(pair, **files(tmp_path, "house\t집\n"))
    assert "only 1 pairs have both words in the vectors" in " ".join(capsys.readouterr().err.split())


def test_frequent_words_count_more(tmp_path: Path) -> None:
    tokenizer = wordpiece("dog", "##s")
    path = write_vectors(tmp_path / "a.vec", {"dog": [1, 0], "dogs": [0, 1]})
    dog, plural = tokens(tokenizer).index("dog"), tokens(tokenizer).index("##s")
    vectors, words = word_space(Vocabulary(tokenizer), path, "zipf", {"dogs", "cats"})
    assert vectors[dog] == pytest.approx([1 / 1.5, 0.5 / 1.5])
    assert vectors[plural] == pytest.approx([0, 1])
    assert list(words) == ["dogs"]
    assert word_space(Vocabulary(tokenizer), path)[0][dog] == pytest.approx([0.5, 0.5])
    assert np.flatnonzero(vectors.any(axis=1)).tolist() == [dog, plural]
    marked = byte_level("a", "Ġa", "Ġ")  # words are read at the beginning and inside of a text
    vectors, _ = word_space(Vocabulary(marked), write_vectors(tmp_path / "b.vec", {"a": [1, 2]}))
    assert {tokens(marked)[n] for n in np.flatnonzero(vectors.any(axis=1))} >= {"a"}


@given(st.integers(0, 30), st.integers(1, 12))
def test_neighbours_are_those_of_the_whole_matrix(seed: int, k: int) -> None:
    draw = np.random.default_rng(seed)
    queries, anchors = unit(draw.normal(size=(7, 5))), unit(draw.normal(size=(9, 5)))
    weights = nearest(queries, anchors, k, 0.1).toarray()
    similarities = queries @ anchors.T
    expected = np.zeros_like(similarities)
    for row, scores in enumerate(similarities):
        best = np.argsort(-scores)[:k]
        expected[row, best] = np.exp(scores[best] / 0.1) / np.exp(scores[best] / 0.1).sum()
    assert np.allclose(weights, expected, atol=1e-5)
    ones = np.ones((4, 1), dtype=np.float32)  # of equal neighbours the first win
    assert nearest(ones[:1], ones, 2, 0.1).toarray().tolist() == [[0.5, 0.5, 0, 0]]


def test_what_cannot_be_aligned_is_said(tmp_path: Path) -> None:
    pair = pair_of(EN, KO)

    def refused(match: str, **changes: Any) -> None:
        with pytest.raises(DataError, match=match):
            wechsel_mixture(pair, **{**files(tmp_path), **changes})

    (tmp_path / "turned.tsv").write_text("zebra\t고래\n")
    refused(r"turned\.tsv: no pair has both words in the vectors", dictionary=[tmp_path / "turned.tsv"])
    thai = write_vectors(tmp_path / "thai.vec", {"บ้าน": [1, 0, 0, 0]})
    refused(r"thai\.vec: none of its 1 words contains a token of the vocabulary", vectors=thai)


AUTHORS_PACKAGE = (
    "needs the authors' package, which is no test dependency: it needs fasttext, and that has no wheels, so a C++ "
    "compiler (pip install wechsel)"
)


def test_the_authors_package_gives_the_same_rows(shared: Path, tmp_path: Path) -> None:
    wechsel = pytest.importorskip("wechsel", reason=AUTHORS_PACKAGE)
    from gensim.models import Word2Vec

    source = load_tokenizer(str(shared / "vocab" / "bert-base-uncased"))
    target = load_tokenizer(str(shared / "vocab" / "kobigbird"))
    pairs = list(read_pairs(shared / "data" / "parallel" / "news-en-ko.tsv.gz"))
    models, paths = [], []
    for side, name in enumerate(("en", "ko")):
        model = Word2Vec([pair[side].lower().split() for pair in pairs], vector_size=40, min_count=3, workers=1, seed=1)
        for rank, word in enumerate(model.wv.index_to_key):  # their frequencies, as the file's order tells them
            model.wv.set_vecattr(word, "count", 10**12 // (rank + 1))
        model.wv.save_word2vec_format(str(tmp_path / f"{name}.vec"))
        model.wv.vectors = model.wv.vectors.astype(np.float64)  # else the package solves Procrustes in single precision
        models.append(model)
        paths.append(tmp_path / f"{name}.vec")
    known = [set(model.wv.index_to_key) for model in models]
    dictionary = tmp_path / "dictionary.txt"
    with gzip.open(shared / "data" / "parallel" / "dict-wiktionary-en-ko.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    # The package counts a pair once for each spelling that happens to be the same, so all have equally many here.
    rows = [(a, b) for a, b in rows if a.title() not in known[0] and b.title() == b]
    kept = sorted({(a, b) for a, b in rows if a in known[0] and b in known[1]})
    assert len(kept) > 200
    dictionary.write_text("".join(f"{a}\t{b}\n" for a, b in kept))

    # The tokens that these words need, so that the package, which goes token by token, is done in seconds.
    source, target = (_needed(*side) for side in ((source, known[0]), (target, known[1])))
    embeddings = np.random.default_rng(5).normal(size=(len(source), 16)).astype(np.float32)
    theirs = wechsel.WECHSEL(models[0], models[1], bilingual_dictionary=str(dictionary))
    expected, info = theirs.apply(source, target, embeddings, use_subword_info=False)
    pair = pair_of(source, target)
    mixture = wechsel_mixture(pair, vectors=paths[1], source_vectors=paths[0], dictionary=[dictionary])
    made = np.array([n for n in pair.overlap.new_ids if mixture.methods[n] == "wechsel"])
    assert len(made) > 1500
    assert [n for n in made if tokens(target)[n] in info.not_found] == []
    off = np.abs(mixture.rows(embeddings)[made] - expected[made]).max(axis=1)
    assert np.median(off) < 1e-6
    assert (off < 1e-5).mean() > 0.95  # in the others two tokens, pieces of one word, are equally near in tenth place


def _needed(tokenizer: PreTrainedTokenizerFast, words: Iterable[str]) -> PreTrainedTokenizerFast:
    used = {piece for word in words for piece in tokenizer.tokenize(word)}
    return wordpiece(*sorted(used - set(tokens(wordpiece()))))


# OFA against its definition, worked out densely: subword vectors, ten neighbours, factorised embeddings.


SOURCE = wordpiece("house", "dog", "water", "tree", "##s")
TARGET = wordpiece("집", "개", "##들", "house", "나무")
PAIR = pair_of(SOURCE, TARGET)
WORDS = {
    "house": [1, 0, 0], "dog": [0, 1, 0], "dogs": [0, 0.9, 0.1], "tree": [0, 0, 1], "집": [0.9, 0, 0.1],
    "집들": [0.8, 0, 0.2], "개": [0.1, 1, 0],
}  # fmt: skip


def ofa_mixture(pair: VocabularyPair, vectors: Path) -> Mixture:
    return ofa.mixture(pair, OfaTransfer(vectors=str(vectors)), list, 0)


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


def test_a_row_is_the_softmax_over_neighbours_of_the_means_of_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_vectors(tmp_path / "a.vec", WORDS)
    monkeypatch.setattr(word_space_module, "NEIGHBOURS", 2)
    mixture = ofa_mixture(PAIR, path)
    assert mixture.counts() == {"overlap": 6, "ofa": 3, "multivariate": 1}  # no word contains 나무
    token = {word: np.array(vector) for word, vector in WORDS.items()}
    known = {name: token[name] for name in ("house", "tree")}
    known |= {"dog": (token["dog"] + token["dogs"]) / 2, "##s": token["dogs"]}
    wanted = {"집": (token["집"] + token["집들"]) / 2, "개": token["개"], "##들": token["집들"]}
    for name, vector in wanted.items():
        scores = {source: np.exp(cosine(vector, other) / 0.1) for source, other in known.items()}
        best = sorted(scores, key=scores.__getitem__, reverse=True)[:2]
        found = {tokens(SOURCE)[n]: weight for n, weight in mixture.sources(tokens(TARGET).index(name))}
        assert found == {n: pytest.approx(scores[n] / sum(scores[b] for b in best), rel=1e-4) for n in best}


def test_vectors_of_one_language_only_are_refused(tmp_path: Path) -> None:
    english = write_vectors(tmp_path / "en.vec", {"dog": [1, 0], "tree": [0, 1]})
    with pytest.raises(DataError, match=r"en\.vec: none of its 2 words contains a token of the vocabulary"):
        ofa_mixture(pair_of(SOURCE, wordpiece("집")), vectors=english)
    with pytest.raises(DataError, match="None of the new target tokens has a vector"):
        ofa_mixture(PAIR, vectors=write_vectors(tmp_path / "b.vec", {"house": [1, 0]}))
