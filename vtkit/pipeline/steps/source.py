"""The encoder that a recipe starts from: another recipe's, or the one that ``source.model`` names; and whether it ever
learned to retrieve, without which its results say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.pipeline.stage import View
from vtkit.pipeline.steps.texts import with_sources
from vtkit.settings.recipe import Recipe

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder
    from transformers import PreTrainedTokenizerFast


def source_encoder(recipe: View, inputs: Mapping[str, Path]) -> SparseEncoder:
    """The encoder with its weights, in float32."""
    from vtkit.encoder.checkpoint import load_encoder

    return load_encoder(_source(recipe, inputs))


def source_tokenizer(recipe: View, inputs: Mapping[str, Path]) -> PreTrainedTokenizerFast:
    """The tokenizer of :func:`source_encoder`, without the encoder's weights."""
    from vtkit.encoder.checkpoint import load_source_tokenizer

    return load_source_tokenizer(_source(recipe, inputs))


def _source(recipe: View, inputs: Mapping[str, Path]) -> str:
    return str(inputs["source"] / "model") if "source" in inputs else str(recipe.source.model)


def starts_untrained(recipe: Recipe) -> bool:
    """Report whether the encoder has never been trained to retrieve: its source is new, or a plain masked language
    model, and no recipe between has fine-tuned it."""
    earlier = list(with_sources(recipe))
    if any(each.finetune is not None for each in earlier[1:]):
        return False
    from vtkit.encoder.model_folder import find_model

    model = earlier[-1].source.model
    return model is None or not (find_model(model) / "modules.json").is_file()
