"""The decoder bias of a new vocabulary: by hand, and the prior of a model that owns the vocabulary."""

from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import with_masked, wordpiece

from vtkit.encoder.checkpoint import as_sparse_encoder, save_encoder
from vtkit.encoder.families import mlm_head
from vtkit.encoder.masked import MASKED_BIAS, is_masked
from vtkit.encoder.scratch import scratch_model
from vtkit.settings.source import Scratch
from vtkit.settings.transfer import BiasSection, TransferSection
from vtkit.system.errors import DataError
from vtkit.transfer.dispatch import bias_of
from vtkit.transfer.mixture import mixture_of_parts
from vtkit.transfer.surgery.bias import (
    count_tokens,
    log_frequency,
    masked,
    model_prior,
    ordinary_rows,
    zscore_bias,
)
from vtkit.vocabulary.forms import Vocabulary, tokens
from vtkit.vocabulary.pair import pair_of

SOURCE = wordpiece("school", "war", "##s", "##ing", "the", "7")
TARGET = wordpiece("school", "7", "schools", "[unused1]", "of")
PAIR = pair_of(SOURCE, TARGET)


METHODS = ("zscore", "copy-overlap", "mixture")


def test_zscore_bias_has_the_moments_of_the_source_and_the_order_of_the_prior() -> None:
    draw = np.random.default_rng(8)
    source, prior = draw.normal(-3, 2, 500), draw.gamma(2, size=300)
    every = [np.ones(len(each), dtype=bool) for each in (source, prior)]
    bias = zscore_bias(source, prior, *every)
    assert bias.dtype == np.float32
    assert bias.mean() == pytest.approx(source.mean(), rel=1e-5)
    assert bias.std() == pytest.approx(source.std(), rel=1e-5)
    assert np.array_equal(np.argsort(bias), np.argsort(prior))
    assert np.allclose(zscore_bias(source, np.ones(4), every[0], np.ones(4, dtype=bool)), source.mean())
    assert np.allclose(zscore_bias(np.array([1.0, 3.0]), np.array([10.0, 30.0]), *[np.ones(2, dtype=bool)] * 2), [1, 3])


@pytest.mark.parametrize("odd", ["masked", "padding"])
def test_moments_are_over_text_that_is_not_masked(odd: str) -> None:
    """The source's and the target's moments, the mean of copies and of mixtures: none of them sees an odd row."""
    size = len(SOURCE) + 28
    values = np.random.default_rng(2).normal(-3, 2, size).astype(np.float32)
    known, war = tokens(SOURCE), tokens(SOURCE).index("war")
    plain = [n for n, token in enumerate(known) if not token.startswith("[") and (odd == "padding" or n != war)]
    if odd == "masked":
        values[war] = MASKED_BIAS
        values = values[: len(SOURCE)]
    else:
        values[len(SOURCE) :] = MASKED_BIAS / 3  # rows behind the last token, of which nobody knows what they hold
    usual = ordinary_rows(Vocabulary(SOURCE), values)
    assert np.flatnonzero(usual).tolist() == plain

    prior = np.linspace(-9, -1, len(TARGET))
    pair = pair_of(SOURCE, TARGET, source_rows=len(values))
    mixture = mixture_of_parts(pair)
    counts = np.round(np.exp(prior + 20)).astype(np.int64)
    sections = (TransferSection(method="mean", bias=BiasSection(method=method)) for method in METHODS)
    biases = {each.bias.method: bias_of(each, pair, mixture, values, lambda: counts) for each in sections}
    text = [n for n, token in enumerate(tokens(TARGET)) if not token.startswith("[")]
    assert biases["zscore"][text].mean() == pytest.approx(values[plain].mean(), rel=1e-5)
    assert biases["zscore"][text].std() == pytest.approx(values[plain].std(), rel=1e-5)
    for method in METHODS[1:]:
        assert biases[method][tokens(TARGET).index("schools")] == pytest.approx(values[plain].mean())


def test_a_decoder_without_ordinary_rows_has_no_prior() -> None:
    with pytest.raises(DataError, match="no unmasked token that stands for text"):
        ordinary_rows(Vocabulary(SOURCE), np.full(len(SOURCE), MASKED_BIAS, dtype=np.float32))


def test_log_frequency_is_a_smoothed_distribution() -> None:
    prior = log_frequency(np.array([0, 1, 7]))
    assert np.exp(prior).sum() == pytest.approx(1)
    assert np.exp(prior) == pytest.approx([1 / 11, 2 / 11, 8 / 11])


def test_tokens_are_counted_as_a_stream_without_specials() -> None:
    counts = count_tokens(SOURCE, iter(["school schools", "the 7"]))
    named = {token: int(count) for token, count in zip(tokens(SOURCE), counts, strict=True) if count}
    assert named == {"school": 2, "##s": 1, "the": 1, "7": 1}
    with pytest.raises(DataError, match="empty"):
        count_tokens(SOURCE, iter(["", ""]))


def test_shared_tokens_keep_their_bias_and_new_ones_get_the_mean() -> None:
    source = np.arange(len(SOURCE), dtype=np.float32)
    named = dict(
        zip(tokens(TARGET), mixture_of_parts(PAIR).bias(source, np.ones(len(source), dtype=bool)).tolist(), strict=True)
    )
    known = dict(zip(tokens(SOURCE), source.tolist(), strict=True))
    for token in ("school", "7", "[PAD]", "[MASK]"):
        assert named[token] == known[token]
    assert named["schools"] == named["of"] == named["[unused1]"] == source.mean()


@given(st.lists(st.floats(-50, 50, width=32), min_size=10, max_size=10))
def test_tokens_that_the_mixture_masks_are_masked_whatever_the_bias(values: list[float]) -> None:
    ids = np.array([tokens(TARGET).index("[unused1]")])
    mixture = with_masked(mixture_of_parts(PAIR), ids)
    bias = np.array(values, dtype=np.float32)
    result = masked(bias, mixture)
    others = np.setdiff1d(np.arange(len(TARGET)), ids)
    assert np.array_equal(result[others], bias[others])
    assert result[ids] == MASKED_BIAS
    assert np.array_equal(masked(result, mixture), result)
    assert np.flatnonzero(is_masked(result)).tolist() == ids.tolist()


def owner(folder: Path, values: np.ndarray) -> str:
    """A model of the tiny vocabulary with ``values`` as its bias."""
    tokenizer = tiny.tokenizer()
    model = scratch_model(Scratch(layers=1, hidden=8, heads=1, feed_forward=8), tokenizer)
    mlm_head(model).decoder.bias.data.copy_(torch.from_numpy(values))
    save_encoder(as_sparse_encoder(model, tokenizer, folder / "work"), folder / "model")
    return str(folder / "model")


def test_the_prior_of_a_model_is_its_bias_in_the_order_of_the_target_and_else_the_mean(tmp_path: Path) -> None:
    """``[unused1]`` is no token of the model, and some of its tokens are masked."""
    values = np.random.default_rng(1).normal(size=len(tiny.TOKENS)).astype(np.float32)
    values[60:75] = MASKED_BIAS
    order = (*tiny.shuffled(5), "[unused1]")
    prior = dict(zip(order, model_prior(owner(tmp_path, values), Vocabulary(tiny.tokenizer(order))), strict=True))
    plain = [n for n, token in enumerate(tiny.TOKENS) if not token.startswith("[") and not 60 <= n < 75]
    assert [prior[tiny.TOKENS[n]] for n in plain] == pytest.approx(values[plain])
    others = ["[unused1]", *tiny.TOKENS[60:75]]
    assert [prior[token] for token in others] == pytest.approx([values[plain].mean()] * 16)


def test_a_model_of_another_vocabulary_has_no_prior_for_it(tmp_path: Path) -> None:
    other, own = wordpiece(*(f"word{n}" for n in range(50))), tiny.tokenizer()
    zeros, broken = np.zeros(len(tiny.TOKENS), np.float32), np.full(len(tiny.TOKENS), np.nan, np.float32)
    for name, target, said in (
        (owner(tmp_path, zeros), other, "5 of its 55 tokens"),
        (owner(tmp_path / "broken", broken), own, r"not finite.*cls\.predictions\.bias"),
        (str(tmp_path / "nowhere"), other, "nowhere"),
    ):
        with pytest.raises(DataError, match=said):
            model_prior(name, Vocabulary(target))
