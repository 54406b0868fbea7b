"""The sparse head: term weights of a text, without ever building (batch x length x vocabulary).

The decoder projection is computed block by block over the vocabulary, and only the maxima over the positions are kept.
The gradient runs through the (text, term) entries that are positive: every other entry's is exactly zero. Where the
processor multiplies bf16 matrices in hardware, such a product finds those that can be positive, and only they are
computed in float32 (:mod:`vtkit.encoder.kernels.screen`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import setitem
from typing import Any

import numpy as np
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.checkpoint import checkpoint

from vtkit.encoder.families import mlm_head
from vtkit.encoder.kernels.dropout import fast_dropout
from vtkit.encoder.kernels.screen import CalibratedScreen, Screen
from vtkit.encoder.masked import live_rows
from vtkit.encoder.unicoil import is_unicoil
from vtkit.system.runtime import bf16_is_fast

BLOCK_BYTES = 32 * 2**20
"""Logits of one vocabulary block are kept below this: small enough to stay near the processor's cache."""

DENSE_SHARE = 0.25
"""Where more than this share of the terms is possible, all are computed at once: picking rows out costs more."""

SPARSE_ROWS_SHARE = 0.125
"""Where more than this share of the decoder's rows has a gradient, it is a dense tensor whatever was asked for."""


warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)


class _PositiveMaxima(torch.autograd.Function):
    """ReLU(max_i (h_i . w_j + b_j)) over the unmasked positions i of each text, (batch, vocabulary)."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        mask: Tensor,
        weight: Tensor,
        bias: Tensor,
        screen: Screen | CalibratedScreen | None,
        sparse: bool,
    ) -> Tensor:
        wants_gradient = any(ctx.needs_input_grad)
        ctx.sparse = sparse
        possible = None if screen is None else screen.possible(hidden, mask)
        if possible is None or int(possible.count_nonzero()) > DENSE_SHARE * possible.numel():
            highest, reached_at = _maxima(hidden, mask, weight, bias, wants_gradient)
        else:
            highest, reached_at = _maxima_of(possible, hidden, mask, weight, bias, wants_gradient)
        if reached_at is not None:
            texts, terms = torch.nonzero(highest, as_tuple=True)
            rows = texts * hidden.shape[1] + reached_at[texts, terms]
            ctx.save_for_backward(hidden, weight, texts, terms, rows)
        return highest

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        hidden, weight, texts, terms, rows = ctx.saved_tensors
        batch, length, width = hidden.shape
        values = gradient[texts, terms]
        flat = hidden.reshape(batch * length, width)
        # The entries (row, term) are two sparse matrices, S over the positions and T over the terms that occur:
        # dH = S W and dW = T H, of which the rows of all other terms are zero.
        to_hidden = to_weight = to_bias = None
        if ctx.needs_input_grad[0]:
            to_hidden = torch.sparse.mm(_csr(rows, terms, values, (len(flat), len(weight))), weight).view_as(hidden)
        if ctx.needs_input_grad[2]:
            distinct, places = torch.unique(terms, return_inverse=True)
            gradients_found = torch.sparse.mm(_csr(places, rows, values, (len(distinct), len(flat))), flat)
            if ctx.sparse and len(distinct) < SPARSE_ROWS_SHARE * len(weight):
                to_weight = torch.sparse_coo_tensor(
                    distinct[None], gradients_found, weight.shape, is_coalesced=True, check_invariants=False
                )
            else:
                to_weight = torch.zeros_like(weight).index_copy_(0, distinct, gradients_found)
        if ctx.needs_input_grad[3]:
            to_bias = torch.zeros(len(weight), dtype=gradient.dtype, device=gradient.device)
            to_bias.index_add_(0, terms, values)
        return to_hidden, None, to_weight, to_bias, None, None


def _csr(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """The sparse matrix with the entries ``values``; those in one place are summed."""
    entries = torch.sparse_coo_tensor(torch.stack([rows, columns]), values, shape, check_invariants=False)
    return entries.coalesce().to_sparse_csr()


def _maxima(
    hidden: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, wants_positions: bool
) -> tuple[Tensor, Tensor | None]:
    """Positive maxima of all terms, block by block, and the positions where they were reached; (batch, vocabulary)."""
    batch, length, width = hidden.shape
    vocabulary = weight.shape[0]
    flat = hidden.reshape(batch * length, width)
    padding = ~mask.bool().reshape(batch, length, 1)
    some_padding = bool(padding.any())
    highest = torch.empty(batch, vocabulary, dtype=bias.dtype, device=hidden.device)
    reached_at = torch.empty(batch, vocabulary, dtype=torch.int32, device=hidden.device) if wants_positions else None
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
    return highest.add_(bias).relu_(), reached_at


def _maxima_of(
    possible: Tensor, hidden: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, wants_positions: bool
) -> tuple[Tensor, Tensor | None]:
    """The same as :func:`_maxima` where only the terms ``possible``, (batch, vocabulary), can be positive."""
    highest = torch.zeros(possible.shape, dtype=bias.dtype, device=hidden.device)
    reached_at = torch.zeros(possible.shape, dtype=torch.int32, device=hidden.device) if wants_positions else None
    for text, (vectors, real) in enumerate(zip(hidden, mask.bool(), strict=True)):
        terms = possible[text].nonzero().squeeze(1)
        positions = real.nonzero().squeeze(1)
        if not len(terms):
            continue
        read = vectors.index_select(0, positions)
        values, at = torch.mm(read, weight.index_select(0, terms).t()).max(dim=0)
        highest[text, terms] = (values + bias[terms]).relu_()
        if reached_at is not None:
            reached_at[text, terms] = positions[at].to(torch.int32)
    return highest, reached_at


def term_weights(
    hidden: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: str = "relu",
    screen: Screen | CalibratedScreen | None = None,
    sparse: bool = False,
) -> Tensor:
    """SPLADE's representation of each text: w_j = max_i log(1 + ReLU(h_i . w_j + b_j)), (batch, vocabulary).

    Formal et al. (2021, arXiv:2109.10086). With ``activation="log1p_relu"`` a second log(1 + .) follows (Shen et al.,
    arXiv:2504.14839). Values and gradients equal the dense computation's up to the order of summation.

    Args:
        hidden: what the decoder projects, (batch, length, width).
        mask: 1 for tokens and 0 for padding, (batch, length).
        weight, bias: of the decoder, (vocabulary, width) and (vocabulary,).
        screen: of ``weight`` and ``bias``; only the terms that it finds possible are computed in the weight's own
            precision.
        sparse: whether the gradient by ``weight`` may be a sparse tensor of the rows that have one.
    """
    pooled: Tensor = _PositiveMaxima.apply(hidden, mask, weight, bias, screen, sparse)  # type: ignore[no-untyped-call]
    return _saturate(pooled, activation)


def summed_weights(hidden: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, activation: str = "relu") -> Tensor:
    """:func:`term_weights` summed over the positions in place of their maximum (SPLADE v1); the blocks are computed
    again in the backward pass."""
    block = max(64, BLOCK_BYTES // (hidden.shape[0] * hidden.shape[1] * hidden.element_size()))
    blocks = [(weight[start : start + block], bias[start : start + block]) for start in range(0, len(weight), block)]
    if hidden.is_cuda or torch.is_grad_enabled() or not hidden.isfinite().all():
        sums = [checkpoint(_summed_block, hidden, mask, *each, activation, use_reentrant=False) for each in blocks]
    else:
        sums = [_summed_positives(hidden, mask, *each, activation) for each in blocks]
    return torch.cat(sums, dim=1)


def _summed_block(hidden: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    saturated = _saturate((hidden @ weight.t()).to(bias.dtype) + bias, activation)
    return (saturated * mask.unsqueeze(-1)).sum(dim=1)


def _summed_positives(hidden: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    """The same, where the logarithm is taken of positive logits only: units fire for few tokens."""
    batch, length, width = hidden.shape
    read = mask.bool().flatten().nonzero().squeeze(1)
    logits = nn.functional.linear(hidden.reshape(-1, width)[read], weight, bias.to(weight.dtype))
    signed = logits.view(torch.int16) if logits.dtype == torch.bfloat16 else logits  # sooner compared, of equal signs
    places = torch.from_numpy(np.flatnonzero((signed > 0).numpy()))
    texts, terms = read[places // len(bias)] // length, places % len(bias)
    sums = torch.zeros(batch, len(bias), dtype=bias.dtype)
    weights = _saturate(logits.flatten()[places].to(bias.dtype), activation)
    sums.flatten().index_add_(0, texts * len(bias) + terms, weights)
    return sums


def _saturate(logits: Tensor, activation: str) -> Tensor:
    once = torch.log1p(torch.relu(logits))
    return torch.log1p(once) if activation == "log1p_relu" else once


class StreamingSpladePooling(SpladePooling):  # type: ignore[misc]
    """``SpladePooling`` that takes the decoder's input and streams the decoder itself."""

    decoder: nn.Linear
    half: Tensor | None
    """The decoder's weight in bf16, where the projection runs in it (no gradients): where half precision is asked for
    and nothing screens, which is as fast and exact."""

    fast: bool  # whether a few terms may be missed for speed, where half precision is asked for and something screens
    _screen: tuple[tuple[int, ...], Screen | CalibratedScreen] | None = None
    """Made once for each version of the decoder: an optimiser step changes it."""

    @classmethod
    def over(cls, pooling: SpladePooling, decoder: nn.Linear, *, half: bool = False) -> StreamingSpladePooling:
        new = cls(pooling.pooling_strategy, pooling.activation_function, decoder.out_features)
        # not registered as a submodule: the weights belong to the Transformer module
        object.__setattr__(new, "decoder", decoder)
        new.half = decoder.weight.detach().bfloat16() if half and not new.screens else None
        new.fast = half
        return new

    @property
    def screens(self) -> bool:
        """Report whether a product in bf16 finds the terms to compute."""
        return self.pooling_strategy == "max" and not self.decoder.weight.is_cuda and bf16_is_fast()

    def screen(self, bias: Tensor) -> Screen | CalibratedScreen | None:
        """The screen of the decoder's first rows, as many as ``bias`` has, as they are now; None where bf16 products
        are not fast or not wanted."""
        if not self.screens:
            return None
        weight = self.decoder.weight[: len(bias)]
        version = len(bias), weight._version, bias._version
        if self._screen is None or self._screen[0] != version:
            self._screen = version, CalibratedScreen(weight, bias) if self.fast else Screen.of(weight, bias)
        return self._screen[1]

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        bias = self.decoder.bias
        if bias is None:
            bias = self.decoder.weight.new_zeros(self.decoder.out_features)
        weight = self.decoder.weight if self.half is None else self.half
        read = len(bias) if torch.is_grad_enabled() else live_rows(bias)  # masked rows behind these are not computed
        # in training all rows as they are, for a slice passes no sparse gradient on
        rows = (weight, bias) if read == len(bias) else (weight[:read], bias[:read])
        # Autocast serves the transformer; the head is computed in its weight's own precision.
        with torch.autocast(weight.device.type, enabled=False):
            given = features["token_embeddings"].to(weight.dtype), features["attention_mask"], *rows
            if self.pooling_strategy == "max":
                weights = term_weights(*given, self.activation_function, self.screen(rows[1]), sparse=True)
            else:
                weights = summed_weights(*given, self.activation_function)
        features["sentence_embedding"] = nn.functional.pad(weights, (0, len(bias) - read))
        return features


@contextmanager
def streaming(encoder: SparseEncoder, *, half: bool = False) -> Iterator[SparseEncoder]:
    """``encoder`` with its decoder and pooling joined into the streaming head while the block runs; with ``half``, for
    encoding only, the decoder's product is in bf16 where nothing screens it, and the screen is a faster one. The model
    is saved after the block. A uniCOIL encoder keeps its modules.

    Gradients of vocabulary-sized matrices are summed as the rows that have one, since a batch goes through the encoder
    in groups. What is left in ``grad`` after a backward pass is dense, as every optimiser expects.
    """
    model, pooling = encoder[0].auto_model, encoder[1]
    decoder, embeddings = mlm_head(model).decoder, model.get_input_embeddings()

    def count(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Count a step in its parameters' versions, by which the screen goes; fused optimisers do not."""
        increment_version([parameter for group in optimizer.param_groups for parameter in group["params"]])

    def to_dense(parameter: Tensor) -> None:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.to_dense()

    with ExitStack() as after, fast_dropout(model):
        if not is_unicoil(encoder):
            after.enter_context(without_decoder(decoder))
            encoder[1] = StreamingSpladePooling.over(pooling, decoder, half=half)
            after.callback(setitem, encoder, 1, pooling)
        after.callback(register_optimizer_step_post_hook(count).remove)
        for weight in {embeddings.weight, decoder.weight}:
            if weight.requires_grad:
                after.callback(weight.register_post_accumulate_grad_hook(to_dense).remove)
        if isinstance(embeddings, nn.Embedding) and not embeddings.sparse:
            embeddings.sparse = True
            after.callback(setattr, embeddings, "sparse", False)
        yield encoder


def decoder_input(model: Any, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """The vectors that the decoder of a masked language model projects, (batch, length, width)."""
    with without_decoder(mlm_head(model).decoder):
        return model(input_ids=input_ids, attention_mask=attention_mask).logits  # type: ignore[no-any-return]


@contextmanager
def without_decoder(decoder: nn.Linear) -> Iterator[None]:
    """While the block runs ``decoder`` hands its input on, so that a model's "logits" are its hidden states."""
    before = vars(decoder).get("forward")  # such a block may stand in another: a validation while training
    decoder.forward = lambda hidden: hidden  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del decoder.forward
        if before is not None:
            decoder.forward = before  # type: ignore[method-assign]
