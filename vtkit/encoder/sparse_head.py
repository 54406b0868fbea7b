"""The sparse head: term weights of a text, without ever building (batch x length x vocabulary).

The decoder projection is computed block by block over the vocabulary; of each block only the maximum over
the positions and where it was reached are kept. The gradient then runs through those (text, term) entries
that are positive, and through no others: the max and the ReLU make every other entry's gradient exactly zero.

sentence-transformers keeps the decoder inside its ``Transformer`` module and the pooling in
``SpladePooling``. :func:`streaming` puts the two together for the length of a ``with`` block (training,
encoding) and leaves the encoder as it found it, so that what is saved is always the library's own modules.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vtkit.encoder.families import mlm_head

BLOCK_BYTES = 32 * 2**20
"""Logits of one vocabulary block are kept below this: small enough to stay near the processor's cache."""


warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)


class _MaxOverPositions(torch.autograd.Function):
    """max_i (h_i . w_j + b_j) over the unmasked positions i of each text, for all terms j."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, mask: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        vocabulary = weight.shape[0]
        flat = hidden.reshape(batch * length, width)
        padding = ~mask.bool().reshape(batch, length, 1)
        some_padding = bool(padding.any())
        highest = torch.empty(batch, vocabulary, dtype=bias.dtype, device=hidden.device)
        wants_gradient = any(ctx.needs_input_grad)
        reached_at = torch.empty(batch, vocabulary, dtype=torch.int32, device=hidden.device) if wants_gradient else None
        block = max(64, BLOCK_BYTES // (max(batch * length, 1) * hidden.element_size()))
        for start in range(0, vocabulary, block):
            stop = min(start + block, vocabulary)
            logits = torch.mm(flat, weight[start:stop].t()).view(batch, length, stop - start)
            if some_padding:
                logits.masked_fill_(padding, -torch.inf)
            if reached_at is None:
                highest[:, start:stop] = logits.amax(dim=1)
            else:
                values, positions = logits.max(dim=1)
                highest[:, start:stop] = values
                reached_at[:, start:stop] = positions
        highest += bias
        if reached_at is not None:
            ctx.save_for_backward(hidden, weight, highest > 0, reached_at)
        return highest

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        hidden, weight, positive, reached_at = ctx.saved_tensors
        batch, length, width = hidden.shape
        # What follows the maximum is a ReLU, so a term that is not positive passes no gradient back.
        texts, terms = torch.nonzero(positive & (gradient != 0), as_tuple=True)
        values = gradient[texts, terms]
        rows = texts * length + reached_at[texts, terms].long()
        flat = hidden.reshape(batch * length, width)
        # entries (rows, terms) as a sparse (positions x vocabulary) matrix S: dH = S W and dW = S^T H
        sparse = torch.sparse_coo_tensor(
            torch.stack([rows, terms]), values, (batch * length, weight.shape[0]), check_invariants=False
        ).coalesce()
        to_hidden = torch.sparse.mm(sparse.to_sparse_csr(), weight).view_as(hidden) if ctx.needs_input_grad[0] else None
        to_weight = torch.sparse.mm(sparse.t().to_sparse_csr(), flat) if ctx.needs_input_grad[2] else None
        to_bias = None
        if ctx.needs_input_grad[3]:
            to_bias = torch.zeros(weight.shape[0], dtype=gradient.dtype, device=gradient.device)
            to_bias.index_add_(0, terms, values)
        return to_hidden, None, to_weight, to_bias


def term_weights(
    hidden: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor,
    pooling: str = "max",
    activation: str = "relu",
) -> Tensor:
    """SPLADE's representation of each text: w_j = max_i log(1 + ReLU(h_i . w_j + b_j)).

    Formal et al. (2021, arXiv:2109.10086). With ``activation="log1p_relu"`` a second log(1 + .) follows
    (Shen et al., arXiv:2504.14839); with ``pooling="sum"`` the positions are summed (SPLADE v1) and the
    blocks are computed again in the backward pass instead of being kept.

    Args:
        hidden: what the decoder projects, (batch, length, width).
        mask: 1 for tokens and 0 for padding, (batch, length).
        weight: decoder rows, (vocabulary, width).
        bias: decoder bias, (vocabulary,).
        pooling: "max" or "sum".
        activation: "relu" or "log1p_relu".

    Returns:
        Non-negative term weights, (batch, vocabulary); values and gradients equal those of the dense
        computation up to the order of summation.
    """
    if pooling == "max":
        pooled: Tensor = _MaxOverPositions.apply(hidden, mask, weight, bias)  # type: ignore[no-untyped-call]
        return _saturate(pooled, activation)
    block = max(64, BLOCK_BYTES // (hidden.shape[0] * hidden.shape[1] * hidden.element_size()))
    sums = [
        checkpoint(_summed_block, hidden, mask, weight[start : start + block], bias[start : start + block], activation,
                   use_reentrant=False)
        for start in range(0, weight.shape[0], block)
    ]  # fmt: skip
    return torch.cat(sums, dim=1)


def _summed_block(hidden: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    saturated = _saturate(hidden @ weight.t() + bias, activation)
    return (saturated * mask.unsqueeze(-1)).sum(dim=1)


def _saturate(logits: Tensor, activation: str) -> Tensor:
    once = torch.log1p(torch.relu(logits))
    return torch.log1p(once) if activation == "log1p_relu" else once


class StreamingSpladePooling(SpladePooling):  # type: ignore[misc]
    """``SpladePooling`` that takes the decoder's input and streams the decoder itself."""

    decoder: nn.Linear
    half: Tensor | None
    """The decoder's weight in bf16, where the projection runs in it (no gradients)."""

    @classmethod
    def over(cls, pooling: SpladePooling, decoder: nn.Linear, *, half: bool = False) -> StreamingSpladePooling:
        new = cls(pooling.pooling_strategy, pooling.activation_function, decoder.out_features)
        # not registered as a submodule: the weights belong to the Transformer module
        object.__setattr__(new, "decoder", decoder)
        new.half = decoder.weight.detach().bfloat16() if half else None
        return new

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        bias = self.decoder.bias
        if bias is None:
            bias = self.decoder.weight.new_zeros(self.decoder.out_features)
        weight = self.decoder.weight if self.half is None else self.half
        # Autocast serves the transformer; the head is computed in its weight's own precision.
        with torch.autocast(weight.device.type, enabled=False):
            features["sentence_embedding"] = term_weights(
                features["token_embeddings"].to(weight.dtype),
                features["attention_mask"],
                weight,
                bias,
                self.pooling_strategy,
                self.activation_function,
            )
        return features


@contextmanager
def streaming(encoder: SparseEncoder, *, half: bool = False) -> Iterator[SparseEncoder]:
    """``encoder`` with its decoder and pooling joined into the streaming head while the block runs; ``half``: with the
    decoder's product in bf16, for encoding only.

    Saving inside the block (a trainer's checkpoint) writes loadable folders too; the finished model is
    saved after it.
    """
    decoder = mlm_head(encoder[0].auto_model).decoder
    pooling = encoder[1]
    with without_decoder(decoder):
        encoder[1] = StreamingSpladePooling.over(pooling, decoder, half=half)
        try:
            yield encoder
        finally:
            encoder[1] = pooling


@contextmanager
def without_decoder(decoder: nn.Linear) -> Iterator[None]:
    """While the block runs ``decoder`` hands its input on, so that a model's "logits" are its hidden states."""
    decoder.forward = _identity  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del decoder.forward


def _identity(hidden: Tensor) -> Tensor:
    return hidden
