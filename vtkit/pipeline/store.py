"""Stage outputs on disk: addressed by what they were made from, written whole or not at all, checked when used.

A store is one folder, shared by all runs beside it::

    artifacts/transfer-5f0c…/   the files of one stage's output, and manifest.json
    artifacts/.partial/…        what is being made; checkpoints in it outlive a kill
    artifacts/.locks/…          one lock for each output
    artifacts/digests.json      digests of the user's files, so that unchanged ones are not read again

The key of an output is a digest of the stage's name and version, its settings, the seed, the keys of its
inputs and the digests of the files it reads. Its folder appears by one rename, after its manifest was written.
"""

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from vtkit.data import hub
from vtkit.system import console
from vtkit.system.checksums import CHECKSUM, VERIFIED, changes, read_record, remembered, write_record
from vtkit.system.errors import DataError, VtkitError
from vtkit.system.outputs import held, write_atomically
from vtkit.system.results import adapter_of
from vtkit.system.runtime import threads
from vtkit.system.version import __version__

MANIFEST = "manifest.json"
CHECKPOINTS = "checkpoints"
RECORDED_PACKAGES = (
    "torch", "transformers", "sentence-transformers", "tokenizers", "numba", "numpy", "scipy", "ir_measures",
)  # fmt: skip


R = TypeVar("R")


@dataclass(frozen=True)
class Dependencies:
    """Everything an output is made from; two outputs of equal dependencies are the same output."""

    stage: str
    version: int
    settings: Mapping[str, Any]
    seed: int
    inputs: Mapping[str, str]  # role -> key of the output that plays it
    files: Mapping[str, str] = field(default_factory=dict)  # setting and position -> digest of what it names

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True, ensure_ascii=False).encode()).hexdigest()


class Store:
    """The folder of outputs."""

    def __init__(self, root: Path, *, look_once: bool = False) -> None:
        """``look_once`` remembers the damage of each output, however many runs share it."""
        self.root = root
        self._damage: Callable[..., str | None] = cache(_damage) if look_once else _damage

    def prepare(self, *others: Path) -> None:
        """Make the folders of the store, and ``others``; one message where that is not possible."""
        folder = self.root
        try:
            for folder in (self.root / ".partial", self.root / ".locks", *others, self.root):
                folder.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".writable-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise VtkitError(
                f"cannot write to {folder}: {error.strerror or error}. Name another folder with --runs."
            ) from error

    def folder(self, dependencies: Dependencies) -> Path:
        return self.root / f"{dependencies.stage.replace(':', '-')}-{dependencies.key[:20]}"

    def damage(self, dependencies: Dependencies, kind: type[Any]) -> str | None:
        """Describe the damage of an output. The answer is None if every file matches its checksum and this version of
        vtkit can read the manifest's result as a ``kind``."""
        return self._damage(self.folder(dependencies), kind)

    def build(self, dependencies: Dependencies, kind: type[R], make: Callable[[Path], R], *, afresh: bool) -> Path:
        """Make an output: ``make`` fills the folder it is given and returns its result, for the manifest.

        ``afresh`` throws checkpoints of an earlier try away. Another process that makes the same output is
        waited for, and its work used.
        """
        final = self.folder(dependencies)
        with held(self.root / ".locks" / f"{final.name}.lock", f"{dependencies.stage}"):
            if not afresh and self.damage(dependencies, kind) is None:
                return final
            partial = self.root / ".partial" / final.name
            partial.mkdir(parents=True, exist_ok=True)
            for entry in partial.iterdir():
                if afresh or entry.name != CHECKPOINTS:
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            started, warned_before = time.time(), len(console.warned())
            result = make(partial)
            shutil.rmtree(partial / CHECKPOINTS, ignore_errors=True)
            manifest = {
                "vtkit": __version__,
                "stage": dependencies.stage,
                "key": dependencies.key,
                "stage_version": dependencies.version,
                "settings": dict(dependencies.settings),
                "seed": dependencies.seed,
                "inputs": dict(dependencies.inputs),
                "files": dict(dependencies.files),
                "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started)),
                "seconds": round(time.time() - started, 2),
                "versions": versions(),
                "hub": hub.revisions(),
                "warnings": console.warned()[warned_before:],
                "result": json.loads(json.dumps(result, default=asdict)),
            }
            files = [path for path in sorted(partial.rglob("*")) if path.is_file() and path.name != VERIFIED]
            write_record(partial / MANIFEST, manifest, files)
            aside = self.root / ".partial" / f"{final.name}.replaced-{os.getpid()}"
            if final.exists():
                final.rename(aside)
            partial.rename(final)
            shutil.rmtree(aside, ignore_errors=True)
            return final

    @cached_property
    def _digests(self) -> dict[str, list[Any]]:
        """Path -> its stamp and its digest, as an earlier process left them."""
        return remembered(self.root / "digests.json")

    def digest(self, path: str) -> str:
        """Digest of a user's file or folder; taken from memory while names, sizes and times are unchanged."""
        from vtkit.data.text import digest

        place = Path(path)
        files = [file for file in (sorted(place.rglob("*")) if place.is_dir() else [place]) if file.is_file()]
        stamps = [(str(file.relative_to(place)), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        stamp = hashlib.sha256(repr(stamps).encode()).hexdigest()
        known = self._digests.get(path)
        if known is None or known[0] != stamp:
            known = self._digests[path] = [stamp, digest(path)]
            if self.root.is_dir():
                write_atomically(self.root / "digests.json", json.dumps(self._digests, indent=0))
        return str(known[1])


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of an output folder, or None if it is missing or was changed."""
    try:
        manifest = read_record(folder / MANIFEST)
    except PermissionError:  # an output that may not be read must not be made again
        raise
    except (OSError, DataError):
        return None
    return manifest if CHECKSUM in manifest else None


def result_of(folder: Path, kind: type[R]) -> R:
    """The result of the stage that made ``folder``."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise VtkitError(
            f"{folder} is not a finished stage output: its manifest is missing or damaged. Run the recipe again."
        )
    result = _result_in(manifest, kind)
    if result is None:
        raise VtkitError(
            f"{folder} was made by another version of vtkit, whose results this version cannot read. Run the recipe "
            "again to rebuild it."
        )
    return result


def versions() -> dict[str, str]:
    """Versions, machine and thread count: all that affects results besides the recipe."""
    known = {"vtkit": __version__, "python": platform.python_version(), "machine": platform.machine()}
    known["threads"] = str(threads())
    for package in RECORDED_PACKAGES:
        with suppress(PackageNotFoundError):
            known[package] = version(package)
    return known


def _damage(folder: Path, kind: type[Any]) -> str | None:
    if not (folder / MANIFEST).is_file():
        return "its manifest is missing"
    manifest = read_manifest(folder)
    if manifest is None:
        return "its manifest was changed or damaged"
    if _result_in(manifest, kind) is None:
        return "this version of vtkit cannot read its results"
    return next((f"{name} {damage}" for name, damage in changes(folder, manifest, fully=True)), None)


def _result_in(manifest: Mapping[str, Any], kind: type[R]) -> R | None:
    """The result in a manifest; None if it does not have the form of ``kind``."""
    try:
        result: R = adapter_of(kind).validate_python(manifest["result"])
        return result
    except (KeyError, TypeError, ValueError):  # pydantic's own error is a ValueError
        return None
