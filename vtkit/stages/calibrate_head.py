"""Stage ``calibrate``: the bias shift that sets the share of positive activations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vtkit.encoder.calibration import calibrate
from vtkit.encoder.checkpoint import fastest_device, load_encoder, save_encoder
from vtkit.errors import DataError
from vtkit.recipe.sections import Recipe
from vtkit.stages.texts import calibration_corpus, draw, read_texts

FEWEST = 8


def calibrate_head(recipe: Recipe, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Fill ``out/model`` with the encoder of ``inputs["model"]``, its decoder bias shifted."""
    section = recipe.calibrate
    assert section is not None
    encoder = load_encoder(str(inputs["model"] / "model"), fastest_device())
    texts = draw(read_texts(calibration_corpus(recipe), recipe), section.texts, recipe.recipe.seed)
    if len(texts) < FEWEST:
        raise DataError(
            f"calibration has {len(texts)} probe texts and needs at least {FEWEST}: name a longer calibrate.corpus"
        )
    found = calibrate(encoder, texts, section.target_activation, section.definition, section.max_length)
    save_encoder(encoder, out / "model")
    return found.facts()
