"""Texts that are written from the templates of a package, in its folder ``templates``; nothing in them is escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def templates_of(package: str, **settings: Any) -> Environment:
    """The templates of ``package``; an expression in them that is not defined is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    settings |= {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    return Environment(loader=PackageLoader(package), undefined=StrictUndefined, **settings)
