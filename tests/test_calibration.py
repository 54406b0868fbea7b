"""Calibration: the share of positive activations that was asked for, counted by brute force."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SparseEncoder
from tiny import ARCHITECTURES, encoder, model, texts, tokenizer

from vtkit.encoder import calibration
from vtkit.encoder.calibration import ActivationRates, activation_rates, calibrate
from vtkit.encoder.checkpoint import assemble
from vtkit.encoder.families import mlm_head
from vtkit.errors import CollapseError

TEXTS = [*texts(60, seed=3), ""]


def bias(model: SparseEncoder) -> torch.Tensor:
    return mlm_head(model[0].auto_model).decoder.bias


def counted(model: SparseEncoder, probe: list[str], max_length: int = 48) -> ActivationRates:
    """Both shares by the plain model, one text after the other."""
    positive = total = 0
    pooled = []
    for text in probe:
        ids = model.tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
        with torch.no_grad():
            logits = model[0].auto_model(**ids).logits[0]
        positive, total = positive + int((logits > 0).sum()), total + logits.numel()
        pooled.append((logits.amax(dim=0) > 0).float().mean().item())
    return ActivationRates(positive / total, sum(pooled) / len(pooled))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rates_are_those_counted_by_brute_force(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = encoder(tmp_path, architecture)
    wanted = counted(ours, TEXTS, max_length=10)
    for block in (calibration.LOGITS_A_BLOCK, 1):  # the whole vocabulary at once, and 64 terms at once
        monkeypatch.setattr(calibration, "LOGITS_A_BLOCK", block)
        found = activation_rates(ours, TEXTS, max_length=10)
        assert found.token == pytest.approx(wanted.token, abs=1e-4)
        assert found.pooled == pytest.approx(wanted.pooled, abs=1e-4)


@pytest.mark.parametrize("definition", ["token", "pooled"])
@pytest.mark.parametrize("target", [0.02, 0.35, 0.9])
def test_the_shift_brings_the_rate_to_the_target(definition: str, target: float, tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    before = bias(ours).detach().clone()
    wanted = counted(ours, TEXTS[0::2])
    found = calibrate(ours, TEXTS, target, definition, max_length=48)
    torch.testing.assert_close(bias(ours).detach(), before - found.shift)
    assert found.before.token == pytest.approx(wanted.token, abs=1e-4)
    assert getattr(found.after, definition) == pytest.approx(target, abs=2e-3)
    assert getattr(found.held_out, definition) == pytest.approx(target, abs=max(0.1 * target, 0.02))
    # what is reported is what the shifted encoder does, on the two halves of the texts
    for reported, half in ((found.after, TEXTS[0::2]), (found.held_out, TEXTS[1::2])):
        now = counted(ours, half)
        assert reported.token == pytest.approx(now.token, abs=1e-4)
        assert reported.pooled == pytest.approx(now.pooled, abs=1e-4)
    assert found.facts()["held_out"] == {"token": found.held_out.token, "pooled": found.held_out.pooled}


def test_nothing_but_the_bias_changes(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    before = {name: tensor.clone() for name, tensor in ours[0].auto_model.named_parameters()}
    calibrate(ours, TEXTS, 0.2, "token", 48)
    changed = [name for name, tensor in ours[0].auto_model.named_parameters() if not torch.equal(tensor, before[name])]
    assert changed == ["cls.predictions.bias"] or changed == ["cls.predictions.decoder.bias"]


def test_a_second_calibration_finds_hardly_anything_left_to_shift(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    first = calibrate(ours, TEXTS, 0.3, "token", 48)
    second = calibrate(ours, TEXTS, 0.3, "token", 48)
    assert abs(second.shift) < 0.01 < abs(first.shift)
    third = calibrate(ours, TEXTS, 0.1, "token", 48)
    assert third.shift > 0
    assert third.after.token == pytest.approx(0.1, abs=2e-3)


def test_texts_too_different_from_each_other_are_refused(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    short, long = texts(20, words=(1, 1)), texts(20, words=(40, 40))  # many positions make a high maximum
    uneven = [text for pair in zip(short, long, strict=True) for text in pair]
    with pytest.raises(CollapseError, match=r"reached .* on held-out probe texts.*calibrate\.texts"):
        calibrate(ours, uneven, 0.2, "pooled", 48)


@pytest.mark.parametrize("block", [1, 2**23])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_single_row_that_is_not_finite_is_found(
    value: float, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "LOGITS_A_BLOCK", block)
    broken = model()
    with torch.no_grad():
        mlm_head(broken).decoder.bias[100] = value
    ours = assemble(broken, tokenizer(), tmp_path)
    with pytest.raises(CollapseError, match="logits are not finite"):
        calibrate(ours, TEXTS, 0.3, "token", 48)


def test_four_logits_and_their_quantile_by_eye(tmp_path: Path) -> None:
    # a decoder that ignores its input: every logit is its bias, 0 to 119
    ours = encoder(tmp_path)
    decoder = mlm_head(ours[0].auto_model).decoder
    with torch.no_grad():
        decoder.weight.zero_()
        decoder.bias.copy_(torch.arange(120.0))
    assert activation_rates(ours, TEXTS, 48) == ActivationRates(119 / 120, 119 / 120)
    found = calibrate(ours, TEXTS, 0.25, "token", 48)
    assert found.shift == pytest.approx(89.0, abs=0.02)  # the 30 biases 90 to 119 stay positive
    assert found.after == ActivationRates(0.25, 0.25)
