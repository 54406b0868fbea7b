"""The processes of one launch, as ``torchrun --nproc-per-node 2 -m vtkit run …`` starts them: the first one does what a
person has asked for, the others compute for it, one job after another.

The connections are gloo's, in main memory. What is computed together is told by the modules that do it:
:mod:`vtkit.training.workers` and :mod:`vtkit.search.shared_encoding`.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from vtkit.errors import VtkitError, machine_failure
from vtkit.launch import launched

FOREVER = timedelta(days=365)
"""A process may wait for hours while the first one reads, teaches or evaluates; one that has died is noticed by its
closed connection."""

REASON_SECONDS = 3.0
"""How long the first process waits for a word from one that has closed its connection."""


class ProcessDefect(RuntimeError):
    """Another process ended by an error that vtkit does not know; the message has its traceback."""


@cache
def _store() -> PrefixStore:
    """Where the processes of a launch find each other."""
    here = launched()
    store, _, _ = next(rendezvous("env://", rank=here.rank, world_size=here.size, timeout=FOREVER))
    return PrefixStore("vtkit", store)


# the first process


@contextmanager
def job(name: str, *given: Any) -> Iterator[None]:
    """While the block runs, the other processes do the job ``name`` (see :func:`work`), to which ``given`` is sent.

    Raises:
        VtkitError: this machine has a GPU.
    """
    if torch.cuda.is_available():
        raise VtkitError(
            "several processes compute on processors, and this machine has a GPU, which one process uses by itself. "
            'Start vtkit without torchrun, or hide the GPU from it (CUDA_VISIBLE_DEVICES="").'
        )
    _tell(name)
    try:
        send((torch.get_num_threads(), *given))
        yield
    finally:
        dist.destroy_process_group()


def dismiss() -> None:
    """Tell the other processes of this launch that there is no more to do."""
    if launched().size > 1:
        with suppress(RuntimeError):
            _tell(_END)


def send(what: Any) -> None:
    """Send ``what`` to the other processes, which wait for it in :func:`received`."""
    with connected():
        dist.broadcast_object_list([what], src=0)


_END = "end"
_told = 0


def _tell(what: str) -> None:
    global _told
    _told += 1
    _store().set(f"job {_told}", what)
    if what != _END:
        _connect(_told)


@contextmanager
def connected() -> Iterator[None]:
    """A closed connection in words: what the process at its other end said, or that it ended without a word."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, ProcessDefect):
            raise
        until = time.monotonic() + REASON_SECONDS
        while time.monotonic() < until:
            for rank in range(1, launched().size):
                if _store().check([f"failed {rank}"]):
                    kind, _, text = _store().get(f"failed {rank}").decode().partition("\n")
                    if kind == "defect":
                        raise ProcessDefect(f"in process {rank} of the launch\n{text}") from error
                    raise VtkitError(text) from error
            time.sleep(0.05)
        raise VtkitError(
            f"one of the {launched().size} processes of this launch has ended without a word (killed, or out of "
            "memory?). What was finished is kept, and the same command goes on from there."
        ) from error


# the others


def work(jobs: Mapping[str, Callable[..., None]]) -> NoReturn:
    """What every process of a launch but the first does, until that one ends.

    Args:
        jobs: name -> what does the job, with as many threads as the first process has; it is called with what
            :func:`job` was given.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the first process says that it was interrupted
    torch.set_num_threads(1)
    code = number = 0
    try:
        store = _store()
        while True:
            number += 1
            store.wait([f"job {number}"], FOREVER)
            name = store.get(f"job {number}").decode()
            if name == _END:
                break
            _connect(number)
            try:
                threads, *given = received()
                torch.set_num_threads(threads)
                jobs[name](*given)
            except Gone:
                pass
            finally:
                dist.destroy_process_group()
    except Exception as error:
        code = _report(error)
    os._exit(code)  # without the endings of libraries that the connection is gone for


def _connect(number: int) -> None:
    here = launched()
    dist.init_process_group(
        "gloo",
        store=PrefixStore(f"group {number}", _store()),
        rank=here.rank,
        world_size=here.size,
        timeout=FOREVER,
    )


class Gone(Exception):
    """The first process has closed the connection: it says itself why."""


@contextmanager
def from_first() -> Iterator[None]:
    """Around what goes to or comes from the first process.

    Raises:
        Gone: it has closed the connection.
    """
    try:
        yield
    except RuntimeError as error:
        raise Gone from error


def received() -> Any:
    """What the first process has given to :func:`send`."""
    objects: list[Any] = [None]
    with from_first():
        dist.broadcast_object_list(objects, src=0)
    return objects[0]


def _report(error: Exception) -> int:
    """Hand an error to the first process, which says it; then wait, so that this process is not the first to end."""
    known: Exception | None = error if isinstance(error, VtkitError) else machine_failure(error)
    kind, text = ("known", str(known)) if known is not None else ("defect", traceback.format_exc())
    with suppress(RuntimeError):
        _store().set(f"failed {launched().rank}", f"{kind}\n{text}")
        time.sleep(2 * REASON_SECONDS)
    return 1
