"""What becomes of cased vocabulary dimensions: they are masked (:mod:`vtkit.encoder.masked`) or folded into one by
their maximum, after pooling. The saved folder only *says* that vectors are to be folded (``vtkit_fold`` in
config.json)."""

from typing import Literal, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sentence_transformers import SparseEncoder
from sentence_transformers.sentence_transformer.modules import Transformer
from torch import Tensor
from transformers import PreTrainedModel

from vtkit.encoder.asymmetric import output_tokenizer, query_side, query_table
from vtkit.encoder.kinds import set_counted
from vtkit.encoder.masked import mask_dimensions
from vtkit.encoder.model_folder import FOLD_SETTING
from vtkit.system.errors import DataError
from vtkit.vocabulary.casing import cased_ids, fold_map


def set_folding(encoder: SparseEncoder, on: bool) -> None:
    """Say in the configuration of ``encoder`` whether its vectors are to be folded."""
    for model in _models(encoder):
        if on:
            setattr(model.config, FOLD_SETTING, "max")
        elif hasattr(model.config, FOLD_SETTING):
            delattr(model.config, FOLD_SETTING)


def folds(encoder: SparseEncoder) -> bool:
    """Report whether the vectors of ``encoder`` are to be folded."""
    how = getattr(encoder[0].auto_model.config, FOLD_SETTING, None)
    if how not in ("max", None):
        raise DataError(f'the model\'s config.json has "{FOLD_SETTING}": {how!r}; it should be "max".')
    return how is not None


def fold_map_of(encoder: SparseEncoder) -> NDArray[np.int64]:
    """The target of each dimension of ``encoder`` when vectors are folded: :func:`vtkit.vocabulary.casing.fold_map` of
    the tokenizer that names its dimensions, (vocabulary,)."""
    return fold_map(output_tokenizer(encoder), int(encoder[0].auto_model.config.vocab_size))


def folded_dimensions(encoder: SparseEncoder) -> NDArray[np.int64] | None:
    """:func:`fold_map_of` an encoder whose vectors are to be folded; None for another."""
    return fold_map_of(encoder) if folds(encoder) else None


def fold_vectors(vectors: sparse.csr_matrix, folded_to: NDArray[np.int64]) -> sparse.csr_matrix:
    """Term weights, (texts, vocabulary), not negative, whose case variants share one dimension: w'_c = max over the
    tokens j of class c of w_j, by ``folded_to`` (:func:`vtkit.vocabulary.casing.fold_map`, (vocabulary,)). Indices are
    sorted."""
    if vectors.shape[1] != len(folded_to):
        raise ValueError(f"{vectors.shape[1]} dimensions and a fold map of {len(folded_to)}")
    rows = np.repeat(np.arange(vectors.shape[0], dtype=np.int64), np.diff(vectors.indptr))
    cells = rows * vectors.shape[1] + folded_to[vectors.indices]
    order = np.argsort(cells, kind="stable")
    distinct, starts = np.unique(cells[order], return_index=True)
    data = np.maximum.reduceat(vectors.data[order], starts) if len(distinct) else vectors.data[:0]
    folded = sparse.csr_matrix((data, divmod(distinct, vectors.shape[1])), shape=vectors.shape, dtype=vectors.dtype)
    folded.sort_indices()
    return folded


def folded(encoder: SparseEncoder, vectors: sparse.csr_matrix) -> sparse.csr_matrix:
    """``vectors`` of ``encoder``, folded where it says so."""
    folded_to = folded_dimensions(encoder)
    return vectors if folded_to is None else fold_vectors(vectors, folded_to)


def fold_weights(weights: Tensor, folded_to: Tensor) -> Tensor:
    """:func:`fold_vectors` for a batch of dense vectors, (texts, vocabulary)."""
    return torch.zeros_like(weights).scatter_reduce_(
        1, folded_to.expand_as(weights), weights, "amax", include_self=True
    )


def apply_output_casing(encoder: SparseEncoder, output: Literal["all", "mask", "map", "fold"]) -> int:
    """Let the cased dimensions of ``encoder`` be what ``[casing] output`` says, in place; how many were masked. For
    ``map`` its tokenizer is that of :func:`vtkit.vocabulary.casing.map_cased`, and what is still cased is masked."""
    set_folding(encoder, output == "fold")
    match output:
        case "mask" | "map":
            ids = cased_ids(output_tokenizer(encoder))
            for model in _models(encoder):
                mask_dimensions(model, ids)
            set_counted(encoder)
            table = query_table(encoder)
            if table is not None:
                with torch.no_grad():
                    table.weight[torch.from_numpy(ids)] = 0.0
            return len(ids)
        case "all" | "fold":
            return 0
        case _:
            assert_never(output)


def _models(encoder: SparseEncoder) -> list[PreTrainedModel]:
    """The masked language models of ``encoder``: one, or one for each side."""
    sides = (encoder, query_side(encoder))
    return [side[0].auto_model for side in sides if side is not None and isinstance(side[0], Transformer)]
