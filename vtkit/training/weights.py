"""Weights of a training in a file, and back in an encoder."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from vtkit.system.outputs import replaced


def keep_weights(parameters: Mapping[str, Tensor], file: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write ``parameters`` and ``metadata`` to ``file``, all of it or nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with replaced(file) as fresh:
        save_file({name: each.detach().cpu().contiguous() for name, each in parameters.items()}, fresh, metadata)


@torch.no_grad()
def set_weights(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Give ``parameters``, in place, the values of their names."""
    for name, parameter in parameters.items():
        parameter.copy_(values[name])
