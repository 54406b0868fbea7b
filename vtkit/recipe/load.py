"""A recipe read from TOML: bases it extends, settings overridden on the command line, paths made absolute.

Settings are nested dictionaries. As each file is read, its names become absolute and the lines of its settings are
noted, so that problems can be reported with their lines. All problems are reported at once.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, reduce
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from vtkit.data.sources import is_public
from vtkit.recipe.problems import Problem, clipped, faults_in, plain, refusal, shown_value, unknown_setting
from vtkit.recipe.tables import choices, field_called, tables_in, tags_of, takes_several, takes_text
from vtkit.settings.named import Named, find_mark, named_things
from vtkit.settings.recipe import AXES, Recipe, Specification
from vtkit.system import console

PATH_ENDINGS = (".toml", ".txt", ".tsv", ".jsonl", ".gz", ".zst", ".model", ".json", ".parquet")
"""A name with one of these endings is a path, whether it exists or not."""

MOST_BYTES = 100_000  # a recipe may have so many bytes; those that ship with vtkit have some three thousand
MOST_FILES = 100  # that a recipe may extend, directly or not
_LONG_KEY = re.compile(r"""(?<!["'\w-])(?:["'\w-]++[ \t]*+\.[ \t]*+){50}""")
"""A key for which the parser's memory would grow with the square of its parts; read in one pass."""
_ALWAYS_PATHS = ("corpus", "pairs", "vectors", "rankings", "recipe")
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_NAMED = re.compile(r"\[\w+\]|\b\w+\.\w+\b")  # sections and settings in a message about several sections
_SOURCES = {"model", "recipe", "scratch"}
"""Mutually exclusive settings of [source]: a new one replaces an inherited one."""
Model = TypeVar("Model", bound=BaseModel)
Settings = dict[str, Any]


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe and where it came from."""

    recipe: Recipe
    shown: str  # the file's name as the user gave it, for messages
    places: Mapping[str, str]  # dotted setting -> where it was written: `line 14`, `base.toml line 3` or `--set 2`


def load_recipe(
    path: Path, overrides: Sequence[str] = (), *, text: str | None = None, cell: Mapping[str, int | str] | None = None
) -> LoadedRecipe:
    """Read and check the recipe at ``path``.

    ``extends`` names recipes whose settings this one takes over, in order; its own are laid over theirs, and
    ``overrides`` over these, in order. Tables are merged, everything else is replaced. An override is
    ``section.key=value``, its value TOML or else plain text; ``none`` removes a setting or a section. A new
    ``vocabulary.kind`` removes the settings that the new kind does not have, and one of ``source.model``,
    ``source.recipe`` and ``source.scratch`` removes the others.

    A tokenizer that is a ``.toml`` file is a specification: its [vocabulary] and [casing] take the place of the
    recipe's ``kind = "existing"``, and settings of [vocabulary] beside ``tokenizer`` are laid over it.

    Names of files and folders become absolute paths. They are relative to the folder of the file that wrote them, those
    in overrides to the current folder (:func:`resolve_name` says what counts as a path).

    Args:
        text: contents of a file that is not written yet; its problems have no lines.
        cell: of the recipe's [sweep], which it then is without: setting -> place of the value in its list, and ``rows``
            and ``columns`` -> name.

    Raises:
        RecipeError: everything that is wrong with the recipe, with file, line and setting.
    """
    reading = _Reading(str(path))
    reading.start(path, overrides, text)
    if cell is not None:
        reading.choose(cell)
    reading.specify()
    return LoadedRecipe(reading.checked(Recipe, reading.settings), reading.shown, reading.places)


def load_specification(path: Path, overrides: Sequence[str] = ()) -> tuple[Specification, Mapping[str, str]]:
    """The specification of a tokenizer in ``path``: the sections [vocabulary] (trained or expanded) and [casing], read
    as recipes are (:func:`load_recipe`), with the same errors; and where its settings were written."""
    reading = _Reading(str(path), "cannot be built")
    reading.start(path, overrides)
    return reading.checked(Specification, reading.settings), reading.places


def load_section(kind: type[BaseModel], name: str, overrides: Sequence[str], **given: Any) -> Settings:
    """The settings of the section ``name`` that ``--set KEY=VALUE`` and other options give, checked as those of a
    recipe. ``index.a.b=1`` and ``a.b=1`` are the same setting of [index]."""
    reading = _Reading(f"The settings of [{name}]", "cannot be used")
    reading.settings[name] = given
    for number, override in enumerate(overrides, 1):
        reading.override(f"{name}.{override.removeprefix(f'{name}.')}", f"--set {number}")
    reading.checked(kind, reading.settings[name])
    return dict(reading.settings[name])


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
    # symbolic links stay as they are, and expanduser fails at a null character
    path = os.path.abspath(folder / (value if "\0" in value else os.path.expanduser(value)))
    there = os.path.lexists(path)
    if what in ("corpus", "retrieval") and not there:
        if is_public(value):
            return value
        there = ":" in value and os.path.isdir(path.rpartition(":")[0])
    local = (
        what in _ALWAYS_PATHS
        or value in (".", "..")
        or value.startswith(("./", "../", "/", "~"))
        or value.lower().endswith(PATH_ENDINGS)
        or there
        or (what == "retrieval" and "/" in value)
        or (what in ("model", "tokenizer", "dataset") and _HUB_ID.fullmatch(value) is None)
    )
    return path if local else value


def required_things(recipe: Recipe | Specification) -> Iterator[Named]:
    """Models, corpora and files that the recipe needs: all it names, except in settings that its methods do not use."""
    for thing in named_things(recipe):
        used = getattr(getattr(recipe, thing.setting.partition(".")[0]), "settings_read", None)
        if used is None or thing.setting in used:
            yield thing


class _Reading:
    """The settings that have been read so far, where each was written, and the problems found on the way."""

    def __init__(self, shown: str, verdict: str = "cannot be run") -> None:
        self.shown, self.verdict = shown, verdict
        self.settings: Settings = {}
        self.places: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.files: dict[Path, tuple[Settings, dict[str, str]]] = {}  # each is read once, however often it is extended

    def start(self, path: Path, overrides: Sequence[str], text: str | None = None) -> None:
        """Read ``path`` and what it extends, and lay ``overrides`` over it."""
        self.settings = self.read(path, text)
        incomplete = bool(self.problems)
        for number, override in enumerate(overrides, 1):
            self.override(override, f"--set {number}")
        if incomplete:  # checking what could be read would only mislead
            raise refusal(self.shown, self.problems, self.verdict)

    def read(self, path: Path, text: str | None = None, shown: str = "", chain: tuple[Path, ...] = ()) -> Settings:
        """The settings of ``path``, or of the ``text`` that it will have, over those of the files that it extends;
        ``shown`` is its name in messages, empty for the recipe itself, and ``chain`` the files that led here."""
        path = Path(os.path.abspath(path))
        if chain and path in self.files:
            self.places |= self.files[path][1]
            return self.files[path][0]
        line = f"{plain(shown)} line".lstrip() if text is None else ""
        try:
            if text is None:
                if path.exists() and not (path.is_file() or path.is_dir()):
                    raise OSError(0, "it is no regular file")
                if len(self.files) + len(chain) > MOST_FILES:
                    raise OSError(0, f"recipes extend more than {MOST_FILES} files")
                with path.open("rb") as file:
                    raw = file.read(MOST_BYTES + 1)
                if len(raw) > MOST_BYTES:
                    raise OSError(0, f"it has more than {MOST_BYTES} bytes and is not a recipe")
                text = raw.decode("utf-8-sig")  # some editors put a byte order mark in front, which TOML does not know
            own = _absolute_names(_toml(text), path.parent)
            lines = {".".join(key): f"{line} {number}" for key, number in key_lines(text).items()} if line else {}
        except (OSError, ValueError, RecursionError) as error:
            number, what = _unreadable(path, error, text or "")
            place, name = (f"{line} {number}", "") if line and number else ("", plain(shown))
            self.problems.append(Problem(place, name, what))
            return {}
        stands = lines.get("extends", "")
        names = own.pop("extends", [])
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, list) or not all(
            isinstance(name, str) and name and "\0" not in name for name in names
        ):
            what = f"must be the name of a recipe file, or a list of them, not {shown_value(names)}."
            self.problems.append(Problem(stands, "extends", what))
            names = []
        settings: Settings = {}
        others, self.places = self.places, {}
        chain = (*chain, path)
        for name in names:
            base = Path(os.path.abspath(path.parent / os.path.expanduser(name)))
            links = [os.path.realpath(link) for link in (*chain, base)]
            if links[-1] in links[:-1]:
                circle = " -> ".join(plain(link.name) for link in (*chain, base)[links.index(links[-1]) :])
                self.problems.append(Problem(stands, "extends", f"goes in a circle: {circle}."))
            elif not os.path.exists(base):
                what = f"there is no file {plain(str(base))}.{_near(base)}"
                self.problems.append(Problem(stands, "extends", what))
            else:
                beside = os.path.dirname(shown or self.shown)
                base_shown = os.path.normpath(os.path.join(beside, os.path.expanduser(name)))
                settings = _merged(settings, self.read(base, None, base_shown, chain))
        self.places |= {setting: _place_in(lines, setting) for setting, _ in dotted(own)} | lines
        self.files[path] = _merged(settings, own), self.places
        self.places = others | self.places
        return self.files[path][0]

    def override(self, override: str, place: str) -> None:
        """Lay one ``section.key=value`` over the settings."""
        setting, equals, text = (part.strip() for part in override.partition("="))
        setting = re.sub(r"\s*\.\s*", ".", setting)
        if not equals or not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", setting):
            what = f"must be section.key=value, such as adapt.steps=4000, not {shown_value(override)}."
            self.problems.append(Problem(place, "", what))
            return
        field = _field_at(setting)
        value, is_toml = one_value(text)
        what = ""
        if setting == "extends":
            what = "is allowed only in the file of a recipe."
        elif not console.is_utf8(text):
            what = "is not valid UTF-8."
        elif text == "none" and field is None:
            above = _field_at(setting.rpartition(".")[0])
            what = unknown_setting(setting.split("."), tables_in(above.annotation) if above else [Recipe])
        elif not is_toml and text[:1] in ("[", "{") and not (field and takes_text(field.annotation)):
            example = f'--set \'{setting}=["a", "b"]\''
            what = f"not valid TOML: {clipped(plain(text))}. A list is written {example}."
        if what:
            self.problems.append(Problem(place, setting, what))
            return
        if not is_toml or (field and takes_text(field.annotation) and not isinstance(value, str | list | dict)):
            value = text  # --set recipe.name=2024 is meant as text
        self.lay(setting, _absolute_names(_nested(setting, value), Path.cwd()), place, removed=text == "none")

    def lay(self, setting: str, values: Settings, place: str, *, removed: bool) -> None:
        """Lay the ``values`` of one setting over the others, or remove the setting unless it takes the value "none"."""
        *tables, name = setting.split(".")
        field = _field_at(setting)
        for number in range(1, len(tables) + 1):
            self.places.setdefault(".".join(tables[:number]), place)
        self.places |= {setting: place} | {inner: place for inner, _ in dotted(values)}
        if not removed or (field is not None and "none" in choices(field.annotation)):
            self.settings = _merged(self.settings, values)
            return
        table: Any = self.settings
        for part in tables:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table.pop(name, None)

    def choose(self, cell: Mapping[str, int | str]) -> None:
        """Lay the settings of a cell of [sweep] over the others, and remove [sweep]."""
        sweep = self.settings.pop("sweep")
        chosen: Settings = {}
        for axis in reversed(AXES):
            for setting, value in sweep.get(axis, {}).get(cell.get(axis), {}).items():
                chosen[setting] = value, _place_in(self.places, f"sweep.{axis}.{cell[axis]}.{setting}")
        for setting, values in sweep.get("values", {}).items():
            chosen[setting] = values[int(cell[setting])], _place_in(self.places, f"sweep.values.{setting}")
        for setting, (value, place) in chosen.items():
            self.lay(setting, _nested(setting, value), place, removed=value == "none")

    def specify(self) -> None:
        """Replace [vocabulary] and [casing] by those of the specification, if the tokenizer names one."""
        vocabulary = self.settings.get("vocabulary")
        if not isinstance(vocabulary, dict) or vocabulary.get("kind") != "existing":
            return
        path = Path(str(vocabulary.get("tokenizer")))
        if path.suffix.lower() != ".toml":
            return
        places = dict(self.places)
        specified = self.read(path, None, os.path.relpath(path))
        built, own = (dict(dotted(each)).get("casing.input") for each in (specified, self.settings))
        if own not in (None, built or "keep"):
            what = f"{plain(path.name)} sets {shown_value(built or 'keep')}: change it there, or leave it out here."
            self.problems.append(Problem(_place_in(self.places, "casing.input"), "casing.input", what))
        beside = {name: value for name, value in vocabulary.items() if name not in ("kind", "tokenizer")}
        specified = _merged(specified, {"vocabulary": beside})
        others = {name: value for name, value in self.settings.items() if name != "vocabulary"}
        self.checked(Specification, specified)
        self.places |= places
        self.settings = _merged(specified, others)

    def checked(self, kind: type[Model], settings: Settings) -> Model:
        """Validate ``settings`` as a ``kind``; raise all problems of the file together."""
        try:
            model = kind.model_validate(_tuples(settings), strict=True)
        except ValidationError as error:
            for setting, what in faults_in(error, kind).items():
                names = [setting] if setting else [name.strip("[]") for name in _NAMED.findall(what)]
                places = [place for name in names if (place := _place_in(self.places, name))]
                self.problems.append(Problem(places[0] if places else "", setting, what))
        if self.problems:
            raise refusal(self.shown, self.problems, self.verdict)
        return model


def _toml(text: str) -> Settings:
    """The tables of a recipe within bounds that the parser does not have. ValueError or RecursionError: beyond them."""
    if _LONG_KEY.search(text):
        raise ValueError("a key has more than 50 parts")
    settings: Settings = tomllib.loads(text)
    values: list[Any] = [settings]
    while values:
        value = values.pop()
        if isinstance(value, dict | list):
            values += value.values() if isinstance(value, dict) else value
        elif isinstance(value, int) and value.bit_length() > 1000:
            raise ValueError("a whole number has more than 300 digits")
    return settings


def _unreadable(path: Path, error: Exception, text: str) -> tuple[int, str]:
    """The line of the fault that keeps a file from being read, 0 if it is the whole file, and the fault in words."""
    match error:
        case FileNotFoundError():
            return 0, f"there is no such file.{_near(path)}"
        case IsADirectoryError():
            inside = ", ".join(plain(entry.name) for entry in sorted(path.glob("*.toml")))
            return 0, f"it is a folder, not a recipe.{f' Recipes in it: {inside}.' if inside else ''}"
        case OSError():
            return 0, f"the file cannot be read: {error.strerror}."
        case RecursionError():
            return 0, "tables or lists are nested too deeply: this is not a recipe."
        case UnicodeDecodeError():
            raw: bytes = error.object  # without the byte order mark
            what = f"byte 0x{raw[error.start]:02x} is not valid UTF-8. Save the file in the encoding UTF-8."
            return raw.count(b"\n", 0, error.start) + 1, what
    if not text:
        return 0, f"the file cannot be read: {error}."
    lines = text.split("\n")  # the message is that of the standard library's reader
    position = re.search(r" \((?:at line (\d+), column (\d+)|at end of document)\)$", str(error))
    number = int(position[1]) if position and position[1] else len(lines) if position else 0
    what = str(error)[: position.start()] if position else str(error)
    if what == "Invalid value":
        what = "write text in quotes, a list in [ ], true and false in lower case"
    source = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return number, f"not valid TOML: {what[:1].lower()}{what[1:]}{f': {plain(source[:80])}' if source else '.'}"


def _place_in(places: Mapping[str, str], setting: str) -> str:
    """The place of a setting, or of the innermost table around it that has one."""
    while setting and setting not in places:
        setting = setting.rpartition(".")[0]
    return places.get(setting, "")


def _near(path: Path) -> str:
    """A hint at a recipe with a similar name beside the missing one."""
    try:
        beside = [entry.name for entry in path.parent.iterdir() if entry.suffix == ".toml"]
    except (OSError, ValueError):
        return ""
    close = get_close_matches(path.name, beside, n=1)
    return f" Did you mean '{plain(close[0])}'?" if close else ""


def _merged(below: Settings, above: Settings, table: str = "") -> Settings:
    """``above`` laid over ``below``, the settings of ``table``; inherited settings that no longer apply are dropped."""
    dropped = _dropped(below, above, table)
    merged = {name: value for name, value in below.items() if name not in dropped}
    for name, value in above.items():
        inner = merged.get(name)
        if isinstance(value, dict) and isinstance(inner, dict):
            value = _merged(inner, value, f"{table}.{name}".lstrip("."))
        merged[name] = value
    return merged


def _dropped(below: Settings, above: Settings, table: str) -> set[str]:
    """Settings of ``below`` that no longer apply under those of ``above``."""
    if table == "source" and (given := above.keys() & _SOURCES):
        return _SOURCES - given
    if table == "vocabulary" and above.get("kind") not in (None, below.get("kind")):
        kinds = tables_in(Recipe.model_fields["vocabulary"].annotation)
        for chosen in (kind for kind in kinds if above["kind"] in tags_of(kind)):
            return {name for kind in kinds for name in kind.model_fields} - chosen.model_fields.keys()
    return set()


def _absolute_names(settings: Settings, folder: Path, tables: Sequence[type[BaseModel]] = (Recipe,)) -> Settings:
    """``settings`` of one of ``tables``, with names of files and folders as absolute paths, and with the settings in
    [sweep] named by dotted paths, however they are written."""
    absolute: Settings = {}
    for name, value in settings.items():
        field = field_called(name, tables)
        absolute[name] = value
        if field is None:
            continue
        if isinstance(value, dict):
            inside = _absolute_names(value, folder, tables_in(field.annotation))
            absolute[name] = _sweep(inside, folder) if name == "sweep" else inside
        elif (mark := find_mark(field.metadata, field.annotation)) and isinstance(value, list) == takes_several(field):
            entries = [
                resolve_name(entry, mark.what, folder)
                if isinstance(entry, str) and entry not in ("", *mark.words)
                else entry
                for entry in (value if isinstance(value, list) else [value])
            ]
            absolute[name] = entries if isinstance(value, list) else entries[0]
    return absolute


def _sweep(sweep: Settings, folder: Path) -> Settings:
    def absolute(setting: str, value: Any) -> Any:
        if value == "none" or setting.startswith("sweep."):  # a cell has no [sweep]
            return value
        named = _absolute_names(_nested(setting, value), folder)
        return reduce(lambda table, part: table[part], setting.split("."), named)

    def row(settings: Any) -> Any:
        if not isinstance(settings, dict):
            return settings
        return {setting: absolute(setting, value) for setting, value in dotted(settings)}

    for axis in AXES:
        if isinstance(rows := sweep.get(axis), dict):
            sweep[axis] = {name: row(settings) for name, settings in rows.items()}
    if isinstance(values := sweep.get("values"), dict):
        sweep["values"] = {
            setting: [absolute(setting, value) for value in given] if isinstance(given, list) else given
            for setting, given in dotted(values)
        }
    return sweep


def _nested(setting: str, value: Any) -> Settings:
    """``{"adapt": {"steps": 5}}`` for ``adapt.steps`` and 5."""
    return reduce(lambda inner, part: {part: inner}, reversed(setting.split(".")), value)


def dotted(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted name and the value of each setting in tables."""
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from dotted(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _tuples(value: Any) -> Any:
    """``value`` as pydantic takes it in its strict mode: lists as tuples."""
    if isinstance(value, dict):
        return {name: _tuples(inner) for name, inner in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@cache
def _field_at(setting: str) -> FieldInfo | None:
    """The setting of a recipe; None if there is none."""
    field: FieldInfo | None = None
    tables: list[type[BaseModel]] = [Recipe]
    for part in setting.split("."):
        field = field_called(part, tables)
        tables = tables_in(field.annotation) if field else []
    return field


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
    without_long_strings = _LONG_STRING.sub(lambda text: '""' + "\n" * text[0].count("\n"), text)
    for number, line in enumerate(without_long_strings.split("\n"), 1):
        if not (match := _LINE.match(line)):
            continue
        parts = re.findall(_KEY, match["table"] or match["key"])
        path = tuple(next(iter(tomllib.loads(f"{part} = 0"))) for part in parts)
        table, path = (path, path) if match["table"] else (table, table + path)
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], number)
    return lines


def one_value(text: str) -> tuple[Any, bool]:
    """``text`` read as one TOML value, and whether it is one (nothing before, after or beside it)."""
    try:
        read = _toml(f"value = {text}")
    except (ValueError, RecursionError):
        return None, False
    return (read["value"], True) if set(read) == {"value"} else (None, False)
