"""A recipe read from TOML: bases it extends, settings overridden on the command line, paths made absolute.

Every setting remembers where it was written, through all merging, so that each problem can be reported with
its line and relative paths start from the right folder. All problems are reported at once.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
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
_OVERRIDES = 1_000_000  # rank of --set among the files, whose ranks count up from 0: after all of them


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
    if given is None:
        tree = reader.read(Path(path), text)
    else:
        tree = _tree(dict(given), (), lambda _: Place("", Path.cwd(), (0, 0)))
    tree, reported = _settled(reader, tree, overrides, labelled=text is None and given is None, cell=cell)
    tree = _with_specification(tree, reader)
    if sweep_paths and isinstance(sweep := tree.entries.get("sweep"), _Table):
        tree = replace(tree, entries={**tree.entries, "sweep": _with_absolute_paths(sweep)})
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
    tree: _Table,
    overrides: Sequence[str],
    verdict: str = "cannot be run",
    *,
    labelled: bool = True,
    cell: Mapping[str, int | str] | None = None,
) -> tuple[_Table, set[str]]:
    """``tree`` with ``overrides`` and ``cell`` laid over it and absolute paths, and the settings known to be wrong."""
    incomplete = bool(reader.problems)
    overlay = reader.overlay(overrides, labelled=labelled)
    if incomplete:  # checking what could be read would only mislead
        raise refusal(reader.shown, reader.problems, verdict)
    reported = {problem.setting for problem in reader.problems}
    tree = _of_cell(_merged(tree, overlay, [Recipe]), cell)
    return _resolved(_without_dropped(tree), [Recipe], reader.problems), reported


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
    """What the recipe needs from outside: all it names, except in settings that its methods do not use."""
    for thing in named_things(recipe):
        used = getattr(getattr(recipe, thing.setting.partition(".")[0]), "settings_read", None)
        if used is None or thing.setting in used:
            yield thing


@dataclass(frozen=True)
class _Value:
    """A setting: anything that is no table."""

    value: Any
    place: Place
    text: str | None = None  # the value as it stood in an override, where it was not in quotes


@dataclass(frozen=True)
class _Dropped:
    """What ``--set section=none`` leaves, until the tables are merged."""

    place: Place


@dataclass(frozen=True)
class _Table:
    entries: dict[str, _Node]
    place: Place | None = None
    fresh: bool = False  # nothing is inherited: the table was dropped before this one was given


_Node = _Value | _Dropped | _Table


class _Reader:
    """Reads files and overrides into trees, and gathers what is wrong with them."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.files: list[Path] = []
        self.problems: list[Problem] = []

    def read(self, path: Path, text: str | None = None, shown: str = "", chain: tuple[Path, ...] = ()) -> _Table:
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
            own = _tree(data, (), lambda key: place(_line_of(key, lines)))
        except _Unreadable as error:
            where = place(error.line) if error.line else None
            self.problems.append(Problem(where, "", str(error) if where or not shown else f"{plain(shown)}: {error}"))
            return _Table({})
        except ValueError as error:
            line, what = _syntax_problem(str(error), text or "")
            self.problems.append(Problem(place(line), "", what))
            return _Table({})
        merged = _Table({})
        for base, stands in self._bases(own.entries.pop("extends", None)):
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
                merged = _merged(merged, self.read(base_path, None, base_shown, (*chain, path)), [Recipe])
        return _merged(merged, own, [Recipe])

    def overlay(self, overrides: Sequence[str], *, labelled: bool = True) -> _Table:
        """All overrides as one tree, laid over each other in their order; ``labelled`` if a user wrote all of them."""
        merged = _Table({})
        for number, override in enumerate(overrides, 1):
            place = Place(f"--set {number}" if labelled else "", Path.cwd(), (_OVERRIDES, number))
            layer = self._override(override, place)
            if isinstance(layer, Problem):
                self.problems.append(layer)
            else:
                merged = _merged(merged, layer, [])
        return merged

    def _override(self, override: str, place: Place) -> _Table | Problem:
        name, equals, text = override.partition("=")
        key = tuple(part.strip() for part in name.split("."))
        text = text.strip()

        if not equals or not all(re.fullmatch(r"[A-Za-z0-9_-]+", part) for part in key):
            what = f"must be section.key=value, such as adapt.steps=4000, not {shown_value(override)}."
            return Problem(place, "", what)
        if any(0xD800 <= ord(letter) <= 0xDFFF for letter in text):
            return Problem(place, ".".join(key), "is not valid UTF-8.")
        if key == ("extends",):
            return Problem(place, "extends", "is allowed only in the file of a recipe.")
        field, unknown = _setting_at(key)
        node: _Node
        if text == "none" and not (field and "none" in choices(field.annotation)):
            if unknown:
                return Problem(place, ".".join(key), unknown)
            node = _Dropped(place)
        else:
            value, is_toml = one_value(text)
            if not is_toml:
                value = text
            if not is_toml and text[:1] in ("[", "{") and not (field and takes_text(field.annotation)):
                example = f'--set \'{".".join(key)}=["a", "b"]\''
                return Problem(
                    place, ".".join(key), f"not valid TOML: {cut(plain(text))}. A list is written {example}."
                )
            node = _tree(value, (), lambda _: place) if isinstance(value, dict) else _Value(value, place, text)
        for part in reversed(key):
            node = _Table({part: node}, place)
        assert isinstance(node, _Table)
        return node

    def _bases(self, extends: _Node | None) -> Iterator[tuple[str, Place]]:
        if extends is None:
            return
        assert extends.place is not None
        value = extends.value if isinstance(extends, _Value) else {}
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not all(
            isinstance(name, str) and name and "\0" not in name for name in names
        ):
            what = f"must be the name of a recipe file, or a list of them, not {shown_value(value)}."
            self.problems.append(Problem(extends.place, "extends", what))
            return
        for name in names:
            yield name, extends.place


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
    return next((lines[key[:size]] for size in range(len(key), 0, -1) if key[:size] in lines), 1)


def _tree(data: dict[str, Any], above: tuple[str, ...], place: Callable[[tuple[str, ...]], Place]) -> _Table:
    """TOML, as it was read, as a tree; ``place`` tells where a key path was written."""
    entries: dict[str, _Node] = {}
    for name, value in data.items():
        key = (*above, name)
        entries[name] = _tree(value, key, place) if isinstance(value, dict) else _Value(value, place(key))
    return _Table(entries, place(above))


def _merged(
    below: _Table, above: _Table, tables: Sequence[type[BaseModel]], discriminator: str | None = None
) -> _Table:
    """``above`` laid over ``below``; ``tables`` are what may stand here, none where nothing is to be dropped."""
    entries = {} if above.fresh else dict(below.entries)
    for name in _replaced(below, above, tables, discriminator):
        entries.pop(name, None)
    for name, node in above.entries.items():
        inherited = entries.get(name)
        if isinstance(node, _Table) and isinstance(inherited, _Table):
            known = field_called(name, tables)
            inner = tables_in(known.annotation) if known else []
            tag = known.discriminator if known and isinstance(known.discriminator, str) else None
            entries[name] = _merged(inherited, node, inner, tag)
        elif isinstance(node, _Table) and isinstance(inherited, _Dropped):
            entries[name] = replace(node, fresh=True)
        else:
            entries[name] = node
    # What is missing from a table is said of the recipe's own file, if that has the table, else of a base.
    places = [table.place for table in (below, above) if table.place and not (table is below and above.fresh)]
    return _Table(entries, min(places, key=lambda place: place.order, default=None), below.fresh or above.fresh)


def _replaced(
    below: _Table, above: _Table, tables: Sequence[type[BaseModel]], discriminator: str | None
) -> Iterator[str]:
    """Settings of ``below`` that have no meaning any more under those of ``above``."""
    if discriminator is not None:
        old, new = (_value_of(table.entries.get(discriminator)) for table in (below, above))
        chosen = [table for table in tables if new in tags_of(table, discriminator)]
        if chosen and new != old:
            yield from (name for table in tables for name in table.model_fields if name not in chosen[0].model_fields)
    for table in tables:
        names = _ONE_OF.get(table, ())
        if any(isinstance(above.entries.get(name), _Value | _Table) for name in names):
            yield from (name for name in names if name not in above.entries)


def _of_cell(tree: _Table, cell: Mapping[str, int | str] | None) -> _Table:
    """``tree`` with the settings of a cell of its [sweep] laid over it, and without [sweep]; where no cell is asked
    for, [sweep] with its settings named by dotted paths, however they were written."""
    sweep = tree.entries.get("sweep")
    if not isinstance(sweep, _Table):
        return tree
    values = sweep.entries.get("values")
    values = _Table(_settings_in(values), values.place) if isinstance(values, _Table) else values
    if cell is None:
        kept = {"values": values} if values is not None else {}
        return replace(tree, entries={**tree.entries, "sweep": replace(sweep, entries={**sweep.entries, **kept})})
    tree = replace(tree, entries={name: node for name, node in tree.entries.items() if name != "sweep"})
    chosen: dict[str, _Node] = {}
    for axis in reversed(AXES):
        named = sweep.entries.get(axis)
        option = named.entries.get(str(cell[axis])) if axis in cell and isinstance(named, _Table) else None
        chosen |= _settings_in(option) if isinstance(option, _Table) else {}
    for setting, number in cell.items():
        listed = values.entries.get(setting) if isinstance(values, _Table) else None
        if isinstance(listed, _Value):
            chosen[setting] = replace(listed, value=listed.value[int(number)])
    for setting, node in chosen.items():
        if isinstance(node, _Value) and node.value == "none":
            known, _ = _setting_at(tuple(setting.split(".")))
            node = node if known and "none" in choices(known.annotation) else _Dropped(node.place)
        tree = _merged(tree, _nested(setting, node), [Recipe])
    return tree


def _nested(setting: str, node: _Node) -> _Table:
    """A tree of one setting, named by its dotted path; its value may be a table."""
    if isinstance(node, _Value) and isinstance(node.value, dict):
        place = node.place
        node = _tree(node.value, (), lambda _: place)
    for part in reversed(setting.split(".")):
        node = _Table({part: node}, node.place)
    assert isinstance(node, _Table)
    return node


def _with_absolute_paths(sweep: _Table) -> _Table:
    """[sweep] with absolute paths in its values, rows and columns."""

    def absolute(setting: str, node: _Value, value: Any) -> Any:
        if value == "none":
            return value
        resolved: Any = _data(_resolved(_nested(setting, _Value(value, node.place)), [Recipe], []))
        for part in setting.split("."):
            resolved = resolved[part]
        return resolved

    def in_option(option: _Node) -> _Node:
        settings = _settings_in(option).items() if isinstance(option, _Table) else ()
        resolved: dict[str, _Node] = {
            setting: replace(node, value=absolute(setting, node, node.value)) if isinstance(node, _Value) else node
            for setting, node in settings
        }
        return replace(option, entries=resolved) if isinstance(option, _Table) else option

    entries = dict(sweep.entries)
    if isinstance(values := entries.get("values"), _Table):
        listed: dict[str, _Node] = {
            setting: replace(node, value=[absolute(setting, node, value) for value in node.value])
            for setting, node in values.entries.items()
            if isinstance(node, _Value) and isinstance(node.value, list)
        }
        entries["values"] = replace(values, entries=values.entries | listed)
    for axis in AXES:
        if isinstance(named := entries.get(axis), _Table):
            entries[axis] = replace(named, entries={name: in_option(node) for name, node in named.entries.items()})
    return replace(sweep, entries=entries)


def _settings_in(table: _Table, above: str = "") -> dict[str, _Node]:
    """Dotted setting -> value, of tables in tables and of names with dots alike."""
    settings: dict[str, _Node] = {}
    for name, node in table.entries.items():
        settings |= _settings_in(node, f"{above}{name}.") if isinstance(node, _Table) else {f"{above}{name}": node}
    return settings


_NOT_BUILT = "cannot be built"
_SPECIFIED = ("vocabulary", "casing")


def _with_specification(tree: _Table, reader: _Reader) -> _Table:
    """``tree`` with the sections of the specification that its tokenizer names, where it names one."""
    own = tree.entries.get("vocabulary")
    named = own.entries.get("tokenizer") if isinstance(own, _Table) else None
    if not isinstance(own, _Table) or not isinstance(named, _Value):
        return tree
    if _value_of(own.entries.get("kind")) != "existing" or not str(named.value).lower().endswith(".toml"):
        return tree
    problems = reader.problems
    path = Path(str(named.value))
    before = len(problems)
    specified = reader.read(path, None, os.path.relpath(path))
    if len(problems) > before:
        raise refusal(reader.shown, problems)
    specified = _specification_only(_resolved(_without_dropped(specified), [Recipe], problems), problems)
    beside = {name: node for name, node in own.entries.items() if name not in ("kind", "tokenizer")}
    over = _Table({"vocabulary": replace(own, entries=beside)})
    specified_casing, own_casing = (table.entries.get("casing", _Table({})) for table in (specified, tree))
    if isinstance(specified_casing, _Table) and isinstance(own_casing, _Table) and "input" in own_casing.entries:
        built, wanted = (_value_of(table.entries.get("input")) for table in (specified_casing, own_casing))
        if wanted != (built or "keep"):
            what = f"{plain(path.name)} sets {shown_value(built or 'keep')}: change it there, or leave it out here."
            problems.append(Problem(own_casing.entries["input"].place, "casing.input", what))
    rest = {name: node for name, node in tree.entries.items() if name != "vocabulary"}
    return _merged(_merged(specified, _Table(rest, tree.place), [Recipe]), over, [Recipe])


def _specification_only(tree: _Table, problems: list[Problem]) -> _Table:
    """The sections of a specification; what else stands in it is a problem."""
    what = "a specification has only the sections [vocabulary] and [casing]."
    problems += [Problem(node.place, name, what) for name, node in tree.entries.items() if name not in _SPECIFIED]
    vocabulary = tree.entries.get("vocabulary")
    kind = vocabulary.entries.get("kind") if isinstance(vocabulary, _Table) else None
    if _value_of(kind) == "existing" and kind is not None:
        problems.append(Problem(kind.place, "vocabulary.kind", 'must be "trained" or "expanded" in a specification.'))
    return replace(tree, entries={name: node for name, node in tree.entries.items() if name in _SPECIFIED})


def _checked(
    model: type[Settings],
    tree: _Table,
    problems: list[Problem],
    reported: set[str],
    shown: str,
    verdict: str = "cannot be run",
) -> Settings:
    """The settings of ``tree``, if nothing is wrong with them; ``told`` are those of which it is said already."""
    data = _data(tree)
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


def _places(tree: _Table) -> dict[str, str]:
    return {".".join(key): node.place.label for key, node in _nodes(tree) if node.place and node.place.label}


def _value_of(node: _Node | None) -> Any:
    return node.value if isinstance(node, _Value) else None


def _without_dropped(table: _Table) -> _Table:
    entries: dict[str, _Node] = {}
    for name, node in table.entries.items():
        if not isinstance(node, _Dropped):
            entries[name] = _without_dropped(node) if isinstance(node, _Table) else node
    return replace(table, entries=entries)


def _resolved(
    table: _Table, tables: Sequence[type[BaseModel]], problems: list[Problem], above: tuple[str, ...] = ()
) -> _Table:
    """``table`` with absolute paths; what is wrong with its names and numbers is added to ``problems``."""
    entries: dict[str, _Node] = {}
    for name, node in table.entries.items():
        key = (*above, name)
        known = field_called(name, tables)
        if isinstance(node, _Table):
            node = _resolved(node, tables_in(known.annotation) if known else [], problems, key)
        elif isinstance(node, _Value):
            node = replace(node, value=_resolved_value(node, known, ".".join(key), problems))
        entries[name] = node
    return replace(table, entries=entries)


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


def _data(table: _Table) -> dict[str, Any]:
    """The tree as pydantic takes it in its strict mode: lists as tuples."""
    nodes = table.entries.items()
    return {name: _data(node) if isinstance(node, _Table) else _listed(_value_of(node)) for name, node in nodes}


def _listed(value: Any) -> Any:
    return tuple(_listed(entry) for entry in value) if isinstance(value, list) else value


def _nodes(table: _Table, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], _Node]]:
    for name, node in table.entries.items():
        yield (*above, name), node
        if isinstance(node, _Table):
            yield from _nodes(node, (*above, name))


def _problem(fault: Fault, tree: _Table) -> Problem:
    """``fault`` with the place of its setting, or of the innermost table around it that was written."""
    if not fault.path:  # a check across sections names those it is about
        named = re.findall(r"\[(\w+)\]|\b(\w+\.\w+)\b", fault.what)
        places = [_place_of(tuple((section or dotted).split(".")), tree) for section, dotted in named]
        return Problem(next(filter(None, places), None), "", fault.what)
    return Problem(_place_of(fault.path, tree), ".".join(fault.path), fault.what)


def _place_of(path: tuple[str, ...], tree: _Table) -> Place | None:
    place = None
    node: _Node = tree
    for part in path:
        if not isinstance(node, _Table) or part not in node.entries:
            break
        node = node.entries[part]
        place = node.place
    return place


def _hidden_faults(model: type[BaseModel], data: dict[str, Any], faults: list[Fault]) -> list[Fault]:
    """What pydantic did not get to: it checks settings against each other only where each is good by itself.

    So the bad ones are replaced by their defaults for a second look. Where one has no default, or may be a
    misspelling of another, what would be found could be an echo of it, and nothing is looked for.
    """
    if len(faults) > _MOST_REPAIRED:
        return []
    repaired = deepcopy(data)
    for fault in faults:
        known, unknown = _setting_at(fault.path)
        if fault.kind == "value_error" or "Did you mean" in (unknown or "") or (known and known.is_required()):
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


def _setting_at(path: tuple[str, ...]) -> tuple[FieldInfo | None, str | None]:
    """The setting ``path`` of a recipe, or what to say where there is none."""
    tables: list[type[BaseModel]] = [Recipe]
    known = None
    for depth, part in enumerate(path, 1):
        known = field_called(part, tables)
        if known is None:
            return None, unknown_setting(path[:depth], tables)
        tables = tables_in(known.annotation)
    return known, None


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
