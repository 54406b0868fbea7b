"""Document weighting by inverse document frequency."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from test_alignment import wordpiece

from vtkit.encoder.idf import document_frequencies, idf_weights, weighted
from vtkit.vocabulary.alignment import tokens

TOKENIZER = wordpiece("river", "school", "##s", "moon")


def test_frequencies_count_texts_not_occurrences_and_read_to_the_end() -> None:
    texts = ["river river school", "schools " + "river " * 2000, ""]
    found, count = document_frequencies(TOKENIZER, texts, len(TOKENIZER) + 3)
    of = dict(zip(tokens(TOKENIZER), found.tolist(), strict=False))
    assert count == 3
    assert {name: of[name] for name in ("river", "school", "##s", "moon", "[CLS]")} == {
        "river": 2,
        "school": 2,
        "##s": 1,
        "moon": 0,
        "[CLS]": 0,
    }
    assert len(found) == len(TOKENIZER) + 3


def test_the_weights_are_those_of_the_equations() -> None:
    held = np.array([0, 1, 2, 4])
    assert idf_weights(held, 4, "none").tolist() == [1, 1, 1, 1]
    assert idf_weights(held, 4, "cai-paper") == pytest.approx([1, math.log(4), math.log(2), 0])
    assert idf_weights(held, 4, "cai-code") == pytest.approx([1, math.log(4) ** 0.5, math.log(2) ** 0.5, 0])
    geng = [math.log(1 + (4 - n + 0.5) / (n + 0.5)) for n in held]
    assert idf_weights(held, 4, "geng") == pytest.approx(geng)


@given(st.lists(st.integers(0, 50), min_size=3, max_size=3))
def test_rarer_tokens_weigh_no_less(held: list[int]) -> None:
    for weighting in ("cai-paper", "cai-code", "geng"):
        present = sorted(count for count in held if count)
        weights = idf_weights(np.array(present), 50, weighting)
        assert (np.diff(weights) <= 1e-6).all()
        assert (weights >= 0).all()


def test_scores_are_the_same_whichever_side_is_weighted() -> None:
    generator = np.random.default_rng(0)
    documents = sparse.random(20, 30, 0.3, format="csr", dtype=np.float32, rng=generator)
    queries = sparse.random(5, 30, 0.3, format="csr", dtype=np.float32, rng=generator)
    weights = idf_weights(generator.integers(0, 21, 30), 20, "cai-paper")
    one = (queries @ weighted(documents, weights).T).toarray()
    other = (weighted(queries, weights) @ documents.T).toarray()
    assert np.allclose(one, other, atol=1e-6)
    assert weighted(documents, np.zeros(30, dtype=np.float32)).nnz == 0
