"""The stages that make a model, and what reports call their models."""

from __future__ import annotations

from vtkit.stages.adapt_encoder import ADAPT
from vtkit.stages.calibrate_head import CALIBRATE
from vtkit.stages.finetune_encoder import FINETUNE
from vtkit.stages.tabulate_queries import QUERY_TABLE
from vtkit.stages.transfer_embeddings import TRANSFER

MODEL_LABELS = {"source": "source model"} | {
    stage.name: stage.label for stage in (TRANSFER, ADAPT, CALIBRATE, FINETUNE, QUERY_TABLE)
}
"""Model -> what reports call it, in the order the models are made."""
