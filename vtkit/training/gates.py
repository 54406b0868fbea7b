"""Collapse gate: a run whose loss explodes, or whose vectors carry no information any more, is stopped, with what was
seen."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from statistics import median

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


@dataclass
class Gate:
    """Watches a training run; call it with the loss of every batch, and :meth:`vectors` where vectors are trained."""

    training: str  # what is trained, for messages
    learning: tuple[str, ...] = ("learning_rate",)  # the settings to lower if the loss explodes
    guessing: float | None = None  # loss of a model that guesses, where there is such a thing: ln V for one of V tokens
    vocabulary: int = 0
    ramp_ends: int = 0  # step at which the penalties are at full strength: until then dense vectors are no collapse
    ramp: str = "ramp"  # the setting that makes penalties rise more slowly
    penalty: Mapping[Side, tuple[str, ...]] = field(
        default_factory=lambda: {side: (f"{side}_penalty",) for side in SIDES}
    )
    """The settings of each side's penalties."""

    _first: list[float] = field(default_factory=list)  # losses of the first batches
    _seen: Counter[str] = field(default_factory=Counter)  # batches in a row that showed a collapse, by its name

    def __call__(self, step: int, loss: Tensor) -> None:
        """Check the loss of a batch.

        Raises:
            CollapseError: NaN or infinity at once; a loss of more than :data:`GUESSES` times ``guessing``, or more than
                :data:`EXPLODED` times the median of the first ``PATIENCE`` batches (or 1, where that is less), after
                ``PATIENCE`` such batches in a row.
        """
        value = float(loss.detach())
        if not isfinite(value):
            raise CollapseError(f"{self.training} step {step}: the loss is {value}. {_lower(self.learning)}.")
        highest = inf if self.guessing is None else GUESSES * self.guessing
        if len(self._first) < PATIENCE:
            self._first.append(value)
        else:
            highest = min(highest, EXPLODED * max(median(self._first), 1.0))
        self._count(
            "loss",
            value > highest,
            f"{self.training} step {step}: the loss is {value:,.1f}, and was above {highest:,.1f} for {PATIENCE} "
            f"batches ({self._first[0]:,.1f} in the first one). {_lower(self.learning)}.",
        )

    def vectors(self, step: int, queries: Tensor, documents: Tensor, scores: Tensor) -> None:
        """Check the term weights of a batch's queries and documents, (texts, vocabulary), and their scores, (queries,
        documents). CollapseError: the vectors are dead, dense, or all alike for ``PATIENCE`` batches in a row."""
        for side, vectors in zip(SIDES, (queries, documents), strict=True):
            active, penalty = float((vectors.detach() > 0).sum(dim=1).float().mean()), self.penalty[side]
            self._count(
                f"dead {side}",
                active < DEAD_DIMENSIONS,
                f"{self.training} step {step}: {side} vectors are dead, with {active:.1f} active dimensions on average "
                f"over {PATIENCE} batches. {_lower(penalty)}, raise {self.ramp}, or calibrate to a higher target "
                "activation.",
            )
            self._count(
                f"dense {side}",
                step > self.ramp_ends and active > DENSE_SHARE * self.vocabulary,
                f"{self.training} step {step}: {side} vectors are dense, with {active:.0f} of {self.vocabulary} "
                f"dimensions active after the ramp. {_lower(penalty).replace('Lower', 'Raise')}, or calibrate to a "
                "lower target activation.",
            )
        spread = float((scores.detach().amax(dim=1) - scores.detach().amin(dim=1)).abs().max())
        self._count(
            "constant scores",
            spread < 1e-6,
            f"{self.training} step {step}: all documents of the batch get the same score. {_lower(self.learning)} and "
            "the penalties, or calibrate to a higher target activation.",
        )

    def _count(self, name: str, seen: bool, message: str) -> None:
        self._seen[name] = self._seen[name] + 1 if seen else 0
        if self._seen[name] >= PATIENCE:
            raise CollapseError(message)


def _lower(settings: Sequence[str]) -> str:
    """The advice to lower one of ``settings``."""
    if not settings:
        return "Look at the training data, or start from another model"
    return f"Lower {' or '.join(settings)}"
