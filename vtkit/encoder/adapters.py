"""Adapters (LoRA and its kin, as peft saves them), whose folders hold only what training added to another model. An
adapter is merged into that model, W + s B A for each weight W that it changes, and everything else reads the result.
Adapters are read from safetensors alone; the models that they name are checked like any others."""

import hashlib
import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vtkit.data.hub import fetch_again, read_settings
from vtkit.data.text import digest
from vtkit.system.errors import DataError, MissingExtra
from vtkit.system.outputs import new_folder
from vtkit.system.runtime import quiet_libraries, user_cache

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def adapted_model(adapter: Path, label: str) -> str:
    """The name of the model that the adapter in a folder changes.

    Raises:
        DataError: the adapter names none, or its weights are no safetensors.
        MissingExtra: peft is not installed.
    """
    base = read_settings(adapter / SETTINGS, label).get("base_model_name_or_path")
    if not base or not isinstance(base, str):
        raise DataError(f"{label}: {adapter / SETTINGS} does not name the model that the adapter was trained on.")
    if not (adapter / WEIGHTS).is_file():
        raise DataError(f"{label}: an adapter of {base} without {WEIGHTS}; no other form is loaded. {fetch_again()}")
    if find_spec("peft") is None:
        raise MissingExtra(f"{label}: merging an adapter (LoRA) into {base}", "peft", "peft")
    return base


def merged(folder: Path, adapter: Path, base: Path, changed: Path, files: list[Path], model: Callable[[], Any]) -> Path:
    """A folder in the user's cache with a model that an adapter was merged into; it is made once.

    Args:
        folder: of the adapter, with the modules behind it and the tokenizer if it has such.
        adapter: its own files' folder, inside ``folder``.
        base, changed: the folder of the model that the adapter changes, and of its transformer.
        files: those that ``base`` is loaded from.
        model: gives the transformer with the adapter merged into it.
    """
    whole = (folder / "modules.json").is_file()
    inside = adapter.relative_to(folder) if whole else changed.relative_to(base)
    stamps = [[str(file), file.stat().st_mtime_ns] for file in files]
    out = user_cache("adapters") / hashlib.sha256(json.dumps([digest(folder), stamps]).encode()).hexdigest()[:32]
    if not out.is_dir():
        with new_folder(out) as work, quiet_libraries():
            for file in files:
                place = work / (inside / file.name if file.parent == changed else file.relative_to(base))
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
            own = shutil.ignore_patterns("adapter_*")
            shutil.copytree(folder, work / (Path() if whole else inside), ignore=own, dirs_exist_ok=True)
            model().save_pretrained(work / inside)
    return out
