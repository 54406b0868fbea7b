"""Check ``check:adapt``: whether the adapted encoder still finds what it found before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from vtkit.evaluation.gates.result import PROBE_LENGTH, Checked, checked, results
from vtkit.pipeline.stage import Chain, Stage, View, Wired
from vtkit.pipeline.steps.probe import retrieval_probe
from vtkit.pipeline.steps.texts import adaptation_corpus
from vtkit.settings.recipe import Recipe


def check_adaptation(recipe: View, inputs: Mapping[str, Path], out: Path) -> Checked:
    """The gate retrieval on ``inputs["adapt"]/model`` and on ``inputs["model"]/model``, which it was trained from.

    Raises:
        CollapseError: a failure, under a gate that may stop the run.
    """
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.evaluation.probe import reciprocal_ranks, retrieval_gate
    from vtkit.system.runtime import fastest_device

    probe = retrieval_probe(recipe, "adapt.corpus", "adapt")
    if probe is None:
        return Checked(())
    before, after = (
        reciprocal_ranks(load_encoder(str(inputs[role] / "model"), fastest_device()), probe, PROBE_LENGTH)
        for role in ("model", "adapt")
    )
    gates = results(recipe.gates, "adapt", [("retrieval", retrieval_gate(before, after))])
    return checked(gates)


def _wired(recipe: Recipe, chain: Chain) -> Iterator[Wired]:
    if recipe.adapt is not None:
        yield Wired(CHECK_ADAPTATION, {"model": chain.models[-2], "adapt": chain.steps["adapt"], **chain.source})


CHECK_ADAPTATION = Stage(
    "check:adapt",
    version=1,
    reads=("source", "gates.retrieval"),
    corpora={"adapt.corpus": adaptation_corpus},
    function=check_adaptation,
    wire=_wired,
)
