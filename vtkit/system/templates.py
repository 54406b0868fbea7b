"""Texts that are written from the templates of a package, in its folder ``templates``; nothing in them is escaped."""

from typing import Any


def from_template(package: str, name: str, /, **facts: Any) -> str:
    """The template ``name`` of ``package``, filled in."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader(package),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template(name).render(**facts)
