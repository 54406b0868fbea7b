"""Ctrl-C ends every command within about a second, whatever it is doing.

Python acts on a signal only between two of its own instructions. A tokenizer that is being trained, or a classifier
that reads a whole vocabulary, spends minutes in native code between two of them. So a thread is told of the signal by
the interpreter's wake-up pipe; where the main thread has not left after :data:`GRACE_SECONDS`, the thread ends the
process. For what is on disk this is as a kill: outputs appear by one rename, and training goes on from its checkpoints.
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

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

GRACE_SECONDS = 1.0
"""Time to leave in good order."""

unfinished: set[Path] = set()
"""Folders that are removed when the process is ended."""

_said = threading.Event()


def leave_promptly() -> None:
    """Watch for Ctrl-C until the process ends; called once, by the main thread."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(read,), name="interrupt", daemon=True).start()
    sys.unraisablehook = _leave_or_report


@contextmanager
def watched_elsewhere() -> Iterator[None]:
    """Leave Ctrl-C in the block to handlers of its own, however long these take."""
    pipe = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)


def leave_interrupted() -> NoReturn:
    """End the process with one line and the exit code of Ctrl-C.

    Without the interpreter's own ending, which takes seconds after torch was imported, and which reports death by a
    signal instead of an exit code where the interrupt came up through ``exec`` (dataclasses call it in every import).
    """
    if not _said.is_set():
        _said.set()
        console.fail("interrupted")
    for folder in list(unfinished):
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(INTERRUPTED)


def _leave_or_report(unraisable: sys.UnraisableHookArgs) -> None:
    """An interrupt that reached the interpreter in a destructor or a callback, where it would only be printed, with a
    traceback; everything else is reported as usual."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        leave_interrupted()
    sys.__unraisablehook__(unraisable)


def _watch(pipe: int) -> None:
    while signal.SIGINT not in os.read(pipe, 64):
        pass
    time.sleep(GRACE_SECONDS)
    leave_interrupted()
