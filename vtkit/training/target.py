"""λ found while training: the strength of a penalty that brings queries or documents to a number of active dimensions.

In a run of S steps, with T the end of the ramp and A the number that is wanted, P = 1.5 and I = min(0.15, 25 / S):

    a_t    active dimensions of a text, the mean over the texts of batch t, as they are without dropout
    â_t    its running mean over the last eight batches or so
    A_t    â_1^(1 - r) · A^r,  r = min(1, t / T)          the aim of step t: from where the run started to A
    e_t    log(â_t / A_t), bounded to [-1, 1]
    L_t    running mean of the loss without penalties, over 32 batches or so
    log λ_(t+1) = log λ_t + P · (e_t - e_(t-1)) + I · e_t + ½ log(L_t / L_(t-1))     a step of at most ½

Logarithms make the law the same for every vocabulary, penalty and size of weights. It is slow on purpose: at a constant
λ the number swings by a third with Adam's momentum, and a fast law feeds such swings. λ starts where the penalty is
:data:`START` of the first loss, and stays where it is below :data:`LEAST` or above :data:`MOST` times L_t. Every tenth
batch is read without dropout too; a_t is the count of the batch times the ratio seen there. All of it is in the
checkpoint.
"""

from math import exp, log

import torch
from torch import Tensor, nn

from vtkit.settings.finetune import Side

START = 0.2
LEAST, MOST = 0.03, 10.0

SMOOTHED, LOSSES = 8, 32  # batches over which active dimensions and the loss are averaged
SETTLED = 16  # batches over which active dimensions are averaged to say what a run ended with
READ_EVERY = 10  # steps between batches that are read without dropout too
READINGS = 4  # such batches over which the ratio is averaged
PROPORTIONAL = 1.5  # P
INTEGRAL = 25.0  # I, times the steps of the run: what remains is taken away within about a tenth of it
FASTEST = 0.15  # largest I, in short runs
LARGEST_STEP = 0.5  # of log λ
MISSED = 0.1  # share by which a run may end beside its aim without a word


class ActiveTarget(nn.Module):
    """λ of one penalty, as the ``weight`` of its term; see the top of this file.

    Args:
        target: A.
        ramp_steps: T.
        steps: S.
    """

    values: Tensor
    """log λ, whether it was kept from falling, â_1, â, e, L, the mean that a run ends with, and batches seen."""

    ratio: Tensor  # of active dimensions without dropout to those with it, and the number of readings behind it

    def __init__(self, side: Side, target: float, ramp_steps: int, steps: int) -> None:
        super().__init__()
        self.side, self.target, self.ramp_steps = side, target, ramp_steps
        self.integral = min(FASTEST, INTEGRAL / steps)
        self.register_buffer("values", torch.zeros(8, dtype=torch.float64))
        self.register_buffer("ratio", torch.tensor([1.0, 0.0], dtype=torch.float64))

    def forward(self, step: int) -> float:
        """λ, as the last batch left it."""
        return exp(float(self.values[0])) if self.values[-1] else 0.0

    def read(self, without: float, with_dropout: float) -> None:
        """Active dimensions of the same texts without and with dropout."""
        ratio, readings = self.ratio.tolist()
        readings += 1
        ratio = _running_mean(ratio, max(without, 0.1) / max(with_dropout, 0.1), readings, READINGS)
        self.ratio.copy_(torch.tensor([ratio, readings], dtype=torch.float64))

    def see(self, step: int, active: float, loss: float, penalty: float) -> None:
        """Change λ by what a batch shows.

        Args:
            active: mean active dimensions of the texts of the side, without dropout.
            loss: of the batch, without penalties.
            penalty: of the batch, without λ.
        """
        current, _, first, smoothed, error, mean_loss, settled, seen = self.values.tolist()
        active, loss, penalty = max(active, 0.1), max(abs(loss), 1e-3), max(penalty, 1e-6)
        if not seen:
            current, first, mean_loss = log(START * loss / penalty), active, loss
        seen += 1
        smoothed = _running_mean(smoothed, active, seen, SMOOTHED)
        settled = _running_mean(settled, active, seen, SETTLED)
        loss_before, mean_loss = mean_loss, _running_mean(mean_loss, loss, seen, LOSSES)
        reached = min(1.0, step / max(self.ramp_steps, 1))
        aim = (1 - reached) * log(first) + reached * log(self.target)
        before, error = error, max(-1.0, min(1.0, log(smoothed) - aim))
        change = PROPORTIONAL * (error - before) + self.integral * error + log(mean_loss / loss_before) / 2
        share = exp(current) * penalty / mean_loss
        too_weak, too_strong = change < 0 and share < LEAST, change > 0 and share > MOST
        if not (too_weak or too_strong):
            current += max(-LARGEST_STEP, min(LARGEST_STEP, change))
        values = [current, float(too_weak), first, smoothed, error, mean_loss, settled, seen]
        self.values.copy_(torch.tensor(values, dtype=torch.float64))

    def missed(self) -> str | None:
        """The message of a run that ended without reaching its target; None if it was reached."""
        _, too_weak, *_, settled, seen = self.values.tolist()
        if not seen or abs(settled / self.target - 1) <= MISSED:
            return None
        aim = f"target_active.{self.side} is {self.target:g}"
        ends = f"training ends with {settled:.0f} active dimensions a {self.side}, and {aim}"
        if settled > self.target:
            return f"{ends}. λ was still rising. Train longer."
        if not too_weak:
            return f"{ends}. λ was still falling. Train longer."
        return f"{ends}. Even with almost no penalty there are no more. Calibrate to a higher activation first."


def _running_mean(mean: float, value: float, seen: float, most: int) -> float:
    """The mean of all values so far, ``value`` the one numbered ``seen``; from ``most`` on old ones fade."""
    return mean + (value - mean) / min(seen, most)
