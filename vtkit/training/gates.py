"""Collapse gates: a run whose loss explodes, or whose vectors carry no information any more, is stopped, with what was
seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import median

import torch
from torch import Tensor

from vtkit.settings.finetune import SIDES, Side
from vtkit.system.errors import CollapseError

DEAD_DIMENSIONS = 1.0  # fewer active dimensions than this, on average, is a dead encoder
DENSE_SHARE = 0.9  # more than this share of the vocabulary active, on average, is a dense encoder
PATIENCE = 10  # batches in a row that must show the same collapse: single batches may


EXPLODED = 100.0  # times the loss of the first batches that is an explosion

GUESSES = 10.0
"""Times the loss of guessing that no working model has, however it starts: a vocabulary moved with random rows starts
at one to two, and labels that can never be predicted cost a hundred and more."""


def lower(settings: Sequence[str]) -> str:
    """The advice to lower one of ``settings``, in braces as errors name their arguments."""
    if not settings:
        return "Look at the training data, or start from another model."
    return f"Lower {' or '.join(f'{{{name}}}' for name in settings)}."


@dataclass
class LossGate:
    """Watches the loss of a training run; call it with every batch's."""

    training: str  # what is trained, for the message
    learning: tuple[str, ...] = ("learning_rate",)  # the settings to lower, for the message
    guessing: float | None = None  # loss of a model that guesses, where there is such a thing: ln V for one of V tokens
    _first: list[float] = field(default_factory=list)
    _high: int = 0

    def __call__(self, step: int, loss: Tensor) -> None:
        """Check one batch.

        Raises:
            CollapseError: NaN or infinity at once; a loss of more than :data:`GUESSES` times ``guessing``, or more than
                :data:`EXPLODED` times the median of the first ``PATIENCE`` batches (or 1, where that is less), after
                ``PATIENCE`` such batches in a row.
        """
        value = float(loss.detach())
        if not isfinite(value):
            raise CollapseError(
                f"{self.training} step {step}: the loss is {value}. {lower(self.learning)}", *self.learning
            )
        limits = [] if self.guessing is None else [GUESSES * self.guessing]
        if len(self._first) < PATIENCE:
            self._first.append(value)
        else:
            limits.append(EXPLODED * max(median(self._first), 1.0))
        self._high = self._high + 1 if limits and value > min(limits) else 0
        if self._high >= PATIENCE:
            raise CollapseError(
                f"{self.training} step {step}: the loss is {value:,.1f}, and was above {min(limits):,.1f} for "
                f"{PATIENCE} batches ({self._first[0]:,.1f} in the first one). {lower(self.learning)}",
                *self.learning,
            )


@dataclass
class CollapseGate:
    """Watches the vectors of a training run; call it with every batch."""

    vocabulary: int
    ramp_ends: int  # step at which the penalties are at full strength: until then dense vectors are no collapse
    training: str = "fine-tuning"  # what is trained, for messages
    learning: tuple[str, ...] = ("learning_rate",)  # the settings to lower if the loss is not finite
    penalty: Mapping[Side, tuple[str, ...]] = field(
        default_factory=lambda: {side: (f"{side}_penalty",) for side in SIDES}
    )
    """The settings of each side's penalties."""

    ramp: str = "ramp"  # the setting that makes penalties rise more slowly
    _seen: dict[str, int] = field(default_factory=dict)

    def __call__(self, step: int, queries: Tensor, documents: Tensor, scores: Tensor, loss: Tensor) -> None:
        """Check one batch.

        Args:
            queries: term weights, (queries, vocabulary).
            documents: term weights, (documents, vocabulary).
            scores: (queries, documents).
        """
        if not bool(torch.isfinite(loss)):
            advice = lower(self.learning)
            raise CollapseError(f"{self.training} step {step}: the loss is {loss.item()}. {advice}", *self.learning)
        for side, vectors in zip(SIDES, (queries, documents), strict=True):
            active = float((vectors.detach() > 0).sum(dim=1).float().mean())
            penalty, advice = self.penalty[side], lower(self.penalty[side])[:-1]
            self._count(
                f"dead {side}",
                active < DEAD_DIMENSIONS,
                f"{self.training} step {step}: {side} vectors are dead, with {active:.1f} active dimensions on average "
                f"over {PATIENCE} batches. {advice}, raise {{{self.ramp}}}, or calibrate to a higher target "
                "activation.",
                *penalty,
                self.ramp,
            )
            self._count(
                f"dense {side}",
                step > self.ramp_ends and active > DENSE_SHARE * self.vocabulary,
                f"{self.training} step {step}: {side} vectors are dense, with {active:.0f} of {self.vocabulary} "
                f"dimensions active after the ramp. {advice.replace('Lower', 'Raise')}, or calibrate to a lower target "
                "activation.",
                *penalty,
            )
        spread = float((scores.detach().amax(dim=1) - scores.detach().amin(dim=1)).abs().max())
        self._count(
            "constant scores",
            spread < 1e-6,
            f"{self.training} step {step}: all documents of the batch get the same score. {lower(self.learning)[:-1]} "
            "and the penalties, or calibrate to a higher target activation.",
            *self.learning,
        )

    def _count(self, name: str, seen: bool, message: str, *arguments: str) -> None:
        self._seen[name] = self._seen.get(name, 0) + 1 if seen else 0
        if self._seen[name] >= PATIENCE:
            raise CollapseError(message, *arguments)
