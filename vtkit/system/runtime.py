"""The machine and the libraries on it: device, precision, threads, memory, cache folder, and loading without notices.

Importing this module loads nothing heavy.
"""

import ctypes
import gc
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Literal

Precision = Literal["float32", "bf16"]  # of matrix products


def fastest_device() -> str:
    """The device for encoding: the GPU if torch has one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


class HoldsModels:
    """Work whose models go to other processes on the processor, and to the fastest device there."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: _on(value, "cpu", copy=True) for name, value in self.__dict__.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: _on(value, fastest_device()) for name, value in state.items()})


def _on(value: Any, device: str, *, copy: bool = False) -> Any:
    """A model on a device; anything else as it is."""
    import torch

    if not isinstance(value, torch.nn.Module) or device == fastest_device() == "cpu":
        return value
    return (deepcopy(value) if copy else value).to(device)


BF16_VARIABLE = "VTKIT_BF16"


@cache
def bf16_is_fast() -> bool:
    """Whether this machine multiplies bf16 matrices in hardware; 0 or 1 in $VTKIT_BF16 decides instead, so that
    machines that differ compute alike (torch emulates bf16 where the hardware lacks it)."""
    stated = os.environ.get(BF16_VARIABLE)
    if stated in ("0", "1"):
        return stated == "1"
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def fastest_precision() -> Precision:
    """bf16 if it is fast here."""
    return "bf16" if bf16_is_fast() else "float32"


_wanted_threads: int | None = None


def want_threads(threads: int | None) -> None:
    """Set the threads of this process; None leaves them to the environment."""
    global _wanted_threads
    _wanted_threads = threads


def threads() -> int:
    """The threads of this process: those of :func:`want_threads`, else OMP_NUM_THREADS, else one for each core. The
    last digits of floating-point sums, and so of every trained weight, depend on it."""
    stated = os.environ.get("OMP_NUM_THREADS", "")
    return _wanted_threads or (int(stated) if stated.isdigit() and int(stated) else os.cpu_count()) or 1


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # parameters of glibc's `mallopt` (malloc.h)

REUSED_BYTES = 512 * 2**20
"""Smaller freed blocks are kept for reuse; the largest tensors of a training step have about this size."""


def reuse_memory() -> None:
    """Let this process keep the memory that it frees, in huge pages if the system supports them.

    A training step allocates and frees hundreds of tensors of 10 to 500 MB. glibc returns each one to the system, which
    must clear every page of the next. With higher thresholds the heap keeps them: the process holds its peak until the
    next call, which returns what is free by then. torch uses huge pages (madvise) if ``THP_MEM_ALLOC_ENABLE`` is set
    before its first allocation. Has no effect without glibc, or if the environment configures the allocator.
    """
    release_memory()
    if any(name.startswith("MALLOC_") or name in ("GLIBC_TUNABLES", "LD_PRELOAD") for name in os.environ):
        return
    with suppress(AttributeError, OSError, TypeError):  # without glibc
        libc = ctypes.CDLL(None)
        mallopt, _ = libc.mallopt, libc.gnu_get_libc_version
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
        mallopt(M_MMAP_THRESHOLD, REUSED_BYTES)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def release_memory() -> None:
    """Collect models, which are in reference cycles, if this process was ever large, and let glibc return what is free
    to the system: a tokenizer of 250,001 tokens has 300 MB in small blocks, which stay with the process otherwise."""
    if (peak_bytes() or 0) > 2**31:  # a collection takes a quarter of a second
        gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # another system
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


@contextmanager
def kept_for_good() -> Iterator[None]:
    """Exclude everything that the block imports and loads from garbage collection.

    The libraries have 700,000 objects that are never freed, and collecting them repeatedly is a third of the cost of a
    search. Only for vtkit's own processes, because the caller's objects are excluded too.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def without_output() -> Iterator[None]:
    """Suppress what native libraries write to standard output, past Python's own streams."""
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
    """Suppress transformers' progress bars and notices: vtkit has one console."""
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
    """Suppress the libraries' progress bars, notices and warnings."""
    with without_notices(), warnings.catch_warnings(action="ignore"):
        yield


CACHE_VARIABLE = "VTKIT_CACHE"


def peak_bytes() -> int | None:
    """Largest resident size of this process so far; None if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def user_cache(name: str) -> Path:
    """The cache folder ``name`` of vtkit: in $VTKIT_CACHE, or in vtkit's folder of the user's cache."""
    own = os.environ.get(CACHE_VARIABLE)
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vtkit"
    return (Path(own).expanduser() if own else users) / name
