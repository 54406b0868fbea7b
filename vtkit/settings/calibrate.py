"""[calibrate] of a recipe."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from vtkit.settings.types import CorpusName, PositiveInt, Section, Share

StaticQueryEncoder = Literal["binary", "idf"]  # of the query encoders in finetune.py those that need no training


PROBE_TEXTS = 512  # of the corpus that are sampled


class CalibrateSection(Section):
    """[calibrate]: changes to the encoder without training: logits are shifted, all alike and by token, in
    this order, and queries get a static table (docs/training.md#calibration)."""

    target_activation: Share | None = None
    """Share of activations above zero after the shift; the shift that reaches it is found on probe texts. Default:
    0.35, unless ``shift``, ``tokens`` or ``query_encoder`` is set."""

    definition: Literal["token", "pooled"] = "token"
    """Activations that ``target_activation`` counts: ``token``: logits at all positions; ``pooled``: vocabulary
    dimensions after max-pooling."""

    shift: Annotated[float, Field(ge=-1e6, le=1e6)] | None = None
    """Lower the decoder bias by this much, the paper's c. It has no effect together with a ``target_activation``."""

    tokens: Literal["document-frequency"] | None = None
    """``document-frequency``: shift each token's bias, before ``target_activation``, so that the token is active in a
    share of the texts that follows the square root of its document frequency in ``corpus``."""

    query_encoder: StaticQueryEncoder | None = None
    """Replace the query encoder by a static table, as in ``finetune.query_encoder``. ``binary``: every token weighs 1.
    ``idf``: inverse document frequencies in ``corpus``. Default: keep the query encoder."""

    corpus: tuple[CorpusName, ...] = ()
    """Probe texts, of which 512 are sampled; half of them determine the shift, the other half check it and fill the
    table. Default: the adaptation corpus, else the fine-tuning or the evaluation documents."""

    max_length: PositiveInt = 128
    """Probe texts are cut at this many tokens."""

    @model_validator(mode="before")
    @classmethod
    def _target_where_nothing_is_said(cls, values: Any) -> Any:
        methods = ("target_activation", "shift", "tokens", "query_encoder")
        if isinstance(values, dict) and all(values.get(name) is None for name in methods):
            return {**values, "target_activation": 0.35}
        return values
