"""Stage ``calibrate``: the logits rescaled, shifted and folded, with one table of what that did."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vtkit import console
from vtkit.encoder.calibration import Calibration, calibrate
from vtkit.encoder.checkpoint import fastest_device, load_encoder, save_encoder
from vtkit.errors import DataError
from vtkit.recipe.sections import CalibrateSection, Recipe
from vtkit.stages.texts import calibration_corpus, draw, read_texts

FEWEST = 8


def calibrate_head(recipe: Recipe, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Fill ``out/model`` with the encoder of ``inputs["model"]``, calibrated."""
    section = recipe.calibrate
    assert section is not None
    texts = draw(read_texts(calibration_corpus(recipe), recipe), section.texts, recipe.recipe.seed)
    found = calibrate_model(str(inputs["model"] / "model"), texts, section, out / "model")
    console.say(f"calibration: {found.done()}")
    console.show_table("probe texts held out", ["", "before", "after"], found.table())
    return found.facts()


def calibrate_model(model: str, texts: list[str], section: CalibrateSection, out: Path | None) -> Calibration:
    """Calibrate the encoder called ``model`` on the probe texts ``texts`` and save it as ``out``, where that is given.

    Raises:
        DataError: too few texts.
    """
    if len(texts) < FEWEST:
        raise DataError(
            f"calibration has {len(texts)} probe texts and needs at least {FEWEST}: name a longer calibrate.corpus"
        )
    if section.shift is not None and section.target_activation is not None:
        console.warn(
            f"calibration: the shift of {section.shift:g} changes nothing beside a target activation, whose own shift "
            "makes up for it"
        )
    encoder = load_encoder(model, fastest_device())
    found = calibrate(
        encoder,
        texts,
        section.target_activation,
        section.definition,
        section.max_length,
        head_scale=section.head_scale,
        shift=section.shift or 0.0,
        fold=section.fold,
    )
    if out is not None:
        save_encoder(encoder, out)
    return found
