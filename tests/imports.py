"""What modules import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "vtkit").rglob("*.py"))


def module_name(path: Path) -> str:
    """``vtkit/recipe/load.py`` as ``recipe.load``; the package itself as nothing."""
    parts = path.relative_to(ROOT / "vtkit").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_in(tree: ast.AST, module: str, *, when_imported: bool) -> Iterator[str]:
    """Full names of the modules that ``tree`` imports, anywhere or only as it is itself imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ["vtkit", *module.split(".")][: -node.level] if node.level else []
            origin = ".".join([*package, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif not (when_imported and runs_later(node)):
            yield from imports_in(node, module, when_imported=when_imported)


def runs_later(node: ast.AST) -> bool:
    """Whether what stands in ``node`` is not run as the module is imported."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
