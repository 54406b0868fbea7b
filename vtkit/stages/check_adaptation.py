"""Check ``check:adapt``: whether the adapted encoder still finds what it found before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vtkit import console
from vtkit.checks.result import Checked, results, show_results, stop_at_failures
from vtkit.stages.adapt_encoder import starts_untrained
from vtkit.stages.stage import Stage, View
from vtkit.stages.texts import adaptation_corpus, probe_texts


def check_adaptation(recipe: View, inputs: Mapping[str, Path], out: Path) -> Checked:
    """The gate retrieval on ``inputs["adapt"]/model`` and on ``inputs["model"]/model``, which it was trained from.

    Raises:
        CollapseError: a failure, under a gate that may stop the run.
    """
    from vtkit.checks.probe import FEWEST_PAIRS, probe_of, reciprocal_ranks, retrieval_gate
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.runtime import fastest_device

    section = recipe.gates
    if section.retrieval == "off" or starts_untrained(recipe):
        return Checked(())
    texts = probe_texts(recipe.corpora("adapt.corpus"), section.pairs, recipe.recipe.seed)
    probe = probe_of(texts, section.pairs, recipe.recipe.seed)
    if len(probe.queries) < FEWEST_PAIRS:
        console.say(
            f"gate retrieval after adapt: not looked at; the corpus gives only {len(probe.queries)} probe pairs"
        )
        return Checked(())
    before, after = (
        reciprocal_ranks(load_encoder(str(inputs[role] / "model"), fastest_device()), probe, section.max_length)
        for role in ("model", "adapt")
    )
    found = results(section, "adapt", [("retrieval", retrieval_gate(before, after))])
    show_results(found)
    stop_at_failures(found)
    return Checked(tuple(found))


CHECK_ADAPTATION = Stage(
    "check:adapt",
    version=1,
    reads=("source", "gates.retrieval", "gates.pairs", "gates.max_length"),
    corpora={"adapt.corpus": adaptation_corpus},
    function=check_adaptation,
)
