"""Which files of a model are read, and pickled weights (``pytorch_model.bin``) as safetensors.

Only torch's weights-only loader opens a pickle, once for each model. A copy of the model's folder in vtkit's own cache
keeps the weights as safetensors; neither the user's folder nor the hub's cache is touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from vtkit.data.text import digest
from vtkit.system import console
from vtkit.system.errors import DataError, machine_errors
from vtkit.system.outputs import held, remove_half_written, write_atomically
from vtkit.system.runtime import user_cache

if TYPE_CHECKING:
    from torch import Tensor

SAFETENSORS = ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*.bin")
"""Names under which transformers looks for weights: in one file, or in shards that an index lists."""

_READ = ("*.json", "*.txt", "*.model")
_NOT_READ = (
    "*.index.json",
    "idf.json",
    "query_token_weights.txt",
    "trainer_state.json",
    "*_args.json",
    "*_results.json",
)
"""Of the files that match the first, those that no loader opens."""

_FORMAT = 1
_SIZES = "converted.json"
"""In a kept copy: the size of each of its files."""


def weight_files(names: Iterable[str]) -> list[str]:
    """Of the files of one folder, those that its weights are loaded from, as transformers chooses: safetensors before
    pickles, one file before shards. Any other safetensors where there are none of these names (static tables)."""
    there = sorted(names)
    for whole, index, shards in (SAFETENSORS, PICKLES):
        if whole in there:
            return [whole]
        if index in there:
            return [index, *(name for name in there if fnmatch(name, shards))]
    return [name for name in there if name.endswith(".safetensors")]


def model_files(names: Iterable[str], modules: Iterable[str]) -> list[str]:
    """The fewest of a model's files that load it.

    Args:
        names: all its files, relative to its folder: a repository's hold exports and checkpoints of trainings too.
        modules: its folders of modules, relative too; ``.`` is the folder itself.
    """
    inside: dict[PurePosixPath, list[str]] = {PurePosixPath(module): [] for module in modules}
    for name in names:
        path = PurePosixPath(name)
        inside.get(path.parent, []).append(path.name)
    return [
        (module / name).as_posix()
        for module, there in inside.items()
        for name in [
            *(name for name in sorted(there) if _matches(name, _READ) and not _matches(name, _NOT_READ)),
            *weight_files(there),
        ]
    ]


def pickled(names: Iterable[str]) -> list[str]:
    """Of the files that weights are loaded from, the pickles and their index."""
    return [name for name in weight_files(names) if _matches(name, PICKLES)]


def with_safetensors(folder: Path, modules: Iterable[Path], label: str) -> Path:
    """``folder``, or, if weights in it are pickles, the copy of it in vtkit's cache whose weights are safetensors.

    The copy is made where it is not there yet or was changed since. Its name is the digest of what it was made from, it
    appears whole or not at all, and tensors keep their names and precision; those that share memory are written apart.

    Args:
        modules: the folders that hold its modules, itself included where it holds files of a model.
        label: the model, as messages begin.

    Raises:
        DataError: the weights-only loader refuses a file, or it is damaged.
        MachineError: the copy cannot be written.
    """
    listed = {
        file.relative_to(folder).as_posix(): file
        for module in modules
        if module.is_dir()  # the folder of a module without files is missing in a repository
        for file in module.iterdir()
        if file.is_file()
    }
    places = sorted({PurePosixPath(name).parent.as_posix() for name in listed})
    files = {name: listed[name] for name in model_files(listed, places)}
    pickles = [name for name in files if _matches(PurePosixPath(name).name, PICKLES)]
    if not pickles:
        return folder
    content = json.dumps([_FORMAT, *((name, _content(path)) for name, path in sorted(files.items()))])
    kept = user_cache("models") / hashlib.sha256(content.encode()).hexdigest()[:32]
    if _is_whole(kept):
        return kept
    then = " VTKIT_CACHE can name a folder on another disk for it."
    with machine_errors(kept.parent, then):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with held(kept.parent / "models.lock", "a model's weights as safetensors"):
            if not _is_whole(kept):
                remove_half_written(kept.parent)
                shutil.rmtree(kept, ignore_errors=True)
                fresh = kept.with_name(f".{kept.name}.new-{os.getpid()}")
                try:
                    _copy(files, fresh, label)
                    fresh.rename(kept)
                finally:
                    shutil.rmtree(fresh, ignore_errors=True)
                size = sum(files[name].stat().st_size for name in pickles) / 1e6
                shards = [name for name in pickles if not name.endswith(PICKLES[1])]
                shown = PurePosixPath(shards[0]).name if len(shards) == 1 else f"{len(shards)} pickles"
                console.say(
                    f"{label}: {shown} ({size:,.0f} MB) was read with torch's weights-only loader and is kept as "
                    f"safetensors in {kept}"
                )
    return kept


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _content(file: Path) -> str:
    """What stands for the content of a file: its digest, which is a blob's name already in the hub's cache."""
    target = file.resolve()
    if file.is_symlink() and target.parent.name == "blobs":
        return target.name
    status = target.stat()
    return _digest(target, status.st_size, status.st_mtime_ns)


@cache
def _digest(file: Path, size: int, changed: int) -> str:
    """Once a process for each state of a file: a model is loaded again and again."""
    return digest(file)


def _is_whole(kept: Path) -> bool:
    try:
        sizes = json.loads((kept / _SIZES).read_text(encoding="utf-8"))
        return all((kept / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _copy(files: Mapping[str, Path], fresh: Path, label: str) -> None:
    """Copies of ``files`` below ``fresh``, pickles as safetensors, with a list of their sizes, all on the disk."""
    for name, path in files.items():
        target = fresh / _renamed(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(PICKLES[1]):
            index = json.loads(path.read_text(encoding="utf-8"))
            index["weight_map"] = {key: _renamed(shard) for key, shard in index["weight_map"].items()}
            target.write_text(json.dumps(index, indent=1), encoding="utf-8")
        elif name != _renamed(name):
            _convert(path, target, label)
        else:
            shutil.copyfile(path, target)
        with target.open("rb+") as written:
            os.fsync(written.fileno())
    sizes = {_renamed(name): (fresh / _renamed(name)).stat().st_size for name in files}
    write_atomically(fresh / _SIZES, json.dumps(sizes, indent=1))


def _renamed(name: str) -> str:
    """The name that the safetensors of a pickle have; other files keep theirs."""
    return re.sub(r"pytorch_model((?:-[^/]*)?)\.bin(\.index\.json)?$", r"model\1.safetensors\2", name)


def _convert(file: Path, target: Path, label: str) -> None:
    """Write the tensors of a pickle as safetensors.

    Files in torch's format since 1.6 are mapped, so that memory holds no copy of them; older ones are read whole.
    """
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in _tensors(file, label).items():
        storage = tensor.untyped_storage().data_ptr()
        apart = tensor.detach().contiguous()
        tensors[name] = apart.clone() if storage in seen else apart  # tied tensors; the format has none
        seen.add(storage)
    save_file(tensors, target, metadata={"format": "pt"})


def _tensors(file: Path, label: str) -> dict[str, Tensor]:
    """The tensors of a pickle, as torch's weights-only loader reads them.

    Raises:
        DataError: it refuses the file, cannot read it, or finds something else in it.
    """
    import torch

    again = "Fetch or copy it again, or name a model with safetensors."
    try:
        with warnings.catch_warnings(action="ignore"):  # of another protocol than torch writes
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        raise DataError(
            f"{label}: {file} is refused by torch's weights-only loader: it holds something else than weights"
            f"{f' ({named[1]})' if named else ''}, which could run code. Name a model with safetensors."
        ) from error
    except (MemoryError, PermissionError):
        raise
    except Exception as error:  # torch's reader, zip and pickle have one kind each for what was cut short
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(f"{label}: {file} is damaged or cut short ({line}). {again}") from error
    if not isinstance(content, dict) or not content:
        raise DataError(f"{label}: {file} holds no weights but a {type(content).__name__}. {again}")
    odd = [name for name, value in content.items() if not isinstance(name, str) or not isinstance(value, torch.Tensor)]
    if odd:
        raise DataError(f"{label}: {file} holds no plain table of weights: {odd[0]!r} is no tensor. {again}")
    return content
