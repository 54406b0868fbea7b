"""Stage ``calibrate``: the logits shifted, with a table of the effect, and queries encoded by a static table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vtkit.data.sampling import draw
from vtkit.encoder.calibrated import Calibration
from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.texts import calibration_corpus, read_texts
from vtkit.settings.calibrate import PROBE_TEXTS, CalibrateSection
from vtkit.system import console
from vtkit.system.errors import DataError

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

FEWEST = 8

TOKEN_STRENGTH, TOKEN_BOUND = 0.5, 1.0  # how far each token goes by document frequency, and its largest shift in logits


def calibrate_head(recipe: View, inputs: Mapping[str, Path], out: Path) -> Calibration:
    """Fill ``out/model`` with the encoder of ``inputs["model"]``, calibrated."""
    from vtkit.encoder.checkpoint import load_encoder, save_encoder
    from vtkit.encoder.query_tables import query_encoder_of, with_static_queries
    from vtkit.system.runtime import fastest_device

    section = recipe.calibrate
    encoder = load_encoder(str(inputs["model"] / "model"), fastest_device())
    calibration = calibrate_encoder(
        encoder, read_texts(recipe.corpora("calibrate.corpus")), section, recipe.recipe.seed
    )
    console.say(f"calibration: {calibration.done()}")
    console.say("\n".join(console.table_lines(["probe texts held out", "before", "after"], calibration.table(), None)))
    if section.query_encoder is not None:
        encoder = with_static_queries(encoder, section.query_encoder, read_texts(recipe.corpora("calibrate.corpus")))
        calibration = replace(calibration, query_encoder=section.query_encoder)
        console.say(f"queries are encoded by {query_encoder_of(encoder)}")
    save_encoder(encoder, out / "model")
    return calibration


def calibrate_encoder(
    encoder: SparseEncoder, corpus: Iterable[str], section: CalibrateSection, seed: int
) -> Calibration:
    """Calibrate ``encoder`` in place on probe texts sampled from ``corpus``, which is read once.

    Raises:
        DataError: too few texts, an encoder whose queries take a way of their own, or a uniCOIL one.
    """
    from vtkit.encoder.asymmetric import output_tokenizer, refuse_query_side
    from vtkit.encoder.calibration import TokenTargets, calibrate
    from vtkit.encoder.documents import DocumentCounter
    from vtkit.encoder.families import mlm_head
    from vtkit.encoder.kinds import refuse_unicoil

    refuse_query_side(encoder, "calibrate", static_too=False)
    refuse_unicoil(encoder, "[calibrate]")
    counter = None
    if section.tokens is not None:
        size = mlm_head(encoder[0].auto_model).decoder.out_features
        counter = DocumentCounter(output_tokenizer(encoder), np.zeros(size, dtype=np.int64))
        corpus = counter.counting(corpus)
    texts = draw(corpus, PROBE_TEXTS, seed)
    if len(texts) < FEWEST:
        raise DataError(
            f"calibration needs at least {FEWEST} probe texts, and corpus has {len(texts)}: name a longer one"
        )
    if section.shift is not None and section.target_activation is not None:
        console.warn(
            f"calibration: the shift of {section.shift:g} has no effect, because the target activation sets a shift of "
            "its own"
        )
    tokens = None
    if counter is not None:
        tokens = TokenTargets(counter.frequencies, counter.documents, TOKEN_STRENGTH, TOKEN_BOUND)
    target, length = section.target_activation, section.max_length
    return calibrate(encoder, texts, target, section.definition, length, shift=section.shift or 0.0, tokens=tokens)


CALIBRATE = Stage(
    "calibrate",
    version=9,
    reads=("calibrate",),
    corpora={"calibrate.corpus": calibration_corpus},
    function=calibrate_head,
    label="after calibration",
    draws=True,
)
