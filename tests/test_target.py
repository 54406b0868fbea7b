"""λ found while training: its law by hand, its bounds, and that an encoder ends with the dimensions asked for."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tiny import collection, encoder

from vtkit.encoder.encoding import encode
from vtkit.settings.adapt import AdaptSection
from vtkit.settings.finetune import FinetuneSection
from vtkit.training.finetune import finetune
from vtkit.training.target import INTEGRAL, LARGEST_STEP, LEAST, LOSSES, MOST, PROPORTIONAL, START, ActiveTarget


def target(aim: float = 20.0, ramp_steps: int = 4, steps: int = 400) -> ActiveTarget:
    return ActiveTarget("document", aim, ramp_steps, steps)


def test_the_law_by_hand() -> None:
    aimed = target(25.0, ramp_steps=4)
    assert aimed(0) == 0.0
    aimed.see(0, active=100.0, loss=2.0, penalty=2.0)
    assert aimed(1) == pytest.approx(START)  # the aim of the first step is where the run starts
    aimed.see(2, active=100.0, loss=2.0, penalty=2.0)  # halfway of the ramp the aim is 50, and the mean still 100
    assert aimed(3) == pytest.approx(START * math.exp(LARGEST_STEP))  # P · ln 2 would be more
    before = aimed(3)
    aimed.see(3, active=100.0, loss=2.0, penalty=2.0)  # the aim is 100^(1/4) · 25^(3/4)
    error = math.log(4) * 3 / 4
    assert PROPORTIONAL * math.log(4) / 4 + INTEGRAL / 400 * error > LARGEST_STEP
    assert aimed(4) == pytest.approx(before * math.exp(LARGEST_STEP))
    aimed.see(4, active=100.0, loss=2.0, penalty=2.0)  # from here on the error is bounded to 1
    before = aimed(5)
    aimed.see(5, active=100.0, loss=2.0, penalty=2.0)
    assert aimed(6) == pytest.approx(before * math.exp(INTEGRAL / 400))


def test_the_strength_follows_the_root_of_the_mean_loss() -> None:
    aimed = target(20.0, ramp_steps=1)
    for step in range(200):
        aimed.see(step, 20.0, 1.0, 1.0)
    assert aimed(200) == pytest.approx(START)
    aimed.see(200, 20.0, 0.5, 1.0)
    assert aimed(201) == pytest.approx(START * math.sqrt(1 - 0.5 / LOSSES))
    for step in range(201, 600):
        aimed.see(step, 20.0, 0.5, 1.0)
    assert aimed(600) == pytest.approx(START / math.sqrt(2), rel=1e-3)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=60), st.floats(2, 1e4), st.integers(1, 50))
def test_the_strength_moves_by_bounded_steps(counts: list[float], aim: float, ramp: int) -> None:
    """And never further down or up than where the penalty has a share of the loss that is too small or too large."""
    aimed, last = target(aim, ramp), None
    for step, count in enumerate(counts):
        aimed.see(step, count, 1.0, 3.0)
        now = math.log(aimed(step))
        assert math.log(LEAST) - LARGEST_STEP <= now + math.log(3.0) <= math.log(MOST) + LARGEST_STEP
        assert last is None or abs(now - last) <= LARGEST_STEP + 1e-9
        last = now


def test_a_penalty_without_effect_is_not_made_weaker_still() -> None:
    """So that it is back at once when it is needed."""
    aimed = target(20.0, ramp_steps=1, steps=100)
    for step in range(200):
        aimed.see(step, 5.0, 1.0, 1.0)
    lowest = aimed(200)
    assert lowest == pytest.approx(LEAST, rel=math.exp(LARGEST_STEP) - 1)
    aimed.see(200, 5.0, 0.9, 1.0)
    assert aimed(201) == lowest
    for step in range(201, 211):
        aimed.see(step, 40.0, 1.0, 1.0)
    assert aimed(211) > 2 * lowest


def test_a_run_that_ends_beside_its_aim_says_so() -> None:
    aimed = target(20.0, ramp_steps=1)
    before = 0
    for steps, active, said in (
        (20, 12.0, ("12 active dimensions", "target_active.document is 20", "still falling. Train longer")),
        (600, 12.0, ("Even with almost no penalty", "Calibrate")),
        (150, 40.0, ("40 active dimensions", "still rising. Train longer")),
        (150, 21.0, ()),
    ):
        strength = aimed(before)
        for step in range(steps):
            aimed.see(step, active, 1.0, 1.0)
        assert active == 21.0 or not strength or (aimed(steps) > strength) == (active > 20)  # too many raise λ
        assert all(part in str(aimed.missed()) for part in said)
        assert (aimed.missed() is None) == (not said)
        before = steps


def test_an_encoder_ends_with_the_active_dimensions_asked_for(tmp_path: Path) -> None:
    data, ours = collection(48, seed=4), encoder(tmp_path)
    aims = {"query": 18.0, "document": 35.0}
    section = FinetuneSection(
        data="unused", steps=150, batch_size=12, learning_rate=1e-3, target_active=aims, infonce_scale=0.3
    )
    curves = finetune(ours, data, section, "en", 5, tmp_path / "checkpoints")
    assert min(curves["query_lambda"] + curves["document_lambda"]) > 0
    for side, texts in (("query", data.queries), ("document", data.documents)):
        contents = [text.text for text in texts]
        found = float(np.diff(encode(ours, contents, 48).indptr).mean())
        assert found == pytest.approx(aims[side], rel=0.5), side  # without aims about twice as many


def test_an_aim_takes_the_place_of_the_strength_and_one_that_no_penalty_reaches_is_an_error() -> None:
    aimed: dict[str, Any] = {"target_active": {"query": 20}}
    read = FinetuneSection(data="unused", **aimed).settings_read
    assert {"finetune.target_active.query", "finetune.document_lambda"} <= read
    assert "finetune.query_lambda" not in read
    assert "adapt.target_active.query" in AdaptSection(objective="crop", **aimed).settings_read
    for penalty, said in (
        ([], "target_active.query is reached by the first penalty of finetune.query_penalty"),
        ("cased", "but cased concerns only some dimensions"),
        ("masked_flops", "30 active dimensions or fewer, but target_active.query is 20"),
    ):
        with pytest.raises(ValidationError, match=said):
            FinetuneSection(data="unused", query_penalty=penalty, **aimed)
