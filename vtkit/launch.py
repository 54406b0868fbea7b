"""Several processes for one command, as ``torchrun --nproc-per-node 2 -m vtkit run …`` starts them.

The first process does everything that vtkit does; the others compute for it while it trains
(:mod:`vtkit.processes`). torchrun tells each process its place in the environment. It is taken out of there: the
libraries that vtkit trains with would otherwise split the work in ways of their own, and wait for each other.

Importing this module loads nothing heavy.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE")
"""What torchrun sets, and libraries read; the address stays, for torch's own rendezvous."""


@dataclass(frozen=True)
class Launch:
    """The place of this process among those that were started together."""

    rank: int
    """0: the process that a person sees."""

    size: int


alone = Launch(0, 1)

_taken: Launch | None = None


def launched() -> Launch:
    """The place of this process. The first call takes it out of the environment."""
    global _taken
    if _taken is None:
        _taken = _read()
    return _taken


def _read() -> Launch:
    size = os.environ.get("WORLD_SIZE", "")
    rank = os.environ.get("RANK", "")
    if not (size.isdigit() and rank.isdigit() and int(size) > 1 and "MASTER_ADDR" in os.environ):
        return alone
    for name in _NAMES:
        os.environ.pop(name, None)
    return Launch(int(rank), int(size))
