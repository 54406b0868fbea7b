"""What is wrong with a recipe, in plain words: which file, which line, which setting, what was expected there
and what was found. All problems of a recipe end in one error."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from vtkit.recipe.tables import all_settings, choices, field_called, meaning, tables_in, tags_of
from vtkit.recipe.write import toml_text, toml_value
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import RecipeError

S = TypeVar("S", bound=BaseModel)

_LONGEST_VALUE = 60
_LONGEST_SETTING = 100
_MOST_SHOWN = 30


@dataclass(frozen=True)
class Place:
    """The file and the line where a setting was written."""

    label: str  # `line 14`, `base.toml line 3` or `--set 2`; empty for a setting that no user wrote in a file or option
    folder: Path  # folder that its relative paths start from
    order: tuple[int, int]  # rank of the file, then the line: problems are listed in this order


@dataclass(frozen=True)
class Problem:
    """One line of the error."""

    place: Place | None  # None where nothing in the recipe is to blame alone
    setting: str  # dotted path, or nothing where the problem is not one of a setting
    what: str


@dataclass(frozen=True)
class Fault:
    """A problem whose place is not looked up yet."""

    path: tuple[str, ...]
    what: str
    kind: str  # type of pydantic's error


def refusal(shown: str, problems: Iterable[Problem], verdict: str = "cannot be run") -> RecipeError:
    """The error that lists ``problems`` of the recipe called ``shown``, in the order they stand in its files."""
    listed = sorted(dict.fromkeys(problems), key=lambda problem: problem.place.order if problem.place else (-1, 0))
    further = len(listed) - _MOST_SHOWN
    listed = listed[:_MOST_SHOWN]
    width = max((len(problem.place.label) for problem in listed if problem.place), default=0)
    lines = [f"{plain(shown)} {verdict}:"]
    for problem in listed:
        label = f"{problem.place.label if problem.place else '':<{width}}  " if width else ""
        setting = f"{cut(plain(problem.setting), _LONGEST_SETTING)}: " if problem.setting else ""
        lines.append(f"  {label}{setting}{problem.what}")
    lines += [f"  ... and {further} more"] if further > 0 else []
    return RecipeError("\n".join(dict.fromkeys(lines)))


def plain(text: str) -> str:
    """``text`` as it is where a terminal can show it, in quotes and escaped where it holds control characters."""
    if text.isprintable():
        return text
    quoted = toml_text(text.encode(errors="backslashreplace").decode())
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08X}" for letter in quoted)


def shown_value(value: Any) -> str:
    """A value as the recipe writes it, cut where it is long."""
    if isinstance(value, dict):
        return "a table"
    return cut(plain(toml_value(value)))


def cut(text: str, longest: int = _LONGEST_VALUE) -> str:
    """``text``, and dots for what there is of it beyond ``longest`` characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def section_of(kind: type[S], settings: Mapping[str, Any], called: Callable[[str], str] = str, refused: str = "") -> S:
    """The section ``kind`` with these settings, None where one is not given; ``called`` says how a setting is called
    where they come from, ``--target`` for ``target_activation``."""
    try:
        return kind(**{name: value for name, value in settings.items() if value is not None})
    except ValidationError as error:
        lines = [
            f"{called('.'.join(fault.path))}: {fault.what}" if fault.path else fault.what
            for fault in faults_in(error, kind)
        ]
        raise RecipeError("\n".join([refused, *lines] if refused else lines)) from error


def faults_in(error: ValidationError, root: type[BaseModel] = Recipe) -> list[Fault]:
    """Faults that pydantic found in a ``root``, in plain words; one for each problem, in the order of the settings."""
    entries = [entry for entry in error.errors(include_url=False) if not _other_variant(entry)]
    # A list with a bad entry is also reported as shorter than it is.
    entries = [entry for entry in entries if entry["type"] != "too_short" or not entry["input"]]
    # To look for the setting that is meant takes a while, and so many are not shown anyway.
    return [_fault(entry, root) for entry in entries[: _MOST_SHOWN + 1]] + [
        Fault(tuple(map(str, entry["loc"])), "", entry["type"]) for entry in entries[_MOST_SHOWN + 1 :]
    ]


def _other_variant(entry: Any) -> bool:
    """Whether ``entry`` is about the form of a setting that was not used: a setting that is one value or a list of
    them (transfer.method) is reported in both forms, named ``literal[…]`` and ``tuple[…]`` in the location."""
    single, several = (any(_names_variant(part, kind) for part in entry["loc"]) for kind in ("literal[", "tuple["))
    return (single and isinstance(entry["input"], tuple | list)) or (several and entry["type"] == "tuple_type")


def _names_variant(part: str | int, kind: str = "") -> bool:
    return isinstance(part, str) and part.lstrip("`").startswith((kind,) if kind else ("literal[", "tuple["))


REPLACED = {
    "adapt.distill.bm25": "BM25 teaches unless a cross-encoder does",
    "adapt.distill.candidates": "It is 2",
    "adapt.distill.generator": "Name the model in 'adapt.distill.queries'",
    "adapt.report_to": "It is 'report.training'",
    "calibrate.fold": "It is 'casing.output'",
    "calibrate.texts": "It is 512",
    "evaluate.weightings": "A sweep over 'index.document_weighting' compares them",
    "finetune.bm25": "Name \"bm25\" in 'finetune.teachers'",
    "finetune.mining.bm25": "Name \"bm25\" in 'finetune.mining.rankings'",
    "finetune.mining.encoder": "Name \"encoder\" in 'finetune.mining.rankings'",
    "finetune.mining.models": "They are in 'finetune.mining.rankings'",
    "finetune.report_to": "It is 'report.training'",
    "finetune.validation.share": "It is 'finetune.validation.queries'",
    "finetune.validation.split": "It is 'finetune.validation.queries'",
    "index.keep": "'index.top_dimensions' removes small weights",
    "index.milvus": "vtkit export --for milvus hands an index over to Milvus",
    "index.opensearch": "Queries as plain text are in what vtkit export --for opensearch writes",
    "index.seismic": "Its heap factor is chosen when the index is built",
}
"""Settings of earlier versions that similar names do not lead from to what is there instead."""


def unknown_setting(path: tuple[str, ...], tables: Sequence[type[BaseModel]]) -> str:
    """Why there is no setting ``path``, whose last part none of ``tables`` has, and which one may be meant."""
    if instead := REPLACED.get(".".join(path)):
        return f"unknown setting. {instead}."
    name = path[-1][:_LONGEST_SETTING].lower().replace("-", "_")
    thing = "section" if len(path) == 1 else "setting"
    known = list(dict.fromkeys(field for table in tables for field in table.model_fields))
    known += ["extends"] if len(path) == 1 else []
    below = [setting for setting in all_settings() if setting[: len(path) - 1] == path[:-1] and setting[-1] == name]
    close = [f"'{'.'.join(setting)}'" for setting in below if len(path) > 1]
    close = close or [f"'{match}'" for match in get_close_matches(name, known, n=1)]
    if not close:  # perhaps one of another section
        settings = all_settings()
        match = get_close_matches(name, {setting[-1] for setting in settings}, n=1, cutoff=0.75)
        close = [f"'{'.'.join(setting)}'" for setting in settings if setting[-1] in match]
    if close:
        return f"unknown {thing}. Did you mean {' or '.join(close)}?"
    return f"unknown {thing}. There {'is' if len(known) == 1 else 'are'} {', '.join(known)}."


def _fault(entry: Any, root: type[BaseModel]) -> Fault:
    path, entry_number, field, tables = _walk(entry["loc"], root)
    kind, found, context = entry["type"], entry["input"], entry.get("ctx", {})
    if kind.startswith("union_tag"):
        assert field is not None
        tag = str(field.discriminator)
        variants = tables_in(field.annotation)
        expected = [str(value) for variant in variants for value in tags_of(variant, tag)]
        path = (*path, tag)
        if kind == "union_tag_invalid":
            return Fault(path, _not_one_of(expected, found[tag]), kind)
        return Fault(path, f"is missing: {_choice(expected)}.", kind)
    if kind == "extra_forbidden":
        return Fault(path, _unknown(path, tables, root), kind)
    what = _words(kind, found, context, field, entry["msg"])
    if isinstance(found, tuple) and field is not None and (inner := tables_in(field.annotation)):
        lists = [name for table in inner for name, below in table.model_fields.items() if below.default == ()]
        what += f" Did you mean '{'.'.join((*path, lists[0]))}'?" if lists else ""
    return Fault(path, f"entry {entry_number + 1} {what}" if entry_number is not None else what, kind)


def _words(kind: str, found: Any, context: dict[str, Any], field: FieldInfo | None, message: str) -> str:
    instead = f", not {shown_value(found)}."
    match kind:
        case "missing":
            return _missing(field)
        case "greater_than":
            return f"must be greater than {_number(context['gt'])}{instead}"
        case "greater_than_equal":
            return f"must be at least {_number(context['ge'])}{instead}"
        case "less_than":
            return f"must be less than {_number(context['lt'])}{instead}"
        case "less_than_equal":
            return f"must be at most {_number(context['le'])}{instead}"
        case "literal_error" if field:
            return _not_one_of(choices(field.annotation), found)
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            return f"must be a whole number{instead}"
        case "float_type" | "float_parsing":
            return f"must be a number{instead}"
        case "finite_number":
            return f"must be a finite number{instead}"
        case "bool_type" | "bool_parsing":
            return f"must be true or false{instead}"
        case "string_type":
            return f"must be text in quotes{instead}"
        case "string_pattern_mismatch" if field:
            return f"cannot be {shown_value(found)}. Expected: {_brief(field)}"
        case "tuple_type" if isinstance(found, str):
            return f"must be a list: [{shown_value(found)}]{instead}"
        case "tuple_type":
            return f"must be a list{instead}"
        case "too_short":
            return f"must have at least {context['min_length']} {'entry' if context['min_length'] == 1 else 'entries'}."
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"must be a table of settings{instead}"
        case "value_error":
            return f"{context['error']}."
        case _:
            return f"{message[:1].lower()}{message[1:]}{instead}"


def _missing(field: FieldInfo | None) -> str:
    if field is None:
        return "is missing."
    if field.discriminator:
        tag = str(field.discriminator)
        tags = [str(value) for table in tables_in(field.annotation) for value in tags_of(table, tag)]
        return f"the section is missing. It starts with {tag} = {_choice(tags)}."
    if choices(field.annotation):
        return f"is missing: {_choice(choices(field.annotation))}."
    return f"{'the section ' if tables_in(field.annotation) else ''}is missing: {_brief(field)}"


def _walk(
    loc: Sequence[str | int], root: type[BaseModel]
) -> tuple[tuple[str, ...], int | None, FieldInfo | None, list[type[BaseModel]]]:
    """Pydantic's location as: dotted path, number of the list entry, the setting, the tables it stands in."""
    path: list[str] = []
    entry: int | None = None
    field: FieldInfo | None = None
    tables: list[type[BaseModel]] = []
    inner: list[type[BaseModel]] = [root]
    for part in loc:
        if isinstance(part, int):
            entry = part
        elif field is not None and not inner and _names_variant(part):
            continue
        elif field is not None and field.discriminator and len(inner) > 1:
            # Pydantic names the variant of a union after the union itself: ("vocabulary", "existing", "tokenizer").
            inner = [table for table in inner if part in tags_of(table, str(field.discriminator))]
        else:
            path.append(part)
            tables, field = inner, field_called(part, inner)
            inner = tables_in(field.annotation) if field else []
    return tuple(path), entry, field, tables


def _unknown(path: tuple[str, ...], tables: list[type[BaseModel]], root: type[BaseModel]) -> str:
    if root is not Recipe:
        known = list(dict.fromkeys(name for table in tables for name in table.model_fields))
        close = get_close_matches(path[-1], known, n=1)
        return "unknown setting. " + (f"Did you mean '{close[0]}'?" if close else f"There are {', '.join(known)}.")
    if len(path) > 1:
        union = Recipe.model_fields[path[0]]
        for variant in tables_in(union.annotation) if len(path) == 2 and union.discriminator else []:
            tag = str(union.discriminator)
            if path[1] in variant.model_fields:
                here, there = (" or ".join(f'"{value}"' for value in tags_of(t, tag)) for t in (tables[0], variant))
                return f"exists with {tag} = {there} only, not with {here}."
    return unknown_setting(path, tables)


def _not_one_of(expected: Sequence[str], found: Any) -> str:
    close = get_close_matches(found.lower(), expected, n=1) if isinstance(found, str) else []
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return f"must be {_choice(expected)}, not {shown_value(found)}.{hint}"


def _choice(expected: Sequence[str]) -> str:
    quoted = [f'"{value}"' for value in expected]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _brief(field: FieldInfo) -> str:
    """The purpose of a setting in one line: the first paragraph of its docstring."""
    text = " ".join(meaning(field).split("\n\n")[0].split())
    text = re.sub(r"^\[[\w.]+\][^:]*: ", "", text).replace("`", "'")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _number(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e6 else str(value)


def known_settings(
    kind: type[S], recorded: Mapping[str, Any], above: str = "", *, values: bool = False
) -> tuple[S, list[str]]:
    """The section, or the whole recipe, with every setting that this version knows, and the names of the others, behind
    ``above``. With ``values``, settings whose values are refused have their defaults too."""
    kept = deepcopy(dict(recorded))
    passed_over: list[str] = []
    while True:
        try:
            return kind.model_validate(kept), passed_over
        except ValidationError as error:
            entries = [entry for entry in error.errors(include_url=False) if entry["type"] != "missing"]
            if not values:
                entries = [entry for entry in entries if entry["type"] == "extra_forbidden"]
            removed = [name for entry in entries if (name := _remove(kept, entry["loc"]))]
            if not removed:
                raise
            passed_over += [f"{above}{name}" for name in removed]


def _remove(table: dict[str, Any], location: Sequence[str | int]) -> str:
    """Take the innermost setting at ``location`` out; returns its dotted name, empty where there is none. Parts of the
    location that are no keys name variants of a table, or entries of a list."""
    inside: Any = table
    path: list[str] = []
    around = table
    for part in location:
        if isinstance(inside, dict) and part in inside:
            around, inside = inside, inside[part]
            path.append(str(part))
    if path:
        around.pop(path[-1], None)
    return ".".join(path)
