"""Dense embedders: models that have one vector for a text, of sentence-transformers or of transformers; and
multi-vector encoders, which have one for each token (late interaction, as ColBERT, arXiv:2004.12832)."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vtkit.data.hub import fetch
from vtkit.data.shards import Arrays, arrays_of
from vtkit.encoder.model_folder import (
    CONFIGURATION_FILES,
    SAFELY,
    ModelKind,
    library_errors,
    model_folder,
    model_kind,
    refuse_incomplete,
)
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.runtime import HoldsModels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from vtkit.encoder.sides import Side
    from vtkit.system.runtime import Precision

TEXTS_A_BATCH = 16  # texts that are encoded together; the library sorts those of a shard by length

OTHER_KINDS: dict[ModelKind, str] = {
    "sparse_encoder": "a sparse encoder, whose dimensions are the tokens of its own vocabulary or an autoencoder's",
    "cross_encoder": "a cross-encoder, which scores pairs of texts and has no vector for one",
    "multi_vector_encoder": "a multi-vector encoder, which has one vector for each token of a text",
    "language_model": "a language model that writes text. A causal reranker teaches once CrossEncoder of "
    "sentence-transformers has saved it; finetune.scores takes the scores of any reranker",
}
"""What sentence-transformers saves beside embedders."""


def load_dense(name: str, setting: str, *, multi_vector: bool = False) -> Any:
    """The embedder of a folder or a hub id, a ``SentenceTransformer`` in float32 on the processor, as named by
    ``setting``, or with ``multi_vector`` a ``MultiVectorEncoder``; a bare transformers model gets mean pooling. Code
    that comes with a model is never run, and nothing is fetched unless downloads are allowed."""
    import torch
    from sentence_transformers import MultiVectorEncoder, SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Transformer

    from vtkit.encoder.families import settle_input
    from vtkit.system.runtime import without_notices
    from vtkit.vocabulary.existing import prepare_tokenizer

    refuse_other_kinds(name, configuration_folder(name, setting), setting, multi_vector=multi_vector)
    folder, label = model_folder(name, f"{setting} ="), f"{setting} = {name}"
    several = model_kind(folder, label) == "multi_vector_encoder"
    with library_errors(f"{label} cannot be loaded"), without_notices():
        weights = {"weights_only": True, "dtype": torch.float32}
        kind = MultiVectorEncoder if several else SentenceTransformer
        embedder = kind(str(folder), device="cpu", **SAFELY, model_kwargs=weights).float().eval()
        transformer = embedder[0]
        if isinstance(transformer, Transformer):
            # poolers are made up for most embedders, which pool otherwise
            refuse_incomplete(transformer.auto_model, folder, label, unused="pooler")
            prepare_tokenizer(transformer.tokenizer, f"of {name}")
            settle_input(transformer)
    return embedder


@dataclass(frozen=True)
class EmbedTexts(HoldsModels):
    """The work on a shard of texts, with the prompt for their side and the length limit of the embedder
    (:func:`load_dense`)."""

    embedder: Any
    side: Side
    precision: Precision = "float32"  # of the matrix products

    def __call__(self, texts: Sequence[str], bar: console.Bar | None = None) -> Arrays:
        """The vectors of ``texts``, (texts, width); of a multi-vector encoder those of all tokens, and the number of
        tokens of each text."""
        import torch
        from sentence_transformers import MultiVectorEncoder

        encoded = self.embedder.encode_query if self.side == "query" else self.embedder.encode_document
        several = isinstance(self.embedder, MultiVectorEncoder)
        device, half = self.embedder.device.type, self.precision == "bf16"
        with torch.autocast(device, dtype=torch.bfloat16) if half else nullcontext():
            given = encoded(list(texts), batch_size=TEXTS_A_BATCH, show_progress_bar=False, convert_to_numpy=True)
        vectors = np.concatenate(given) if several else np.asarray(given, dtype=np.float32)
        if vectors.ndim != 2 or len(given) != len(texts) or not np.isfinite(vectors).all():
            raise DataError("The embedder does not give one finite vector for each text.")
        if bar is not None:
            bar.advance(len(texts))
        return {"vectors": vectors} | ({"lengths": np.array(list(map(len, given)))} if several else {})


def encode_dense(
    embedder: Any,
    texts: Sequence[str],
    side: Side,
    precision: Precision = "float32",
    description: str = "encoding",
    folder: Path | None = None,
) -> NDArray[np.float32]:
    """Vectors of queries or documents, (texts, width), as :class:`EmbedTexts` makes them; those of a multi-vector
    encoder are an array of arrays, (texts,) of (tokens, width). ``folder`` is that of
    :func:`vtkit.data.shards.arrays_of`."""
    if not texts:
        return np.empty((0, 0), dtype=np.float32)
    arrays = arrays_of(EmbedTexts(embedder, side, precision), texts, description, folder)
    vectors = arrays["vectors"]
    if "lengths" in arrays:
        parts = np.split(np.asarray(vectors), np.cumsum(arrays["lengths"])[:-1])
        return np.fromiter(parts, object, len(parts))
    return vectors


def token_projection(name: str, setting: str) -> Tensor | None:
    """The root of PᵀP, (width, width), where P projects the token states of the multi-vector encoder ``name``: states
    that it maps have the dot products of the encoder's token vectors. None for other models.

    Raises:
        DataError: the projection is not linear.
    """
    import torch
    from sentence_transformers.base.modules.dense import Dense

    if model_kind(model_folder(name, f"{setting} ="), f"{setting} = {name}") != "multi_vector_encoder":
        return None
    encoder = load_dense(name, setting, multi_vector=True)
    projection = torch.eye(encoder[0].get_embedding_dimension())
    for layer in (module for module in encoder if isinstance(module, Dense)):
        if not isinstance(layer.activation_function, torch.nn.Identity):
            raise DataError(
                f"{setting} = {name} projects token states by {type(layer.activation_function).__name__}, and units "
                "are learned behind a linear projection. Name another model, or its transformer alone."
            )
        beside = getattr(layer, "residual", None)
        skipped = torch.eye(layer.in_features) if beside is None else beside.weight
        projection = (layer.linear.weight + (skipped if layer.use_residual else 0)) @ projection
    values, vectors = torch.linalg.eigh((projection.T @ projection).detach().double())
    root: Tensor = (vectors * values.clamp(min=0).sqrt() @ vectors.T).float()
    return root


def configuration_folder(name: str, setting: str) -> Path:
    """The folder of a model's configuration: its own, or that of its revision in the hub's cache."""
    if Path(name).is_absolute() and not Path(name).is_dir():
        raise DataError(f"{setting} = {name}: there is no such folder. Give a hub id or a model's folder.")
    return Path(name) if Path(name).is_dir() else fetch(name, CONFIGURATION_FILES, "model")


def refuse_other_kinds(name: str, folder: Path, setting: str, *, multi_vector: bool = False) -> None:
    """Refuse (DataError) a model whose configuration in ``folder`` is not that of a dense embedder, or with
    ``multi_vector`` of a multi-vector encoder."""
    kind = model_kind(folder, f"{setting} = {name}")
    if kind is not None and not (multi_vector and kind == "multi_vector_encoder"):
        raise DataError(
            f"{setting} = {name} is {OTHER_KINDS[kind]}. Name a dense embedder (a SentenceTransformer or a "
            "transformers model)."
        )
