"""What a recipe needs and cannot have, found before anything is computed: files and folders that are not there,
and models and collections of the Hugging Face hub that are not in its cache and may not or cannot be fetched.

Looks at names, folders and the cache only, so that it takes a fraction of a second; what is inside the files is
checked where they are read.
"""

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vtkit.data import collections, hub, irds
from vtkit.data.corpora import form_fault
from vtkit.data.training_files import FORMS, is_training_data, is_training_file
from vtkit.encoder.dense import configuration_folder
from vtkit.encoder.model_folder import transformer_folder
from vtkit.recipe.load import load_recipe, required_things
from vtkit.recipe.problems import plain
from vtkit.recipe.write import toml_value
from vtkit.settings.analysers import EXTRAS, missing_packages, refused
from vtkit.settings.engines import NEEDS
from vtkit.settings.engines import missing_packages as missing_engine_packages
from vtkit.settings.named import Named, local_path, named_things
from vtkit.settings.recipe import Recipe, Specification
from vtkit.system.errors import DataError, RecipeError

_MODEL_FILES = ("config.json", "modules.json")
_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "*.model", "vocab.json", "tokenizer_config.json")

_HubReason = Callable[[], str | None]


@dataclass(frozen=True)
class _Missing:
    thing: Named
    why: str
    remedy: str = ""  # the `--set` that puts it right, where that is not another name for the thing
    on_hub: bool = False


class NotFetched(RecipeError):
    """All that is missing lies on the hub, and has not been fetched yet."""


def preflight(
    recipe: Recipe, *, path: Path, places: Mapping[str, str] | None = None, loaded: Collection[str] = ()
) -> None:
    """Refuse ``recipe`` if anything that it, or its source recipe, names is missing. Settings that methods do not use,
    and those that are ``loaded`` already, are left out.

    Raises:
        RecipeError: everything that is not available, each with the ``--set`` that names a local one instead;
            :class:`NotFetched` where all of it is on the hub.
    """
    _refuse(path, *_report(recipe, places or {}, _hub_reason(), (os.path.realpath(path),), loaded))


def preflight_specification(specification: Specification, *, path: Path, places: Mapping[str, str]) -> None:
    """As :func:`preflight`, for what ``specification`` names."""
    required, hub_reason = list(named_things(specification)), _hub_reason()
    missing = [found for thing in required for found in _missing(thing, None, hub_reason)]
    _refuse(path, _lines(missing, required, places), [found.on_hub for found in missing])


def _refuse(path: Path, lines: list[str], on_hub: list[bool]) -> None:
    """Say what is missing, where there are ``lines`` of it; ``on_hub``: of each thing, whether it is on the hub."""
    if not lines:
        return
    if any(on_hub) and not hub.downloads_allowed():
        lines.append("Add --download to fetch what is on the Hugging Face hub.")
    kind = NotFetched if all(on_hub) else RecipeError
    raise kind("\n".join([f"{plain(str(path))} needs things that are not available here:", *lines]))


def _report(
    recipe: Recipe,
    places: Mapping[str, str],
    hub_reason: _HubReason,
    chain: tuple[str, ...],
    loaded: Collection[str] = (),
) -> tuple[list[str], list[bool]]:
    """The lines of the message, and of each thing that is missing whether it is on the hub."""
    required = [thing for thing in required_things(recipe) if thing.setting not in loaded]
    missing = [found for thing in required for found in _missing(thing, recipe, hub_reason)]
    missing += [
        *_source_faults(required),
        *_validation_faults(required, recipe),
        *_analyser_faults(recipe),
        *_engine_faults(recipe),
    ]
    lines = _lines(missing, required, places)
    on_hub = [found.on_hub for found in missing]
    source = recipe.source.recipe
    if source is not None and os.path.isfile(source):
        inner, inner_on_hub = _source_report(source, hub_reason, chain)
        lines += [f"  {plain(source)}, named by source.recipe:", *(f"  {line}" for line in inner)] if inner else []
        on_hub += inner_on_hub
    return lines, on_hub


def _lines(missing: list[_Missing], required: list[Named], places: Mapping[str, str]) -> list[str]:
    """The missing things, setting by setting, each with the ``--set`` that puts it right."""
    width = max((len(places.get(found.thing.setting, "")) + 2 for found in missing), default=0) if places else 0
    lines: list[str] = []
    for setting in dict.fromkeys(found.thing.setting for found in missing):
        of_setting = [found for found in missing if found.thing.setting == setting]
        label = f"{places.get(setting, ''):<{width}}"
        lines += [f"  {label}{setting}: {plain(found.why)}" for found in of_setting]
        renamed = [found.thing.value for found in of_setting if not found.remedy]
        remedies = [found.remedy for found in of_setting if found.remedy]
        if renamed:
            remedies.append(_remedy([thing for thing in required if thing.setting == setting], renamed))
        lines += [f"  {' ' * width}    {remedy}" for remedy in dict.fromkeys(remedies)]
    return lines


def _source_report(source: str, hub_reason: _HubReason, chain: tuple[str, ...]) -> tuple[list[str], list[bool]]:
    if os.path.realpath(source) in chain:
        return ["  the recipe is its own source: sources go in a circle."], [False]
    try:
        loaded = load_recipe(Path(source))
    except RecipeError as error:
        return [f"  {line}" for line in str(error).splitlines()], [False]
    return _report(loaded.recipe, loaded.places, hub_reason, (*chain, os.path.realpath(source)))


def _missing(thing: Named, recipe: Recipe | None, hub_reason: _HubReason) -> Iterator[_Missing]:
    """Why ``thing`` is not available, if it is not."""
    if thing.setting == "evaluate.sets" and thing.value.startswith("datasets:"):
        yield _Missing(thing, f"{thing.value} is training data, not a collection with judgements. {collections.FORMS}")
        return
    split = _split_of(thing, recipe) if recipe is not None else None
    local = local_path(thing.value)
    if local is not None:
        path = Path(local)
        why = _local_fault(thing, path)
        if why is not None:
            yield _Missing(thing, why)
        elif split is not None:
            yield from _split_missing(thing, split)
        return
    try:
        repositories = _repositories(thing)
    except DataError as error:
        yield _Missing(thing, str(error))
        return
    if split is not None:
        yield from _split_missing(thing, split)
    if why := irds.fault(thing.value):
        yield _Missing(thing, why)
    for repository, kind, revision in repositories:
        if hub.in_cache(repository, kind, revision):
            continue
        reason = hub_reason()
        if reason is not None:
            neither = "not" if thing.what in ("retrieval", "corpus") else "neither a folder nor"
            name = thing.value if repository == thing.value else f"{thing.value}: {repository}"
            name += f" at {revision}" if revision else ""
            yield _Missing(thing, f"{name} is {neither} in the Hugging Face cache{reason}.", on_hub=True)


def _source_faults(required: Sequence[Named]) -> Iterator[_Missing]:
    """The complaint that the source has no transformer, as a static embedder."""
    for thing in required:
        name = thing.value
        if thing.setting == "source.model" and (os.path.isdir(name) or hub.in_cache(name)):
            try:
                transformer_folder(configuration_folder(name, thing.setting), name)
            except DataError as error:
                yield _Missing(thing, str(error))


def _split_of(thing: Named, recipe: Recipe) -> str | None:
    """The judgements that the recipe uses of a collection."""
    section = recipe.finetune if thing.setting == "finetune.data" else recipe.evaluate
    if section is None or thing.what != "retrieval" or is_training_data(thing.value):
        return None
    return section.split or collections.default_split(thing.value)


def _validation_faults(required: Sequence[Named], recipe: Recipe) -> Iterator[_Missing]:
    """The complaints that the judgements of ``finetune.validation.queries`` are not there, or that they or those of
    ``finetune.split`` are those that the recipe is judged on in the end: a model that has seen these looks better than
    it is."""
    section = recipe.finetune
    if section is None:
        return
    if section.split in _judged_splits(recipe, section.data) and not is_training_data(section.data):
        thing = Named("finetune.split", "split", section.split, False)
        why = f"{section.data} is evaluated on {toml_value(section.split)} ([evaluate]), so it must not be trained on."
        yield _Missing(thing, why, "--set finetune.split=train trains on other queries, where there are some.")
    if section.validation is None or section.validation.split is None:
        return
    split, setting = section.validation.split, "finetune.validation.queries"
    thing = Named(setting, "split", split, False)
    share = "--set finetune.validation.queries=0.1 validates on training queries that are held out instead."
    if is_training_data(section.data):
        yield _Missing(thing, f"{section.data} is training data, which has no splits.", share)
        return
    data = next((named for named in required if named.setting == "finetune.data"), None)
    there = collections.splits_of(section.data) if data is not None else ()
    if there and split not in there:
        has = " and ".join(toml_value(name) for name in there)
        yield _Missing(thing, f"{section.data} has no judgements {toml_value(split)}, but {has}.", share)
    if split in _judged_splits(recipe, section.data):
        why = f"{section.data} is evaluated on {toml_value(split)} ([evaluate]), so it must not choose the model too."
        yield _Missing(thing, why, share)


def _judged_splits(recipe: Recipe, data: str) -> list[str]:
    """The judgements of the collection ``data`` that the recipe is evaluated on."""
    if recipe.evaluate is None:
        return []
    place = os.path.realpath(data)
    same = (name for name in recipe.evaluate.sets if name == data or os.path.realpath(name) == place)
    return [recipe.evaluate.split or collections.default_split(name) for name in same]


def _analyser_faults(recipe: Recipe) -> Iterator[_Missing]:
    """The complaint that BM25's analyser does not know the language or that its packages are not installed, where BM25
    is searched with it."""
    if recipe.evaluate is None or not (recipe.evaluate.bm25 or recipe.index.lexical == "bm25"):
        return
    analysis, setting, language = recipe.index.bm25_analyser, "index.bm25_analyser", recipe.recipe.language
    why, packages = refused(analysis, language), missing_packages(analysis, language)
    if packages:
        why = _needs(analysis, packages, EXTRAS[analysis])
    if why is not None:
        yield _Missing(
            Named(setting, "package", analysis, False),
            why,
            f"--set {setting}=full works in every language and needs no package.",
        )


def _engine_faults(recipe: Recipe) -> Iterator[_Missing]:
    """The complaint that packages of the search engine are not installed, where anything is searched."""
    packages = missing_engine_packages(recipe.index.engine)
    if recipe.evaluate is None or not packages:
        return
    engine, setting = recipe.index.engine, "index.engine"
    why = _needs(engine, packages, NEEDS[engine].extra)
    yield _Missing(Named(setting, "package", engine, False), why, f"--set {setting}=exact needs no package.")


def _needs(value: str, packages: Sequence[str], extra: str) -> str:
    return f"{toml_value(value)} needs {' and '.join(packages)}, not installed: pip install 'vtkit[{extra}]'"


def _split_missing(thing: Named, split: str) -> Iterator[_Missing]:
    """The complaint that a collection has no judgements ``split``."""
    there = collections.splits_of(thing.value)
    if split in there:
        return
    why = f"{thing.value} has no judgements {toml_value(split)}"
    if there:
        setting = f"{thing.setting.partition('.')[0]}.split"
        has = " and ".join(toml_value(name) for name in there)
        yield _Missing(thing, f"{why}: it has {has}.", f"--set {shlex.quote(f'{setting}={there[0]}')}")
    else:
        yield _Missing(thing, f"{why}, or any others.")


def _repositories(thing: Named) -> list[tuple[str, hub.RepositoryKind, str | None]]:
    """Repositories of a named thing on the hub, with their kind, and the revision if it is pinned."""
    if thing.value.startswith("datasets:"):
        return [(thing.value.removeprefix("datasets:").partition(":")[0], "dataset", None)]
    if thing.what not in ("retrieval", "corpus"):
        return [(thing.value, "model", None)]
    return [
        (each.id, "dataset", each.revision)
        for each in collections.hub_repositories(thing.value)
        if thing.what == "retrieval" or "corpus" in each.parts
    ]


def _hub_reason() -> _HubReason:
    """Why nothing can be fetched from the hub, None if it can; asked once, and only if something is not cached."""

    @cache
    def reason() -> str | None:
        if not hub.downloads_allowed():
            return ""
        return None if hub.reachable() else ", and the hub cannot be reached"

    return reason


def _local_fault(thing: Named, path: Path) -> str | None:
    """The fault of a file or folder, as far as its name and its folder show it."""
    if not os.path.exists(path):  # unlike Path.exists, no error over a name that is too long
        return f"{path} does not exist."
    if not os.access(path, os.R_OK):
        return f"{path} cannot be read: permission denied."
    match thing.what:
        case "corpus" | "retrieval" if thing.value.startswith("datasets:"):
            return None if path.is_dir() else f"{path} is a file, not the folder of a dataset."
        case "tokenizer" if path.suffix.lower() == ".toml":
            return f"{path} is a specification. Build it first, with vtkit tokenizer build, and name its folder."
        case "pairs" if path.is_dir():
            return f"{path} is a folder, not a file of two tab-separated columns."
        case "rankings" if path.is_dir():
            return f"{path} is a folder, not a file of rankings or scores."
        case "vectors" if path.is_dir():
            return f"{path} is a folder, not a file of word vectors."
        case "corpus" if path.is_dir():
            return collections.folder_fault(thing.value, "corpus")
        case "corpus" if path.is_file() and (fault := form_fault(path)):
            return fault
        case "recipe" if path.is_dir():
            return f"{path} is a folder, not a recipe."
        case "model" if not path.is_dir():
            return f"{path} is a file, not the folder of a model."
        case "model" if thing.setting == "transfer.semantic.target_embeddings" and any(path.glob("*.safetensors")):
            return None  # a static table has no configuration
        case "model" if not any((path / name).exists() for name in _MODEL_FILES):
            return f"{path} holds no model: it has neither {' nor '.join(_MODEL_FILES)}."
        case "tokenizer" if path.is_dir() and not any(any(path.glob(name)) for name in _TOKENIZER_FILES):
            return f"{path} holds no tokenizer: it has none of {', '.join(_TOKENIZER_FILES)}."
        case "retrieval" if thing.setting == "finetune.data" and path.is_file():
            return None if is_training_file(path) else f"{path} has an unknown form. Training data are {FORMS}."
        case "retrieval" if not path.is_dir():
            return f"{path} is a file, not the folder of a collection."
        case "retrieval":
            return collections.folder_fault(thing.value, "corpus", "queries")
        case _:
            return None


def _remedy(values: list[Named], gone: list[str]) -> str:
    """The --set that names something local for what is gone and keeps the rest of a list."""
    kind = "FILE" if values[0].what in ("corpus", "pairs", "vectors", "rankings", "recipe") else "FOLDER"
    entries = [kind if thing.value in gone else thing.value for thing in values]
    value = toml_value(entries) if values[0].listed else kind
    return f"--set {shlex.quote(f'{values[0].setting}={value}')}"
