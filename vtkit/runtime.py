"""What the machine can do: its devices and the precisions it computes in. Importing this module loads nothing heavy."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def bf16_is_fast() -> bool:
    """Whether this machine multiplies bf16 matrices in hardware."""
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags
