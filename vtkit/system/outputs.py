"""Files and folders that are written whole or not at all, and locks. A user's files are never overwritten."""

from __future__ import annotations

import errno
import glob
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from vtkit.system import console
from vtkit.system.distributed import by_main
from vtkit.system.errors import DataError, MachineError, RecipeError, VtkitError, machine_errors
from vtkit.system.interrupt import unfinished

if TYPE_CHECKING:
    from numpy.typing import NDArray


def refuse_existing(out: Path) -> None:
    """Refuse an ``out`` that exists, before minutes of work."""
    if os.path.lexists(out):
        raise RecipeError(f"{out} already exists and will not be overwritten. Choose another name, or remove it.")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` to write into. It becomes ``out``, on disk, if the block succeeds; otherwise it is
    removed, with the folders above it that were created for it.

    Raises:
        RecipeError: ``out`` exists; another process that is making it is waited for.
        VtkitError: it cannot be written, or the machine refuses something.
    """
    refuse_existing(out)
    work = aside(out)
    created = [folder for folder in work.parents if not folder.exists()]
    with machine_errors(out.absolute()):
        try:
            work.mkdir(parents=True)
        except FileExistsError as error:
            raise VtkitError(
                f"{out} cannot be written: {error.filename} is a file, not a folder. Choose another name."
            ) from error
        except FileNotFoundError as error:  # of a folder such as /proc
            raise MachineError(f"{out} cannot be written: {work.parent} takes no folders. Name another.") from error
        unfinished.add(work)
        lock = work.with_name(f".{out.name}.lock")
        try:
            with held(lock, str(out)):
                try:
                    refuse_existing(out)
                    yield work
                    flush([*work.rglob("*"), work])
                    work.rename(out)
                    flush(folder.parent for folder in (work, *created))
                finally:
                    lock.unlink(missing_ok=True)
        finally:
            shutil.rmtree(work, ignore_errors=True)
            unfinished.discard(work)
            for folder in created:  # innermost first; folders that are not empty stay
                with suppress(OSError):
                    folder.rmdir()


def aside(path: Path) -> Path:
    """A place beside ``path`` where this process fills what becomes ``path``. Leftovers of processes of this machine
    that were killed while they did so are removed."""
    start = f".{path.name}.new-{socket.gethostname()}-"
    for left in path.absolute().parent.glob(f"{glob.escape(start)}*"):
        number = left.name.removeprefix(start)
        if number.isdecimal() and (int(number) == os.getpid() or not is_running(int(number))):
            shutil.rmtree(left, ignore_errors=True)
    return path.absolute().with_name(f"{start}{os.getpid()}")


def is_running(process: int) -> bool:
    """Report whether this machine has a process of that number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        pass
    return True


def refuse_folder(file: Path | None) -> None:
    """Refuse a file that cannot be written, before minutes of work."""
    if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise RecipeError(f"{file} cannot be written: it is a folder, or its folder does not exist.")


def write_file(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path``, whose folder is made if need be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}).") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path``; if that fails, the file keeps its content."""
    with replaced(path) as fresh:
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)
        flush([fresh])
    flush([path.parent])


def flush(paths: Iterable[Path]) -> None:
    """Wait until files are on disk with their content, and folders with the names in them, so that a power cut takes
    nothing of them."""
    for path in paths:
        if path.is_file() or path.is_dir():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            except OSError as error:
                if error.errno != errno.EINVAL:  # some file systems have no such thing for folders
                    raise
            finally:
                os.close(descriptor)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file beside ``path`` to write, which takes its place if the block succeeds; otherwise ``path`` stays as it
    is."""
    fresh = path.with_name(f".{path.name}.new-{os.getpid()}")
    try:
        yield fresh
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def kept_array(
    file: Path, make: Callable[[], NDArray[Any]], fits: Callable[[NDArray[Any]], bool] = lambda kept: True
) -> NDArray[Any]:
    """The array in ``file``, if it is whole and ``fits``; else what ``make`` returns, which ``file`` then holds: a
    killed run does not compute it again. The main process alone reads and writes."""
    import numpy as np

    def read_or_made() -> NDArray[Any]:
        with suppress(OSError, ValueError, EOFError):
            array: NDArray[Any] = np.load(file, allow_pickle=False)
            if fits(array):
                return array
        array = make()
        file.parent.mkdir(parents=True, exist_ok=True)
        with replaced(file) as fresh, fresh.open("wb") as out:
            np.save(out, array)
        return array

    return by_main(read_or_made)


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file ``path``; if another process has it, say which one and wait. Killed processes lose their
    locks."""
    holder = path.with_suffix(".holder")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0.1)  # within which a process that has just taken it says who it is
    except Timeout:
        if not path.exists():
            raise MachineError(f"{path.parent} takes no files. Name another folder.") from None
        console.say(f"waiting for {holder_of(path)}, which is making {what}")
        lock.acquire()
    try:
        who = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%H:%M:%S')}"
        holder.write_text(who, encoding="utf-8")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def holder_of(path: Path) -> str:
    """The process that holds the lock file ``path``, in words."""
    try:
        return path.with_suffix(".holder").read_text("utf-8").strip()
    except OSError:
        return "another process"


def remove_half_written(folder: Path) -> None:
    """Remove the leftovers of processes that were killed while they wrote into ``folder``. The caller holds its
    lock."""
    for left in folder.glob(".*"):
        if re.fullmatch(r"\..+\.(new|old)-\d+", left.name):
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


def publish(source: Path, target: Path) -> None:
    """Replace ``target`` with a copy of a file or folder, with hard links if possible."""
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
