"""Where an architecture keeps its embeddings, its masked-language-model head, and the head's bias.

BERT, DistilBERT, RoBERTa, XLM-R, ModernBERT and ELECTRA differ in names only: transformers finds the input
embeddings and the decoder for each, so that what is needed here is to check that they are what vtkit can work with,
and to know what else depends on the vocabulary (position ids that count from the padding id).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from vtkit.errors import DataError

POSITIONS_COUNT_FROM_PADDING = {
    *("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "roberta-prelayernorm"),
    *("data2vec-text", "longformer", "xmod"),
}
"""Model types whose first position id is ``pad_token_id + 1``."""


@dataclass(frozen=True)
class MlmHead:
    """The parts of a masked language model that carry its vocabulary."""

    embeddings: nn.Embedding
    """Input embeddings, weight (vocabulary, width)."""

    decoder: nn.Linear
    """Output projection, weight (vocabulary, width) and bias (vocabulary,)."""

    tied: bool
    """Whether both share one weight."""


def mlm_head(model: Any) -> MlmHead:
    """The vocabulary-bearing parts of ``model`` (a transformers masked language model).

    Raises:
        DataError: there is no output projection of the input vocabulary's size; says what was looked for.
    """
    embeddings = model.get_input_embeddings()
    decoder = model.get_output_embeddings()
    name = type(model).__name__
    if not isinstance(decoder, nn.Linear) or not isinstance(embeddings, nn.Embedding):
        raise DataError(
            f"{name} has no masked-language-model head: looked for an output projection (get_output_embeddings) over "
            f"the input embeddings' vocabulary and found {type(decoder).__name__}. Name an encoder with such a head, "
            "one that AutoModelForMaskedLM loads: BERT, DistilBERT, RoBERTa, XLM-R, ModernBERT, ELECTRA's generator."
        )
    if decoder.weight.shape[0] != embeddings.weight.shape[0]:
        raise DataError(
            f"{name} reads {embeddings.weight.shape[0]} tokens and writes {decoder.weight.shape[0]}: "
            "vtkit moves encoders that read and write one vocabulary."
        )
    return MlmHead(embeddings, decoder, decoder.weight is embeddings.weight)
