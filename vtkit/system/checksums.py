"""Records of complete folders. A record is a JSON file with entries of its own, the size and the SHA-256 of files
beside it (``outputs``), and a digest of all of that; whoever completes a folder writes it last.

Opening a folder must cost nothing for a large index. So the sizes, times and numbers (inodes) of files at their last
full comparison are kept in ``.verified.json``, and only files that differ from these are read. A copied folder is read
once. Older versions of vtkit wrote records without checksums, which are taken as they are."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.outputs import write_atomically

OUTPUTS, CHECKSUM = "outputs", "manifest_sha256"
"""Entries of a record: its files by their paths from the record's folder (absolute, if they lie elsewhere), and the
digest of all other entries."""

VERIFIED = ".verified.json"

_STAMP = attrgetter("st_size", "st_mtime_ns", "st_ino")

MOST_READ_AGAIN = 2**28
"""Bytes up to which files are read at each opening, if the folder is read-only and cannot remember the comparison."""

REMEDIES = {
    "manifest.json": "Run the recipe again: vtkit run RECIPE; what is whole is not repeated.",
    "run.json": "Run the recipe again: vtkit run RECIPE; what is done is not repeated. Or copy the run again.",
    "encoding.json": "Encode again: vtkit encode.",
    "build.json": "Build again, into a new folder: vtkit build.",
    "export.json": "Export again: vtkit export.",
    "index.json": "Make the index again with what made it: vtkit run RECIPE --force index, vtkit index or vtkit build. "
    "Damage to what a search reads in an index of these two is mended by vtkit merge.",
}
"""Record -> what to do about damage."""


def files_of(folder: Path) -> Iterator[Path]:
    """The files below ``folder`` in order, without hidden ones and without cards (README.md), which people edit."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden and path.name != "README.md":
            yield path


def write_record(
    path: Path, content: Mapping[str, Any], files: Iterable[Path], kept: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Write the record ``path`` of ``content`` and the checksums of ``files``, whole or not at all; ``kept`` are
    checksums of further files, from the record before."""
    outputs, stamps = dict(kept), {}
    for file in [file for file in files if file != path]:
        name = file.relative_to(path.parent).as_posix() if file.is_relative_to(path.parent) else str(file)
        stamp, digest = _STAMP(file.stat()), file_digest(file)
        outputs[name], stamps[name] = {"bytes": stamp[0], "sha256": digest}, [*stamp, digest]
    record = {**content, OUTPUTS: outputs}
    write_atomically(path, json.dumps({**record, CHECKSUM: checksum(record)}, indent=1, ensure_ascii=False))
    _remember(path.parent, stamps)


def read_record(path: Path, remedy: str = "") -> dict[str, Any]:
    """The entries of a record; its files are not looked at.

    Args:
        remedy: what to do about damage, for the message; default: by the record's name.

    Raises:
        DataError: it is missing, or was changed since it was written.
    """
    remedy = remedy or REMEDIES.get(path.name, "")
    try:
        record = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing. {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}: {error}). {remedy}") from error
    if not isinstance(record, dict):
        raise DataError(f"{path} is damaged: it should hold a JSON object. {remedy}")
    if (OUTPUTS in record or CHECKSUM in record) and record.get(CHECKSUM) != checksum(record):
        raise DataError(f"{path} is damaged: its checksum does not match. {remedy}")
    return record


def verify(path: Path, part: str = "", *, fully: bool = False) -> dict[str, Any]:
    """The entries of a record whose files are as they were when it was written.

    Args:
        part: compare only this file or folder; empty: all.
        fully: read every file, whatever its size and time.

    Raises:
        DataError: the record or files are missing or were changed; all of them are named.
    """
    record = read_record(path)
    if damaged := changes(path.parent, record, part, fully=fully):
        said = "\n".join(f"{path.parent / name} {damage}." for name, damage in damaged)
        raise DataError(f"{said} {REMEDIES[path.name]}")
    return record


def changes(folder: Path, record: Mapping[str, Any], part: str = "", *, fully: bool) -> list[tuple[str, str]]:
    """The files of a record of ``folder`` that are not as it says, each with its damage in words (:func:`verify`)."""
    known, damaged, stamps = remembered(folder / VERIFIED), list[tuple[str, str]](), dict[str, list[Any]]()
    for name, stated in record.get(OUTPUTS, {}).items():
        if not part or name == part or name.startswith(f"{part}/"):
            try:
                stamp = _STAMP((folder / name).stat())
            except (FileNotFoundError, NotADirectoryError):
                damaged.append((name, "is missing"))
                continue
            if stamp[0] != stated["bytes"]:
                damaged.append((name, f"is damaged: it has {stamp[0]:,} bytes, not {stated['bytes']:,}"))
            elif fully or known.get(name) != [*stamp, stated["sha256"]]:
                stamps[name] = [*stamp, stated["sha256"]]
    size = sum(compared[0] for compared in stamps.values())
    if size > MOST_READ_AGAIN:
        if not fully and not os.access(folder, os.W_OK):
            return damaged
        console.say(f"comparing {console.size(size)} in {folder} with their checksums")
    wrong = [name for name, compared in stamps.items() if file_digest(folder / name) != compared[-1]]
    damaged += [(name, "is damaged: its checksum does not match") for name in wrong]
    if stamps and not damaged:
        _remember(folder, known | stamps)
    return damaged


def verify_part(path: Path) -> None:
    """Verify a file or folder of a run, of a stage's output or of an index by the record that lies beside it, if there
    is one."""
    for record in records_in(path.parent):
        verify(record, path.name)


def records_in(folder: Path) -> list[Path]:
    """The records that lie in ``folder`` itself, which vtkit has then made. Files of such a name that other programs
    wrote are passed over."""
    readable = [path for path in map(folder.joinpath, REMEDIES) if os.path.isfile(path) and os.access(path, os.R_OK)]
    return [path for path in readable if CHECKSUM.encode() in path.read_bytes()]


def checksum(record: Mapping[str, Any]) -> str:
    """Digest of a record's entries, whatever their order and its white space."""
    entries = {name: value for name, value in record.items() if name != CHECKSUM}
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remembered(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``, where an earlier process noted what spares work; nothing if it cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        known = json.loads(path.read_text("utf-8"))
        if isinstance(known, dict):
            return known
    return {}


def _remember(folder: Path, stamps: Mapping[str, Any]) -> None:
    with suppress(OSError):
        known = {**remembered(folder / VERIFIED), **stamps}
        there = {name: stamp for name, stamp in known.items() if (folder / name).exists()}
        write_atomically(folder / VERIFIED, json.dumps(there))
