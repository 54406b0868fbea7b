"""vtkit moves a learned sparse retrieval encoder onto the vocabulary its user needs.

The public names stand in ``__init__.pyi``. Each is loaded when it is first asked for: ``import vtkit`` loads the
version alone (docs/python.md).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from vtkit.system.version import __version__ as __version__


@cache
def _modules() -> dict[str, str]:
    """Public name -> its module."""
    import ast
    from pathlib import Path

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_modules())
    if name not in _modules():
        raise AttributeError(f"module 'vtkit' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_modules()[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_modules()})
