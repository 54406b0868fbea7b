"""A model's folder, checked before any library opens it: it must not run code or ask a question, and damage is named by
file and fault, which the libraries' own messages do not tell. Pickled weights (``pytorch_model.bin``) are opened by
torch's weights-only loader alone."""

import hashlib
import json
import pickle
import re
import shutil
import tomllib
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from vtkit.data.hub import downloads_allowed, fetch, fetch_again, read_json, read_settings
from vtkit.data.text import digest
from vtkit.system.checksums import verify_part
from vtkit.system.errors import DataError, MissingExtra, VtkitError, machine_failure
from vtkit.system.outputs import new_folder
from vtkit.system.runtime import quiet_libraries, user_cache

ADAPTER = "adapter_config.json"  # in folders that peft saves

CONFIGURATION_FILES = (
    "config.json",
    ADAPTER,
    "modules.json",
    "config_sentence_transformers.json",
    "router_config.json",
    "*/router_config.json",
)
"""Files of a hub repository that say what kind of model it holds, and in which folders."""

SAFELY: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
"""Arguments of every call that loads configurations and tokenizers. Left out, ``trust_remote_code`` is a question on
the terminal for transformers."""

SAFELY_WEIGHTS: dict[str, Any] = {**SAFELY, "weights_only": True}  # arguments of every call that loads weights

OUTPUT_TOKENIZER = "output_tokenizer"
"""Folder, beside a model's own files, of the tokenizer that names its output dimensions (head-only transfer)."""

FOLD_SETTING = "vtkit_fold"
"""Key of a model's config.json: how its vectors are to be folded (:mod:`vtkit.encoder.folding`)."""

SAFETENSORS = ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*.bin")
"""Names under which transformers looks for weights: in one file, or in shards that an index lists."""

WEIGHTS = SAFETENSORS[0]

SPARSE_LINEAR = "sparse_linear.pt"
"""The map from token states to term weights that BGE-M3 (arXiv:2402.03216) has beside its transformer."""

UNTRAINED_HEAD = "vtkit_untrained_head"
"""Key of a model's config.json: nothing was ever trained to give its logits (BGE-M3)."""

OWN_MODULES = ("vtkit.encoder.unicoil.TokenTransformer", "vtkit.encoder.unicoil.UnicoilPooling")
"""Types of modules that are vtkit's own, by which modules.json may name them."""

PYLATE_DENSE = "pylate.models.Dense.Dense"  # in models that PyLate saved; sentence-transformers reads it as its own

_OTHER_TOKENIZERS = ("vocab.txt", "vocab.json", "*.model")
"""What a tokenizer can be built from where there is no tokenizer.json."""

_CONFIGURATIONS = (
    "config.json",
    "tokenizer_config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "special_tokens_map.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)


_BOUNDS = (
    (re.compile(r"(^|_)(layers|n_layer|heads|n_head|blocks|depths?)$"), 0, 1000),
    (
        re.compile(r"^(d_model|d_ff|dff|d_inner|n_embd|n_inner)$|(hidden|intermediate|embedding)_sizes?$|dims?$"),
        0,
        2**18,
    ),
    (re.compile(r"features$"), 0, 2**18),
    (re.compile(r"(size|dimension|positions|embeddings|labels|experts|buckets)$"), -1, 2**24),
)
"""Name of a number in config.json, at any depth -> its smallest and largest value, far beyond those of any model that
transformers has; the first name counts. Libraries make a model of whatever size the file says, before they look at the
weights."""

_LONGEST_PROMPT = 10_000  # characters in front of each text

_READ = ("*.json", "*.txt", "*.model", SPARSE_LINEAR)
_UNREAD = ("*.index.json", "idf.json", "query_token_weights.txt", "trainer_state.json", "*_args.json", "*_results.json")
"""Of the files that match the first, those that no loader opens."""


def model_folder(name: str, label: str = "source model") -> Path:
    """:func:`find_model` and :func:`check_model`; of an adapter the folder of the model that it is merged into."""
    folder, called = find_model(name, label), f"{label} {name}"
    check_model(folder, called)
    if (adapter := adapter_folder(folder, called)) is None:
        return folder
    return merged(folder, adapter, called)


def adapter_folder(folder: Path, label: str) -> Path | None:
    """The folder of the adapter that a model's folder has instead of a transformer; None if it has none."""
    for inside in transformer_folders(folder, label):
        if (inside / ADAPTER).is_file() and not (inside / "config.json").is_file():
            return inside
    return None


def find_model(name: str, label: str = "source model") -> Path:
    """The absolute path of the model called ``name``; its content is compared with checksums, where vtkit wrote any
    beside it, and not checked otherwise. A folder of that name, relative ones included, is that folder; any other name
    is a hub id, whose files come from the cache or, where allowed, from the hub."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    path = Path(name).expanduser()
    if path.exists() or path.is_absolute() or name.startswith((".", "~")):
        if path.is_file():
            raise DataError(f"{label} {name}: it is a file, not the folder of a model.")
        if not path.is_dir():
            raise DataError(f"{label} {name}: there is no such folder. Give a hub id or a model's folder.")
        verify_part(path.absolute())
        return path.absolute()
    folder = fetch(name, CONFIGURATION_FILES, "model")
    if not downloads_allowed():
        return folder
    try:
        files = [file.path for file in get_cached_repo_tree(name, revision=folder.name)]
    except CachedRepoTreeNotFoundError:  # the hub could not be reached, and an older client filled the cache
        return folder
    return fetch(name, model_files(files, _module_names(folder, name)), "model")


def loaded_files(folder: Path) -> list[Path]:
    """The files by which the model in ``folder`` is loaded."""
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    return [folder / name for name in model_files(names, _module_names(folder, str(folder)))]


def _module_names(folder: Path, label: str) -> list[str]:
    """The folders of a model's files, relative to its own."""
    return [".", OUTPUT_TOKENIZER, *(module.relative_to(folder).as_posix() for module, _ in _modules(folder, label))]


def check_model(folder: Path, label: str) -> None:
    """Refuse the folder of a transformers or sentence-transformers model that would run code, or that is damaged;
    messages begin with ``label``."""
    if adapter := adapter_folder(folder, label):
        adapted_model(adapter, label)
        return
    if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
        raise DataError(f"{label}: the folder holds neither config.json nor modules.json.")
    transformers = transformer_folders(folder, label)
    for module in dict.fromkeys([folder, *(module for module, _ in _modules(folder, label))]):
        if module in transformers and not module.is_dir():
            raise DataError(f"{label}: the folder {module} of its transformer is missing. {fetch_again()}")
        names = [path.name for path in module.iterdir() if path.is_file()] if module.is_dir() else []
        weights = weight_files(names)
        for name in _CONFIGURATIONS:
            if name in names:
                _check_configuration(module / name, label)
        if module in transformers and not weights:
            raise DataError(
                f"{label}: {module} holds no weights, neither {SAFETENSORS[0]} nor {PICKLES[0]} nor an index of "
                f"shards. {fetch_again()}"
            )
        for name in [*weights, *({SPARSE_LINEAR} & set(names))]:
            if name.endswith(".index.json"):
                _check_index(module / name, label, weights)
            else:
                check_file(module / name, label)
        if module not in transformers:
            continue
        if "tokenizer.json" in names:
            check_file(module / "tokenizer.json", label)
        elif not any(fnmatch(name, other) for name in names for other in _OTHER_TOKENIZERS):
            raise DataError(f"{label}: {module} holds no tokenizer (tokenizer.json). {fetch_again()}")


ModelKind = Literal["sparse_encoder", "cross_encoder", "multi_vector_encoder", "language_model"]


def model_kind(folder: Path, label: str) -> ModelKind | None:
    """The kind of model in a folder, by its configuration alone; None for an embedder."""
    types = module_types(folder, label)
    config = read_settings(folder / "config.json", label)
    settings = read_settings(folder / "config_sentence_transformers.json", label)
    stated = str(settings.get("model_type", "")).lower()
    for kind in get_args(ModelKind):
        if stated == kind.replace("_", "") or any(kind in module for module in types):
            return kind  # type: ignore[no-any-return]
    heads = " ".join(map(str, config.get("architectures") or []))
    if stated == "colbert" or "HF_ColBERT" in heads:
        return "multi_vector_encoder"
    if not types and re.search("ForCausalLM|LMHeadModel|ForConditionalGeneration", heads):
        return "language_model"
    return "cross_encoder" if not types and "ForSequenceClassification" in heads else None


def module_types(folder: Path, label: str) -> list[str]:
    """The types of a sentence-transformers model's modules, those of routers included."""
    return [kind for _, kind in _modules(folder, label)]


def transformer_folders(folder: Path, label: str) -> list[Path]:
    """The folders of a model's transformers: one, or one for each side of a router."""
    if not (folder / "modules.json").is_file():
        return [folder]
    return [module for module, kind in _modules(folder, label) if kind.endswith("Transformer")]


def transformer_folder(folder: Path, label: str) -> Path:
    """The folder of a model's first module: the folder itself, except for some models of sentence-transformers.
    DataError: the model has no transformer."""
    for first in transformer_folders(folder, label):
        return first
    raise DataError(
        f"{label} has no transformer to start from: it is made of {module_types(folder, label)[0].rpartition('.')[2]}. "
        "Name a model with a transformer; this one can be evaluated beside it (evaluate.peers)."
    )


def load_complete(kind: Any, folder: Path, label: str, *, unused: str = "", **settings: Any) -> tuple[Any, list[str]]:
    """The transformers model of the class ``kind`` in ``folder``, loaded with ``settings``, and the names of the
    tensors that its weights lack: the library makes these up at random. Nothing is computed with tensors that have
    ``unused`` in their names. DataError: weights and configuration do not fit each other."""
    with library_errors(f"{label} cannot be loaded"):
        model, info = kind.from_pretrained(
            str(folder), output_loading_info=True, ignore_mismatched_sizes=True, **SAFELY_WEIGHTS, **settings
        )
    no_part = [name for name in ("position_ids", unused) if name]
    for key, shape, wanted in sorted(info["mismatched_keys"], key=str):
        if not any(name in key for name in no_part):
            raise DataError(
                f"{label}: its files do not belong together. {folder / 'config.json'} makes {key} of the shape "
                f"{tuple(wanted)}, and its weights hold it of the shape {tuple(shape)}. Fetch the model again, or "
                "restore the configuration that they were saved with."
            )
    return model, sorted(key for key in info["missing_keys"] if not any(name in key for name in no_part))


def refuse_incomplete(model: Any, folder: Path, label: str, *, unused: str = "") -> None:
    """Refuse a transformers model that was loaded from ``folder``, its own or its first module's, if
    :func:`load_complete` finds that its weights lack tensors."""
    first, _ = next(_modules(folder, label), (folder, ""))
    refuse_lacking(label, model, load_complete(type(model), first, label, unused=unused, device_map="meta")[1])


def refuse_lacking(label: str, model: Any, lacking: list[str]) -> None:
    """Refuse a transformers model that the tensors called ``lacking`` were made up for, if there are any."""
    if lacking:
        raise DataError(
            f"{label}: its weights lack {len(lacking)} of the tensors of a {type(model).__name__} with this "
            f"config.json, or hold them in another shape: {first_of(lacking)}. They are incomplete, or another "
            f"model's. {fetch_again()}"
        )


def first_of(names: list[str]) -> str:
    """The first four of ``names``, and how many more there are."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Whatever a library raises over the files of a model as one line that begins with ``what``, of any kind, since the
    libraries check little of what they read; wrap their calls only, never vtkit's code."""
    try:
        yield
    except VtkitError:
        raise
    except Exception as error:
        if machine_failure(error) is not None:
            raise
        lines = str(error).strip().splitlines()
        kind = "" if isinstance(error, (OSError, ValueError, RuntimeError)) and lines else f"{type(error).__name__}: "
        raise DataError(f"{what}: {kind}{lines[0][:500] if lines else 'no reason given'}") from error


class _Module(BaseModel):
    """A module in modules.json."""

    type: str
    path: str = ""


_MODULES = TypeAdapter(Annotated[list[_Module], Field(min_length=1)])


def _modules(folder: Path, label: str) -> Iterator[tuple[Path, str]]:
    """Folder and type of each module of a sentence-transformers model, those of routers included."""
    path = folder / "modules.json"
    for module in _typed(path, label, read_json(path, label)) if path.is_file() else ():
        inside = folder / module.path
        yield inside, module.type
        if module.type.endswith(("Router", "Asym")):  # the latter is the former's name before 5.0, with another file
            routes = inside / "router_config.json"
            if module.type.endswith("Asym") and not routes.is_file():
                routes = inside / "config.json"
            types = read_settings(routes, label).get("types")
            listed = types.items() if isinstance(types, dict) else ()
            for part in _typed(routes, label, [{"path": name, "type": kind} for name, kind in listed]):
                yield inside / part.path, part.type


def _typed(path: Path, label: str, entries: Any) -> list[_Module]:
    """The modules that ``path`` lists as ``entries``."""
    try:
        modules = _MODULES.validate_python(entries)
    except ValidationError as error:
        raise DataError(
            f"{label}: {path} is missing or damaged: it should list modules, each with type and path. {fetch_again()}"
        ) from error
    for module in modules:
        if not module.type.startswith("sentence_transformers.") and module.type not in (*OWN_MODULES, PYLATE_DENSE):
            raise _runs_code(label, path, f"the module type {module.type!r}")
        if not _inside(module.path):
            raise DataError(f"{label}: {path} names the folder {module.path!r}, which is not inside the model's.")
    return modules


def _inside(path: str) -> bool:
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts


def _check_configuration(path: Path, label: str) -> None:
    content = read_settings(path, label)
    if path.name == "config.json":
        _refuse_beyond_bounds(content, f"{label}: {path}")
    for name in ("model_max_length", "max_seq_length"):
        if not isinstance(content.get(name), int | float | None):
            raise DataError(f"{label}: {path} is damaged: {name} should be a number. {fetch_again()}")
    prompts = content.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(prompt, str | None) for prompt in prompts.values()):
        raise DataError(f"{label}: {path} is damaged: its prompts should be texts by name. {fetch_again()}")
    if any(len(prompt or "") > _LONGEST_PROMPT for prompt in prompts.values()):
        longest = max(len(prompt or "") for prompt in prompts.values())
        raise DataError(
            f"{label}: {path} has a prompt of {longest:,} characters; at most {_LONGEST_PROMPT:,} can stand before "
            "each text."
        )
    if path.name == "config.json" and "model_type" in content:
        from transformers import CONFIG_MAPPING

        kind = content["model_type"]
        known = isinstance(kind, str) and kind in CONFIG_MAPPING
        if not known and content.get("auto_map"):
            raise _runs_code(label, path, f"model_type {kind!r} and auto_map {content['auto_map']!r}")
        if not known:
            raise DataError(
                f"{label}: {path} says model_type {kind!r}, which the installed transformers does not have. Name an "
                "encoder of another architecture, or update transformers."
            )
        attention = content.get("attn_implementation", content.get("_attn_implementation"))
        if isinstance(attention, str) and "/" in attention:
            raise _runs_code(label, path, f"attn_implementation {attention!r}")
        named = content.get("transformers_weights")
        if named is not None and not (isinstance(named, str) and named.endswith(".safetensors") and _inside(named)):
            raise DataError(f"{label}: {path} says transformers_weights {named!r}; only safetensors files are loaded.")
    elif content.get("auto_map"):
        # With trust_remote_code=False a tokenizer of the library's own is taken where there is one for the model; what
        # the file says would be another, so that texts would be cut otherwise than in training.
        raise _runs_code(label, path, f"auto_map {content['auto_map']!r}")


def _refuse_beyond_bounds(content: Any, where: str) -> None:
    """Refuse numbers of a configuration, those of the configurations inside it included, that are beyond
    :data:`_BOUNDS`."""
    inside = [("", content)]
    while inside:
        path, value = inside.pop()
        if isinstance(value, dict):
            inside += [(f"{path}.{name}".lstrip("."), each) for name, each in value.items()]
        elif isinstance(value, list):
            inside += [(path, each) for each in value]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            name = path.rpartition(".")[2]
            bounds = next(((least, most) for pattern, least, most in _BOUNDS if pattern.search(name)), None)
            if bounds is not None and not bounds[0] <= value <= bounds[1]:
                raise DataError(f"{where} says {path} {str(value)[:30]}, which no encoder has. {fetch_again()}")


def _runs_code(label: str, path: Path, what: str) -> DataError:
    named, listed = f"{label} {path} {what}".lower(), files("vtkit.encoder").joinpath("without_code.toml")
    nearest = tomllib.loads(listed.read_text("utf-8"))
    known = (f"The nearest model without such code is {each}." for part, each in nearest.items() if part in named)
    remedy = next(known, "Name a model with an architecture of transformers, or a copy converted to one.")
    return DataError(
        f"{label}: {path} names code that comes with the model ({what}), and vtkit runs only code of the installed "
        f"libraries. {remedy}"
    )


def _check_index(index: Path, label: str, weights: list[str]) -> None:
    """Refuse an index that names no shards, or others than the ``weights`` beside it."""
    shards = read_settings(index, label).get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
        raise DataError(f"{label}: {index} is damaged: it has no weight_map. {fetch_again()}")
    for name in sorted(set(shards.values()).difference(weights)):
        raise DataError(f"{label}: {index.parent} lacks the shard {name}, which {index.name} names. {fetch_again()}")


def check_file(file: Path, label: str) -> dict[str, Any]:
    """Refuse a tokenizer or weights that their library cannot read; pickles are mapped, if they are in torch's format
    since 1.6, and may hold tensors only, which are returned."""
    from safetensors import safe_open
    from tokenizers import Tokenizer

    from vtkit.vocabulary.tokenizer_file import beyond_bounds

    try:
        if file.suffix == ".json":
            if wrong := beyond_bounds(read_settings(file, label)):
                raise DataError(f"{label}: {file}: {wrong}, which is no tokenizer for texts. Name another model.")
            Tokenizer.from_file(str(file))
            return {}
        if file.suffix == ".safetensors":
            with safe_open(file, "pt") as opened:
                opened.keys()
            return {}
        import torch

        with warnings.catch_warnings(action="ignore"):  # of another protocol than torch writes
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        raise DataError(
            f"{label}: {file} is refused by torch's weights-only loader: it does not hold only weights"
            f"{f' ({named[1]})' if named else ''}, which could run code. Name a model with safetensors."
        ) from error
    except (MemoryError, PermissionError, DataError):
        raise
    except Exception as error:  # each library has exceptions of its own for files that are cut short
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(f"{label}: {file} is damaged or cut short ({line}). {fetch_again()}") from error
    if not (isinstance(content, dict) and content and all(isinstance(each, torch.Tensor) for each in content.values())):
        raise DataError(f"{label}: {file} does not hold weights, tensors by name. Name a model with safetensors.")
    return content


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
    from huggingface_hub.utils import filter_repo_objects

    inside: dict[PurePosixPath, list[str]] = {PurePosixPath(module): [] for module in modules}
    for name in names:
        path = PurePosixPath(name)
        inside.get(path.parent, []).append(path.name)
    return [
        (module / name).as_posix()
        for module, files in inside.items()
        for name in [
            *filter_repo_objects(sorted(files), allow_patterns=list(_READ), ignore_patterns=list(_UNREAD)),
            *weight_files(files),
        ]
    ]


# Adapters (LoRA and its kin, as peft saves them): folders with only what training added to another model. An adapter is
# merged into that model, W + s B A for each weight W that it changes, and everything else reads the result.

ADAPTER_WEIGHTS = "adapter_model.safetensors"


def adapted_model(adapter: Path, label: str) -> str:
    """The name of the model that the adapter in a folder changes.

    Raises:
        DataError: the adapter names none, or its weights are no safetensors, or damaged.
        MissingExtra: peft is not installed.
    """
    base = read_settings(adapter / ADAPTER, label).get("base_model_name_or_path")
    if not base or not isinstance(base, str):
        raise DataError(f"{label}: {adapter / ADAPTER} does not name the model that the adapter was trained on.")
    if not (adapter / ADAPTER_WEIGHTS).is_file():
        raise DataError(f"{label}: an adapter of {base} lacks {ADAPTER_WEIGHTS}; no other form loads. {fetch_again()}")
    check_file(adapter / ADAPTER_WEIGHTS, label)
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
    with safe_open(adapter / ADAPTER_WEIGHTS, "pt") as tensors:
        names = " ".join(tensors.keys())
    if f"base_model.model.{kind.base_model_prefix}." in names:
        heads = (MODEL_FOR_MASKED_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING)
        kind = next((mapping[config] for mapping in heads if config in mapping), kind)
    model, missing = load_complete(kind, base, str(base), unused="pooler", dtype="float32")
    refuse_lacking(str(base), model, missing)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Found missing adapter keys")  # of another model, or cut short
        return PeftModel.from_pretrained(model, str(adapter), **SAFELY).merge_and_unload()
