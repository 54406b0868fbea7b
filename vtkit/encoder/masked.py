"""Masked vocabulary dimensions, inactive for good by their decoder bias, b_j = -10⁴: log(1 + ReLU(w_j·h + b_j)) is then
0 whatever is read, wherever the saved model is loaded. Masked is what has b_j < -5,000."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtkit.encoder.families import mlm_head
from vtkit.system.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel

MASKED_BIAS = -1e4  # decoder bias of a masked dimension: far below any logit, and still a number in half precision


def mask_dimensions(model: PreTrainedModel, ids: Sequence[int] | NDArray[np.int64]) -> None:
    """Make the dimensions ``ids`` of ``model`` inactive for good, in place: b_j = -10⁴."""
    bias = _bias(model)
    with torch.no_grad():
        bias[torch.as_tensor(np.asarray(ids, dtype=np.int64), device=bias.device)] = MASKED_BIAS


def masked_dimensions(model: PreTrainedModel) -> Tensor:
    """Which dimensions are masked: (vocabulary,) of booleans."""
    return _bias(model).detach() < MASKED_BIAS / 2


def is_masked(bias: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Which of the dimensions with the decoder biases ``bias`` are masked; (vocabulary,)."""
    return np.asarray(bias < MASKED_BIAS / 2)


def live_rows(bias: Tensor) -> int:
    """The number of rows up to the last one that is not masked, (vocabulary,); latent terms in a model of a large
    vocabulary leave most of its rows masked behind them."""
    live = (bias >= MASKED_BIAS / 2).nonzero()
    return int(live[-1]) + 1 if len(live) else 1


def _bias(model: PreTrainedModel) -> Tensor:
    bias: Tensor | None = mlm_head(model).decoder.bias
    if bias is None:
        raise DataError(f"{type(model).__name__} has a head without bias, and vtkit masks dimensions by their bias.")
    return bias
