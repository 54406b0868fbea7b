"""A recipe written out whole: every setting with its value, below a comment with its meaning."""

import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from vtkit.recipe.tables import meaning, tables_in
from vtkit.settings.recipe import Recipe

_WIDTH = 100


def resolved_toml(recipe: Recipe, used: Mapping[str, Any] | None = None) -> str:
    """``recipe`` as TOML text that loads back equal, with nothing inherited and nothing left to defaults.

    Settings and sections without a value, which TOML cannot write, stand as comments. ``used`` says what stages use
    where a setting is left open (``pipeline/steps/texts.py``); that too stands as a comment.
    """
    lines: list[str] = []
    for name, field in Recipe.model_fields.items():
        section = getattr(recipe, name)
        if section is None and name in ("sweep", "run"):
            continue  # a run has no sweep, and its report does not say where it ran
        if section is None:
            words = "\n".join(_comment(meaning(table)) for table in tables_in(field.annotation))
            lines += [words, f"# [{name}] is left out of this recipe, so the stage is not run.", ""]
        else:
            lines += _table(name, section, used or {})
    return "\n".join(lines)


def toml_value(value: Any) -> str:
    """``value`` (text, number, truth value, list or tuple, dictionary) as TOML writes it, on one line. In texts, the
    characters that TOML forbids or a terminal would obey are escaped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        quoted = json.dumps(value, ensure_ascii=False)
        return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08X}" for letter in quoted)
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(entry) for entry in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_value(key)} = {toml_value(entry)}" for key, entry in value.items()) + "}"
    return str(value)  # int and float print as TOML reads them, inf and nan included; dates too


def plain(text: str) -> str:
    """``text`` as it is if a terminal can show it; with control characters, in quotes and escaped."""
    return text if text.isprintable() else toml_value(text)


def _table(path: str, section: BaseModel, used: Mapping[str, Any], read: set[str] | None = None) -> Iterator[str]:
    """The lines of a table; ``read`` holds the settings that have an effect, if the section knows them."""
    read = read if read is not None else getattr(section, "settings_read", None)
    yield _comment(meaning(type(section)))
    if read is not None and not any(setting.startswith(f"{path}.") for setting in read):
        yield "# Not used in this recipe."
    yield f"[{path}]"
    below: list[tuple[str, BaseModel]] = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            below.append((f"{path}.{name}", value))
            continue
        tables = tables_in(field.annotation)
        if tables and value is None:
            yield _comment(meaning(tables[0]))
            yield f"# [{path}.{name}] is left out."
            continue
        if field.description:
            yield _comment(field.description)
        if f"{path}.{name}" in used:
            yield f"# Left open in this recipe, which uses {toml_value(used[f'{path}.{name}'])}."
        yield f"# {name} is not set." if value is None else f"{name} = {wrapped(value)}"
    yield ""
    for inner_path, inner in below:
        yield from _table(inner_path, inner, used, read)


def wrapped(value: Any) -> str:
    """``value`` as TOML; a list that is too long for a line has a line for each entry."""
    line = toml_value(value)
    if not isinstance(value, list | tuple) or len(line) <= _WIDTH:
        return line
    return "[\n" + "".join(f"    {toml_value(entry)},\n" for entry in value) + "]"


def _comment(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in inspect.cleandoc(text).replace("``", "`").splitlines())
