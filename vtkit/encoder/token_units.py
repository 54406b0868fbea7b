"""Latent units in the modules that sentence-transformers is to have (its pull request 3796, after Latent Terms,
arXiv:2605.29384): a sparse autoencoder on token states, and a pooling. A version that has these classes reads such
folders with its own; for others there are classes here that compute the same, for texts that are padded, and keep
settings and tensors as they are."""

from collections.abc import Mapping
from typing import Any, Self

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Dense
from sentence_transformers.base.modules.module import Module
from sentence_transformers.sparse_encoder import modules as library
from torch import Tensor, nn

from vtkit.system.errors import DataError


class SparseAutoEncoderTokenEncoder(Module):  # type: ignore[misc]
    """The k largest units of each token, ReLU(top_k(W (x̂ − p) + b)), where x̂ is the token's state less ``data_mean``,
    of length √width; with the variant ``jumprelu``, units that do not exceed their θ are 0 before.

    Args:
        weights: ``W_enc``, (width, units), ``b_enc``, (units,), ``b_pre``, (width,), and where there are such
            ``data_mean``, (width,), ``theta``, (units,), ``W_dec``, (units, width).
        settings: ``k``, ``variant``, and others that change no weight.
    """

    def __init__(self, weights: Mapping[str, Tensor], **settings: Any) -> None:
        super().__init__()
        self.settings = settings
        for name, tensor in weights.items():
            self.register_parameter(name, nn.Parameter(tensor.float(), requires_grad=False))

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add values and numbers of units, (batch, tokens, k) each; with the setting ``replace_token_embeddings``, all
        units take the states' place, (batch, tokens, units)."""
        states, weights = features["token_embeddings"].float(), dict(self.named_parameters())
        states = nn.functional.normalize(states - weights.get("data_mean", 0), dim=-1, eps=1e-8)
        units = (states * len(self.W_enc) ** 0.5 - self.b_pre) @ self.W_enc + self.b_enc
        if self.settings.get("variant") == "jumprelu":
            units = units * (units > self.theta)
        places = torch.arange(units.shape[-1], device=units.device).expand_as(units)
        if self.settings["k"] < units.shape[-1]:
            units, places = units.topk(self.settings["k"])
        units = units.relu()
        if self.settings.get("replace_token_embeddings"):
            empty = units.new_zeros(*units.shape[:-1], len(self.b_enc))
            features["token_embeddings"] = empty.scatter(-1, places, units)
        return features | {"token_sparse_values": units, "token_sparse_indices": places}

    def get_config_dict(self) -> dict[str, Any]:
        """The settings."""
        return self.settings

    def save(self, output_path: str, *arguments: Any, safe_serialization: bool = True, **settings: Any) -> None:
        """Write settings and weights, as the library's modules do."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **settings: Any) -> Self:
        """Read a folder; the library calls it."""
        weights = cls.load_torch_weights(model_name_or_path, subfolder=subfolder, local_files_only=True)
        return cls(weights, **cls.load_config(model_name_or_path, subfolder=subfolder, local_files_only=True))


class SparseTokenPooling(Module):  # type: ignore[misc]
    """The weight of a unit in a text: the sum over tokens, or the largest, or log(1 + it) (``max_log1p``)."""

    config_keys = ["embedding_dimension", "pooling_strategy", "include_prompt"]  # noqa: RUF012 - the library's form

    def __init__(
        self, embedding_dimension: int, pooling_strategy: str = "sum", include_prompt: bool = True, **_: Any
    ) -> None:
        super().__init__()
        self.embedding_dimension, self.pooling_strategy = embedding_dimension, pooling_strategy
        self.include_prompt = include_prompt

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add ``sentence_embedding``, (batch, units)."""
        values = features["token_sparse_values"] * features["attention_mask"].unsqueeze(-1)
        empty = values.new_zeros(len(values), self.embedding_dimension)
        how = "sum" if self.pooling_strategy == "sum" else "amax"
        pooled = empty.scatter_reduce(1, features["token_sparse_indices"].flatten(1), values.flatten(1), how)
        features["sentence_embedding"] = pooled.log1p() if self.pooling_strategy == "max_log1p" else pooled
        return features

    def save(self, output_path: str, *arguments: Any, **settings: Any) -> None:
        """Write the settings, as the library's modules do."""
        self.save_config(output_path)


_PLACE = "sentence_transformers.sparse_encoder.modules"
LIBRARY_NAMES = {
    f"{_PLACE}.sparse_auto_encoder_token_encoder.SparseAutoEncoderTokenEncoder": SparseAutoEncoderTokenEncoder,
    f"{_PLACE}.sparse_token_pooling.SparseTokenPooling": SparseTokenPooling,
}
"""Types in modules.json, and the classes here that stand for them where the library has none."""

IN_LIBRARY = hasattr(library, "SparseAutoEncoderTokenEncoder")
ENCODER: Any = getattr(library, "SparseAutoEncoderTokenEncoder", SparseAutoEncoderTokenEncoder)
POOLING: Any = getattr(library, "SparseTokenPooling", SparseTokenPooling)


def has_token_units(encoder: SparseEncoder) -> bool:
    """Report whether ``encoder`` makes units by modules of their own, an autoencoder or a dense layer, behind a
    transformer without logits over a vocabulary: it is only used."""
    return any(isinstance(module, ENCODER | Dense) for module in encoder)


def refuse_token_units(encoder: SparseEncoder, stage: str) -> None:
    """Refuse stages that change a masked-language-model head where there is none."""
    if has_token_units(encoder):
        raise DataError(
            f"[{stage}] changes a masked-language-model head, and this encoder has none: its latent units come from "
            f"dense layers or an autoencoder behind the transformer, and are used as they are. Remove [{stage}]."
        )
