"""Which terms can be positive: the screen misses none; and encoding in bf16 against autocast alone and float32."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from families import FAMILIES, TEXTS, source_of
from hypothesis import given
from hypothesis import strategies as st
from tiny import encoder, shuffled, texts, tokenizer
from torch import Tensor, nn

from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder
from vtkit.encoder.encoding import encode
from vtkit.encoder.families import NO_AUTOCAST, mlm_head, with_plain_head
from vtkit.encoder.kernels import half_precision as module
from vtkit.encoder.kernels import screen
from vtkit.encoder.kernels.half_precision import half_precision
from vtkit.encoder.kernels.screen import CalibratedScreen, LowRankScreen, Screen
from vtkit.settings.adapt import AdaptSection
from vtkit.system.runtime import bf16_is_fast
from vtkit.training import resuming
from vtkit.training.adapt import adapt_vectors
from vtkit.training.resuming import TrainingRun

pytestmark = pytest.mark.bf16

SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(2, 40), st.integers(1, 300))
"""Texts, positions, width, vocabulary; vocabularies reach across several blocks of 64 terms."""


def problem(shape: tuple[int, int, int, int], seed: int, offset: float, near: int | None = None) -> tuple[Tensor, ...]:
    """Hidden states, mask (the first position is always a token), decoder rows and bias; hidden states are ``near`` a
    subspace of so many dimensions."""
    batch, length, width, vocabulary = shape
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    hidden = normal(batch, length, width)
    if near is not None:
        hidden = 0.05 * hidden + normal(batch, length, near) @ normal(near, width)
    mask = (torch.rand(batch, length, generator=generator) < 0.7).long()
    mask[:, 0] = 1
    return hidden, mask, normal(vocabulary, width), normal(vocabulary) + offset


def positive(hidden: Tensor, mask: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The terms with a logit above zero, (batch, vocabulary), by the definition in float64."""
    logits = hidden.double() @ weight.double().t() + bias.double()
    return logits.masked_fill(mask.unsqueeze(2) == 0, -torch.inf).amax(dim=1) > 0


def moment(hidden: Tensor, mask: Tensor) -> Tensor:
    states = hidden[mask.bool()].double()
    return states.t() @ states / len(states)


@given(
    shape=SHAPES, seed=st.integers(0, 1000), scale=st.sampled_from([1e-3, 1.0, 30.0]), offset=st.sampled_from([-2, 0])
)
def test_the_screen_misses_no_positive_term(
    shape: tuple[int, int, int, int], seed: int, scale: float, offset: float
) -> None:
    hidden, mask, weight, bias = problem(shape, seed, offset)
    hidden = hidden * scale
    possible = Screen.of(weight, bias).possible(hidden, mask)
    assert not (positive(hidden, mask, weight, bias) & ~possible).any()


def test_the_bound_is_needed_and_tight_to_a_small_factor() -> None:
    # 1 + 2^-8 lies halfway between two bf16 numbers and is rounded down to 1: both factors lose a share of 2^-8
    hidden = torch.full((1, 1, 64), 1 + 2.0**-8)
    weight = torch.full((1, 64), 1 + 2.0**-8)
    exact, rounded = 64 * (1 + 2.0**-8) ** 2, 64.0
    between = torch.tensor([-(exact + rounded) / 2])

    def possible(bias: Tensor) -> bool:
        return bool(Screen.of(weight, bias).possible(hidden, torch.ones(1, 1)).item())

    assert (hidden.bfloat16().float() @ weight.bfloat16().t().float() + between).item() < 0 < exact + between.item()
    assert possible(between)
    assert not possible(torch.tensor([-exact * (1 + 4 * 2.0**-8)]))


@given(shape=SHAPES, seed=st.integers(0, 1000), offset=st.sampled_from([-20, -2, 0]), data=st.data())
def test_with_the_whole_bound_fewer_columns_miss_no_term_either(
    shape: tuple[int, int, int, int], seed: int, offset: float, data: st.DataObject
) -> None:
    hidden, mask, weight, bias = problem(shape, seed, offset)
    rank = data.draw(st.integers(1, shape[2] - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(screen, "BOUND_SHARE", 1.0)
        narrow = LowRankScreen.of_states(weight, bias, moment(hidden, mask), rank)
    missed = positive(hidden, mask, weight, bias - 1e-3) & ~narrow.possible(hidden, mask)  # float32 turns the states
    assert narrow.rows.shape == (shape[3], rank + 4)
    assert not missed.any()


@given(seed=st.integers(0, 1000))
def test_near_a_subspace_a_share_of_the_bound_finds_nearly_all(seed: int) -> None:
    shape = 8, 64, 192, 3000
    hidden, mask, weight, bias = problem(shape, seed, -150.0, near=20)
    seen, others = hidden[:4], hidden[4:]
    narrow = LowRankScreen.of_states(weight, bias, moment(seen, mask[:4]), rank=60)
    wanted, possible = positive(others, mask[4:], weight, bias), narrow.possible(others, mask[4:])
    assert wanted.any()
    assert (wanted & ~possible).sum() <= 0.01 * wanted.sum()
    assert possible.sum() < 3 * wanted.sum() + 40  # else it would be no help


def test_a_calibrated_screen_takes_fewer_columns_once_it_has_seen_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "CALIBRATION_POSITIONS", 100)
    hidden, mask, weight, bias = problem((4, 32, 192, 3000), 5, -260.0, near=20)
    calibrated = CalibratedScreen(weight, bias)
    whole = Screen.of(weight, bias).possible(hidden[:1], mask[:1])
    assert torch.equal(calibrated.possible(hidden[:1], mask[:1]), whole)
    assert not isinstance(calibrated.chosen, LowRankScreen)  # 32 positions at most
    for _ in range(2):
        calibrated.possible(hidden, mask)
    assert isinstance(calibrated.chosen, LowRankScreen)
    assert calibrated.chosen.rows.shape[1] == 64
    calibrated.possible(hidden, mask)
    assert isinstance(calibrated.chosen, LowRankScreen)
    calibrated.possible(100 * torch.randn(4, 32, 192, generator=torch.Generator().manual_seed(1)), mask)
    assert not isinstance(calibrated.chosen, LowRankScreen)  # of these it lets nearly all terms through


@pytest.mark.parametrize("odd", [torch.nan, torch.inf])
def test_hidden_states_that_are_no_numbers_calibrate_nothing(odd: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "CALIBRATION_POSITIONS", 1)
    hidden, mask, weight, bias = problem((2, 4, 192, 300), 1, -50.0)
    hidden[0, 0, 7] = odd
    calibrated = CalibratedScreen(weight, bias)
    for _ in range(2):
        assert calibrated.possible(hidden, mask)[0].all()
    assert not isinstance(calibrated.chosen, LowRankScreen)


@pytest.mark.skipif(not bf16_is_fast(), reason="this processor has no fast bf16 products, so nothing is screened")
def test_real_text_loses_less_than_a_thousandth_of_its_weights(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gzip.open(shared / "data" / "squad-en" / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line, _ in zip(file, range(40), strict=False)]
    model = load_encoder(str(shared / "models" / "minilm-splade-en"))
    whole = encode(model, texts, 64, precision="bf16")  # too few for a calibration
    assert whole.shape[0] * 64 < screen.CALIBRATION_POSITIONS
    monkeypatch.setattr(screen, "CALIBRATION_POSITIONS", 1000)
    found = encode(model, texts, 64, precision="bf16")
    assert abs(whole - found).sum() < 1e-3 * whole.sum()
    assert 0.995 * whole.nnz < found.nnz < 1.001 * whole.nnz


FAST = pytest.mark.skipif(not bf16_is_fast(), reason="this processor has no fast bf16 products, so nothing is packed")


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_encodes_in_bf16_and_is_left_as_it_was(family: str, tmp_path: Path) -> None:
    tokens = shuffled(4, pad=FAMILIES[family][1].get("pad_token_id", 0))
    model = as_sparse_encoder(with_plain_head(source_of(family, tokens)), tokenizer(tokens), tmp_path / "model")
    wanted = encode(model, TEXTS, 1000).toarray()
    assert relative_error(encode(model, TEXTS, 1000, precision="bf16").toarray(), wanted) < 0.1
    assert not any("forward" in vars(part) for part in model[0].auto_model.modules())
    np.testing.assert_array_equal(encode(model, TEXTS, 1000).toarray(), wanted)


@FAST
def test_packed_weights_give_the_products_of_autocast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = encoder(tmp_path)
    packed = encode(model, TEXTS, 48, precision="bf16").toarray()
    monkeypatch.setattr(module, "_packs", lambda: False)
    plain = encode(model, TEXTS, 48, precision="bf16").toarray()
    assert relative_error(packed, plain) < 2.0**-8
    assert plain.any()


def test_a_linear_map_is_packed_in_the_transformer_and_exact_in_the_head(tmp_path: Path) -> None:
    model = encoder(tmp_path)[0].auto_model
    transform = next(part for part in model.cls.modules() if type(part) is nn.Linear)
    inner = model.bert.encoder.layer[0].intermediate.dense
    states = torch.randn(3, 5, transform.in_features, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        exact, rough = transform(states), inner(states)
        with half_precision(model):
            assert transform(states).equal(exact)
            found = inner(states)
            assert found.dtype == torch.bfloat16
            torch.testing.assert_close(found.float(), rough, rtol=0.02, atol=0.02)
            assert "forward" not in vars(mlm_head(model).decoder)
        assert inner(states).equal(rough)


@pytest.mark.parametrize("family", ["bert", *sorted(NO_AUTOCAST)])
def test_a_family_trains_where_bf16_is_fast(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "bf16_is_fast", lambda: True)
    tokens = shuffled(4, pad=FAMILIES[family][1].get("pad_token_id", 0))
    model = as_sparse_encoder(with_plain_head(source_of(family, tokens)), tokenizer(tokens), tmp_path / "model")
    section = AdaptSection(objective="crop", steps=2, batch_size=4, max_length=24)
    before = encode(model, TEXTS, 24)
    curves = adapt_vectors(
        model, texts(12, words=(8, 20)), section, TrainingRun(seed=1, folder=tmp_path / "trained", language="en")
    )
    assert np.isfinite(curves["loss"]).all()
    assert abs(encode(model, TEXTS, 24) - before).max() > 0
