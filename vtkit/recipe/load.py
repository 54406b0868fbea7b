"""A recipe read from TOML: bases it extends, settings overridden on the command line, paths made absolute.

Every setting remembers where it was written, through all merging, so that each problem can be reported with
its line and relative paths start from the right folder. All problems are reported at once.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from vtkit.data.collections import public_collection
from vtkit.recipe.problems import Fault, Place, Problem, cut, faults_in, plain, refusal, shown_value, unknown_setting
from vtkit.recipe.tables import choices, field_called, tables_in, tags_of, takes_text
from vtkit.recipe.write import resolved_toml as resolved_toml  # the way back, for those who load
from vtkit.settings.named import Named, find_mark, named_things
from vtkit.settings.recipe import AXES, Recipe, Specification
from vtkit.settings.source import SourceSection

PATH_ENDINGS = (".toml", ".txt", ".tsv", ".jsonl", ".gz", ".zst", ".model", ".json", ".parquet")
"""A name with one of these endings is a path, whether it exists or not."""

MOST_BYTES = 100_000  # a recipe may have so many bytes; those that ship with vtkit have some three thousand
_ALWAYS_PATHS = ("corpus", "pairs", "vectors", "rankings", "recipe")
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_MOST_REPAIRED = 20
_ONE_OF: dict[type[BaseModel], tuple[str, ...]] = {SourceSection: ("model", "recipe", "scratch")}
"""Settings of which a table has only one: giving one replaces an inherited other one."""
Settings = TypeVar("Settings", bound=BaseModel)
E = TypeVar("E")
_LAST = 1_000_000  # rank of --set among the files, whose ranks count up from 0: after all of them


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe and where it came from."""

    recipe: Recipe
    path: Path  # the recipe's file, absolute
    shown: str  # the file's name as the user gave it, for messages
    files: tuple[Path, ...]  # every file that was read, the recipe's own first, then those it extends
    overrides: tuple[str, ...]  # the `section.key=value` settings given beside the file
    places: Mapping[str, str]  # where each setting was written: `line 14`, `base.toml line 3` or `--set 2`

    @property
    def folder(self) -> Path:
        """The folder of the recipe's file."""
        return self.path.parent


def load_recipe(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    text: str | None = None,
    given: Mapping[str, Mapping[str, Any]] | None = None,
    cell: Mapping[str, int | str] | None = None,
    sweep_paths: bool = False,
) -> LoadedRecipe:
    """The recipe in the TOML file ``path``, with ``overrides`` laid over it, the last one of a setting on top.

    ``extends = "base.toml"`` (or a list, later ones over earlier ones) takes over the settings of other recipes: tables
    are merged, everything else is replaced. An override is ``section.key=value``, its value TOML or else plain text;
    ``none`` drops what was inherited, a whole section included. Where a file or an override changes
    ``vocabulary.kind``, inherited settings that the new kind does not have are dropped, and where it gives one of
    ``source.model``, ``source.recipe`` and ``source.scratch``, an inherited other one.

    A tokenizer that is a ``.toml`` file is a specification: its [vocabulary] and [casing] take the place of the
    recipe's ``kind = "existing"``, and settings of [vocabulary] beside ``tokenizer`` are laid over it.

    Names of files and folders become absolute paths. They are relative to the folder of the file that wrote them, those
    in overrides to the current folder (:func:`resolve_name` says what counts as a path).

    Args:
        text: what the file would hold, where it is not written: problems are then told without lines.
        given: the settings of each section, where there is no file at all; paths are relative to the current folder.
        cell: of the recipe's [sweep], which it then is without: setting -> place of the value in its list, and ``rows``
            and ``columns`` -> name.
        sweep_paths: whether paths in [sweep] become absolute too. Cells are named by paths as they are written.

    Raises:
        RecipeError: everything that is wrong with the recipe, with file, line and setting.
    """
    reader = _Reader(str(path))
    tree = reader.read(Path(path), text) if given is None else _tree(given, lambda _: Place("", Path.cwd(), (0, 0)))
    tree, reported = _settled(reader, tree, overrides, labelled=text is None and given is None, cell=cell)
    tree = _with_specification(tree, reader)
    if sweep_paths:
        tree = _with_absolute_paths(tree)
    recipe = _checked(Recipe, tree, reader.problems, reported, reader.shown)
    return LoadedRecipe(recipe, _absolute(path), reader.shown, tuple(reader.files), tuple(overrides), _places(tree))


@dataclass(frozen=True)
class LoadedSpecification:
    """A specification of a tokenizer and where its settings stand."""

    specification: Specification
    shown: str  # the file's name as the user gave it, for messages
    places: Mapping[str, str]  # where each setting was written, by dotted path


def load_specification(path: Path, overrides: Sequence[str] = ()) -> LoadedSpecification:
    """The specification of a tokenizer in ``path``: the sections [vocabulary] (trained or expanded) and [casing], read
    as recipes are (:func:`load_recipe`), with the same errors."""
    reader = _Reader(str(path))
    tree, reported = _settled(reader, reader.read(Path(path)), overrides, _NOT_BUILT)
    tree = _specification_only(tree, reader.problems)
    specification = _checked(Specification, tree, reader.problems, reported, reader.shown, _NOT_BUILT)
    return LoadedSpecification(specification, reader.shown, _places(tree))


def _settled(
    reader: _Reader,
    tree: _Tree,
    overrides: Sequence[str],
    verdict: str = "cannot be run",
    *,
    labelled: bool = True,
    cell: Mapping[str, int | str] | None = None,
) -> tuple[_Tree, set[str]]:
    """``tree`` with ``overrides`` and ``cell`` laid over it and absolute paths, and the settings known to be wrong."""
    incomplete = bool(reader.problems)
    overlay = reader.overlay(overrides, labelled=labelled)
    if incomplete:  # checking what could be read would only mislead
        raise refusal(reader.shown, reader.problems, verdict)
    reported = {problem.setting for problem in reader.problems}
    return _resolved(_of_cell(_merged(tree, overlay), cell), reader.problems), reported


def resolve_name(value: str, what: str, folder: Path) -> str:
    """``value`` as an absolute path if it is the name of something local (``what``: as in
    :class:`~vtkit.settings.types.Names`), otherwise as it is.

    A corpus, parallel text and another recipe are always local, but for public collections and the dataset of a corpus
    such as ``datasets:NAME:CONFIG:SPLIT:COLUMN``. Anything else is where its name starts with ``./``, ``../``, ``/`` or
    ``~``, has one of :data:`PATH_ENDINGS`, or is there in ``folder`` (a collection also without the configuration
    behind its colon); and where it cannot be the id of a hub repository or the name of a collection, which have at most
    one slash and none.
    """
    if what in ("corpus", "retrieval") and value.startswith("datasets:"):
        name, colon, rest = value.removeprefix("datasets:").partition(":")
        return f"datasets:{resolve_name(name, 'dataset', folder)}{colon}{rest}"
    path = _absolute(folder / os.path.expanduser(value))
    there = os.path.lexists(path)
    if what in ("corpus", "retrieval") and not there:
        if public_collection(value):
            return value
        there = ":" in value and os.path.isdir(str(path).rpartition(":")[0])
    local = (
        what in _ALWAYS_PATHS
        or value in (".", "..")
        or value.startswith(("./", "../", "/", "~"))
        or value.lower().endswith(PATH_ENDINGS)
        or there
        or (what == "retrieval" and "/" in value)
        or (what in ("model", "tokenizer", "dataset") and _HUB_ID.fullmatch(value) is None)
    )
    return str(path) if local else value


def required_things(recipe: Recipe) -> Iterator[Named]:
    """Models, corpora and files that the recipe needs: all it names, except in settings that its methods do not use."""
    for thing in named_things(recipe):
        used = getattr(getattr(recipe, thing.setting.partition(".")[0]), "settings_read", None)
        if used is None or thing.setting in used:
            yield thing


_Key = tuple[str, ...]


@dataclass(frozen=True)
class _Value:
    """A setting: anything that is no table."""

    value: Any
    place: Place
    text: str | None = None  # the value as it stood in an override, where it was not in quotes


_DROPPED = object()  # the value that ``--set section=none`` leaves, until settings are merged


@dataclass(frozen=True)
class _Tree:
    """Settings by their paths, in the order in which they are laid over others."""

    values: dict[_Key, _Value] = field(default_factory=dict)
    tables: dict[_Key, Place] = field(default_factory=dict)

    def without(self, keys: Iterable[_Key]) -> _Tree:
        """The tree without these settings and tables, and all that is in them."""
        gone = set(keys)

        def left(entries: dict[_Key, E]) -> dict[_Key, E]:
            return {key: each for key, each in entries.items() if gone.isdisjoint(_beginnings(key))}

        return _Tree(left(self.values), left(self.tables))

    def inside(self, above: _Key) -> _Tree:
        """The content of a table, with all paths relative to it."""

        def in_it(entries: dict[_Key, E]) -> dict[_Key, E]:
            size = len(above)
            return {key[size:]: each for key, each in entries.items() if key[:size] == above and len(key) > size}

        return _Tree(in_it(self.values), in_it(self.tables))

    def below(self, above: _Key, place: Place) -> _Tree:
        """The same settings in a table, which was written at ``place``."""
        around = dict.fromkeys(_beginnings(above), place)
        tables = around | {(*above, *key): each for key, each in self.tables.items()}
        return _Tree({(*above, *key): node for key, node in self.values.items()}, tables)

    def value(self, key: _Key) -> Any:
        """The value of a setting; None if it is not given."""
        return self.values[key].value if key in self.values else None

    def dotted(self) -> dict[str, _Value]:
        """Dotted setting -> value, of tables in tables and of names with dots alike."""
        return {".".join(key): node for key, node in self.values.items()}

    def places(self) -> dict[_Key, Place]:
        """The place of each setting and each table."""
        return self.tables | {key: node.place for key, node in self.values.items()}

    def place_of(self, key: _Key) -> Place | None:
        """The place of a setting, or of the innermost table around it that has one."""
        places = self.places()
        return next((places[part] for part in reversed(_beginnings(key)) if part in places), None)

    def data(self) -> dict[str, Any]:
        """Tables in tables, as pydantic takes them in its strict mode: lists as tuples."""
        nested: dict[str, Any] = {}
        for key in self.tables:
            _table_in(nested, key)
        for key, node in self.values.items():
            _table_in(nested, key[:-1])[key[-1]] = _listed(node.value)
        return nested


def _beginnings(key: _Key) -> list[_Key]:
    """The tables around a setting, and the setting."""
    return [key[:size] for size in range(1, len(key) + 1)]


def _table_in(nested: dict[str, Any], key: _Key) -> dict[str, Any]:
    for part in key:
        nested = nested.setdefault(part, {})
    return nested


class _Reader:
    """Reads files and overrides into trees, and gathers what is wrong with them."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.files: list[Path] = []
        self.problems: list[Problem] = []

    def read(self, path: Path, text: str | None = None, shown: str = "", chain: tuple[Path, ...] = ()) -> _Tree:
        """The settings of ``path``, or of the ``text`` that it would hold, over those of the files it extends;
        ``shown`` is its name in messages, empty for the recipe itself, and ``chain`` the files that led here."""
        path = _absolute(path)
        rank = self.files.index(path) if path in self.files else len(self.files)
        if rank == len(self.files):
            self.files.append(path)
        prefix = f"{plain(shown)} " if shown else ""
        written = text is None

        def place(line: int) -> Place:
            return Place(f"{prefix}line {line}" if written else "", path.parent, (rank, line))

        try:
            text = _text_of(path) if text is None else text
            data = tomllib.loads(text)
            lines = key_lines(text)
            own = _tree(data, lambda key: place(_line_of(key, lines)))
        except _Unreadable as error:
            where = place(error.line) if error.line else None
            self.problems.append(Problem(where, "", str(error) if where or not shown else f"{plain(shown)}: {error}"))
            return _Tree()
        except ValueError as error:
            line, what = _syntax_problem(str(error), text or "")
            self.problems.append(Problem(place(line), "", what))
            return _Tree()
        merged = _Tree()
        for base, stands in self._bases(own):
            base_shown = os.path.normpath(os.path.join(os.path.dirname(shown or self.shown), os.path.expanduser(base)))
            base_path = _absolute(path.parent / os.path.expanduser(base))
            links = [os.path.realpath(link) for link in (*chain, path, base_path)]
            if links[-1] in links[:-1]:
                around = (*chain, path, base_path)[links.index(links[-1]) :]
                circle = " -> ".join(plain(link.name) for link in around)
                self.problems.append(Problem(stands, "extends", f"goes in a circle: {circle}."))
            elif not os.path.exists(base_path):
                what = f"there is no file {plain(str(base_path))}.{_near(base_path)}"
                self.problems.append(Problem(stands, "extends", what))
            else:
                merged = _merged(merged, self.read(base_path, None, base_shown, (*chain, path)))
        return _merged(merged, own.without([("extends",)]))

    def overlay(self, overrides: Sequence[str], *, labelled: bool = True) -> _Tree:
        """All overrides as one tree, laid over each other in their order; ``labelled`` if a user wrote all of them."""
        merged = _Tree()
        for number, override in enumerate(overrides, 1):
            layer = self._override(override, Place(f"--set {number}" if labelled else "", Path.cwd(), (_LAST, number)))
            if isinstance(layer, Problem):
                self.problems.append(layer)
            else:
                merged = _merged(merged, layer, replaces=False)
        return merged

    def _override(self, override: str, place: Place) -> _Tree | Problem:
        name, equals, text = override.partition("=")
        key = tuple(part.strip() for part in name.split("."))
        setting, text = ".".join(key), text.strip()
        if not equals or not all(re.fullmatch(r"[A-Za-z0-9_-]+", part) for part in key):
            what = f"must be section.key=value, such as adapt.steps=4000, not {shown_value(override)}."
            return Problem(place, "", what)
        if any(0xD800 <= ord(letter) <= 0xDFFF for letter in text):
            return Problem(place, setting, "is not valid UTF-8.")
        if key == ("extends",):
            return Problem(place, setting, "is allowed only in the file of a recipe.")
        known = _field_at(key)
        if text == "none" and not (known and "none" in choices(known.annotation)):
            unknown = _unknown_at(key)
            return Problem(place, setting, unknown) if unknown else _one_setting(key, _Value(_DROPPED, place))
        value, is_toml = one_value(text)
        if not is_toml and text[:1] in ("[", "{") and not (known and takes_text(known.annotation)):
            example = f'--set \'{setting}=["a", "b"]\''
            return Problem(place, setting, f"not valid TOML: {cut(plain(text))}. A list is written {example}.")
        return _one_setting(key, _Value(value if is_toml else text, place, text))

    def _bases(self, own: _Tree) -> Iterator[tuple[str, Place]]:
        if (place := own.place_of(("extends",))) is None:
            return
        value = own.values[("extends",)].value if ("extends",) in own.values else {}
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not all(
            isinstance(name, str) and name and "\0" not in name for name in names
        ):
            what = f"must be the name of a recipe file, or a list of them, not {shown_value(value)}."
            self.problems.append(Problem(place, "extends", what))
            return
        for name in names:
            yield name, place


class _Unreadable(Exception):
    """A file that gives no text; ``line`` is 0 where the whole file is to blame."""

    def __init__(self, what: str, line: int = 0) -> None:
        super().__init__(what)
        self.line = line


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise _Unreadable(f"the file has more than {MOST_BYTES} bytes and is not a recipe.")
    except FileNotFoundError:
        raise _Unreadable(f"there is no such file.{_near(path)}") from None
    except IsADirectoryError:
        inside = ", ".join(plain(entry.name) for entry in sorted(path.glob("*.toml")))
        raise _Unreadable(f"it is a folder, not a recipe.{f' Recipes in it: {inside}.' if inside else ''}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _Unreadable(f"the file cannot be read: {reason}.") from None
    try:
        return raw.decode("utf-8-sig")  # some editors put a byte order mark in front, which TOML does not know
    except UnicodeDecodeError as error:
        read: bytes = error.object  # without the byte order mark
        line = read.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{read[error.start]:02x} is not valid UTF-8. Save the file in the encoding UTF-8."
        raise _Unreadable(what, line) from None


def _near(path: Path) -> str:
    """A hint at a recipe with a similar name beside the missing one."""
    try:
        beside = [entry.name for entry in path.parent.iterdir() if entry.suffix == ".toml"]
    except (OSError, ValueError):
        return ""
    close = get_close_matches(path.name, beside, n=1)
    return f" Did you mean '{plain(close[0])}'?" if close else ""


def _syntax_problem(message: str, text: str) -> tuple[int, str]:
    """Line of a syntax error, and the error in plain words, from the message of the standard library's reader."""
    lines = text.split("\n")
    position = re.search(r" \((?:at line (\d+), column (\d+)|at end of document)\)$", message)
    number = int(position[1]) if position and position[1] else len(lines)
    what = message[: position.start()] if position else message
    if what == "Invalid value":
        what = "write text in quotes, a list in [ ], true and false in lower case"
    what = what[:1].lower() + what[1:]
    source = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return number, f"not valid TOML: {what}{f': {plain(source[:80])}' if source else '.'}"


def _line_of(key: tuple[str, ...], lines: Mapping[tuple[str, ...], int]) -> int:
    """The line of a key, else of the innermost table around it."""
    return next((lines[part] for part in reversed(_beginnings(key)) if part in lines), 1)


def _tree(data: Mapping[str, Any], place: Callable[[_Key], Place], above: _Key = ()) -> _Tree:
    """TOML, as it was read, as a tree; ``place`` tells where a key path was written."""
    tree = _Tree()
    for name, value in data.items():
        key = (*above, name)
        if isinstance(value, Mapping):
            inner = _tree(value, place, key)
            tree.tables.update({key: place(key)} | inner.tables)
            tree.values.update(inner.values)
        else:
            tree.values[key] = _Value(value, place(key))
    return tree


def _one_setting(key: _Key, node: _Value) -> _Tree:
    """A tree of one setting; its value may be a table."""
    if isinstance(node.value, dict):
        return _tree(node.value, lambda _: node.place).below(key, node.place)
    return _Tree({key[-1:]: node}).below(key[:-1], node.place)


def _merged(below: _Tree, above: _Tree, *, replaces: bool = True) -> _Tree:
    """``above`` laid over ``below``; with ``replaces``, settings that lose their meaning by it go."""
    below = below.without([*above.values, *(_replaced(below, above) if replaces else ())])
    values = {key: node for key, node in below.values.items() if key not in above.tables or node.value is _DROPPED}
    # What is missing from a table is said of the recipe's own file, if that has the table, else of a base.
    tables = {
        key: min(place, below.tables.get(key, place), key=lambda either: either.order)
        for key, place in above.tables.items()
    }
    return _Tree(values | above.values, below.tables | tables)


def _replaced(below: _Tree, above: _Tree) -> Iterator[_Key]:
    """Settings of ``below`` that have no meaning any more under those of ``above``."""
    for key in below.tables.keys() & above.tables.keys():
        known = _field_at(key)
        tables = tables_in(known.annotation) if known else []
        if known and isinstance(tag := known.discriminator, str):
            old, new = (tree.value((*key, tag)) for tree in (below, above))
            chosen = [table for table in tables if new in tags_of(table, tag)]
            if chosen and new != old:
                names = {name for table in tables for name in table.model_fields}
                yield from ((*key, name) for name in names - chosen[0].model_fields.keys())
        for one_of in (_ONE_OF.get(table, ()) for table in tables):
            given = {name for name in one_of if above.value((*key, name)) not in (None, _DROPPED)}
            given |= {name for name in one_of if (*key, name) in above.tables}
            yield from ((*key, name) for name in one_of if given and name not in given)


def _of_cell(tree: _Tree, cell: Mapping[str, int | str] | None) -> _Tree:
    """``tree`` with the settings of a cell of its [sweep] laid over it, and without [sweep]; where no cell is asked
    for, [sweep] with its settings named by dotted paths, however they were written."""
    sweep = tree.inside(("sweep",))
    listed = sweep.inside(("values",)).dotted()
    if cell is None:
        dotted = _Tree({(setting,): node for setting, node in listed.items()})
        place = tree.tables.get(_SWEPT)
        return tree if place is None else _merged(tree.without([_SWEPT]), dotted.below(_SWEPT, place), replaces=False)
    chosen: dict[str, _Value] = {}
    for axis in reversed(AXES):
        chosen |= sweep.inside((axis, str(cell[axis]))).dotted() if axis in cell else {}
    for setting, number in cell.items():
        if node := listed.get(setting):
            chosen[setting] = replace(node, value=node.value[int(number)])
    tree = tree.without([("sweep",)])
    for setting, node in chosen.items():
        key = tuple(setting.split("."))
        known = _field_at(key)
        if node.value == "none" and not (known and "none" in choices(known.annotation)):
            node = replace(node, value=_DROPPED)
        tree = _merged(tree, _one_setting(key, node))
    return tree


def _with_absolute_paths(tree: _Tree) -> _Tree:
    """``tree`` with absolute paths in the values, rows and columns of [sweep], its settings named by dotted paths."""

    def absolute(key: _Key, node: _Value, value: Any) -> Any:
        if value == "none":
            return value
        resolved: Any = _resolved(_one_setting(key, _Value(value, node.place)), []).data()
        for part in key:
            resolved = resolved[part]
        return resolved

    depths: dict[_Key, int] = {("sweep", "rows"): 3, ("sweep", "columns"): 3, _SWEPT: 2}  # of the settings in them
    values = {}
    for key, node in tree.values.items():
        depth = depths.get(key[:2], len(key))
        if setting := ".".join(key[depth:]):
            path, value = tuple(setting.split(".")), node.value
            several = depth == 2 and isinstance(value, list)
            value = [absolute(path, node, each) for each in value] if several else absolute(path, node, value)
            key, node = (*key[:depth], setting), replace(node, value=value)
        values[key] = node
    tables = {key: place for key, place in tree.tables.items() if len(key) <= depths.get(key[:2], len(key))}
    return _Tree(values, tables)


_NOT_BUILT = "cannot be built"
_SPECIFIED = ("vocabulary", "casing")
_SWEPT = ("sweep", "values")


def _with_specification(tree: _Tree, reader: _Reader) -> _Tree:
    """``tree`` with the sections of the specification that its tokenizer names, where it names one."""
    path = Path(str(tree.value(("vocabulary", "tokenizer"))))
    if tree.value(("vocabulary", "kind")) != "existing" or path.suffix.lower() != ".toml":
        return tree
    problems = reader.problems
    before = len(problems)
    specified = reader.read(path, None, os.path.relpath(path))
    if len(problems) > before:
        raise refusal(reader.shown, problems)
    specified = _specification_only(_resolved(specified, problems), problems)
    casing = ("casing", "input")
    built = specified.value(casing) or "keep"
    if casing in tree.values and tree.value(casing) != built:
        what = f"{plain(path.name)} sets {shown_value(built)}: change it there, or leave it out here."
        problems.append(Problem(tree.place_of(casing), ".".join(casing), what))
    vocabulary = ("vocabulary",)
    beside = tree.inside(vocabulary).without([("kind",), ("tokenizer",)]).below(vocabulary, tree.tables[vocabulary])
    return _merged(_merged(specified, tree.without([vocabulary])), beside)


def _specification_only(tree: _Tree, problems: list[Problem]) -> _Tree:
    """The sections of a specification; what else stands in it is a problem."""
    what = "a specification has only the sections [vocabulary] and [casing]."
    others = dict.fromkeys(key[:1] for key in (*tree.tables, *tree.values) if key[0] not in _SPECIFIED)
    problems += [Problem(tree.place_of(key), key[0], what) for key in others]
    kind = ("vocabulary", "kind")
    if tree.value(kind) == "existing":
        what = 'must be "trained" or "expanded" in a specification.'
        problems.append(Problem(tree.place_of(kind), ".".join(kind), what))
    return tree.without(others)


def _checked(
    model: type[Settings],
    tree: _Tree,
    problems: list[Problem],
    reported: set[str],
    shown: str,
    verdict: str = "cannot be run",
) -> Settings:
    """The settings of ``tree``, if nothing is wrong with them; of those that are ``reported`` it is said already."""
    data = tree.data()
    try:
        settings = model.model_validate(data, strict=True)
    except ValidationError as error:
        faults = faults_in(error)
        located = [_problem(fault, tree) for fault in [*faults, *_hidden_faults(model, data, faults)]]
        reported = reported | {
            problem.setting for problem in problems if problem.setting == "vocabulary.kind" or "finite" in problem.what
        }
        news = (fault for fault in located if fault.setting not in reported)
        raise refusal(shown, [*problems, *news], verdict) from None
    if problems:
        raise refusal(shown, problems, verdict)
    return settings


def _places(tree: _Tree) -> dict[str, str]:
    return {".".join(key): place.label for key, place in tree.places().items() if place.label}


def _resolved(tree: _Tree, problems: list[Problem]) -> _Tree:
    """``tree`` with absolute paths, without what was dropped; what is wrong with its names and numbers is added to
    ``problems``."""
    values = {
        key: replace(node, value=_resolved_value(node, _field_at(key), ".".join(key), problems))
        for key, node in tree.values.items()
        if node.value is not _DROPPED
    }
    return _Tree(values, tree.tables)


def _resolved_value(node: _Value, known: FieldInfo | None, setting: str, problems: list[Problem]) -> Any:
    value = node.value
    one_text = known is not None and takes_text(known.annotation)
    if one_text and node.text is not None and not isinstance(value, str | list):
        value = node.text  # --set recipe.name=2024 is meant as text
    entries = value if isinstance(value, list) else [value]
    if any(isinstance(entry, float) and not math.isfinite(entry) for entry in entries):
        problems.append(Problem(node.place, setting, f"must be a finite number, not {shown_value(value)}."))
    mark = find_mark(known.metadata, known.annotation) if known else None
    if mark is None or one_text == isinstance(value, list):
        return value
    if "" in entries:
        problems.append(Problem(node.place, setting, "a name must not be empty."))
        return value
    folder, words = node.place.folder, mark.words
    named = [resolve_name(e, mark.what, folder) if isinstance(e, str) and e not in words else e for e in entries]
    return named if isinstance(value, list) else named[0]


def _listed(value: Any) -> Any:
    return tuple(_listed(entry) for entry in value) if isinstance(value, list) else value


def _problem(fault: Fault, tree: _Tree) -> Problem:
    """``fault`` with the place of its setting, or of the innermost table around it that was written."""
    if fault.path:
        return Problem(tree.place_of(fault.path), ".".join(fault.path), fault.what)
    # a check across sections names those it is about
    named = (section or dotted for section, dotted in re.findall(r"\[(\w+)\]|\b(\w+\.\w+)\b", fault.what))
    places = (tree.place_of(tuple(setting.split("."))) for setting in named)
    return Problem(next(filter(None, places), None), "", fault.what)


def _hidden_faults(model: type[BaseModel], data: dict[str, Any], faults: list[Fault]) -> list[Fault]:
    """Faults behind those that pydantic reports: it checks settings against each other only if each is valid by itself.

    So the bad ones are replaced by their defaults for a second look. Where one has no default, or may be a
    misspelling of another, what would be found could be an echo of it, and nothing is looked for.
    """
    if len(faults) > _MOST_REPAIRED:
        return []
    repaired = deepcopy(data)
    for fault in faults:
        known, unknown = _field_at(fault.path), _unknown_at(fault.path)
        if fault.kind == "value_error" or "Did you mean" in unknown or (known and known.is_required()):
            return []
        table: Any = repaired
        for part in fault.path[:-1]:
            table = table.get(part) if isinstance(table, dict) else None
        if not isinstance(table, dict):
            return []
        table.pop(fault.path[-1], None)
    try:
        model.model_validate(repaired, strict=True)
    except ValidationError as error:
        return [fault for fault in faults_in(error) if fault.kind == "value_error"]
    return []


@cache
def _field_at(key: _Key) -> FieldInfo | None:
    """The setting ``key`` of a recipe; none where there is none."""
    known: FieldInfo | None = None
    tables: list[type[BaseModel]] = [Recipe]
    for part in key:
        known = field_called(part, tables)
        tables = tables_in(known.annotation) if known else []
    return known


def _unknown_at(key: _Key) -> str:
    """The message for an unknown setting ``key``; empty if the recipe has it."""
    for part in _beginnings(key):
        if _field_at(part) is None:
            above = _field_at(part[:-1])
            return unknown_setting(part, tables_in(above.annotation) if above else [Recipe])
    return ""


def _absolute(path: Path) -> Path:
    """Absolute, without ``..``, symbolic links as they are."""
    return Path(os.path.abspath(path))


_KEY = r"""(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_DOTTED = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"
_LINE = re.compile(rf"[ \t]*(?:\[\[?[ \t]*(?P<table>{_DOTTED})[ \t]*\]|(?P<key>{_DOTTED})[ \t]*=)", re.ASCII)
_LONG_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}', re.DOTALL)


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line, counted from 1, on which each key and each table of ``text``, valid TOML, first stands.

    Keys are full paths: ``alpha = 2`` below ``[transfer]`` is ``("transfer", "alpha")``, and so is
    ``transfer.alpha = 2``. A table that is only implied, as ``transfer`` in the last one, stands where it is first
    mentioned. Keys of inline tables are not entered.
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    without_long_strings = _LONG_STRING.sub(lambda found: '""' + "\n" * found[0].count("\n"), text)
    for number, line in enumerate(without_long_strings.split("\n"), 1):
        if not (match := _LINE.match(line)):
            continue
        path = tuple(
            next(iter(tomllib.loads(f"{part} = 0"))) for part in re.findall(_KEY, match["table"] or match["key"])
        )
        if match["table"]:
            table = path
        else:
            path = table + path
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], number)
    return lines


def one_value(text: str) -> tuple[Any, bool]:
    """``text`` read as one TOML value, and whether it is one (nothing before, after or beside it)."""
    try:
        read = tomllib.loads(f"value = {text}")
    except ValueError:
        return None, False
    return (read["value"], True) if set(read) == {"value"} else (None, False)
