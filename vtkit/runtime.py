"""The machine and the libraries on it: device, precision, threads, and loading without notices.

Importing this module loads nothing heavy.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


def fastest_device() -> str:
    """Where encoding runs: the GPU where torch has one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


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


def limit_threads(threads: int | None) -> None:
    """Let torch and numba use so many threads; by default as many as OMP_NUM_THREADS says, else all cores."""
    import torch

    stated = os.environ.get("OMP_NUM_THREADS", "")
    count = threads or (int(stated) if stated.isdigit() and int(stated) else os.cpu_count()) or 1
    import numba

    # numba starts its threads with the first of these calls, and both may share one OpenMP: torch has the last word
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
    torch.set_num_threads(count)


@contextmanager
def without_notices() -> Iterator[None]:
    """Without the bars and notices of transformers: vtkit has one console."""
    from transformers.utils import logging as transformers_logging

    level = transformers_logging.get_verbosity()
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if shown:
            transformers_logging.enable_progress_bar()


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Loading and saving without the libraries' bars, notices and warnings."""
    with without_notices(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
