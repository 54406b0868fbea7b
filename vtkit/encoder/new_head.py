"""A masked-language-model head for an architecture that has none, such as decoders: what is fitted to token states, a
head or latent units, is then written as modules of sentence-transformers behind the transformer."""

from types import SimpleNamespace
from typing import Any

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.base.modules.module import Module
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import Tensor, nn
from transformers import PreTrainedModel

from vtkit.encoder.fitted_head import Head

OF_STATES = {"module_input_name": "token_embeddings"}


class WithNewHead(nn.Module):
    """A transformer with a head of BERT's form that is still to be fitted, E LN(GELU(W h + a)) + b, with its input
    embeddings as E."""

    def __init__(self, base_model: PreTrainedModel) -> None:
        super().__init__()
        rows, width = base_model.get_input_embeddings().weight, base_model.config.hidden_size
        self.base_model, self.config = base_model, base_model.config
        self.get_input_embeddings = base_model.get_input_embeddings
        self.map, self.norm, self.decoder = nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, len(rows))
        self.decoder.weight = rows

    def get_output_embeddings(self) -> nn.Linear:
        """The decoder."""
        return self.decoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        """The logits of each token, (batch, length, vocabulary), as ``logits``."""
        states = self.base_model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return SimpleNamespace(logits=self.decoder(self.norm(nn.functional.gelu(self.map(states)))))

    def keep(self, rows: Tensor, special: Any) -> None:
        """Read the tokens whose embeddings are ``rows``, (vocabulary, width), alone; ``special`` has their ids."""
        embeddings = self.get_input_embeddings()
        embeddings.weight, embeddings.num_embeddings, embeddings.padding_idx = nn.Parameter(rows), len(rows), None
        self.decoder = nn.Linear(rows.shape[1], len(rows))
        self.decoder.weight, self.config.vocab_size = embeddings.weight, len(rows)
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            setattr(self.config, name, getattr(special, name))


def layers(head: Head, rows: Tensor, bias: Tensor) -> list[Module]:
    """Modules that make ``rows`` LN(GELU(W h + a)) + ``bias`` of the states h of tokens; ``head`` has W, a and the
    layer norm of γ, β and ε.

    Two dense layers give GELU(W h + a) less its mean over the n dimensions, and √(n ε) as one dimension more: of length
    √n, that is the layer norm but for γ and β, which the rows and the bias take in.
    """
    norm, width = head.norm, rows.shape[1]
    centring = torch.cat([torch.eye(width) - 1 / width, torch.zeros(1, width)])
    beside = torch.zeros(width + 1)
    beside[width] = (width * norm.eps) ** 0.5
    weight = torch.cat([width**0.5 * rows * norm.weight.detach(), torch.zeros(len(rows), 1)], dim=1)
    shifted = bias if norm.bias is None else bias + rows @ norm.bias.detach()
    return [
        Dense(width, width, True, nn.GELU(), head.map.weight.detach(), head.map.bias.detach(), **OF_STATES),
        Dense(width, width + 1, True, None, centring, beside, **OF_STATES),
        Normalize(**OF_STATES),
        Dense(width + 1, len(rows), True, None, weight, shifted, **OF_STATES),
    ]


def with_layers(encoder: SparseEncoder, rows: Tensor, bias: Tensor, pooling: str) -> SparseEncoder:
    """``encoder`` of a :class:`WithNewHead`, which becomes its transformer alone, with :func:`layers` behind it."""
    model, transformer = encoder[0].model, encoder[0]
    modules = layers(Head(model), rows, bias)
    transformer.model = model.base_model
    return SparseEncoder(
        modules=[transformer, *modules, SpladePooling(pooling, "relu", len(rows))], device="cpu"
    ).eval()
