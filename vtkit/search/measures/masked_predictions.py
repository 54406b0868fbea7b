"""How well a masked language model predicts masked tokens: accuracy, and bits per byte of text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vtkit.system.results import Result


@dataclass(frozen=True)
class Predictions(Result):
    """Predictions of a group of masked tokens."""

    tokens: int
    accuracy: float  # share of them whose likeliest prediction is right
    bits_per_byte: float
    """-Σ log2 p(token) / Σ bytes of the token's text, so that vocabularies of longer and shorter tokens compare; masked
    tokens alone count, each predicted from all that is not masked."""


GroupedPredictions = Mapping[Literal["all", "overlapping", "new"], Predictions | None]
"""Predictions of all masked tokens, of those whose rows came unchanged from the source, and of the others."""


@dataclass(frozen=True)
class HeldOutPredictions(Result):
    """Before and after a training, on texts that it does not see; None for groups without tokens."""

    texts: int
    before: GroupedPredictions
    after: GroupedPredictions


def grouped_predictions(
    log_probabilities: NDArray[np.float64], right: NDArray[np.bool_], sizes: NDArray[np.int64], new: NDArray[np.bool_]
) -> GroupedPredictions | None:
    """The figures of each group; None where nothing was masked.

    Args:
        log_probabilities: ln p of the token that stood at each masked position, (positions,).
        right: whether it was the likeliest, (positions,).
        sizes: bytes of the text that it stood for, (positions,).
        new: whether its row is a new one, (positions,).
    """

    def of(group: NDArray[np.bool_]) -> Predictions | None:
        if not group.any():
            return None
        bits = -float(log_probabilities[group].sum()) / math.log(2)
        return Predictions(int(group.sum()), float(right[group].mean()), bits / max(1, int(sizes[group].sum())))

    every = of(np.ones(len(right), dtype=bool))
    return None if every is None else {"all": every, "overlapping": of(~new), "new": of(new)}
