"""The stages that make a model, in the order they run, and what reports call their models."""

from __future__ import annotations

from typing import Any

from vtkit.stages.adapt_encoder import ADAPT
from vtkit.stages.build_vocabulary import VOCABULARY
from vtkit.stages.calibrate_head import CALIBRATE
from vtkit.stages.check_adaptation import CHECK_ADAPTATION
from vtkit.stages.check_calibration import CHECK_CALIBRATION
from vtkit.stages.check_transfer import CHECK_TRANSFER
from vtkit.stages.check_vocabulary import CHECK_VOCABULARY
from vtkit.stages.expand_documents import EXPAND_DOCUMENTS
from vtkit.stages.finetune_encoder import FINETUNE
from vtkit.stages.stage import Stage
from vtkit.stages.tabulate_queries import QUERY_TABLE
from vtkit.stages.train_expander import EXPAND
from vtkit.stages.transfer_embeddings import TRANSFER

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
