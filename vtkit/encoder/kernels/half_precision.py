"""Encoding in bf16: the transformer's linear maps on packed weights, and those of the head in single precision."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from vtkit.encoder.families import mlm_head, takes_autocast
from vtkit.system.runtime import bf16_is_fast


@contextmanager
def half_precision(model: PreTrainedModel) -> Iterator[None]:
    """``model``, a masked language model, under autocast to bf16 while the block runs; for inference only.

    The linear maps between the transformer and the decoder stay in single precision, since they make two thirds of
    bf16's squared error (docs/log.md). Where the processor multiplies bf16 matrices, the transformer's own maps run on
    weights that oneDNN has packed once. Where :func:`~vtkit.encoder.families.takes_autocast` says no, nothing is done.
    """
    if not takes_autocast(model):
        yield
        return
    decoder = mlm_head(model).decoder
    maps = {part for part in model.modules() if type(part) is nn.Linear and "forward" not in vars(part)} - {decoder}
    body = maps.intersection(model.base_model.modules())
    try:
        for part in maps - body:
            part.forward = partial(_in_single_precision, part)  # type: ignore[method-assign]
        for part in body if model.device.type == "cpu" and _packs() else ():
            bias = None if part.bias is None else part.bias.detach().bfloat16()
            weight = torch.ops.mkldnn._reorder_linear_weight(part.weight.detach().bfloat16())
            part.forward = partial(_on_packed, weight, bias)  # type: ignore[method-assign]
        with torch.autocast(model.device.type, dtype=torch.bfloat16):
            yield
    finally:
        for part in maps:
            vars(part).pop("forward", None)


def _packs() -> bool:
    """Whether this torch has the operators by which its own compiler packs weights, and the processor gains by them."""
    operators = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
    return (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and bf16_is_fast()
        and all(hasattr(torch.ops.mkldnn, name) for name in operators)
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def _on_packed(weight: Tensor, bias: Tensor | None, states: Tensor) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(states.bfloat16(), weight, bias, "none", [], "")
    return product


def _in_single_precision(part: nn.Linear, states: Tensor) -> Tensor:
    with torch.autocast(states.device.type, enabled=False):
        return nn.functional.linear(states.to(part.weight.dtype), part.weight, part.bias)
