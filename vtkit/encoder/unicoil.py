"""uniCOIL: one weight for each token of a text, in the token's own dimension, so that nothing is expanded. The modules
are of vtkit's own classes, so that a saved folder needs vtkit to be loaded."""

import inspect
from typing import Any, Self

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules.module import Module
from sentence_transformers.sentence_transformer.modules import Transformer
from torch import Tensor, nn


class TokenTransformer(Transformer):  # type: ignore[misc]
    """The library's module around a masked language model, whose output is the last hidden states: no logits."""

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add ``token_embeddings``, (batch, length, width)."""
        outputs = self.model.base_model(input_ids=features["input_ids"], attention_mask=features["attention_mask"])
        features["token_embeddings"] = outputs.last_hidden_state
        return features


class UnicoilPooling(Module):  # type: ignore[misc]
    """The weight of a term is the largest among its occurrences: ``w_j = max_{i: t_i = j} ReLU(v · h_i + c)``.

    uniCOIL (Lin and Ma 2021, arXiv:2106.14807), with h_i the last hidden state of the i-th token t_i, of ``width``
    dimensions. Special tokens and masked dimensions weigh nothing, as in the authors' indexes. One v and one c for all
    tokens, v = 0 and c = 1 to begin with, so that an untrained encoder scores the number of distinct terms that query
    and document share; the authors start at random.
    """

    config_keys = ["width", "embedding_dimension"]  # noqa: RUF012 - the library's form

    counted: Tensor  # which tokens may weigh something, (vocabulary,) bool

    def __init__(self, width: int, embedding_dimension: int) -> None:
        super().__init__()
        self.width, self.embedding_dimension = width, embedding_dimension
        self.linear = nn.Linear(width, 1)
        with torch.no_grad():
            self.linear.weight.zero_()
            self.linear.bias.fill_(1.0)
        self.register_buffer("counted", torch.ones(embedding_dimension, dtype=torch.bool))

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add ``sentence_embedding``, (batch, vocabulary)."""
        ids, hidden = features["input_ids"], features["token_embeddings"]
        with torch.autocast(hidden.device.type, enabled=False):
            weights = torch.relu(self.linear(hidden.to(self.linear.weight.dtype))).squeeze(2)
        weights = weights * (features["attention_mask"].bool() & self.counted[ids])
        empty = weights.new_zeros(len(ids), self.embedding_dimension)
        features["sentence_embedding"] = empty.scatter_reduce(1, ids, weights, "amax", include_self=True)
        return features

    def get_embedding_dimension(self) -> int:
        """Dimensions of the vectors."""
        return self.embedding_dimension

    def save(self, output_path: str, *arguments: Any, safe_serialization: bool = True, **settings: Any) -> None:
        """Write configuration and weights, as the library's modules do."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, **settings: Any) -> Self:
        """Read what :meth:`save` wrote; the library calls it."""
        places = {key: value for key, value in settings.items() if key in _PLACES}
        new = cls(**cls.load_config(model_name_or_path, **places))
        loaded: Self = cls.load_torch_weights(model_name_or_path, model=new, **places)
        return loaded


_PLACES = frozenset(inspect.signature(Module.load_config).parameters) - {"config_filename"}
"""Arguments of the library that say where files are."""


def is_unicoil(encoder: SparseEncoder) -> bool:
    """Report whether uniCOIL weights the texts of ``encoder``, or those of its document side."""
    return len(encoder) > 1 and isinstance(encoder[1], UnicoilPooling)
