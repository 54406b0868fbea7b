"""Files and folders that a user names for what is written: nothing is overwritten, and nothing is left half-written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vtkit.artifacts import held
from vtkit.errors import DataError, RecipeError, VtkitError, machine_errors
from vtkit.interrupt import unfinished


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
