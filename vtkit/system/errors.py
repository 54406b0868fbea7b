"""Errors a user can act on: each says what is wrong, where, and what to do. The command line prints them without a
traceback and exits with ``exit_code``."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class VtkitError(Exception):
    """A problem that the user can solve. Messages call settings and arguments by their names in Python: ``size``."""

    exit_code = 1


class RecipeError(VtkitError):
    """A recipe, or arguments, that cannot be run as written. The message lists every problem at once."""

    exit_code = 2


class DataError(VtkitError):
    """A user's file is missing, empty, damaged or has the wrong format."""


class MissingExtra(VtkitError):
    """An optional package that is not installed."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed: pip install 'vtkit[{extra}]'")


class CollapseError(VtkitError):
    """Training or calibration made vectors without information; a gate stopped it."""


class MachineError(VtkitError):
    """The machine refused: no disk space, no permission, no memory."""


STANDARD_OUTPUT = "standard output"  # in place of a file's name (vtkit.system.console.standard_output)

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_REFUSED = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP),
    *(errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE),
}

_NUMBERED = re.compile(r"\((?:os error )(\d+)\)|\[Errno (\d+)\]", re.IGNORECASE)  # as Rust and Python write it
_WRITTEN_IN_PART = re.compile(
    # numpy, torch (C++ streams), sqlite; the first two do not say why
    r"\d+ requested and \d+ written|PytorchStreamWriter failed|inline_container\.cc.*unexpected pos|"
    r"file write failed|iostream error|database or disk is full"
)
_NO_MEMORY = re.compile(
    # llvmlite and compiled modules that lose a MemoryError do not say why
    r"out of memory|can(?:'|no)t allocate memory|unable to allocate|bad_alloc|failed to map segment|"
    r"without (?:setting an )?exception|find/load shared object file 'libllvmlite",
    re.IGNORECASE,
)


def as_exception(error: BaseException) -> Exception:
    """``error``; a DataError in place of a panic of a compiled library, which Python does not count as an Exception."""
    if isinstance(error, Exception):
        return error
    lines = str(error).strip().splitlines()
    return DataError(
        f"a compiled library gave up ({type(error).__name__}: {lines[0][:200] if lines else 'no reason'}). A file "
        "of the model or tokenizer is damaged or hostile, or a text has millions of letters without a space. Name "
        "another model, or leave the text out."
    )


def machine_failure(error: BaseException, folder: Path | None = None, then: str = "") -> MachineError | None:
    """The refusal of the machine behind ``error`` or its causes, as a message; None if there is none.

    A full disk appears as Python's ``OSError`` 28, as the text "os error 28" of safetensors and tokenizers, and as
    torch's ``RuntimeError`` or numpy's ``OSError`` without a number, which only say that too little was written.

    Args:
        folder: the folder that was written to, for errors that name no file.
        then: the end of the message: what happens to the work done so far.
    """
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for cause in chain:
        number = cause.errno if isinstance(cause, OSError) else None
        if number is None:  # libraries may have it in their text only
            text = str(cause)[:10_000]
            numbered = _NUMBERED.search(text)
            in_part = errno.ENOSPC if _WRITTEN_IN_PART.search(text) else None
            number = int(numbered[1] or numbered[2]) if numbered else in_part
        name = getattr(cause, "filename", None)
        path = Path(os.fsdecode(name)) if isinstance(name, str | bytes) else folder
        if number in _NO_ROOM and name == STANDARD_OUTPUT:
            return MachineError(f"{name}: {os.strerror(number or 0).lower()}. Write it to another place.{then}")
        if number in _NO_ROOM or number in _REFUSED:
            remedy = "Use another folder or name, or change what forbids it."
            if number in _NO_ROOM:
                free = f"{free_bytes(path or Path.cwd()) / 1e6:,.1f} MB are free."
                remedy = f"{free} Free some space and run the same command again."
            return MachineError(f"{path or folder or 'a file'}: {os.strerror(number or 0).lower()}. {remedy}{then}")
        failed = isinstance(cause, RuntimeError | ImportError | OSError | SystemError)
        if isinstance(cause, MemoryError) or number == errno.ENOMEM or (failed and _NO_MEMORY.search(str(cause))):
            return MachineError(
                "The machine has too little memory for this. Lower batch sizes and lengths, close other programs, or "
                f"use a machine with more memory.{then}"
            )
    return None


@contextmanager
def machine_errors(folder: Path, then: str = "") -> Iterator[None]:
    """Raise refusals of the machine in the block as :class:`MachineError`; other errors stay as they are.

    Args:
        then: what happens to the work done so far.
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


def free_bytes(path: Path) -> int:
    """Bytes that are free on the disk of ``path``, which may not exist yet."""
    return shutil.disk_usage(next(place for place in (path, *path.absolute().parents) if place.exists())).free
