"""λ found while training: the strength of a penalty that brings queries or documents to a number of active dimensions.

In a run of S steps, with T the end of the ramp and A the number that is wanted, P = 4 and I = min(0.1, 15 / S):

    a_t    active dimensions of a text, the mean over the texts of batch t, as they are without dropout
    â_t    its running mean over the last few batches
    A_t    â_1^(1 - r) · A^r,  r = min(1, t / T)          the aim of step t: from where the run started to A
    e_t    log(â_t / A_t), bounded to [-1, 1]
    log λ_(t+1) = log λ_t + P · (e_t - e_(t-1)) + I · e_t     a step of at most ½, and λ within its bounds

The logarithms make the law the same for every vocabulary, penalty and size of weights: too many dimensions by a tenth
raise λ by the same share everywhere. The difference answers at once, the sum removes what remains. λ starts where the
penalty is :data:`START` of the loss of the first batch, and stays between :data:`LOWEST` and :data:`HIGHEST` times
that. Dropout makes vectors denser; every tenth batch is read without it too, and a_t is the count of the batch times
the ratio seen in the last of these. All of it is in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log

import torch
from torch import Tensor, nn

from vtkit.recipe.finetune import Side

START = 0.2
LOWEST, HIGHEST = 1e-3, 1e6

SMOOTHED = 4
"""Batches over which active dimensions are averaged, and readings over which the ratio is."""

READ_EVERY = 10
"""Steps between batches that are read without dropout too."""

PROPORTIONAL = 4.0
"""P."""

INTEGRAL = 15.0
"""I, times the steps of the run: what remains is taken away within about a tenth of it."""

FASTEST = 0.1
"""Largest I, in short runs."""

LARGEST_STEP = 0.5
"""Of log λ."""

MISSED = 0.1
"""Share by which a run may end beside its aim without a word."""


def strength(
    side: Side, fixed: Callable[[int], float], target: float | None, ramp_steps: int, steps: int, section: str
) -> Callable[[int], float]:
    """λ of a side: ``fixed``, or what reaches the aim that ``SECTION.target_active`` has for the side."""
    if target is None:
        return fixed
    return ActiveTarget(side, target, ramp_steps, steps, f"{section}.target_active.{side}")


class ActiveTarget(nn.Module):
    """λ of one penalty, as the ``weight`` of its term; see the top of this file.

    Args:
        side: whose active dimensions are counted.
        target: A.
        ramp_steps: T.
        steps: S.
        setting: that names the aim, for messages.
    """

    values: Tensor
    """log λ, log λ at the start, â_1, â, e, and the number of batches seen."""

    ratio: Tensor
    """Of active dimensions without dropout to those with it, and the number of readings behind it."""

    def __init__(self, side: Side, target: float, ramp_steps: int, steps: int, setting: str) -> None:
        super().__init__()
        self.side, self.target, self.ramp_steps, self.setting = side, target, ramp_steps, setting
        self.integral = min(FASTEST, INTEGRAL / steps)
        self.register_buffer("values", torch.zeros(6, dtype=torch.float64))
        self.register_buffer("ratio", torch.tensor([1.0, 0.0], dtype=torch.float64))

    def forward(self, step: int) -> float:
        """λ, as the last batch left it."""
        return exp(float(self.values[0])) if self.values[5] else 0.0

    def read(self, without: float, with_dropout: float) -> None:
        """Active dimensions of the same texts without and with dropout."""
        ratio, readings = self.ratio.tolist()
        readings += 1
        ratio += (max(without, 0.1) / max(with_dropout, 0.1) - ratio) / min(readings, SMOOTHED)
        self.ratio.copy_(torch.tensor([ratio, readings], dtype=torch.float64))

    def without_dropout(self, active: float) -> float:
        """What a count of active dimensions would be without dropout."""
        return active * float(self.ratio[0])

    def see(self, step: int, active: float, loss: float, penalty: float) -> None:
        """Change λ by what a batch shows.

        Args:
            step: optimiser step.
            active: mean active dimensions of the texts of the side, without dropout.
            loss: of the batch, without penalties.
            penalty: of the batch, without λ.
        """
        current, start, first, smoothed, error, seen = self.values.tolist()
        active = max(active, 0.1)
        if not seen:
            current = start = log(START * max(abs(loss), 1e-3) / max(penalty, 1e-6))
            first = smoothed = active
        seen += 1
        smoothed += (active - smoothed) / min(seen, SMOOTHED)
        reached = min(1.0, step / max(self.ramp_steps, 1))
        aim = (1 - reached) * log(first) + reached * log(self.target)
        before, error = error, max(-1.0, min(1.0, log(smoothed) - aim))
        change = PROPORTIONAL * (error - before) + self.integral * error
        current += max(-LARGEST_STEP, min(LARGEST_STEP, change))
        current = max(start + log(LOWEST), min(start + log(HIGHEST), current))
        self.values.copy_(torch.tensor([current, start, first, smoothed, error, seen], dtype=torch.float64))

    def missed(self) -> str | None:
        """What to say at the end of a run that has not reached its aim; None where it has."""
        current, start, _, smoothed, _, seen = self.values.tolist()
        if not seen or abs(smoothed / self.target - 1) <= MISSED:
            return None
        ends = f"training ends with {smoothed:.0f} active dimensions a {self.side}, {self.setting} is {self.target:g}"
        if smoothed > self.target:
            return f"{ends}. λ was still rising: train longer."
        if current > start + log(LOWEST) + 0.1:
            return f"{ends}. λ was still falling: train longer."
        return (
            f"{ends}. With next to no penalty there are no more: calibrate to a higher activation before ([calibrate])."
        )
