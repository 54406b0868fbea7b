"""Check ``check:calibrate``: whether the calibrated encoder can work, before it is fine-tuned or searched with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from vtkit.evaluation.gates.result import PROBE_TEXTS, Checked, checked
from vtkit.pipeline.stage import Chain, Stage, View, Wired
from vtkit.pipeline.steps.texts import calibration_corpus, probe_texts
from vtkit.settings.recipe import Recipe


def check_calibration(recipe: View, inputs: Mapping[str, Path], out: Path) -> Checked:
    """The gates activation, dimensions and ties on ``inputs["calibrate"]/model``.

    Raises:
        CollapseError: a failure, under a gate that may stop the run.
    """
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.evaluation.gates.encoder import encoder_gates
    from vtkit.system.runtime import fastest_device

    encoder = load_encoder(str(inputs["calibrate"] / "model"), fastest_device())
    texts = probe_texts(recipe.corpora("calibrate.corpus"), PROBE_TEXTS, recipe.recipe.seed)
    gates = encoder_gates(recipe.gates, "calibrate", encoder, texts, more_follows=recipe.finetune is not None)
    return checked(gates)


def _wired(recipe: Recipe, chain: Chain) -> Iterator[Wired]:
    if recipe.calibrate is not None:
        yield Wired(CHECK_CALIBRATION, {"calibrate": chain.models[-1]})


CHECK_CALIBRATION = Stage(
    "check:calibrate",
    version=1,
    reads=("finetune?", *(f"gates.{name}" for name in ("activation", "dimensions", "ties"))),
    corpora={"calibrate.corpus": calibration_corpus},
    function=check_calibration,
    wire=_wired,
)
