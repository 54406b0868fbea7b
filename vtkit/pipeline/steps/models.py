"""The stages that make a model, in the order they run, and what reports call their models."""

from __future__ import annotations

from typing import Any

from vtkit.pipeline.stage import Stage
from vtkit.pipeline.steps.adapt_encoder import ADAPT
from vtkit.pipeline.steps.build_vocabulary import VOCABULARY
from vtkit.pipeline.steps.calibrate_head import CALIBRATE
from vtkit.pipeline.steps.check_adaptation import CHECK_ADAPTATION
from vtkit.pipeline.steps.check_calibration import CHECK_CALIBRATION
from vtkit.pipeline.steps.check_transfer import CHECK_TRANSFER
from vtkit.pipeline.steps.check_vocabulary import CHECK_VOCABULARY
from vtkit.pipeline.steps.expand_documents import EXPAND_DOCUMENTS
from vtkit.pipeline.steps.finetune_encoder import FINETUNE
from vtkit.pipeline.steps.tabulate_queries import QUERY_TABLE
from vtkit.pipeline.steps.train_expander import EXPAND
from vtkit.pipeline.steps.transfer_embeddings import TRANSFER

MAKING: tuple[Stage[Any], ...] = (
    VOCABULARY,
    CHECK_VOCABULARY,
    TRANSFER,
    CHECK_TRANSFER,
    ADAPT,
    CHECK_ADAPTATION,
    CALIBRATE,
    CHECK_CALIBRATION,
    EXPAND,
    EXPAND_DOCUMENTS,
    FINETUNE,
    QUERY_TABLE,
)

MODEL_LABELS = {"source": "source model"} | {stage.name: stage.label for stage in MAKING if stage.label}
"""Model -> what reports call it, in the order the models are made."""
