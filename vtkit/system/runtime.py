"""The machine and the libraries on it: device, precision, threads, memory, cache folder, and loading without notices.

Importing this module loads nothing heavy.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal

Precision = Literal["float32", "bf16"]
"""Of matrix products."""


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


def fastest_precision() -> Precision:
    """bf16 where it is fast."""
    return "bf16" if bf16_is_fast() else "float32"


_wanted_threads: int | None = None


def want_threads(threads: int | None) -> None:
    """Let this process compute with so many threads, or with as many as the environment says."""
    global _wanted_threads
    _wanted_threads = threads


def threads() -> int:
    """With how many threads this process computes: those of :func:`want_threads`, else what OMP_NUM_THREADS says, else
    one for each core. Sums of floating point numbers, so every trained weight, depend on it in their last digits."""
    stated = os.environ.get("OMP_NUM_THREADS", "")
    return _wanted_threads or (int(stated) if stated.isdigit() and int(stated) else os.cpu_count()) or 1


def limit_threads() -> None:
    """Let torch and numba use as many as :func:`threads` says."""
    import numba
    import torch

    # numba starts its threads with the first of these calls, and both may share one OpenMP: torch has the last word
    numba.set_num_threads(min(threads(), numba.config.NUMBA_NUM_THREADS))
    torch.set_num_threads(threads())


def search_threads() -> int:
    """How many threads an engine may search with: as many as numba has, and no more than :func:`threads`. numba counts
    for each Python thread anew, and one that searches later has all of them."""
    import numba

    _start_numba()
    return min(threads(), int(numba.get_num_threads()))


@cache
def _start_numba() -> None:
    """Start numba's threads, no more than :func:`threads`; torch keeps its own number, which the OpenMP that both may
    share would take over from numba."""
    import numba

    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    numba.set_num_threads(min(threads(), numba.get_num_threads()))
    if torch is not None:
        torch.set_num_threads(before)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt`` (malloc.h)."""

REUSED_BYTES = 512 * 2**20
"""Freed blocks below this are kept for the next one: the largest tensors of a training step are of this order."""


def reuse_memory() -> None:
    """Let this process keep the memory it frees, in huge pages where the system gives them on request.

    A training step allocates and frees tensors of 10 to 500 MB by the hundred. glibc returns each of them to the
    system, which clears every page of the next one again. With the thresholds raised the heap keeps them: the process
    holds its peak until the next call, which gives back what is free by then. torch asks for huge pages (madvise)
    where ``THP_MEM_ALLOC_ENABLE`` is set before its first allocation. Does nothing without glibc, and nothing to an
    allocator that the environment has settings for.
    """
    if any(name.startswith("MALLOC_") or name in ("GLIBC_TUNABLES", "LD_PRELOAD") for name in os.environ):
        return
    try:
        libc = ctypes.CDLL(None)
        mallopt, trim, _ = libc.mallopt, libc.malloc_trim, libc.gnu_get_libc_version
    except (AttributeError, OSError, TypeError):
        return
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    mallopt(M_MMAP_THRESHOLD, REUSED_BYTES)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    trim(ctypes.c_size_t(0))


@contextmanager
def kept_for_good() -> Iterator[None]:
    """Let the garbage collector pass over all that the block imports and loads, now and later.

    The libraries are 700,000 objects, and none of them ever goes: looking through them time and again is a third of
    what a search costs. Only for a process of vtkit's own, since the caller's objects are passed over too.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def without_output() -> Iterator[None]:
    """Without what a library of machine code writes to standard output, past Python's own streams."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


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


CACHE_VARIABLE = "VTKIT_CACHE"


def peak_bytes() -> int | None:
    """Largest resident size that this process had until now; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def user_cache(name: str) -> Path:
    """Where vtkit keeps ``name`` for all runs: in $VTKIT_CACHE, or in the user's own cache folder for vtkit."""
    named = os.environ.get(CACHE_VARIABLE)
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vtkit"
    return (Path(named).expanduser() if named else users) / name
