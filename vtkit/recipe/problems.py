"""The problems of a recipe in plain words: file, line, setting, and the expected value. One error lists them all."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from vtkit.recipe.tables import all_settings, choices, field_called, purpose, tables_in, tags_of
from vtkit.recipe.write import plain as plain
from vtkit.recipe.write import toml_value
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import RecipeError

S = TypeVar("S", bound=BaseModel)

_LONGEST_VALUE = 60
_LONGEST_SETTING = 100
_MOST_SHOWN = 30


class Problem(NamedTuple):
    """One line of the error."""

    place: str  # `line 14`, `base.toml line 3` or `--set 2`; empty if no line is to blame alone
    setting: str  # dotted path; empty if the problem is not one of a setting
    what: str


def refusal(shown: str, problems: Iterable[Problem], verdict: str = "cannot be run") -> RecipeError:
    """The error that lists ``problems`` of the recipe called ``shown`` by line, those of other files behind its own."""
    listed = sorted(dict.fromkeys(problems), key=lambda problem: _order(problem.place))
    further = len(listed) - _MOST_SHOWN
    listed = listed[:_MOST_SHOWN]
    width = max((len(problem.place) for problem in listed if problem.place), default=0)
    lines = [f"{plain(shown)} {verdict}:"]
    for problem in listed:
        label = f"{problem.place:<{width}}  " if width else ""
        setting = f"{clipped(plain(problem.setting), _LONGEST_SETTING)}: " if problem.setting else ""
        lines.append(f"  {label}{setting}{problem.what}".replace("\n", "\n    "))
    lines += [f"  ... and {further} more"] if further > 0 else []
    return RecipeError("\n".join(lines))


def _order(place: str) -> tuple[bool, list[str | int]]:
    """Numbers of lines count as numbers: line 9 comes before line 14."""
    numbered: list[str | int] = [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", place)]
    return bool(place) and not place.startswith("line "), numbered


def shown_value(value: Any) -> str:
    """A value as the recipe writes it, clipped if it is long."""
    return "a table" if isinstance(value, dict) else clipped(plain(toml_value(value)))


def clipped(text: str, longest: int = _LONGEST_VALUE) -> str:
    """``text``, with dots in place of everything beyond ``longest`` characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def section_of(kind: type[S], settings: Mapping[str, Any], called: Callable[[str], str] = str, refused: str = "") -> S:
    """The section ``kind`` with these settings; None stands for one that is not given. ``called`` translates the name
    of a setting for messages: ``--target`` for ``target_activation``."""
    try:
        return kind(**{name: value for name, value in settings.items() if value is not None})
    except ValidationError as error:
        lines = [f"{called(setting)}: {what}" if setting else what for setting, what in faults_in(error, kind).items()]
        raise RecipeError("\n".join([refused, *lines] if refused else lines)) from error


def faults_in(error: ValidationError, root: type[BaseModel]) -> dict[str, str]:
    """Dotted setting of a ``root`` -> its problem, as pydantic found them. Pydantic tries both forms of a
    setting that is one value or a list; the first counts."""
    faults: dict[str, str] = {}
    for entry in error.errors(include_url=False):
        path, number, field, tables = _walk(entry, root)
        if (setting := ".".join(path)) not in faults:
            # Looking for the setting that is meant takes a while, and not all problems are shown.
            what = _words(entry, path, field, tables, root) if len(faults) <= _MOST_SHOWN else ""
            faults[setting] = what if number is None else f"entry {number + 1} {what}"
    return faults


def unknown_setting(path: Sequence[str], tables: Sequence[type[BaseModel]], everywhere: bool = True) -> str:
    """Message for an unknown setting ``path`` in one of ``tables``, with the closest known name; ``everywhere``: also
    of other sections."""
    name = path[-1][:_LONGEST_SETTING].lower().replace("-", "_")
    known = list(dict.fromkeys(field for table in tables for field in table.model_fields))
    kinds = tables_in(Recipe.model_fields["vocabulary"].annotation) if path[:-1] == ["vocabulary"] else []
    if having := [str(tag) for kind in kinds if path[-1] in kind.model_fields for tag in tags_of(kind)]:
        return f"exists with kind = {_choice(having)} only."
    below = [".".join(setting) for setting in all_settings() if setting[-1] == name and setting[0] == path[0]]
    close = (below if everywhere and len(path) > 1 else []) or get_close_matches(name, known, n=1)
    if not close and everywhere:
        names = get_close_matches(name, {setting[-1] for setting in all_settings()}, n=1, cutoff=0.75)
        close = [".".join(setting) for setting in all_settings() if setting[-1] in names]
    thing = "unknown section" if everywhere and len(path) == 1 else "unknown setting"
    if close:
        return f"{thing}. Did you mean {' or '.join(map(repr, close))}?"
    return f"{thing}. There {'is' if len(known) == 1 else 'are'} {', '.join(known)}."


def _walk(
    entry: Any, root: type[BaseModel]
) -> tuple[list[str], int | None, FieldInfo | None, Sequence[type[BaseModel]]]:
    """The path of a setting, the number of the list entry, the setting, and the tables that may stand at its place."""
    path: list[str] = []
    number = known = field = None
    tables: list[type[BaseModel]] = [root]
    for part in entry["loc"]:
        known = field_called(part, tables)
        if known is not None:
            path.append(part)
            field, tables = known, tables_in(known.annotation)
        elif isinstance(part, int):
            number = part
        else:  # pydantic names the chosen kind of a table after the table: ("vocabulary", "existing", "tokenizer")
            tables = [table for table in tables if "kind" in table.model_fields and part in tags_of(table)] or tables
    path += [entry["loc"][-1]] if entry["type"] == "extra_forbidden" else []
    path += ["kind"] if entry["type"].startswith("union_tag") else []
    return path, number, field, tables


_PLAINER = {
    r"^(Input|String|Tuple) should": "must",
    "a valid tuple": "a list",
    "(a valid dictionary|an object)( or instance of .*)?": "a table of settings",
    "a valid integer": "a whole number",
    "a valid string": "text in quotes",
    "a valid boolean": "true or false",
    " after validation": "",
}
"""Expression in pydantic's messages -> the word for people who write TOML."""


def _words(
    entry: Any, path: Sequence[str], field: FieldInfo | None, tables: Sequence[type[BaseModel]], root: type[BaseModel]
) -> str:
    kind, value = entry["type"], entry["input"]
    options = choices(field.annotation) if field else []
    if field is not None and field.discriminator and kind != "extra_forbidden":
        options = [str(tag) for table in tables for tag in tags_of(table)]
        value = value.get("kind") if kind == "union_tag_invalid" else value
    match kind:
        case "missing" | "union_tag_not_found":
            return f"is missing: {_choice(options) + '.' if options else _brief(field)}"
        case "union_tag_invalid" | "literal_error":
            close = get_close_matches(str(value).lower(), options, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            return f"must be {_choice(options)}, not {shown_value(value)}.{hint}"
        case "extra_forbidden":
            return unknown_setting(path, tables, root is Recipe)
        case "value_error":
            return f"{entry['ctx']['error']}."
        case "string_pattern_mismatch":
            return f"cannot be {shown_value(value)}. Expected: {_brief(field)}"
        case "tuple_type" if isinstance(value, str):
            return f"must be a list: [{shown_value(value)}]."
    message = entry["msg"]
    for expression, word in _PLAINER.items():
        message = re.sub(expression, word, message)
    return f"{message[:1].lower()}{message[1:]}{f', not {shown_value(value)}' if kind != 'too_short' else ''}."


def _choice(options: Sequence[str]) -> str:
    *others, last = (f'"{option}"' for option in options)
    return f"{', '.join(others)} or {last}" if others else last


def _brief(field: FieldInfo | None) -> str:
    """The purpose of a setting, as the end of a sentence."""
    text = purpose(field).replace("`", "'") if field else ""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
