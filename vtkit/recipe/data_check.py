"""What is wrong inside the files that a recipe names: collections, corpora, parallel text, word vectors.

:mod:`vtkit.recipe.preflight` looks at names only. Here the files are read, before the first stage is run, since a
judgement of a document that is not there would otherwise be found after hours of training.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from vtkit.data import checking, collections, hub
from vtkit.data.corpora import read_corpora
from vtkit.data.overlap import WHOLE, query_key, query_keys, say_own_documents
from vtkit.recipe.load import load_recipe, required_things
from vtkit.recipe.problems import plain
from vtkit.settings.named import is_local, local_path
from vtkit.settings.recipe import Recipe
from vtkit.system import console
from vtkit.system.errors import DataError

VERSION = 3  # to be raised when something new is looked for: what was found sound before is read again


@dataclass(frozen=True)
class _Check:
    setting: str
    subject: str  # what is read, with everything the answer depends on beside the files
    paths: tuple[str, ...]
    problems: Callable[[], Iterator[str]]
    doubts: Callable[[], Iterator[str]] | None = None  # asked without problems: what the user should know all the same


@dataclass(frozen=True)
class Checked:
    """How many things were read, and how many were not because they are as they were when they were found sound."""

    read: int
    known: int


def check_data(
    recipe: Recipe,
    *,
    path: Path,
    places: Mapping[str, str] | None = None,
    digest: Callable[[str], str] | None = None,
    memory: Path | None = None,
) -> Checked:
    """Refuse (DataError) damaged files of ``recipe`` and of its source recipe, and count the sound ones. Their names
    must have passed :func:`vtkit.recipe.preflight.preflight`. ``memory`` records the files that were sound, by
    ``digest``, so that they are not read again."""
    known = _remembered(memory) if memory is not None and digest is not None else set()
    sound: set[str] = set()
    lines: list[str] = []
    said: set[str] = set()
    read = passed_over = 0
    done: set[str] = set()
    for check in chain(_checks(recipe, (os.path.realpath(path),)), _overlaps(recipe)):
        if check.subject in done:
            continue
        done.add(check.subject)
        key = ""
        if digest is not None and check.paths:
            content = "\0".join([str(VERSION), check.subject, *map(digest, check.paths)])
            key = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        if key and key in known:
            passed_over += 1
            continue
        read += bool(check.paths)  # comparisons of queries are made each time, to be said
        problems = list(check.problems())
        doubts = list(check.doubts()) if check.doubts is not None and not problems else []
        for doubt in doubts:
            console.warn(f"{check.setting}: {doubt}")
        if not problems and not doubts and key:
            sound.add(key)
        place = (places or {}).get(check.setting, "")
        for problem in problems:
            if problem in said:  # of a file that several settings or splits read
                continue
            said.add(problem)
            first, *rest = problem.splitlines()
            lines.append(f"  {f'{place}  ' if place else ''}{check.setting}: {first}")
            lines += [f"    {line}" for line in rest]
    if memory is not None and sound and memory.parent.is_dir():
        _remember(memory, known | sound)
    if lines:
        raise DataError("\n".join([f"{plain(str(path))} names data that cannot be used:", *lines]))
    return Checked(read, passed_over)


def _checks(recipe: Recipe, recipes: tuple[str, ...]) -> Iterator[_Check]:
    for thing in required_things(recipe):
        value, local = thing.value, local_path(thing.value)
        paths = (local,) if local is not None else ()
        match thing.what:
            case "retrieval":
                section = recipe.finetune if thing.setting == "finetune.data" else recipe.evaluate
                split = (section.split if section is not None else None) or collections.default_split(value)
                if local is None and hub.downloads_allowed():
                    continue  # it is fetched by the stage that needs it first
                splits, tuning = [split], recipe.finetune
                if thing.setting == "finetune.data":
                    validation = tuning.validation if tuning is not None else None
                    splits += [validation.split] if validation is not None and validation.split is not None else []
                elif local is not None and not (tuning is not None and tuning.data == value):
                    # these queries choose the weight of the sum with BM25
                    splits += ["train"] if split != "train" and "train" in collections.splits_of(value) else []
                for judged in splits:
                    yield _Check(
                        thing.setting,
                        f"retrieval {judged} {value}",
                        paths,
                        partial(checking.collection_problems, value, judged),
                    )
            case "corpus" if local is None:
                continue
            case "corpus":
                yield _Check(thing.setting, f"corpus {value}", paths, partial(checking.corpus_problems, value))
            case "pairs":
                language = recipe.recipe.language if "language" in recipe.recipe.model_fields_set else None
                yield _Check(
                    thing.setting,
                    f"pairs {language} {value}",
                    paths,
                    partial(checking.pairs_problems, value),
                    partial(checking.pairs_doubts, value, language),
                )
            case "vectors":
                yield _Check(thing.setting, f"vectors {value}", paths, partial(checking.vectors_problems, value))
            case "rankings":
                tuning = recipe.finetune
                if tuning is None or (local_path(tuning.data) is None and hub.downloads_allowed()):
                    continue  # its collection is fetched by the stage that needs it first
                yield _Check(
                    thing.setting,
                    f"{thing.setting} {tuning.split} {tuning.data} {value}",
                    (*paths, *filter(None, [local_path(tuning.data)])),
                    partial(
                        checking.rankings_problems,
                        value,
                        tuning.data,
                        tuning.split,
                        scores=thing.setting == "finetune.scores",
                    ),
                )
            case "recipe" if os.path.realpath(value) not in recipes:
                yield from _checks(load_recipe(Path(value)).recipe, (*recipes, os.path.realpath(value)))
            case _:
                continue


def _overlaps(recipe: Recipe) -> Iterator[_Check]:
    """How many evaluated queries are among those that a model learns from or that choose something, set by set."""
    if recipe.evaluate is None:
        return
    trained = list(_trained_queries(recipe))
    for name in recipe.evaluate.sets:
        split = recipe.evaluate.split or collections.default_split(name)
        if is_local(name) and not recipe.evaluate.ignore_identical_ids:
            yield _Check("evaluate.sets", f"ids {name} {split}", (), partial(_own_documents, name, split))
        evaluated = query_keys(name, split)
        for setting, learned, keys in [*trained, *_choosing_queries(recipe, name, split)]:
            if evaluated and keys:
                shared = len(evaluated & keys)
                both = f"{shared:,} of {len(evaluated):,} evaluated queries of {Path(name).name}"
                counted = f"{both} are among {len(keys):,} {learned}"
                yield _Check(
                    setting,
                    f"{setting} {learned} {split} {name}",
                    (),
                    partial(_whole, counted, shared >= WHOLE * len(evaluated) and "choose" not in learned),
                    partial(_partial, counted, shared > 0 and "choose" not in learned),
                )


def _own_documents(name: str, split: str) -> Iterator[str]:
    with suppress(DataError):  # which the check of the collection reports
        say_own_documents(collections.load_retrieval(name, split), "evaluate.ignore_identical_ids")
    yield from ()


def _whole(counted: str, refused: bool) -> Iterator[str]:
    if refused:
        yield f"{counted}: a model that has learned them looks better than it is. Train or evaluate on other queries."


def _partial(counted: str, warned: bool) -> Iterator[str]:
    if warned:
        yield f"{counted}. A run leaves them out, except where another recipe trained on them."
    else:
        console.say(counted)


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
        if other != split and other in collections.splits_of(name):
            learned = f"{other} queries, which may choose the weight without these"
            yield "evaluate.sets", learned, query_keys(name, other)
    if recipe.index.query_log:
        try:
            log = frozenset(map(query_key, read_corpora(recipe.index.query_log)))
        except DataError:  # which the check of the log reports
            return
        yield "index.query_log", "queries of the log, which may choose the scale without these", log


def _remembered(memory: Path) -> set[str]:
    try:
        return {str(key) for key in json.loads(memory.read_text("utf-8"))}
    except (OSError, ValueError, TypeError):
        return set()


def _remember(memory: Path, keys: set[str]) -> None:
    aside = memory.with_name(f".{memory.name}.{os.getpid()}")
    try:
        aside.write_text(json.dumps(sorted(keys), indent=0), encoding="utf-8")
        os.replace(aside, memory)
    except OSError:  # the data are read again next time, and nothing else is lost
        aside.unlink(missing_ok=True)
