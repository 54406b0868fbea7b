"""[calibrate] of a recipe."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from vtkit.settings.types import CorpusName, PositiveFloat, PositiveInt, Section, Share

StaticQueryEncoder = Literal["binary", "idf"]
"""Of the query encoders of :mod:`vtkit.settings.finetune` those that need no training."""


class CalibrateSection(Section):
    """[calibrate]: what is done to the encoder without training: logits are rescaled, shifted, shifted by token, and
    folded, in this order, and queries get a static table (docs/training.md#calibration)."""

    target_activation: Share | None = None
    """Share of activations above zero after the shift. The shift is solved for on probe texts. Default: 0.35, unless
    ``head_scale``, ``shift``, ``tokens``, ``fold`` or ``query_encoder`` is given."""

    definition: Literal["token", "pooled"] = "token"
    """What is counted: (position, token) logits, or vocabulary dimensions after max-pooling."""

    head_scale: PositiveFloat | None = None
    """Divide all logits by this (8 or 16 for heads like ModernBERT's), before anything else."""

    shift: Annotated[float, Field(ge=-1e6, le=1e6)] | None = None
    """Lower the decoder bias by this much, the paper's c. With a ``target_activation`` it has no effect."""

    tokens: Literal["document-frequency", "held"] | None = None
    """``document-frequency``: shift each token's bias so that the token is active in texts about as often as the
    square root of its document frequency in ``corpus`` says; before ``target_activation``.
    ``held``: raise each token's bias until the token is active in almost all texts of ``corpus`` that hold it; after
    ``target_activation``. For queries by a static table (``query_encoder``)."""

    fold: Literal["max", "sum"] | None = None
    """Let tokens equal up to case and word-start mark share one dimension, in vectors made with vtkit."""

    query_encoder: StaticQueryEncoder | None = None
    """What encodes queries from then on: a static table, as in ``finetune.query_encoder``. ``binary``: every token
    weighs 1. ``idf``: inverse document frequencies in ``corpus``. Default: what encodes them already."""

    corpus: tuple[CorpusName, ...] = ()
    """Probe texts. Default: the adaptation corpus, else the fine-tuning or the evaluation documents."""

    texts: Annotated[int, Field(ge=8, le=1_000_000)] = 512
    """Probe texts sampled; half of them solve for the shift, the other half check it and fill the table."""

    max_length: PositiveInt = 128
    """Tokens a probe text is cut at."""

    @model_validator(mode="before")
    @classmethod
    def _target_where_nothing_is_said(cls, values: Any) -> Any:
        methods = ("target_activation", "head_scale", "shift", "tokens", "fold", "query_encoder")
        if isinstance(values, dict) and all(values.get(name) is None for name in methods):
            return {**values, "target_activation": 0.35}
        return values
