"""A stage: a record that declares its reads, and a function that sees nothing else.

The function gets a :class:`View` of the recipe, which raises on every setting that the record does not name. So what
is read is what the key of the output is made from, and nothing has to be listed a second time by hand.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

from pydantic import BaseModel, PrivateAttr

from vtkit.recipe.write import resolved_toml
from vtkit.settings.named import local_path, named_things
from vtkit.settings.recipe import Recipe

if TYPE_CHECKING:
    from vtkit.settings.adapt import AdaptSection
    from vtkit.settings.calibrate import CalibrateSection
    from vtkit.settings.evaluate import EvaluateSection
    from vtkit.settings.expand_documents import ExpandDocumentsSection
    from vtkit.settings.finetune import FinetuneSection

WHOLE_RECIPE = "*"  # entry of `Stage.reads`: every setting, paths included, as the report quotes them
CHANGES_NO_OUTPUT = ("adapt.checkpoint_every", "finetune.checkpoint_every", "report.training")  # in no key


class UndeclaredRead(Exception):
    """A stage read a setting, or texts, that its record does not name: a defect of the stage, never of a recipe."""


@dataclass(frozen=True)
class Corpus:
    """Texts or a collection that a stage reads."""

    name: str  # a path, a hub id with `datasets:` before it, or the name of a public collection
    split: str | None = None  # the judgements under which a collection is opened; None for plain texts
    folder: str | None = None  # name of the collection in outputs; None if it has no folder there


class View(Recipe):
    """The part of a recipe that a stage may read: the settings and texts that its record names, and the seed."""

    if TYPE_CHECKING:  # a stage runs if its section is there
        adapt: AdaptSection
        calibrate: CalibrateSection
        expand_documents: ExpandDocumentsSection
        finetune: FinetuneSection
        evaluate: EvaluateSection

    _stage: str = PrivateAttr("")
    _corpora: dict[str, tuple[Corpus, ...]] = PrivateAttr(default_factory=dict)

    def corpora(self, setting: str) -> tuple[Corpus, ...]:
        """The texts that the record names under ``setting``."""
        if setting not in self._corpora:
            raise UndeclaredRead(f"stage {self._stage} reads the texts of {setting}: add them to its corpora")
        return self._corpora[setting]


R = TypeVar("R")  # a Result, or plain values and Results in a dictionary or list


StageFunction = Callable[[View, Mapping[str, Path], Path], R]
"""``(view, inputs, out) -> result``: fills ``out`` and returns its result, which the manifest keeps."""


@dataclass(frozen=True)
class Stage(Generic[R]):
    """A stage: its name, the settings that it reads, and the function that does its work."""

    name: str  # as in the plan: `transfer`, `check:transfer`, `evaluate:bm25`
    version: int  # raised by hand when the same settings, inputs and files come to give another output
    reads: tuple[str, ...]
    """Sections (``adapt``), single settings (``index.query_length``), or whether there is a section at all
    (``adapt?``). The seed is always read; :attr:`draws` says which."""

    function: StageFunction[R]
    corpora: Mapping[str, Callable[[Recipe], tuple[Corpus, ...]]] = field(default_factory=dict)
    """Setting -> its texts, whatever sections they come from. Their content is part of the key."""

    trains: bool = False  # done by all processes of a launch; others by the main one
    draws: bool | Callable[[Recipe], bool] = False
    """Whether it draws at random on the way to the model. Other stages see the default seed, whatever the recipe's is,
    so that recipes that differ in the seed share them, and are judged on the same sample of queries."""

    label: str = ""  # what reports call its model, such as `after transfer`; empty for stages that make none
    publishes: Mapping[str, str] = field(default_factory=dict)  # part of its output -> name in the run's folder

    def reading(self, *more: str) -> Stage[R]:
        """This stage where it reads further settings, as one that has no input for them."""
        return replace(self, reads=(*self.reads, *more))

    @property
    def result(self) -> type[R]:
        """The type of its result: the return type of its function."""
        kind: type[R] = get_type_hints(self.function)["return"]
        return kind

    def view(self, recipe: Recipe) -> View:
        """``recipe`` as the stage sees it."""
        reads = set(Recipe.model_fields) if WHOLE_RECIPE in self.reads else {*self.reads, "recipe.seed"}
        view: View = _part(View, recipe, "", reads, self.name)
        view._corpora = {setting: texts(recipe) for setting, texts in self.corpora.items()}
        view._stage = self.name
        if WHOLE_RECIPE in self.reads:
            view.run_by(*recipe.command)
        return view

    def settings(self, recipe: Recipe) -> dict[str, Any]:
        """The settings in the key: dotted name -> value, local names as ``(file)`` (their digests stand for them)."""
        keyed: dict[str, Any] = {}
        if WHOLE_RECIPE in self.reads:
            keyed["recipe"] = resolved_toml(recipe)
            keyed["command"] = shlex.join(recipe.command)
        for entry in self.reads:
            if entry.endswith("?"):
                keyed[f"[{entry[:-1]}]"] = "given" if getattr(recipe, entry[:-1]) is not None else "missing"
        named = {thing.setting for thing in named_things(recipe)}
        for name, value in _flat(recipe):
            if self._keys(name, recipe):
                if name in named:
                    entries = value if isinstance(value, tuple) else (value,)
                    value = [entry.replace(local_path(entry) or "\0", "(file)") for entry in entries]
                keyed[name] = list(value) if isinstance(value, tuple) else value
        for setting, texts in self.corpora.items():
            for part in ("split", "folder"):
                values = [getattr(corpus, part) for corpus in texts(recipe)]
                if any(value is not None for value in values):
                    keyed[f"{setting} ({part})"] = values
        return keyed

    def files(self, recipe: Recipe, digest: Callable[[str], str]) -> dict[str, str]:
        """The files in the key: setting and position -> digest of the content, or the name of what is on the hub."""
        digests: dict[str, str] = {}
        for setting, things in groupby(named_things(recipe), lambda thing: thing.setting):
            for number, thing in enumerate(things):
                path = local_path(thing.value)
                if thing.what != "recipe" and path is not None and self._keys(setting, recipe):
                    digests[f"{setting}[{number}]"] = digest(path)
        for setting, texts in self.corpora.items():
            for number, corpus in enumerate(texts(recipe)):
                path = local_path(corpus.name)
                named = corpus.name if path is None else corpus.name.replace(path, digest(path))
                digests[f"{setting}[{number}]"] = named
        return digests

    def _keys(self, setting: str, recipe: Recipe) -> bool:
        """Report whether the value of ``setting`` is in the key."""
        elsewhere = {*self.corpora, *CHANGES_NO_OUTPUT, "source.recipe"}  # the last is an input: its last model
        if setting in elsewhere or not any(f"{setting}.".startswith(f"{entry}.") for entry in self.reads):
            return False
        used = getattr(getattr(recipe, setting.partition(".")[0]), "settings_read", None)  # the others have no effect
        return used is None or setting in used


def _part(kind: type[BaseModel], whole: BaseModel, path: str, reads: set[str], stage: str) -> Any:
    """``whole`` with the settings that ``reads`` names and no others, as a ``kind`` that raises on those."""
    kept: dict[str, Any] = {}
    for name in type(whole).model_fields:
        value, setting = getattr(whole, name), f"{path}{name}"
        inside = {entry for entry in reads if entry.startswith(f"{setting}.")}
        if setting in reads:
            kept[name] = value
        elif inside or f"{setting}?" in reads:
            kept[name] = value if value is None else _part(type(value), value, f"{setting}.", inside, stage)
    part = _raising(kind).model_construct(**kept)
    for name in type(whole).model_fields:
        if name not in kept:
            part.__dict__.pop(name, None)
    part.__dict__["_read_by"] = (stage, path)
    return part


@cache
def _raising(kind: type[BaseModel]) -> type[BaseModel]:
    """``kind``, but a field without a value is an error of its own."""

    def missing(self: BaseModel, name: str) -> Any:
        if name in kind.model_fields:
            stage, path = self.__dict__["_read_by"]
            raise UndeclaredRead(f"stage {stage} reads {path}{name}: add it to the reads of its record")
        return kind.__getattr__(self, name)  # type: ignore[attr-defined]

    return type(kind.__name__, (kind,), {"__getattr__": missing, "__module__": kind.__module__})


def _flat(section: BaseModel, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted setting and value, for all settings of the sections that are there."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _flat(value, f"{path}{name}.")
        elif path:  # a section that is left out has no settings
            yield f"{path}{name}", value
