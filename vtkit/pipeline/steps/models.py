"""The stages that make a model, what reports call their models, and the stages that evaluate, in the order they run."""

from collections.abc import Mapping
from typing import Any

from vtkit.pipeline.stage import Rows, Stage
from vtkit.pipeline.steps.adapt_encoder import ADAPT
from vtkit.pipeline.steps.build_vocabulary import VOCABULARY
from vtkit.pipeline.steps.calibrate_head import CALIBRATE
from vtkit.pipeline.steps.checks import CHECK_ADAPTATION, CHECK_CALIBRATION, CHECK_TRANSFER, CHECK_VOCABULARY
from vtkit.pipeline.steps.evaluate_deployed import EVALUATE_DEPLOYED
from vtkit.pipeline.steps.evaluate_peers import EVALUATE_HYBRID_PEER, EVALUATE_PEER
from vtkit.pipeline.steps.evaluate_runs import EVALUATE, EVALUATE_BM25, EVALUATE_BM25_WORDS, EVALUATE_HYBRID
from vtkit.pipeline.steps.expand_documents import EXPAND, EXPAND_DOCUMENTS
from vtkit.pipeline.steps.finetune_encoder import FINETUNE
from vtkit.pipeline.steps.tabulate_queries import QUERY_TABLE
from vtkit.pipeline.steps.transfer_embeddings import TRANSFER
from vtkit.settings.recipe import Recipe

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

EVALUATING: tuple[Stage[Any], ...] = (
    EVALUATE_BM25,
    EVALUATE_BM25_WORDS,
    EVALUATE,
    EVALUATE_HYBRID,
    EVALUATE_DEPLOYED,
    EVALUATE_PEER,
    EVALUATE_HYBRID_PEER,
)


def rows_of(recipe: Recipe, models: Mapping[str, str]) -> Rows:
    """All that is evaluated, by the names behind ``evaluate:``, in the order of the report."""
    rows = (stage.rows(recipe, models) if callable(stage.rows) else stage.rows for stage in EVALUATING)
    return {name: row for of_stage in rows for name, row in of_stage.items()}
