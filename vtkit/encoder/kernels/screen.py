"""Which terms can be positive in a text, found by a product in bf16 before they are computed exactly."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK_BYTES = 2**20
"""bf16 logits of one vocabulary block are kept below this: their product is fast, so they must be in the cache when it
is done."""

BF16_ROUNDOFF = 2.0**-8  # unit roundoff of bf16, u

BOUND_SHARE = 0.45
"""Of what a :class:`LowRankScreen` leaves out at most, so much is added; docs/log.md has what other shares miss."""

RIDGE = 1e-3
"""Of the mean variance of hidden states, added to that of every direction: few texts do not show all of them."""

CALIBRATION_POSITIONS = 8192  # token positions that a :class:`CalibratedScreen` sees before it takes fewer columns
MOST = 0.125
"""Share of the terms that a :class:`LowRankScreen` may let through: computing these exactly costs what it saves."""

ROWS_AT_ONCE = 4096  # decoder rows that are turned together: little memory beside that of encoding


@dataclass(frozen=True)
class Screen:
    """The decoder in bf16, to find the terms that can be positive before they are computed exactly.

    A bf16 number has eight significant bits, so rounding moves it by a share of at most u = 2⁻⁸. With both factors
    rounded and products summed in float32, the screened logit s̃ of a position h and a term w with bias b is off by at
    most

        |s̃ - (h·w + b)| ≤ (2u + u²) ‖h‖ ‖w‖ + γ ((1 + u)² ‖h‖ ‖w‖ + |b|),    γ = columns · 2⁻²⁴ / (1 - columns · 2⁻²⁴)

    (the rounding errors of the products, Σ|hᵢ||wᵢ| ≤ ‖h‖‖w‖, and those of the sum; Higham, Accuracy and Stability of
    Numerical Algorithms, section 3.1). The product itself adds this bound: the rows have further columns for the bias,
    in two parts, and for the factor of ‖h‖, which stand beside 1, 1 and ‖h‖ in the hidden states, all rounded up. So
    what comes out is never below the logit, and when it is rounded to bf16 its sign stays: a term that is negative at
    all positions is not positive anywhere, and none is missed. The sign is in the first bit of a number, so maxima are
    taken over the bits as integers, which is ten times faster than over bf16.
    """

    rows: Tensor  # decoder rows and what is added, (vocabulary, columns), bf16

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor) -> Screen:
        """The screen of decoder rows ``weight``, (vocabulary, width), and ``bias``, (vocabulary,)."""
        weight, bias = weight.detach(), bias.detach().float()
        vocabulary, width = weight.shape
        columns = -(-(width + 3) // 8) * 8  # three more, rounded up to a multiple that is fast
        gamma = _gamma(columns)
        rows = torch.zeros(vocabulary, columns, dtype=torch.bfloat16, device=weight.device)
        rows[:, :width] = weight
        raised = bias + bias.abs() * (4 * gamma)
        rows[:, width] = raised
        rows[:, width + 1] = _rounded_up(raised - rows[:, width].float())
        factor = (2 * BF16_ROUNDOFF + BF16_ROUNDOFF**2 + gamma * (1 + BF16_ROUNDOFF) ** 2) / (1 - gamma)
        rows[:, width + 2] = _rounded_up(torch.linalg.vector_norm(weight.float(), dim=1) * (factor * (1 + 2 * gamma)))
        return cls(rows)

    def states(self, hidden: Tensor) -> Tensor:
        """The factor that is multiplied with the rows: hidden states (positions, width) become (positions, columns) in
        bf16."""
        width, columns = hidden.shape[1], self.rows.shape[1]
        states = torch.zeros(len(hidden), columns, dtype=torch.bfloat16, device=hidden.device)
        states[:, :width] = hidden
        states[:, width : width + 2] = 1
        states[:, width + 2] = _rounded_up(torch.linalg.vector_norm(hidden.float(), dim=1) * (1 + 2 * _gamma(columns)))
        return states

    def possible(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Which terms can be positive in which text, (batch, vocabulary) bool; all of them where hidden states are no
        numbers. Arguments as of :func:`vtkit.encoder.kernels.sparse_head.term_weights`."""
        batch, length, width = hidden.shape
        vocabulary = len(self.rows)
        real = mask.bool()
        # A copy of a text's first token in the place of its padding changes no maximum, and costs no pass over logits.
        firsts = hidden[torch.arange(batch, device=hidden.device), real.long().argmax(dim=1)]
        filled = torch.where(real.unsqueeze(2), hidden, firsts[:, None]).reshape(batch * length, width)
        states = self.states(filled)
        if not bool(states.isfinite().all()):
            return real.any(dim=1, keepdim=True).expand(batch, vocabulary)
        highest = torch.empty(batch, vocabulary, dtype=torch.int16, device=hidden.device)
        block = max(64, BLOCK_BYTES // (2 * batch * length) // 64 * 64)
        buffer = torch.empty(batch * length * min(block, vocabulary), dtype=torch.bfloat16, device=hidden.device)
        for start in range(0, vocabulary, block):
            stop = min(start + block, vocabulary)
            logits = buffer[: batch * length * (stop - start)].view(batch * length, stop - start)
            torch.mm(states, self.rows[start:stop].t(), out=logits)
            torch.amax(logits.view(torch.int16).view(batch, length, -1), dim=1, out=highest[:, start:stop])
        return (highest >= 0) & real.any(dim=1, keepdim=True)


@dataclass(frozen=True)
class LowRankScreen(Screen):
    """A screen of a third of the columns, in which few terms are missed and not, as in :class:`Screen`, none.

    Hidden states of text lie near a subspace. With their second moment C = E[h hᵀ] = L Lᵀ and the eigenvectors V of
    LᵀWᵀWL, W the decoder rows, a logit is a sum of products in the order of their size,

        h·w + b = Σ_k a_k z_k + b,    a = Vᵀ Lᵀ w,    z = Vᵀ L⁻¹ h

    of which the first ``rank`` are computed. What is left out is at most ‖a_rest‖ ‖z_rest‖, and the rounding of the
    others at most 2u ‖a_first‖ ‖z_first‖. Both bounds are reached by vectors of one direction only, so `BOUND_SHARE`
    of their sum is added instead of all: vectors of any direction in a few hundred dimensions stay below it.
    """

    rotation: Tensor  # L⁻ᵀ V, (width, width) float32: h times it is z
    rank: int

    @classmethod
    def of_states(cls, weight: Tensor, bias: Tensor, moment: Tensor, rank: int) -> LowRankScreen:
        """The screen of decoder rows (vocabulary, width) and their bias for hidden states of second moment ``moment``,
        (width, width) float64."""
        weight, bias = weight.detach().float(), bias.detach().float()
        width = weight.shape[1]
        ridge = RIDGE * moment.diagonal().mean() * torch.eye(width, dtype=moment.dtype, device=moment.device)
        root = torch.linalg.cholesky(moment + ridge)
        products = torch.zeros_like(moment)
        for some in torch.split(weight, ROWS_AT_ONCE):
            products += (some.T @ some).double()
        vectors = torch.linalg.eigh(root.T @ products @ root).eigenvectors.flip(1)
        rotation = torch.linalg.solve_triangular(root.T, vectors, upper=True).float()
        turn = (root @ vectors).float()
        rows = torch.zeros(len(weight), rank + 4, dtype=torch.bfloat16, device=weight.device)
        for some, place in zip(torch.split(weight, ROWS_AT_ONCE), torch.split(rows, ROWS_AT_ONCE), strict=True):
            turned = some @ turn
            first, rest = (torch.linalg.vector_norm(part, dim=1) for part in (turned[:, :rank], turned[:, rank:]))
            place[:, :rank] = turned[:, :rank]
            place[:, rank + 2] = _rounded_up(BOUND_SHARE * 2 * BF16_ROUNDOFF * first)
            place[:, rank + 3] = _rounded_up(BOUND_SHARE * rest)
        rows[:, rank] = bias
        rows[:, rank + 1] = bias - rows[:, rank].float()
        return cls(rows, rotation, rank)

    def states(self, hidden: Tensor) -> Tensor:
        """As in :class:`Screen`; the columns are ``rank`` coordinates, two for the bias, and the two norms."""
        turned = hidden.float() @ self.rotation
        first, rest = turned[:, : self.rank], turned[:, self.rank :]
        states = torch.ones(len(hidden), self.rows.shape[1], dtype=torch.bfloat16, device=hidden.device)
        states[:, : self.rank] = first
        states[:, self.rank + 2] = torch.linalg.vector_norm(first, dim=1)
        states[:, self.rank + 3] = torch.linalg.vector_norm(rest, dim=1)
        return states


class CalibratedScreen:
    """For encoding many texts in bf16: a :class:`Screen` until it has seen how their hidden states vary, then a
    :class:`LowRankScreen` by that, which is given up where it lets too many terms through."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight, self.bias = weight, bias
        self.chosen = Screen.of(weight, bias)
        width = weight.shape[1]
        self.rank = width // 3 // 32 * 32 - 4
        self.moment: Tensor | None = None
        if self.rank > 0:
            self.moment = torch.zeros(width, width, dtype=torch.float64, device=weight.device)
        self.positions = 0

    def possible(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """As :meth:`Screen.possible`."""
        possible = self.chosen.possible(hidden, mask)
        if self.moment is not None:
            states = hidden[mask.bool()]
            self.moment += (states.T @ states).double()
            self.positions += len(states)
            if self.positions >= CALIBRATION_POSITIONS:
                moment, self.moment = self.moment / self.positions, None
                if bool(moment.isfinite().all()):
                    self.chosen = LowRankScreen.of_states(self.weight, self.bias, moment, self.rank)
        elif isinstance(self.chosen, LowRankScreen) and int(possible.count_nonzero()) > MOST * possible.numel():
            self.chosen = Screen.of(self.weight, self.bias)
        return possible


def _gamma(terms: int) -> float:
    """γ of a sum of ``terms`` products in float32."""
    return terms * 2.0**-24 / (1 - terms * 2.0**-24)


def _rounded_up(values: Tensor) -> Tensor:
    """bf16 numbers not below ``values`` and hardly above them."""
    return (values + values.abs() * (2 * BF16_ROUNDOFF)).bfloat16()
