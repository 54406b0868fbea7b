"""Training over several processes: the first one trains, the others encode their part of each batch for it.

The first process has the data, the losses, the optimiser and the checkpoints, exactly as if it were alone. The others
hold a copy of the encoder. Of each batch every process encodes some groups of texts
(:mod:`vtkit.training.batch_encoding`), the first gathers the vectors and computes losses and penalties on all of them,
and hands the gradients by the vectors back; every process back-propagates its own groups, and the gradients by the
weights are summed in the first, which makes the step and sends the new weights. So a step is that of the whole batch
however many processes there are, dropout included; only the order in which gradients are summed differs.

How they are connected: :mod:`vtkit.processes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, assert_never

import torch
import torch.distributed as dist
from sentence_transformers import SparseEncoder
from torch import Tensor, nn

from vtkit.encoder.sparse_head import streaming
from vtkit.launch import launched
from vtkit.processes import connected, from_first, job, received, send
from vtkit.training.batch_encoding import Group, encode_groups
from vtkit.training.resuming import trains_in_bf16

TRAIN = "train"
"""What the other processes know this job by."""


@dataclass(frozen=True)
class _Encode:
    """Encode your share of these groups, and send the vectors."""

    shares: Sequence[Sequence[Group]]
    """The groups of each process."""

    new_weights: bool
    training: bool
    gradient: bool
    again: bool


@dataclass(frozen=True)
class _Backward:
    """Receive the gradients by the vectors you sent last, back-propagate them, and add up those by the weights."""


_Order = _Encode | _Backward | None
"""What the other processes are to do next; None: this training run is over."""


# the first process


class Workers:
    """The other processes, as the first one sees them; made by :func:`workers`."""

    def __init__(self, model: SparseEncoder, learning: Sequence[nn.Parameter]) -> None:
        self.model, self.learning = model, learning
        self._sent = [parameter._version for parameter in learning]

    def encode(self, model: SparseEncoder, groups: Sequence[Group], again: bool) -> list[Tensor]:
        """As :func:`~vtkit.training.batch_encoding.encode_groups`, each process some of ``groups``."""
        places = _shares(groups, launched().size)
        versions = [parameter._version for parameter in self.learning]
        shares = [[groups[place] for place in share] for share in places]
        order = _Encode(shares, versions != self._sent, model.training, torch.is_grad_enabled(), again)
        send(order)
        with connected():
            if order.new_weights:
                for parameter in self.learning:
                    dist.broadcast(parameter.detach(), src=0)
        self._sent = [parameter._version for parameter in self.learning]
        own = encode_groups(model, shares[0], again)
        vectors: tuple[Tensor, ...] = _Gathered.apply(shares, *own)  # type: ignore[no-untyped-call]
        found = dict(zip((place for share in places for place in share), vectors, strict=True))
        return [found[place] for place in range(len(groups))]

    def sum_gradients(self) -> None:
        """Add what the other processes found to the gradients of this one; call it after each backward pass."""
        with connected():
            _sum_gradients(self.learning)


@contextmanager
def workers(model: SparseEncoder) -> Iterator[Workers | None]:
    """The other processes of this launch, each with a copy of ``model``; None where this process is alone.

    Raises:
        VtkitError: this machine trains on a GPU; later, another process has ended.
    """
    if launched().size == 1:
        yield None
        return
    with job(TRAIN, model, trains_in_bf16(model[0].auto_model)):
        yield Workers(model, [parameter for parameter in model.parameters() if parameter.requires_grad])
        send(None)


def _shares(groups: Sequence[Group], size: int) -> list[list[int]]:
    """Which groups each process encodes: the largest first, each to whoever has the fewest tokens so far."""
    shares: list[list[int]] = [[] for _ in range(size)]
    tokens = [0] * size
    for place in sorted(range(len(groups)), key=lambda place: -groups[place].tokens):
        least = tokens.index(min(tokens))
        shares[least].append(place)
        tokens[least] += groups[place].tokens
    return shares


class _Gathered(torch.autograd.Function):
    """The vectors of all groups, out of those of this process; backward sends the others their gradients first, so that
    all processes back-propagate at the same time."""

    @staticmethod
    def forward(ctx: Any, shares: Sequence[Sequence[Group]], *own: Tensor) -> tuple[Tensor, ...]:
        ctx.shares = shares
        width = own[0].shape[1]
        found = [vectors.detach() for vectors in own]
        with connected():
            for rank, share in enumerate(shares[1:], start=1):
                for group in share:
                    vectors = torch.empty(group.texts, width)
                    dist.recv(vectors, src=rank)
                    found.append(vectors)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        first = len(ctx.shares[0])
        theirs = iter(gradients[first:])
        send(_Backward())
        with connected():
            for rank, share in enumerate(ctx.shares[1:], start=1):
                for _ in share:
                    dist.send(next(theirs).contiguous(), dst=rank)
        return None, *gradients[:first]


# the others


def serve_training(model: SparseEncoder, half: bool) -> None:
    """Encode for one training run of the first process, as one of the others."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # as the trainer of the first process has it: what is cast to bf16 is cast anew for each group
    model.forward = torch.autocast("cpu", torch.bfloat16, enabled=half)(model.forward)
    sent: list[Tensor] = []
    with streaming(model):
        while True:
            order: _Order = received()
            match order:
                case _Encode():
                    vectors = _encode(model, learning, order)
                    sent = vectors if order.gradient else sent
                case _Backward():
                    _back_propagate(sent, learning)
                case None:
                    return
                case _:
                    assert_never(order)


def _take_weights(learning: Sequence[nn.Parameter]) -> None:
    for parameter in learning:
        sent = torch.empty_like(parameter)
        dist.broadcast(sent, src=0)
        with torch.no_grad():
            parameter.copy_(sent)  # into the parameter itself, whose version the sparse head goes by


def _encode(model: SparseEncoder, learning: Sequence[nn.Parameter], order: _Encode) -> list[Tensor]:
    """The vectors of this process's share, sent to the first."""
    if order.new_weights:
        with from_first():
            _take_weights(learning)
    before = model.training
    model.train(order.training)
    with torch.set_grad_enabled(order.gradient):
        vectors = encode_groups(model, order.shares[launched().rank], order.again)
    if not order.gradient:
        model.train(before)  # in which the vectors whose backward pass is to come may be computed again
    with from_first():
        for found in vectors:
            dist.send(found.detach().contiguous(), dst=0)
    return vectors


def _back_propagate(sent: Sequence[Tensor], learning: Sequence[nn.Parameter]) -> None:
    gradients = [torch.empty(vectors.shape) for vectors in sent]
    with from_first():
        for gradient in gradients:
            dist.recv(gradient, src=0)
    if sent:
        torch.autograd.backward(sent, gradients)
    with from_first():
        _sum_gradients(learning)
    for parameter in learning:
        parameter.grad = None


# both


def _sum_gradients(learning: Sequence[nn.Parameter]) -> None:
    """The sum over all processes of each parameter's gradient, in the first one; None where none has any."""
    there = torch.tensor([parameter.grad is not None for parameter in learning], dtype=torch.uint8)
    dist.all_reduce(there, dist.ReduceOp.MAX)
    for parameter, somewhere in zip(learning, there.tolist(), strict=True):
        if somewhere:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.reduce(parameter.grad, dst=0)
