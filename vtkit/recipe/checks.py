"""Everything that would stop a recipe, found before anything is computed: names of things that are not there
(:func:`check_names`), and faults inside the files that it names (:func:`check_data`).

The check of names looks at folders and the hub's cache only, in a fraction of a second. The check of data reads
collections, corpora, parallel text and word vectors, since a judgement of a document that is not there would otherwise
be found after hours of training.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from vtkit.data import checking, hub, irds, sources
from vtkit.data.document_files import read_corpora
from vtkit.data.overlap import WHOLE, query_key, query_keys
from vtkit.data.rows import ending_of, form_of
from vtkit.data.training_files import FORMS, is_training_data
from vtkit.encoder.dense import configuration_folder
from vtkit.encoder.model_folder import check_model, transformer_folder
from vtkit.recipe.load import load_recipe, required_things
from vtkit.recipe.problems import Problem, plain, refusal
from vtkit.recipe.write import toml_value
from vtkit.settings.analysers import EXTRAS, missing_packages, refused
from vtkit.settings.engines import missing_packages as missing_engine_packages
from vtkit.settings.named import Named, local_path
from vtkit.settings.recipe import Recipe, Specification
from vtkit.system import console
from vtkit.system.errors import DataError, RecipeError
from vtkit.system.outputs import write_atomically

VERSION = 4  # to be raised when something new is looked for: data that were found sound before are read again

_MODEL_FILES = ("config.json", "modules.json", "adapter_config.json")
_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "*.model", "vocab.json", "tokenizer_config.json")

_FILES = {
    "pairs": "a file of two tab-separated columns",
    "rankings": "a file of rankings or scores",
    "vectors": "a file of word vectors",
    "recipe": "a recipe",
}
_FOLDERS = {"model": "a model", "retrieval": "a collection"}
"""Kinds of named things that are a file, or a folder, and what is expected there."""

Places = Mapping[str, str]  # dotted setting -> where it is written


class NotFetched(RecipeError):
    """All that is missing lies on the hub, and has not been fetched yet."""


_Missing = tuple[str, str, bool]  # the setting, why what it names is not available, and whether the hub may have it


def check_names(settings: Recipe | Specification, *, path: Path, places: Places | None = None) -> None:
    """Refuse a recipe or a specification if anything that it, or the recipe of its source, names is missing. Settings
    that methods do not use are left out.

    Raises:
        RecipeError: everything that is not available; :class:`NotFetched` if all of it is on the hub.
    """
    missing = list(_report(settings, places or {}, "", (os.path.realpath(path),)))
    download = hub.downloads_allowed()
    if download and any(on_hub for _, on_hub in missing) and hub.reachable():
        missing = [each for each in missing if not each[1]]
    if not missing:
        return
    message = str(refusal(str(path), [problem for problem, _ in missing], "needs things that are not available here"))
    if any(on_hub for _, on_hub in missing):
        message += (
            "\nThe Hugging Face hub cannot be reached" if download else "\nAdd --download to fetch what is on the hub"
        )
        message += ", or name something local: --set SETTING=FOLDER."
    raise (NotFetched if all(on_hub for _, on_hub in missing) else RecipeError)(message)


def _report(
    settings: Recipe | Specification, places: Places, shown: str, chain: tuple[str, ...]
) -> Iterator[tuple[Problem, bool]]:
    """A problem for each thing that is missing, and whether the hub has it; ``shown`` is the name of the recipe if
    another one has it as its source."""
    required = list(required_things(settings))
    missing = [each for thing in required for each in _missing(thing, settings)]
    if isinstance(settings, Recipe):
        missing += [*_source_faults(required), *_validation_faults(settings), *_package_faults(settings)]
    for setting, why, on_hub in dict.fromkeys(missing):
        yield Problem(f"{shown} {places.get(setting, '')}".strip(), setting, plain(why)), on_hub
    source = settings.source.recipe if isinstance(settings, Recipe) else None
    if source is None or not os.path.isfile(source):
        return
    if os.path.realpath(source) in chain:
        yield Problem(plain(source), "", "the recipe is its own source: sources go in a circle."), False
        return
    try:
        loaded = load_recipe(Path(source))
    except RecipeError as error:
        yield Problem(places.get("source.recipe", ""), "source.recipe", str(error)), False
        return
    yield from _report(loaded.recipe, loaded.places, plain(source), (*chain, os.path.realpath(source)))


def _missing(thing: Named, settings: Recipe | Specification) -> Iterator[_Missing]:
    """Why ``thing`` is not available, if it is not."""
    if thing.setting == "evaluate.sets" and thing.value.startswith("datasets:"):
        yield (
            thing.setting,
            f"{thing.value} is training data, not a collection with judgements. {sources.COLLECTION_FORMS}",
            False,
        )
        return
    splits = _split_faults(thing, settings) if isinstance(settings, Recipe) else ()
    local = local_path(thing.value)
    if local is not None:
        why = _local_fault(thing, Path(local))
        yield from ((thing.setting, fault, False) for fault in (splits if why is None else [why]))
        return
    try:
        repositories = _repositories(thing)
    except DataError as error:
        yield thing.setting, str(error), False
        return
    yield from ((thing.setting, fault, False) for fault in splits)
    if why := irds.fault(thing.value):
        yield thing.setting, why, False
    for repository, kind, revision in repositories:
        if not hub.in_cache(repository, kind, revision):
            neither = "not" if thing.what in ("retrieval", "corpus") else "neither a folder nor"
            name = thing.value if repository == thing.value else f"{thing.value}: {repository}"
            name += f" at {revision}" if revision else ""
            yield thing.setting, f"{name} is {neither} in the Hugging Face cache.", True


def _source_faults(required: Sequence[Named]) -> Iterator[_Missing]:
    """Refuse a source without a transformer, such as a static embedder, or without a fast tokenizer."""
    for thing in required:
        if thing.setting == "source.model" and (os.path.isdir(thing.value) or hub.in_cache(thing.value)):
            try:
                folder = transformer_folder(configuration_folder(thing.value, thing.setting), thing.value)
                if not (folder / _TOKENIZER_FILES[0]).is_file() and any(
                    any(folder.glob(name)) for name in _TOKENIZER_FILES
                ):
                    from vtkit.encoder.checkpoint import load_source_tokenizer  # takes seconds, which few models need

                    load_source_tokenizer(thing.value)
            except DataError as error:
                yield thing.setting, str(error), False


def _split_faults(thing: Named, recipe: Recipe) -> Iterator[str]:
    """Refuse a collection without the judgements that the recipe uses."""
    section = recipe.finetune if thing.setting == "finetune.data" else recipe.evaluate
    if section is None or thing.what != "retrieval" or is_training_data(thing.value):
        return
    split, there = section.split or sources.default_split(thing.value), sources.splits_of(thing.value)
    if split not in there:
        listed, table = " and ".join(map(toml_value, there)), thing.setting.partition(".")[0]
        others = f": it has {listed}. Set {table}.split" if there else ", or any others"
        yield f"{thing.value} has no judgements {toml_value(split)}{others}."


def _validation_faults(recipe: Recipe) -> Iterator[_Missing]:
    """Refuse validation judgements that are missing, and judgements for validation or training on which the recipe is
    evaluated in the end: a model that has seen them looks better than it is."""
    section = recipe.finetune
    if section is None:
        return
    place, trains = os.path.realpath(section.data), is_training_data(section.data)
    sets = recipe.evaluate.sets if recipe.evaluate is not None else ()
    same = [name for name in sets if name == section.data or os.path.realpath(name) == place]
    judged = [(recipe.evaluate and recipe.evaluate.split) or sources.default_split(name) for name in same]
    evaluated = f'{section.data} is evaluated on "{{}}" ([evaluate]), so it must not {{}}'.format
    if section.split in judged and not trains:
        why = evaluated(section.split, "be trained on. Set finetune.split to other judgements.")
        yield "finetune.split", why, False
    split, there = section.validation and section.validation.split, sources.splits_of(section.data)
    setting, instead = "finetune.validation.queries", "Set it to a share, such as 0.1, of the training queries."
    if split and trains:
        yield setting, f"{section.data} is training data, which has no splits. {instead}", False
    elif split and there and split not in there:
        listed = " and ".join(map(toml_value, there))
        why = f"{section.data} has no judgements {toml_value(split)}, but {listed}. {instead}"
        yield setting, why, False
    if split in judged and not trains:
        yield setting, evaluated(split, f"choose the model too. {instead}"), False


def _package_faults(recipe: Recipe) -> Iterator[_Missing]:
    """Refuse an analyser that does not know the language, and an analyser or a search engine whose packages are not
    installed, if the recipe searches with it."""
    if recipe.evaluate is None:
        return
    analysis, engine, language = recipe.index.bm25_analyser, recipe.index.engine, recipe.recipe.language
    needs = "{} needs {}, not installed: pip install 'vtkit[{}]', or set {}.".format
    if recipe.evaluate.bm25 or recipe.index.lexical == "bm25":
        setting, full = "index.bm25_analyser", 'index.bm25_analyser to "full", which works in every language'
        if packages := missing_packages(analysis, language):
            yield setting, needs(toml_value(analysis), " and ".join(packages), EXTRAS[analysis], full), False
        elif why := refused(analysis, language):
            yield setting, f"{why}. Set {full}.", False
    if packages := missing_engine_packages(engine):
        exact = 'index.engine to "exact"'
        yield "index.engine", needs(toml_value(engine), " and ".join(packages), engine, exact), False


def _repositories(thing: Named) -> list[tuple[str, hub.RepositoryKind, str | None]]:
    """Repositories of a named thing on the hub, with their kind, and the revision if it is pinned."""
    if thing.value.startswith("datasets:"):
        return [(thing.value.removeprefix("datasets:").partition(":")[0], "dataset", None)]
    if thing.what not in ("retrieval", "corpus"):
        return [(thing.value, "model", None)]
    return [
        (each.id, "dataset", each.revision)
        for each in sources.hub_repositories(thing.value)
        if thing.what == "retrieval" or "corpus" in each.parts
    ]


def _local_fault(thing: Named, path: Path) -> str | None:
    """The fault of a file or folder, as far as its name and its folder show it."""
    if not os.path.exists(path):  # unlike Path.exists, no error over a name that is too long
        return f"{path} does not exist."
    if not os.access(path, os.R_OK):
        return f"{path} cannot be read: permission denied."
    if thing.value.startswith("datasets:"):
        return None if path.is_dir() else f"{path} is a file, not the folder of a dataset."
    if thing.what in _FILES and path.is_dir():
        return f"{path} is a folder, not {_FILES[thing.what]}."
    if thing.setting == "finetune.data" and path.is_file():
        known = ending_of(path) and form_of(path) != ".csv"
        return None if known else f"{path} has an unknown form. Training data are {FORMS}."
    if thing.what in _FOLDERS and not path.is_dir():
        return f"{path} is a file, not the folder of {_FOLDERS[thing.what]}."
    match thing.what:
        case "tokenizer" if path.suffix.lower() == ".toml":
            return f"{path} is a specification. Build it first, with vtkit tokenizer build, and name its folder."
        case "tokenizer" if path.is_dir() and not any(any(path.glob(name)) for name in _TOKENIZER_FILES):
            return f"{path} holds no tokenizer: it has none of {', '.join(_TOKENIZER_FILES)}."
        case "model" if thing.setting == "transfer.semantic.target_embeddings" and any(path.glob("*.safetensors")):
            return None  # a static table has no configuration
        case "model" if not any((path / name).exists() for name in _MODEL_FILES):
            return f"{path} holds no model: it has neither {' nor '.join(_MODEL_FILES)}."
        case "corpus":
            return sources.fault_of(thing.value, corpus=True)
        case "retrieval":
            return sources.fault_of(thing.value, "corpus", "queries")
        case _:
            return None


class _Reading(NamedTuple):
    """One thing to read through."""

    setting: str
    subject: str  # what is read, with everything the answer depends on beside the files
    paths: tuple[str, ...]
    doubts: Callable[[], Iterable[str] | None]


CHECKED_ELSEWHERE = ("source.model", "transfer.semantic.target_embeddings")
"""The source is the first model that a run opens; target embeddings may be a table without a model around it."""


def check_data(
    recipe: Recipe,
    *,
    path: Path,
    places: Places | None = None,
    digest: Callable[[str], str] | None = None,
    memory: Path | None = None,
) -> tuple[int, int]:
    """Refuse (DataError) damaged files of ``recipe`` and of its source recipe. Their names must have passed
    :func:`check_names`. ``memory`` records the files that were sound, by ``digest``, so that they are not read again.

    Returns:
        The number of things that were read, and of those that have not changed since they were found sound.
    """
    known: set[str] = set()
    if memory is not None:
        with suppress(OSError, ValueError, TypeError):  # what was sound is read again
            known = set(map(str, json.loads(memory.read_text("utf-8"))))
    sound: set[str] = set()
    problems: list[Problem] = []
    read = passed_over = 0
    for check in {check.subject: check for check in _readings(recipe, (os.path.realpath(path),))}.values():
        key = ""
        if digest is not None and check.paths:
            content = "\0".join([str(VERSION), check.subject, *map(digest, check.paths)])
            key = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        if key in known:
            passed_over += 1
            continue
        read += bool(check.paths)
        try:
            doubts = list(check.doubts() or ())
        except DataError as error:
            problems.append(Problem((places or {}).get(check.setting, ""), check.setting, str(error)))
            continue
        for doubt in doubts:
            console.warn(f"{check.setting}: {doubt}")
        sound |= {key} if key and not doubts else set()
    problems += [Problem((places or {}).get(setting, ""), setting, what) for setting, what in _overlaps(recipe)]
    if memory is not None and sound and memory.parent.is_dir():
        with suppress(OSError):  # the data are read again next time, and nothing else is lost
            write_atomically(memory, json.dumps(sorted(known | sound), indent=0))
    if problems:  # a file may be read for several settings or splits
        once = {problem.what: problem for problem in reversed(problems)}
        raise DataError(str(refusal(str(path), once.values(), "names data that cannot be used")))
    return read, passed_over


def _readings(recipe: Recipe, recipes: tuple[str, ...]) -> Iterator[_Reading]:
    tuning = recipe.finetune
    for thing in required_things(recipe):
        value, local = thing.value, local_path(thing.value) is not None
        reading = partial(_reading, thing)
        match thing.what:
            case "model" if local and thing.setting not in CHECKED_ELSEWHERE:
                yield _Reading(thing.setting, f"model {value}", (), partial(check_model, Path(value), value))
            case "retrieval" if local or not hub.downloads_allowed():
                section = tuning if thing.setting == "finetune.data" else recipe.evaluate
                split = (section.split if section is not None else None) or sources.default_split(value)
                splits, own = [split], ""
                if thing.setting == "finetune.data":
                    validation = tuning.validation if tuning is not None else None
                    splits += [validation.split] if validation is not None and validation.split is not None else []
                elif local:
                    skips = recipe.evaluate is not None and recipe.evaluate.ignore_identical_ids
                    own = "" if skips else "evaluate.ignore_identical_ids"
                    if tuning is None or tuning.data != value:  # these choose the weight of the sum with BM25
                        splits += ["train"] if split != "train" and "train" in sources.splits_of(value) else []
                yield reading(f"retrieval {own} {split}", checking.check_collection, split, own)
                for judged in splits[1:]:
                    yield reading(f"retrieval {judged}", checking.check_collection, judged)
            case "corpus" if local:
                yield reading("corpus", checking.check_corpus)
            case "pairs":
                language = recipe.recipe.language if "language" in recipe.recipe.model_fields_set else None
                yield reading(f"pairs {language}", checking.check_pairs, language)
            case "vectors":
                yield reading("vectors", checking.check_vectors)
            case "rankings" if tuning is not None and (local_path(tuning.data) or not hub.downloads_allowed()):
                subject, scores = f"{thing.setting} {tuning.split} {tuning.data}", thing.setting == "finetune.scores"
                yield reading(subject, partial(checking.check_rankings, scores=scores), tuning.data, tuning.split)
            case "recipe" if os.path.realpath(value) not in recipes:
                yield from _readings(load_recipe(Path(value)).recipe, (*recipes, os.path.realpath(value)))


def _reading(thing: Named, subject: str, check: Callable[..., Iterable[str] | None], *about: Any) -> _Reading:
    """``check`` of ``thing``; its answer depends on ``about``, in which an absolute path is a file that is read too."""
    paths = filter(None, (local_path(name) for name in (thing.value, *about[:1]) if name))
    return _Reading(thing.setting, f"{subject} {thing.value}", tuple(paths), partial(check, thing.value, *about))


def _overlaps(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Say how many evaluated queries of each set are among those that a model learns from or that choose something;
    yields the setting and the problem if most of them are."""
    learning = list(_trained_queries(recipe))
    for name in recipe.evaluate.sets if recipe.evaluate is not None else ():
        split = (recipe.evaluate and recipe.evaluate.split) or sources.default_split(name)
        evaluated = query_keys(name, split)
        for setting, learned, keys in [*learning, *_choosing_queries(recipe, name, split)]:
            if not evaluated or not keys:
                continue
            shared = len(evaluated & keys)
            both = f"{shared:,} of {len(evaluated):,} evaluated queries of {Path(name).name}"
            counted = f"{both} are among {len(keys):,} {learned}"
            if "choose" in learned or not shared:
                console.say(counted)
            elif shared < WHOLE * len(evaluated):
                console.warn(
                    f"{setting}: {counted}. A run leaves them out, except where another recipe trained on them."
                )
            else:
                what = "a model that has learned them looks better than it is. Train or evaluate on other queries."
                yield setting, f"{counted}: {what}"


_Queries = tuple[str, str, Set[str]]  # the setting, what its queries are, and their keys


def _trained_queries(recipe: Recipe) -> Iterator[_Queries]:
    tuning, setting = recipe.finetune, "finetune.data"
    while True:
        if tuning is not None:
            yield setting, "training queries", query_keys(tuning.data, tuning.split)
            if tuning.validation is not None and tuning.validation.split is not None:
                yield setting, "validation queries", query_keys(tuning.data, tuning.validation.split)
        if recipe.source.recipe is None:
            return
        recipe, setting = load_recipe(Path(recipe.source.recipe)).recipe, "source.recipe"
        tuning = recipe.finetune


def _choosing_queries(recipe: Recipe, name: str, split: str) -> Iterator[_Queries]:
    for other in ("train", "dev"):
        if other != split and other in sources.splits_of(name):
            learned = f"{other} queries, which may choose the weight without these"
            yield "evaluate.sets", learned, query_keys(name, other)
    if recipe.index.query_log:
        try:
            log = frozenset(map(query_key, read_corpora(recipe.index.query_log)))
        except DataError:  # which the check of the log reports
            return
        yield "index.query_log", "queries of the log, which may choose the scale without these", log
