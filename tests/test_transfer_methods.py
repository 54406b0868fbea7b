"""Mixtures and what is made of them: embeddings, biases, provenance; and the methods that need no parallel text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, random_array
from test_alignment import byte_level, sentencepiece, wordpiece

from vtkit.errors import DataError
from vtkit.transfer.bias import count_tokens, log_frequency, zscore_bias
from vtkit.transfer.mean import mean_mixture
from vtkit.transfer.mixture import METHODS, Mixture, Part, assemble
from vtkit.transfer.provenance import origins, read_new_ids, read_provenance, sample_neighbours, write_provenance
from vtkit.transfer.random import random_mixture
from vtkit.transfer.sembridge import load_embedder, sembridge_mixture, similarity_mixture
from vtkit.transfer.subtoken import subtoken_mixture
from vtkit.vocabulary.alignment import align, tokens
from vtkit.vocabulary.existing import load_tokenizer

SOURCE = wordpiece("school", "war", "##s", "##ing", "the", "7")
TARGET = wordpiece("school", "7", "schools", "warring", "##war", "[unused1]", "of")
ALIGNMENT = align(SOURCE, TARGET)
ROWS = len(SOURCE) + 5


def embeddings(rows: int = ROWS, width: int = 4) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(rows, width)).astype(np.float32)


def target_id(token: str) -> int:
    return tokens(TARGET).index(token)


def test_overlapping_tokens_keep_their_row_and_bias_to_the_bit() -> None:
    matrix, bias = embeddings(), embeddings()[:, 0]
    for mixture in (
        mean_mixture(ALIGNMENT, ROWS),
        random_mixture(ALIGNMENT, ROWS),
        subtoken_mixture(SOURCE, TARGET, ALIGNMENT, ROWS),
    ):
        known = ALIGNMENT.overlap_ids
        assert np.array_equal(mixture.rows(matrix)[known], matrix[ALIGNMENT.target_to_source[known]])
        assert np.array_equal(mixture.bias(bias)[known], bias[ALIGNMENT.target_to_source[known]])


def test_mean_rows_are_the_mean_of_all_source_rows() -> None:
    matrix = embeddings()
    mixture = mean_mixture(ALIGNMENT, ROWS)
    assert mixture.counts() == {"overlap": 7, "mean": 5}
    assert np.allclose(mixture.rows(matrix)[ALIGNMENT.new_ids], matrix.mean(axis=0))
    assert np.allclose(mixture.bias(matrix[:, 1])[ALIGNMENT.new_ids], matrix[:, 1].mean())


def test_random_rows_are_noise_of_the_seed() -> None:
    alignment = align(SOURCE, wordpiece(*(f"word{n}" for n in range(2000))))
    mixture = random_mixture(alignment, ROWS)
    matrix = embeddings(width=16)
    noise = mixture.rows(matrix, seed=1)[alignment.new_ids]
    assert noise.std() == pytest.approx(0.02, rel=0.02)
    assert abs(noise.mean()) < 0.001
    assert np.array_equal(noise, mixture.rows(matrix, seed=1)[alignment.new_ids])
    assert not np.array_equal(noise, mixture.rows(matrix, seed=2)[alignment.new_ids])


def test_parts_are_brought_to_a_sum_of_one() -> None:
    ids = np.array([target_id("of"), target_id("schools")])
    weights = csr_matrix(([3.0, 1.0, 5.0], ([0, 0, 1], [5, 6, 7])), shape=(2, ROWS))
    mixture = assemble(ALIGNMENT, ROWS, [Part("parallel", ids, weights)], rest="random")
    assert mixture.sources(ids[0]) == [(5, 0.75), (6, 0.25)]
    assert mixture.sources(ids[1]) == [(7, 1.0)]
    assert mixture.counts() == {"overlap": 7, "parallel": 2, "random": 3}
    matrix = embeddings()
    assert np.allclose(mixture.rows(matrix)[ids[0]], 0.75 * matrix[5] + 0.25 * matrix[6])


def test_contradicting_parts_are_refused() -> None:
    row = csr_matrix(([1.0], ([0], [5])), shape=(1, ROWS))
    of = np.array([target_id("of")])
    with pytest.raises(ValueError, match="have one already"):
        assemble(ALIGNMENT, ROWS, [Part("parallel", np.array([target_id("school")]), row)])
    with pytest.raises(ValueError, match="have one already"):
        assemble(ALIGNMENT, ROWS, [Part("parallel", of, row), Part("pieces", of, row)])
    with pytest.raises(ValueError, match="without weight"):
        assemble(ALIGNMENT, ROWS, [Part("parallel", of, csr_matrix((1, ROWS)))])
    with pytest.raises(DataError, match="do not belong together"):
        mean_mixture(ALIGNMENT, 7)
    with pytest.raises(ValueError, match="16 source tokens, but there are 3 rows"):
        mean_mixture(ALIGNMENT, 16).rows(embeddings(3))


@given(st.integers(0, 50))
def test_every_row_is_a_convex_combination(seed: int) -> None:
    weights = csr_matrix(random_array((5, ROWS), density=0.3, rng=np.random.default_rng(seed)))
    filled = np.flatnonzero(np.diff(weights.indptr) > 0)
    part = Part("sembridge", ALIGNMENT.new_ids[filled], weights[filled])
    mixture = assemble(ALIGNMENT, ROWS, [part])
    matrix = embeddings()
    rows = mixture.rows(matrix)
    assert np.all(rows <= matrix.max(axis=0) + 1e-5)
    assert np.all(rows >= matrix.min(axis=0) - 1e-5)
    sums = np.asarray(mixture.weights.sum(axis=1)).ravel()
    assert np.allclose(sums, [name not in ("mean", "random") for name in mixture.method_names])
    ones = np.ones(ROWS, dtype=np.float32)
    assert np.allclose(mixture.bias(ones), 1)


def test_subtokens_are_the_pieces_of_the_text_not_of_the_spelling() -> None:
    mixture = subtoken_mixture(SOURCE, TARGET, ALIGNMENT, ROWS)
    known = tokens(SOURCE)

    def pieces(token: str) -> dict[str, float]:
        return {known[n]: round(weight, 4) for n, weight in mixture.sources(target_id(token))}

    assert pieces("schools") == {"school": 0.5, "##s": 0.5}
    assert pieces("##war") == {"war": 1.0}
    assert mixture.method_names[target_id("warring")] == "mean"  # the source reads it as unknown
    assert mixture.method_names[target_id("[unused1]")] == "mean"


def test_a_continuing_token_starts_with_a_continuing_piece_where_there_is_one() -> None:
    source = wordpiece("war", "##war", "##s")
    target = wordpiece("##wars", "wars")
    mixture = subtoken_mixture(source, target, align(source, target), len(source))
    known, wanted = tokens(source), tokens(target)
    assert {known[n] for n, _ in mixture.sources(wanted.index("##wars"))} == {"##war", "##s"}
    assert {known[n] for n, _ in mixture.sources(wanted.index("wars"))} == {"war", "##s"}


def test_repeated_pieces_count_twice() -> None:
    source = wordpiece("a", "##a")
    target = wordpiece("aaa")
    mixture = subtoken_mixture(source, target, align(source, target), len(source))
    assert mixture.sources(5) == [(6, pytest.approx(2 / 3)), (5, pytest.approx(1 / 3))]


@pytest.mark.parametrize("source", [byte_level("s", "Ġs", "Ġ"), sentencepiece("s", "▁s", "▁")])
def test_every_family_marks_word_starts_in_its_own_way(source: Any) -> None:
    target = wordpiece("ss", "##ss")
    mixture = subtoken_mixture(source, target, align(source, target), len(source))
    known = tokens(source)
    start = "Ġs" if "Ġs" in known else "▁s"
    assert mixture.sources(6)[0] == (known.index("s"), 1.0)
    assert known.index("s") in dict(mixture.sources(5))
    assert set(dict(mixture.sources(5))) <= {known.index("s"), known.index(start)}


def test_zscore_bias_has_the_moments_of_the_source_and_the_order_of_the_prior() -> None:
    draw = np.random.default_rng(8)
    source, prior = draw.normal(-3, 2, 500), draw.gamma(2, size=300)
    bias = zscore_bias(source, prior)
    assert bias.dtype == np.float32
    assert bias.mean() == pytest.approx(source.mean(), rel=1e-5)
    assert bias.std() == pytest.approx(source.std(), rel=1e-5)
    assert np.array_equal(np.argsort(bias), np.argsort(prior))
    assert np.allclose(zscore_bias(source, np.ones(4)), source.mean())
    assert np.allclose(zscore_bias(np.array([1.0, 3.0]), np.array([10.0, 30.0])), [1, 3])


def test_log_frequency_is_a_smoothed_distribution() -> None:
    prior = log_frequency(np.array([0, 1, 7]), smoothing=0.5)
    assert np.exp(prior).sum() == pytest.approx(1)
    assert np.exp(prior) == pytest.approx([0.5 / 9.5, 1.5 / 9.5, 7.5 / 9.5])


def test_tokens_are_counted_as_a_stream_without_specials() -> None:
    counts = count_tokens(SOURCE, iter(["school schools", "the 7"]))
    named = {token: int(count) for token, count in zip(tokens(SOURCE), counts, strict=True) if count}
    assert named == {"school": 2, "##s": 1, "the": 1, "7": 1}
    assert count_tokens(SOURCE, iter(["the", "school"]), max_texts=1).sum() == 1
    with pytest.raises(DataError, match="empty"):
        count_tokens(SOURCE, iter(["", ""]))


class LetterCounts:
    """An embedder whose vectors a person can work out: how often each letter occurs."""

    def encode(self, texts: list[str], **_: Any) -> np.ndarray:
        return np.array([[text.count(letter) for letter in "schoolwarting7f"] for text in texts], dtype=np.float32)


def test_similar_texts_give_the_weights_of_similar_tokens() -> None:
    mixture = similarity_mixture(LetterCounts(), SOURCE, TARGET, ALIGNMENT, ROWS, alpha=4.0)
    known = tokens(SOURCE)
    assert known[mixture.sources(target_id("schools"))[0][0]] == "school"
    assert mixture.sources(target_id("##war")) == [(known.index("war"), 1.0)]
    assert mixture.method_names[target_id("[unused1]")] == "mean"
    assert mixture.weights[:, : len(ALIGNMENT.target_to_source)].shape[0] == len(TARGET)
    specials = mixture.weights[ALIGNMENT.new_ids][:, :5]
    assert specials.nnz == 0


def test_sembridge_finds_synonyms_with_a_real_embedder(shared: Path) -> None:
    source = wordpiece("car", "school", "king", "##s", "wine")
    target = wordpiece("automobile", "pupil", "queen", "beer")
    alignment = align(source, target)
    embedder = str(shared / "models" / "all-MiniLM-L6-v2")
    mixture = sembridge_mixture(embedder, source, target, alignment, len(source), 4.0)
    found = [tokens(source)[mixture.sources(n)[0][0]] for n in alignment.new_ids]
    assert found == ["car", "school", "king", "wine"]
    assert mixture.counts() == {"overlap": 5, "sembridge": 4}


def test_an_embedder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"transfer\.embedder = "):
        load_embedder(str(tmp_path))
    with pytest.raises(DataError, match="allow them with --download"):
        load_embedder("nobody/no-such-embedder")


def test_provenance_survives_writing_and_reading(tmp_path: Path) -> None:
    mixture = subtoken_mixture(SOURCE, TARGET, ALIGNMENT, ROWS)
    path = tmp_path / "provenance.parquet"
    write_provenance(path, mixture, SOURCE, TARGET)
    read = read_provenance(path)
    assert read == list(origins(mixture, SOURCE, TARGET))
    assert [origin.target_id for origin in read] == ALIGNMENT.new_ids.tolist() == read_new_ids(path).tolist()
    schools = next(origin for origin in read if origin.token == "schools")
    assert schools.method == "subtoken"
    assert dict(zip(schools.sources, schools.weights, strict=True)) == {"school": 0.5, "##s": 0.5}
    first = path.read_bytes()
    write_provenance(path, mixture, SOURCE, TARGET)
    assert path.read_bytes() == first
    path.write_bytes(b"no parquet")
    for read_it in (read_provenance, read_new_ids):
        with pytest.raises(DataError, match=r"provenance\.parquet"):
            read_it(path)


def test_sampled_neighbours_are_words_with_their_sources() -> None:
    mixture = subtoken_mixture(SOURCE, TARGET, ALIGNMENT, ROWS)
    sampled = sample_neighbours(mixture, SOURCE, TARGET, seed=4)
    assert sampled == [{"token": "schools", "method": "subtoken", "sources": [["school", 0.5], ["##s", 0.5]]}]


def test_methods_fit_their_codes() -> None:
    assert METHODS == ("overlap", "parallel", "pieces", "subtoken", "sembridge", "mean", "random")
    codes = np.arange(len(METHODS), dtype=np.int8)
    assert Mixture(csr_matrix((len(METHODS), 2)), codes).method_names == list(METHODS)


def test_subtokens_of_a_real_pair_cover_every_word(shared: Path) -> None:
    source = load_tokenizer(str(shared / "vocab" / "ModernBERT-base"))
    target = load_tokenizer(str(shared / "vocab" / "bert-base-uncased"))
    mixture = subtoken_mixture(source, target, align(source, target), 50_368)
    assert mixture.counts() == {"overlap": 17_216, "subtoken": 12_312, "mean": 994}  # 994 are [unusedN]
    known = tokens(source)
    pieces = mixture.sources(target.convert_tokens_to_ids("encyclopedia"))
    assert sorted(known[n] for n, _ in pieces) == ["cyclopedia", "Ġen"]
