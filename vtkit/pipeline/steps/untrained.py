"""Whether a recipe starts from a model that never learned to retrieve: nothing can then be told by what it finds."""

from __future__ import annotations

from vtkit.pipeline.steps.texts import with_sources
from vtkit.settings.recipe import Recipe


def starts_untrained(recipe: Recipe) -> bool:
    """Whether the encoder has never been trained to retrieve: its source is new, or a plain masked language model, and
    no recipe between has fine-tuned it."""
    earlier = list(with_sources(recipe))
    if any(each.finetune is not None for each in earlier[1:]):
        return False
    model = earlier[-1].source.model
    return model is None or is_bare_model(model)


def is_bare_model(model: str) -> bool:
    """Whether a folder or hub id holds a plain masked language model, which was never trained to retrieve."""
    from vtkit.encoder.model_folder import find_model

    return not (find_model(model) / "modules.json").is_file()
