"""[run]: where the parts of a collection are computed. No stage's key has it: results depend on it as little as on
the number of threads, in their last digits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from vtkit.settings.types import PositiveInt, Section


class RunSection(Section):
    """[run]: where the parts of a collection are computed (docs/running.md#parts). Results depend on it only in their
    last digits, if processes have other numbers of threads."""

    executor: Literal["here", "processes", "ray"] | None = None
    """``here``: one part after the other in this process; ``processes``: several processes of this machine; ``ray``: a
    Ray cluster, or one that is started on this machine. Default: ``processes`` for large collections if the machine has
    several cores or GPUs, else ``here``."""

    workers: PositiveInt | None = None
    """Parts computed at the same time. Default: with ``processes`` one for each GPU, or for each ``cpus`` cores but no
    more than 4; with ``ray`` as many as the cluster takes."""

    address: str | None = None
    """Address of a Ray cluster: ``auto`` on one of its machines. Default: that of $RAY_ADDRESS, else a new cluster of
    this machine. All machines see the folder of the runs under the same path."""

    cpus: PositiveInt | None = None
    """Cores for each part. Default: with ``processes`` all cores shared equally, with ``ray`` 1."""

    gpus: Annotated[float, Field(ge=0, le=1000)] | None = None
    """GPUs for each part. Default: with ``processes`` 1 if there are any, with ``ray`` 0."""

    def _faults(self) -> Iterator[str]:
        if self.address is not None and self.executor != "ray":
            yield 'address belongs to a Ray cluster: set executor to "ray", or remove it'
