"""Vectors of sentence ids: equal to the cosines written out, and sensible on Korean."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_overlap import wordpiece
from test_parallel import Pairs, bitext, ids

from vtkit.transfer.entmax import entmax
from vtkit.transfer.methods.bitext import pairs_in, read_bitext
from vtkit.transfer.methods.cooccurrence import cooccurrence_mixture
from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.forms import tokens
from vtkit.vocabulary.pair import pair_of

WORDS = [f"w{letter}" for letter in "abcdef"]
SOURCE = wordpiece(*WORDS)
TARGET = wordpiece(*[word.replace("w", "ㅎ") for word in WORDS])
PAIR = pair_of(SOURCE, TARGET)
OVERLAP = PAIR.overlap
FIRST = tokens(SOURCE).index(WORDS[0])
"""Both vocabularies have their words from here on."""


def shifted(pairs: Pairs) -> Pairs:
    return [([n + FIRST for n in source], [n + FIRST for n in target]) for source, target in pairs]


def cosines(pairs: Pairs) -> np.ndarray:
    """cos(x_t, x_s) with dense vectors, (6 target words, 6 source words)."""
    vectors = np.zeros((2, 6, len(pairs)))
    for number, pair in enumerate(pairs):
        for side in (0, 1):
            vectors[side, sorted(set(pair[side])), number] = (len(pair[0]) * len(pair[1])) ** -0.25
    lengths = np.linalg.norm(vectors, axis=2, keepdims=True)
    source, target = vectors / np.where(lengths > 0, lengths, 1)
    return target @ source.T


@pytest.mark.parametrize("alpha", [1.5, 2.0, 4.0])
@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=8))
def test_weights_are_the_entmax_of_the_cosines(alpha: float, pairs: Pairs) -> None:
    mixture = cooccurrence_mixture(bitext(shifted(pairs)), PAIR, alpha, 0.0)
    found = mixture.weights.toarray()[FIRST : FIRST + 6, FIRST : FIRST + 6]
    for row, similar in zip(found, cosines(pairs), strict=True):
        near = similar > 0
        wanted = np.zeros(6)
        if near.any():
            wanted[near] = entmax(similar[None, near], alpha)[0]
        assert np.allclose(row, wanted, atol=1e-6)


def test_korean_words_find_their_translations(shared: Path) -> None:
    source = load_tokenizer(str(shared / "models" / "minilm-splade-en"))
    target = load_tokenizer(str(shared / "vocab" / "kobigbird"))
    files = [shared / "data" / "parallel" / f"{name}.tsv.gz" for name in ("dict-wiktionary-en-ko", "news-en-ko")]
    pair = pair_of(source, target)
    found = read_bitext(pair, pairs_in(files, source, target))
    mixture = cooccurrence_mixture(found, pair, 4.0)
    known = tokens(source)
    for word, translation in {"학교": "school", "대통령": "president", "물": "water", "경제": "economy"}.items():
        assert known[mixture.sources(target.convert_tokens_to_ids(word))[0][0]] == translation
    assert mixture.counts()["cooccurrence"] > 15_000
