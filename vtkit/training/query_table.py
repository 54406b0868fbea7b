"""The query encoder of a fine-tuning run: the encoder of documents, or a static table, trained or left as it is."""

from collections.abc import Iterable
from typing import Any, assert_never

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vtkit.encoder.asymmetric import own_output, query_side, query_table, with_sides
from vtkit.encoder.families import as_array
from vtkit.encoder.kinds import can_weigh, refuse_unicoil
from vtkit.encoder.query_tables import idf_query_weights, with_query_table, with_static_queries
from vtkit.settings.finetune import FinetuneSection
from vtkit.system.errors import DataError


def with_query_encoder(encoder: SparseEncoder, section: FinetuneSection, documents: Iterable[str]) -> SparseEncoder:
    """``encoder`` with the query encoder and the activation of ``section``; its modules are shared. An IDF table has
    the document frequencies of ``documents``."""
    if section.activation != "source":
        refuse_unicoil(encoder, "activation")
        encoder[1].activation_function = "relu" if section.activation == "log1p" else "log1p_relu"
    table = query_table(encoder)
    match section.query_encoder:
        case "source":
            if query_side(encoder) is not None and table is None:
                raise DataError(
                    "Fine-tuning trains one encoder, and this model encodes queries with a separate one, which would "
                    'not be trained. Set query_encoder to "shared" or to a table, or start from another encoder.'
                )
            if table is not None and section.target("query") is not None:
                raise DataError(
                    "target_active.query has no effect: queries go through the model's static table, which is not "
                    'trained. Remove it, or set query_encoder to "learned" or "shared".'
                )
            return encoder
        case "shared":
            return encoder if query_side(encoder) is None else with_sides(encoder, encoder, output=own_output(encoder))
        case "binary" | "idf":
            return with_static_queries(encoder, section.query_encoder, documents)
        case "learned":
            weights = None if table is None else as_array(table.weight) * can_weigh(encoder)
            start = idf_query_weights(encoder, documents) if weights is None else weights
            return with_query_table(encoder, start, frozen=False)
        case _:
            assert_never(section.query_encoder)


class QueryTable(nn.Module, TrainerCallback):  # type: ignore[misc]
    """Term weights of queries, w_t for each distinct token t of a query, while documents are trained. As a callback of
    the trainer it projects a trained table after every step: w ← max(0, w), and 0 for what may have no weight. The
    trainer clears gradients of the model's parameters only, so it clears the table's too.

    Args:
        table: of the encoder; trained in place.
        encoder: whose special tokens and masked dimensions stay at 0.
    """

    highest: Tensor

    def __init__(self, table: SparseStaticEmbedding, encoder: SparseEncoder, *, trained: bool) -> None:
        super().__init__()
        self.lookup, self.trained = table, trained
        table.weight.requires_grad_(trained)
        allowed = torch.from_numpy(can_weigh(encoder))
        self.register_buffer("highest", torch.where(allowed, torch.inf, 0.0), persistent=False)

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        """(queries, vocabulary), of token ids without special tokens."""
        vectors: Tensor = self.lookup(dict(features))["sentence_embedding"]
        return vectors.float()

    @torch.no_grad()
    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.lookup.weight.clamp_(min=torch.zeros_like(self.highest), max=self.highest)
        self.lookup.weight.grad = None
