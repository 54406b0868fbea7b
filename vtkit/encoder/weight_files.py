"""Which files of a model are read; pickled weights (``pytorch_model.bin``) by torch's weights-only loader alone."""

import pickle
import re
import warnings
import zipfile
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from vtkit.system.errors import DataError

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


def weight_files(names: Iterable[str]) -> list[str]:
    """The files of one folder that its weights are loaded from, as transformers chooses: safetensors before pickles,
    one file before shards. Without any of these names, every other safetensors file (static tables)."""
    ordered = sorted(names)
    for whole, index, shards in (SAFETENSORS, PICKLES):
        if whole in ordered:
            return [whole]
        if index in ordered:
            return [index, *(name for name in ordered if fnmatch(name, shards))]
    return [name for name in ordered if name.endswith(".safetensors")]


def model_files(names: Iterable[str], modules: Iterable[str]) -> list[str]:
    """The fewest of a model's files that load it, of the ``names`` of all, relative to its folder as those of its
    ``modules`` (``.`` is the folder itself): a repository holds exports and checkpoints of trainings too."""
    inside: dict[PurePosixPath, list[str]] = {PurePosixPath(module): [] for module in modules}
    for name in names:
        path = PurePosixPath(name)
        inside.get(path.parent, []).append(path.name)
    return [
        (module / name).as_posix()
        for module, files in inside.items()
        for name in [
            *(name for name in sorted(files) if _matches(name, _READ) and not _matches(name, _NOT_READ)),
            *weight_files(files),
        ]
    ]


def check_pickle(file: Path, label: str) -> None:
    """Open a pickle of weights as the libraries do after this, by torch's weights-only loader; nothing of it is kept.
    It is mapped, if it is in torch's format since 1.6; messages begin with ``label``."""
    import torch

    again = "Fetch or copy it again, or name a model with safetensors."
    try:
        with warnings.catch_warnings(action="ignore"):  # of another protocol than torch writes
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        raise DataError(
            f"{label}: {file} is refused by torch's weights-only loader: it does not hold only weights"
            f"{f' ({named[1]})' if named else ''}, which could run code. Name a model with safetensors."
        ) from error
    except (MemoryError, PermissionError):
        raise
    except Exception as error:  # torch's reader, zip and pickle have one kind each for what was cut short
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(f"{label}: {file} is damaged or cut short ({line}). {again}") from error
    if not isinstance(content, dict) or not content:
        raise DataError(f"{label}: {file} holds a {type(content).__name__} instead of weights. {again}")
    odd = [name for name, value in content.items() if not isinstance(name, str) or not isinstance(value, torch.Tensor)]
    if odd:
        raise DataError(f"{label}: {file} does not hold plain weights: {odd[0]!r} is not a tensor. {again}")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
