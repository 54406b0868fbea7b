"""The findings of a run's first stage and its gates, before the run: the vocabulary is made aside, and thrown away."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from vtkit.pipeline.steps.build_vocabulary import build_vocabulary, vocabulary_stage
from vtkit.pipeline.steps.check_vocabulary import CHECK_VOCABULARY, look_at_vocabulary
from vtkit.recipe.load import required_things
from vtkit.settings.named import is_local
from vtkit.settings.recipe import Recipe


def check_first_stage(recipe: Recipe) -> None:
    """Make the vocabulary of ``recipe`` in a temporary folder, and show what the gates overlap and unicode find.

    Passed over where the source is another recipe's model, or where texts would have to come from the hub.

    Raises:
        DataError: the vocabulary cannot be made.
        CollapseError: a gate that would stop the run.
    """
    corpora = [thing for thing in required_things(recipe) if thing.what in ("corpus", "retrieval")]
    if recipe.source.model is None or not all(is_local(thing.value) for thing in corpora):
        return
    with TemporaryDirectory(prefix="vtkit-check-") as folder:
        made = build_vocabulary(vocabulary_stage(recipe).view(recipe), {}, Path(folder))
        look_at_vocabulary(CHECK_VOCABULARY.view(recipe), {"vocabulary": Path(folder)}, made)
