"""OFA against its definition, worked out densely: subword vectors, ten neighbours, factorised embeddings."""

from pathlib import Path

import numpy as np
import pytest
from test_overlap import wordpiece
from test_vectors import write_text

from vtkit.settings.transfer import OfaTransfer
from vtkit.system.errors import DataError
from vtkit.transfer import word_space
from vtkit.transfer.methods import ofa
from vtkit.transfer.mixture import Mixture
from vtkit.vocabulary.forms import tokens
from vtkit.vocabulary.pair import VocabularyPair, pair_of

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
    path = write_text(tmp_path / "a.vec", WORDS)
    monkeypatch.setattr(word_space, "NEIGHBOURS", 2)
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
    english = write_text(tmp_path / "en.vec", {"dog": [1, 0], "tree": [0, 1]})
    with pytest.raises(DataError, match=r"en\.vec: none of its 2 words contains a token of the vocabulary"):
        ofa_mixture(pair_of(SOURCE, wordpiece("집")), vectors=english)
    with pytest.raises(DataError, match="None of the new target tokens has a vector"):
        ofa_mixture(PAIR, vectors=write_text(tmp_path / "b.vec", {"house": [1, 0]}))
