"""The probe pairs of the gate ``retrieval``, after a transfer and after adaptation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vtkit.evaluation.gates.result import PROBE_PAIRS
from vtkit.pipeline.stage import View
from vtkit.pipeline.steps.texts import probe_texts
from vtkit.pipeline.steps.untrained import starts_untrained
from vtkit.system import console

if TYPE_CHECKING:
    from vtkit.evaluation.probe import Probe


def retrieval_probe(recipe: View, corpus: str, stage: str) -> Probe | None:
    """Probe pairs of the texts of ``corpus``; None where the gate is off, where the source never learned to retrieve,
    or where there are too few to say anything.

    Args:
        corpus: setting that names it, such as ``adapt.corpus``.
        stage: after which the gate looks, for the message.
    """
    from vtkit.evaluation.probe import FEWEST_PAIRS, probe_of

    if recipe.gates.retrieval == "off" or (starts_untrained(recipe) and recipe.source.fitted is None):
        return None
    texts = probe_texts(recipe.corpora(corpus), PROBE_PAIRS, recipe.recipe.seed)
    probe = probe_of(texts, PROBE_PAIRS, recipe.recipe.seed)
    if len(probe.queries) < FEWEST_PAIRS:
        console.say(
            f"gate retrieval after {stage}: skipped, because the corpus gives only {len(probe.queries)} probe pairs"
        )
        return None
    return probe
