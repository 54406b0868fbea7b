"""Every setting of a recipe with its default and meaning, read off the sections themselves: docs/settings.md, and a
JSON Schema, by which editors complete and check a recipe while it is written.

``python -m vtkit.recipe.reference > docs/settings.md`` writes the page anew; a test compares the two.
"""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from vtkit.recipe.tables import choices, meaning, purpose, tables_in, tags_of
from vtkit.recipe.write import toml_value
from vtkit.settings.recipe import Recipe, Specification

_HEAD = """\
# Settings

All settings of a recipe, section by section, in the order of the stages. "–" means that there is no default value;
`vtkit recipe show` prints a recipe with all of them filled in. Written from `vtkit/settings/`; [recipes.md](recipes.md)
explains how recipes are put together.
"""


def settings_reference() -> str:
    """The page, in Markdown."""
    lines = [_HEAD]
    for name, field in Recipe.model_fields.items():
        lines += [f"## [{name}]", ""]
        for table in tables_in(field.annotation):
            lines += _table(name, table, field.discriminator if isinstance(field.discriminator, str) else None)
    lines += ["## Specifications", "", _plain(Specification), ""]
    return re.sub(r"\bdocs/(\w+\.md)(#[\w-]+)?", r"[\1](\1\2)", "\n".join(lines).rstrip()) + "\n"


def _table(path: str, table: type[BaseModel], tag: str | None = None) -> Iterator[str]:
    yield _plain(table)
    yield ""
    head = f"`{tag} = {toml_value(tags_of(table)[0])}`" if tag else "setting"
    yield f"| {head} | default | meaning |"
    yield "|---|---|---|"
    inner: list[tuple[str, type[BaseModel]]] = []
    for name, field in sorted(table.model_fields.items(), key=lambda item: bool(tables_in(item[1].annotation))):
        if name == tag:
            continue
        tables = tables_in(field.annotation)
        inner += [(f"{path}.{name}", below) for below in tables]
        if not tables:  # which have headings of their own below
            default = "–" if field.default is None else f"`{toml_value(field.default)}`"
            yield f"| `{name}` | {'required' if field.is_required() else default} | {_meaning(field)} |"
    yield ""
    for below, section in inner:
        yield f"### [{below}]"
        yield ""
        yield from _table(below, section)


def _meaning(field: FieldInfo) -> str:
    text = " ".join(meaning(field).split())
    words = choices(field.annotation)
    if not all(word in text for word in words):
        numbers = all(word.isdigit() for word in words)
        text = f"One of {', '.join(f'`{word if numbers else toml_value(word)}`' for word in words)}. {text}"
    return text.replace("|", "\\|")


def _plain(table: type[BaseModel]) -> str:
    text = purpose(table)
    return text[:1].upper() + text[1:]


_EXTENDS = {
    "description": "Recipes whose settings this one takes over, relative to its folder; later ones over earlier ones.",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
}


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a recipe's file.

    Nothing but the name of each setting and its form is demanded: a file that extends another may leave out
    what that one has, so what is missing is only found by ``vtkit recipe check``.
    """
    schema = _for_toml(Recipe.model_json_schema())
    schema["properties"] = {"extends": _EXTENDS, **schema["properties"]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "description": meaning(Recipe)}


def _for_toml(schema: Any) -> Any:
    """Pydantic's schema without what TOML does not have (null) and without what a partial file may lack."""
    if isinstance(schema, list):
        return [_for_toml(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for name, value in schema.items():
        if name in ("properties", "$defs"):  # below these, the keys are names of settings and tables
            kept[name] = {key: _for_toml(entry) for key, entry in value.items()}
        elif name not in ("title", "required", "discriminator", "anyOf", "oneOf", "default"):
            kept[name] = _for_toml(value)
    default = schema.get("default")
    if default is not None and not isinstance(default, dict):
        kept["default"] = default
    either = [entry for entry in [*schema.get("anyOf", []), *schema.get("oneOf", [])] if entry != {"type": "null"}]
    if len(either) == 1:
        return {**_for_toml(either[0]), **kept}
    return {**kept, "anyOf": _for_toml(either)} if either else kept


if __name__ == "__main__":
    print(settings_reference(), end="")
