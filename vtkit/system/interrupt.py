"""Ctrl-C ends every command within about a second, whatever it is doing.

Python handles a signal only between two of its own instructions, and native code, such as the training of a tokenizer,
can run for minutes between them. So a thread reads the signal from the interpreter's wake-up pipe, and ends the process
if the main thread has not exited after :data:`GRACE_SECONDS`. For files on disk this is like a kill: outputs appear by
one rename, and training continues from its checkpoints.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from vtkit.system import console

INTERRUPTED = 130  # exit code after Ctrl-C, as in shells
GRACE_SECONDS = 1.0  # time for an orderly exit
unfinished: set[Path] = set()  # folders that are removed when the process ends

_said = threading.Event()
_continues = threading.Event()


def leave_promptly() -> None:
    """Watch for Ctrl-C until the process ends; called once, by the main thread."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(read,), name="interrupt", daemon=True).start()
    sys.unraisablehook = _leave_or_report


def same_command_continues() -> None:
    """Say so at Ctrl-C from here on: this command keeps its finished parts, and an equal one goes on with them."""
    _continues.set()


def end_with_starter() -> None:
    """Wait until the process that started this one is gone, even if it was killed, then end at once: only the starter
    holds the other end of this process's standard input."""
    while os.read(0, 64):
        pass
    os._exit(1)


@contextmanager
def watched_elsewhere() -> Iterator[None]:
    """Leave Ctrl-C in the block to its own handlers, however long they take."""
    pipe = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)


def leave_interrupted() -> NoReturn:
    """End the process with one line and the exit code of Ctrl-C.

    The interpreter's own shutdown takes seconds once torch is imported, and reports death by a signal instead of an
    exit code if the interrupt came through ``exec`` (which dataclasses call in every import).
    """
    if not _said.is_set():
        _said.set()
        console.fail(f"interrupted{'; the same command continues' if _continues.is_set() else ''}")
    for folder in list(unfinished):
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(INTERRUPTED)


def _leave_or_report(unraisable: sys.UnraisableHookArgs) -> None:
    """Exit on an interrupt in a destructor or a callback, which Python would only print with a traceback; report
    everything else as usual."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        leave_interrupted()
    sys.__unraisablehook__(unraisable)


def _watch(pipe: int) -> None:
    while signal.SIGINT not in os.read(pipe, 64):
        pass
    time.sleep(GRACE_SECONDS)
    leave_interrupted()
