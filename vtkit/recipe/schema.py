"""A JSON Schema of recipes, for editors: completion, hover texts and squiggles while a recipe is written."""

from __future__ import annotations

from typing import Any

from vtkit.recipe.tables import meaning
from vtkit.settings.recipe import Recipe

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
