"""docs/settings.md: every setting of a recipe with its default and meaning, read off the sections themselves.

``python -m vtkit.recipe.reference > docs/settings.md`` writes the page anew; a test compares the two.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from vtkit.recipe.tables import choices, tables_in, tags_of
from vtkit.recipe.write import toml_value
from vtkit.settings.recipe import Recipe, Specification

_HEAD = """\
# Settings

Every setting of a recipe, in the order of the stages. "–" means that there is no default value; `vtkit recipe show`
prints a recipe with all of them filled in. Written from `vtkit/settings/`; [recipes.md](recipes.md) explains
how recipes are put together.
"""


def settings_reference() -> str:
    """The page, in Markdown."""
    lines = [_HEAD]
    for name, field in Recipe.model_fields.items():
        lines += [f"## [{name}]", ""]
        for table in tables_in(field.annotation):
            lines += _table(name, table, field.discriminator if isinstance(field.discriminator, str) else None)
    lines += ["## Specifications", "", _plain(Specification), ""]
    return "\n".join(lines).rstrip() + "\n"


def _table(path: str, table: type[BaseModel], tag: str | None = None) -> Iterator[str]:
    yield _plain(table)
    yield ""
    head = f"`{tag} = {toml_value(tags_of(table, tag)[0])}`" if tag else "setting"
    yield f"| {head} | default | meaning |"
    yield "|---|---|---|"
    inner: list[tuple[str, type[BaseModel]]] = []
    for name, field in sorted(table.model_fields.items(), key=lambda item: bool(tables_in(item[1].annotation))):
        if name == tag:
            continue
        tables = tables_in(field.annotation)
        inner += [(f"{path}.{name}", below) for below in tables]
        meaning = f"a table: [{path}.{name}]" if tables else _meaning(field)
        yield f"| `{name}` | {_default(field)} | {meaning} |"
    yield ""
    for below, section in inner:
        yield f"### [{below}]"
        yield ""
        yield from _table(below, section)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    return "–" if value is None or isinstance(value, BaseModel) else f"`{toml_value(value)}`"


def _meaning(field: FieldInfo) -> str:
    text = " ".join(inspect.cleandoc(field.description or "").split())
    words = choices(field.annotation)
    if not all(word in text for word in words):
        numbers = all(word.isdigit() for word in words)
        text = f"One of {', '.join(f'`{word if numbers else toml_value(word)}`' for word in words)}. {text}"
    return _linked(text.replace("``", "`").replace("|", "\\|"))


def _plain(table: type[BaseModel]) -> str:
    text = " ".join(inspect.cleandoc(table.__doc__ or "").split()).replace("``", "`")
    text = re.sub(r"^\[[\w.]+\][^:]*: ", "", text)
    return _linked(text[:1].upper() + text[1:])


def _linked(text: str) -> str:
    return re.sub(r"\bdocs/(\w+\.md)(#[\w-]+)?", r"[\1](\1\2)", text)


if __name__ == "__main__":
    print(settings_reference(), end="")
