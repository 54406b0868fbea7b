"""Files and folders written whole or not at all, and locks; what a user named is never overwritten."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from vtkit.system import console
from vtkit.system.errors import DataError, RecipeError, VtkitError, machine_errors
from vtkit.system.interrupt import unfinished


def refuse_existing(out: Path) -> None:
    """Say at once, before minutes of work, that ``out`` is there already.

    Raises:
        RecipeError: it is.
    """
    if os.path.lexists(out):
        raise RecipeError(f"{out} already exists, and is not overwritten. Give another --out, or remove it.")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` to write into; it becomes ``out`` when the block ends well, and goes away when not, with
    the folders above it that were made for it.

    Raises:
        RecipeError: ``out`` is there already.
        VtkitError: it cannot be written, or the machine refuses something on the way.
    """
    refuse_existing(out)
    work = out.absolute().with_name(f".{out.name}.{os.getpid()}")
    made = [folder for folder in work.parents if not folder.exists()]
    with machine_errors(out.absolute()):
        try:
            work.mkdir(parents=True)
        except FileExistsError as error:  # a file where a folder above it should be
            raise VtkitError(f"{out} cannot be written: {error.filename} is in the way. Give another --out.") from error
        unfinished.add(work)
        try:
            yield work
            work.rename(out)
        finally:
            shutil.rmtree(work, ignore_errors=True)
            unfinished.discard(work)
            for folder in made:  # innermost first; what holds something, ``out`` in the first place, stays
                with suppress(OSError):
                    folder.rmdir()


@contextmanager
def resumed_folder(out: Path, made_from: str) -> Iterator[Path]:
    """A folder beside ``out`` to write into, which becomes ``out`` when the block ends well. When it does not, the
    folder stays, and the next call with the same ``made_from`` goes on in it.

    Raises:
        RecipeError: ``out`` is there already.
        VtkitError: it cannot be written, or the machine refuses something on the way.
    """
    refuse_existing(out)
    work = out.absolute().with_name(f".{out.name}.unfinished")
    record = work / ".made_from"
    with machine_errors(out.absolute(), " What is finished is kept."):
        try:
            work.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:  # a file where a folder above it should be
            raise VtkitError(f"{out} cannot be written: {error.filename} is in the way. Give another --out.") from error
        with held(work.with_name(f"{work.name}.lock"), str(out)):
            refuse_existing(out)
            if work.is_dir() and not (record.is_file() and record.read_text("utf-8") == made_from):
                shutil.rmtree(work)
            work.mkdir(exist_ok=True)
            record.write_text(made_from, encoding="utf-8")
            yield work
            record.unlink()
            work.rename(out)
        work.with_name(f"{work.name}.lock").unlink(missing_ok=True)


def refuse_folder(file: Path | None) -> None:
    """Say at once, before minutes of work, that a file cannot be written."""
    if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise RecipeError(f"{file} cannot be written: it is a folder, or its folder is not there.")


def write_text(path: Path, text: str) -> None:
    """Write ``text``.

    Raises:
        DataError: the file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}).") from error


def write_atomically(path: Path, text: str) -> None:
    """``path`` holds either what it held or all of ``text``."""
    temporary = path.with_name(f".{path.name}.new-{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file ``path``; while another process has it, say who and wait. A killed process holds nothing."""
    holder = path.with_suffix(".holder")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        try:
            who = holder.read_text("utf-8").strip()
        except OSError:
            who = "another process"
        console.say(f"{what} is being made by {who}; waiting for it")
        lock.acquire()
    try:
        holder.write_text(
            f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%H:%M:%S')}", encoding="utf-8"
        )
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def remove_half_written(folder: Path) -> None:
    """Remove what processes that were killed while they wrote into ``folder`` left; only for who holds its lock."""
    for left in folder.glob(".*"):
        if re.fullmatch(r"\..+\.(new|old)-\d+", left.name):
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


def publish(source: Path, target: Path) -> None:
    """Put a copy of a file or folder at ``target``, in place of what stood there; hard links where possible."""
    fresh = target.with_name(f".{target.name}.new-{os.getpid()}")
    if source.is_dir():
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(source, fresh, copy_function=_link_or_copy)
    else:
        fresh.unlink(missing_ok=True)
        _link_or_copy(str(source), str(fresh))
    if target.is_dir() and not target.is_symlink():
        aside = target.with_name(f".{target.name}.old-{os.getpid()}")
        target.rename(aside)
        fresh.rename(target)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        if fresh.is_dir():  # a folder does not replace a file or a link by itself
            target.unlink(missing_ok=True)
        fresh.replace(target)
        fresh.unlink(missing_ok=True)  # a rename between two links to one file leaves both


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
