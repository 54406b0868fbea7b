"""Errors a user can act on: each says what is wrong, where, and what to do. The command line prints them
without a traceback and leaves with ``exit_code``."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class VtkitError(Exception):
    """Something the user can put right.

    A library function names its arguments; a recipe calls them ``vocabulary.size``, a command ``--size``. So the names
    of ``arguments`` stand in braces in ``message``, ``{size}``, and :func:`arguments_called` gives them the others.
    """

    exit_code = 1

    def __init__(self, message: str, *arguments: str) -> None:
        self.message, self.arguments = message, arguments
        super().__init__(self.with_names(str))

    def with_names(self, called: Callable[[str], str]) -> str:
        """The message with each argument as ``called`` calls it."""
        message = self.message
        for name in self.arguments:
            message = message.replace(f"{{{name}}}", called(name))
        return message


class RecipeError(VtkitError):
    """A recipe, or arguments, that cannot be run as written. The message lists every problem at once."""

    exit_code = 2


class DataError(VtkitError):
    """A file of the user's that is missing, empty, damaged or of another format than needed."""


class MissingExtra(VtkitError):
    """A package that only some work needs, and that is not installed."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed: pip install 'vtkit[{extra}]'")


class CollapseError(VtkitError):
    """A training or calibration run whose vectors carry no information any more (a gate stopped it)."""


class MachineError(VtkitError):
    """What the machine refused: no room, no permission, no memory."""


@contextmanager
def arguments_called(called: Callable[[str], str]) -> Iterator[None]:
    """Errors that name arguments of library functions name them as ``called`` does."""
    try:
        yield
    except VtkitError as error:
        error.args, error.arguments = (error.with_names(called),), ()
        raise


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_REFUSED = {
    errno.EACCES: ("permission denied", "Change its permissions, or name another place."),
    errno.EPERM: ("the system does not permit it", "Name another place."),
    errno.EROFS: ("the file system is read-only", "Name a folder elsewhere."),
    errno.ENAMETOOLONG: ("the name is too long for the file system", "Give a shorter name or folder."),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "Name another folder, or move that file away."),
    errno.EISDIR: ("it is a folder, not a file", "Name another file, or move the folder away."),
    errno.ELOOP: ("its symbolic links go in a circle", "Mend the links."),
    errno.EMFILE: ("too many files are open", "Raise the limit (ulimit -n), and give the same command again."),
    errno.ENFILE: ("too many files are open on this machine", "End other programs, and give the same command again."),
    errno.EIO: ("the disk failed to read or write it", "Check the disk, and copy the file from elsewhere."),
    errno.ESTALE: ("the network file system lost it", "Give the same command again."),
}

_RUST_ERROR = re.compile(r"\(os error (\d+)\)")
_PYTHON_ERROR = re.compile(r"\[Errno (\d+)\]", re.IGNORECASE)
_WRITTEN_IN_PART = re.compile(
    # numpy, torch (C++ streams), sqlite; the first two say nothing about why
    r"\d+ requested and \d+ written|PytorchStreamWriter failed|inline_container\.cc.*unexpected pos|"
    r"file write failed|iostream error|database or disk is full"
)
_NO_MEMORY = re.compile(r"out of memory|can't allocate memory|Unable to allocate", re.IGNORECASE)


def machine_failure(error: BaseException, folder: Path | None = None, then: str = "") -> MachineError | None:
    """What the machine refused, in words, if ``error`` or what it came from is such a refusal; else None.

    A full disk has many faces: ``OSError`` 28 of Python, a sentence of safetensors and tokenizers ("os error 28"), and
    a ``RuntimeError`` of torch's writer or an ``OSError`` without number of numpy, which only say that less was
    written than asked.

    Args:
        error: what was raised.
        folder: where the work went on, for errors that name no file.
        then: what becomes of the work done so far, the end of the message.
    """
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for cause in chain:
        number = _number_of(cause)
        name = getattr(cause, "filename", None)
        path = Path(os.fsdecode(name)) if isinstance(name, str | bytes) else folder
        if number in _NO_ROOM:
            return _no_room(number, path, folder, then)
        if number in _REFUSED:
            what, remedy = _REFUSED[number]
            return MachineError(f"{path or 'a file'}: {what}. {remedy}{then}")
        if isinstance(cause, MemoryError) or (isinstance(cause, RuntimeError) and _NO_MEMORY.search(str(cause))):
            return MachineError(
                "the machine has not enough memory for this. Lower batch sizes and lengths, end other programs, or use "
                f"a machine with more.{then}"
            )
    return None


@contextmanager
def machine_errors(folder: Path, then: str = "") -> Iterator[None]:
    """The block's errors by which the machine refused something as :class:`MachineError`; all others as they are.

    Args:
        folder: where the block writes.
        then: what becomes of the work done so far.
    """
    try:
        yield
    except VtkitError:
        raise
    except Exception as error:
        failure = machine_failure(error, folder, then)
        if failure is None:
            raise
        raise failure from error


def _number_of(error: BaseException) -> int | None:
    """The system's number for what went wrong, also where a library has it in its text only."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    text = str(error)[:10_000]
    found = _RUST_ERROR.search(text) or _PYTHON_ERROR.search(text)
    if found is not None:
        return int(found[1])
    return errno.ENOSPC if _WRITTEN_IN_PART.search(text) else None


def _no_room(number: int, path: Path | None, folder: Path | None, then: str) -> MachineError:
    where = path or folder or Path.cwd()
    there = next((path for path in (where, *where.absolute().parents) if path.exists()), Path("/"))
    try:
        left = f" ({shutil.disk_usage(there).free / 1e6:,.1f} MB free)"
    except OSError:
        left = ""
    match number:
        case errno.EFBIG:
            what, remedy = "a file grew to the largest size that is allowed here", "Raise the limit (ulimit -f)"
        case errno.EDQUOT:
            what, remedy = "your quota of disk space is used up", "Make room"
        case _:
            what, remedy = f"no room left to write{left}", "Make room"
    return MachineError(f"{where}: {what}. {remedy}, and give the same command again.{then}")
