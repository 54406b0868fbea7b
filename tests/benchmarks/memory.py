"""The peak of memory of a benchmark's process."""

import contextlib
import resource
import sys
from pathlib import Path


def forget_peak() -> float:
    """Begin a new measurement of the peak where the system can (Linux); the resident size now, in MiB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_mebibytes()


def peak_mebibytes() -> float:
    """Largest resident size of this process since :func:`forget_peak`, in MiB."""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
