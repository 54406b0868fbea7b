"""Adapters (LoRA and its kin, as peft saves them), whose folders hold only what training added to another model. An
adapter is merged into that model, W + s B A for each weight W that it changes, and everything else reads the result.
Adapters are read from safetensors alone; the models that they name are checked like any others."""

import hashlib
import json
import shutil
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vtkit.data.hub import fetch_again, read_settings
from vtkit.data.text import digest
from vtkit.encoder.model_folder import (
    ADAPTER,
    SAFELY,
    check_file,
    check_model,
    library_errors,
    load_complete,
    loaded_files,
    model_folder,
    refuse_lacking,
    transformer_folder,
)
from vtkit.system.errors import DataError, MissingExtra
from vtkit.system.outputs import new_folder
from vtkit.system.runtime import quiet_libraries, user_cache

WEIGHTS = "adapter_model.safetensors"


def adapted_model(adapter: Path, label: str) -> str:
    """The name of the model that the adapter in a folder changes.

    Raises:
        DataError: the adapter names none, or its weights are no safetensors, or damaged.
        MissingExtra: peft is not installed.
    """
    base = read_settings(adapter / ADAPTER, label).get("base_model_name_or_path")
    if not base or not isinstance(base, str):
        raise DataError(f"{label}: {adapter / ADAPTER} does not name the model that the adapter was trained on.")
    if not (adapter / WEIGHTS).is_file():
        raise DataError(f"{label}: an adapter of {base} without {WEIGHTS}; no other form is loaded. {fetch_again()}")
    check_file(adapter / WEIGHTS, label)
    if find_spec("peft") is None:
        raise MissingExtra(f"{label}: merging an adapter (LoRA) into {base}", "peft", "peft")
    return base


def merged(folder: Path, adapter: Path, label: str) -> Path:
    """The folder in the user's cache of the model that an adapter was merged into; it is made once.

    Args:
        folder: with the modules behind the adapter and the tokenizer if it has such.
        adapter: the adapter's own files, inside ``folder``.
    """
    base = model_folder(adapted_model(adapter, label), f"{label}: the adapted model")
    changed = transformer_folder(base, label)
    whole = (folder / "modules.json").is_file()
    inside = adapter.relative_to(folder) if whole else changed.relative_to(base)
    files = loaded_files(base)
    stamps = [[str(file), file.stat().st_mtime_ns] for file in files]
    out = user_cache("adapters") / hashlib.sha256(json.dumps([digest(folder), stamps]).encode()).hexdigest()[:32]
    if not out.is_dir():
        cannot = library_errors(f"{label} cannot be merged into {base}")
        with cannot, new_folder(out) as work, quiet_libraries():
            for file in files:
                place = work / (inside / file.name if file.parent == changed else file.relative_to(base))
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
            own = shutil.ignore_patterns("adapter_*")
            shutil.copytree(folder, work if whole else work / inside, ignore=own, dirs_exist_ok=True)
            _with_adapter(adapter, changed).save_pretrained(work / inside)
    check_model(out, label)
    return out


def _with_adapter(adapter: Path, base: Path) -> Any:
    """The transformer ``base`` with an adapter merged into it. An adapter says by the names of its tensors whether it
    was trained on the transformer alone or with a head behind it."""
    from peft import PeftModel
    from safetensors import safe_open
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, MODEL_MAPPING, AutoConfig

    config = type(AutoConfig.from_pretrained(str(base), **SAFELY))
    kind = MODEL_MAPPING[config]
    with safe_open(adapter / WEIGHTS, "pt") as tensors:
        names = " ".join(tensors.keys())
    if f"base_model.model.{kind.base_model_prefix}." in names:
        heads = (MODEL_FOR_MASKED_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING)
        kind = next((mapping[config] for mapping in heads if config in mapping), kind)
    model, missing = load_complete(kind, base, str(base), unused="pooler", dtype="float32")
    refuse_lacking(str(base), model, missing)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Found missing adapter keys")  # of another model, or cut short
        return PeftModel.from_pretrained(model, str(adapter), **SAFELY).merge_and_unload()
