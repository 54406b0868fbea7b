"""The stages that evaluate, in the order they run, which is that of their rows in reports."""

from __future__ import annotations

from typing import Any

from vtkit.pipeline.stage import Stage
from vtkit.pipeline.steps.evaluate_deployed import EVALUATE_DEPLOYED, EVALUATE_VARIANT
from vtkit.pipeline.steps.evaluate_peers import EVALUATE_HYBRID_PEER, EVALUATE_PEER
from vtkit.pipeline.steps.evaluate_runs import EVALUATE, EVALUATE_BM25, EVALUATE_BM25_WORDS, EVALUATE_HYBRID

EVALUATING: tuple[Stage[Any], ...] = (
    EVALUATE_BM25,
    EVALUATE_BM25_WORDS,
    EVALUATE,
    EVALUATE_HYBRID,
    EVALUATE_DEPLOYED,
    EVALUATE_VARIANT,
    EVALUATE_PEER,
    EVALUATE_HYBRID_PEER,
)
