"""Dropout on a processor by masks of 15 random bits an element, at a fraction of the cost of the library's own;
attention with dropout keeps to bf16. The bits come from torch's generator, so that a seed and a checkpoint fix them."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

STEPS = 2**15  # rates are multiples of 1 / STEPS

ATTENTION = "vtkit_dropout"  # the name of :func:`attention` among the library's attention functions


def kept_bits(like: Tensor, p: float) -> Tensor:
    """All bits set with probability 1 - ``p`` and none otherwise, independently, (shape of ``like``) int16."""
    count = like.numel()
    bits = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:count]
    # x < T is the sign of x - T; x is halved first, since the difference of two int16 has 17 bits
    dropped = round(p * STEPS)  # of the STEPS values of fifteen random bits
    bits.bitwise_right_shift_(1).sub_(dropped - STEPS // 2).bitwise_right_shift_(15).bitwise_not_()
    return bits.view(like.shape)


def scale(p: float) -> float:
    """1 / (share that is kept)."""
    return 1 / (1 - round(p * STEPS) / STEPS)


@contextmanager
def fast_dropout(model: PreTrainedModel) -> Iterator[None]:
    """``model`` with the dropout of this module while the block runs; it is in force in training mode only."""
    modules = [module for module in model.modules() if type(module) is nn.Dropout and "forward" not in vars(module)]
    for module in modules:
        module.forward = partial(_forward, module)  # type: ignore[method-assign]
    replaced = model.config._attn_implementation == "sdpa" and model._can_set_attn_implementation()
    if replaced:
        model.set_attn_implementation(ATTENTION)
    try:
        yield
    finally:
        if replaced:
            model.set_attn_implementation("sdpa")
        for module in modules:
            del module.forward


def _forward(module: nn.Dropout, values: Tensor) -> Tensor:
    if not module.training or module.p == 0:
        return values
    if values.is_cuda or module.p == 1:
        return nn.functional.dropout(values, module.p)
    return dropout(values, module.p)


def dropout(values: Tensor, p: float) -> Tensor:
    """Each of ``values`` zero with probability ``p`` (0 < p < 1), and otherwise divided by the probability of that."""
    dropped: Tensor = _Dropout.apply(values, p)  # type: ignore[no-untyped-call]
    return dropped


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, p: float) -> Tensor:
        kept = kept_bits(values, p)
        ctx.save_for_backward(kept)
        ctx.p = p
        return _keep(values, kept).mul_(scale(p))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        return _keep(gradients[0], kept).mul_(scale(ctx.p)), None


def _keep(values: Tensor, kept: Tensor) -> Tensor:
    """``values`` where ``kept`` is all ones, and +0 where it is all zeros; a new tensor."""
    values = values.contiguous()
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    return values.view(integers).bitwise_and(kept.to(integers)).view(values.dtype)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """softmax(q kᵀ · scaling + mask) with dropout, times v: an attention function of transformers.

    Falls back to the library's where there is no dropout, and for everything that text encoders have no use for.

    Args:
        query, key, value: (batch, heads, length, width).
        attention_mask: which keys a query sees, (batch, 1, length, length) bool; None: all.
        scaling: 1 / √width by default.

    Returns:
        (batch, length, heads, width), and nothing for the probabilities.
    """
    causal = others.get("is_causal")
    if causal is None:
        causal = getattr(module, "is_causal", True)
    if (
        not 0 < dropout < 1
        or query.is_cuda
        or query.shape != key.shape
        or others.get("position_bias") is not None
        or (attention_mask is None and causal)
        or (attention_mask is not None and attention_mask.dtype != torch.bool)
    ):
        by_library: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
        return by_library
    factor = query.shape[-1] ** -0.5 if scaling is None else scaling
    bias = None
    if attention_mask is not None:
        bias = torch.zeros(attention_mask.shape, dtype=query.dtype)
        bias.masked_fill_(~attention_mask, torch.finfo(query.dtype).min / 2)
    read: Tensor = _Attention.apply(query, key, value, bias, factor, dropout)  # type: ignore[no-untyped-call]
    return read.transpose(1, 2).contiguous(), None


class _Attention(torch.autograd.Function):
    """O = ((P ∘ M) / (1 - p)) V with P = softmax(Q Kᵀ · factor + bias) and M the mask of what is kept."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, factor: float, p: float
    ) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            scores = torch.matmul(query * factor, key.transpose(2, 3))
            if bias is not None:
                scores += bias
            shares = torch.softmax(scores, dim=-1)
            kept = kept_bits(shares, p)
            ctx.save_for_backward(query, key, value, shares, kept)
            ctx.factor, ctx.p = factor, p
            return torch.matmul(_keep(shares, kept), value).mul_(scale(p))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, shares, kept = ctx.saved_tensors
        gradient = gradients[0] * scale(ctx.p)
        to_value = torch.matmul(_keep(shares, kept).transpose(2, 3), gradient)
        to_shares = _keep(torch.matmul(gradient, value.transpose(2, 3)), kept)
        to_scores = torch._softmax_backward_data(to_shares, shares, -1, shares.dtype)
        to_query = torch.matmul(to_scores, key).mul_(ctx.factor)
        to_key = torch.matmul(to_scores.transpose(2, 3), query).mul_(ctx.factor)
        return to_query, to_key, to_value, None, None, None


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
