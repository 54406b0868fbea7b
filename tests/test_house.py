"""The size and the shape of the house. Every number here only falls: a change that adds lowers another number."""

from __future__ import annotations

import ast
import importlib
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from vtkit.recipe.tables import all_settings

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "vtkit").rglob("*.py"))

CEILINGS: dict[str, tuple[int, int]] = {
    "commands": (1751, 102),
    "data": (2931, 329),
    "deploy": (2248, 234),
    "encoder": (2817, 291),
    "evaluation": (1326, 132),
    "pipeline": (3347, 244),
    "recipe": (1115, 95),
    "report": (1837, 160),
    "search": (3172, 333),
    "settings": (1020, 113),
    "system": (741, 110),
    "training": (2244, 231),
    "transfer": (1732, 136),
    "vocabulary": (2544, 223),
    "vtkit": (500, 52),
}
"""Room -> code lines and definitions. A line counts if a token stands on it, outside docstrings, comments and imports;
functions, methods and classes are definitions, so that cramming lines gains nothing."""

CONCEPTS: dict[str, int] = {
    "functions with eight parameters or more": 8,
    "dataclasses and named tuples": 225,
    "results": 67,
    "names defined in more than three modules": 14,
}
"""Things to learn, counted over all rooms. Compiled kernels may have many parameters."""

ARROWS: dict[str, set[str]] = {
    "commands": {
        "data",
        "deploy",
        "encoder",
        "evaluation",
        "pipeline",
        "recipe",
        "report",
        "search",
        "settings",
        "system",
        "transfer",
        "vocabulary",
        "vtkit",
    },
    "data": {"settings", "system"},
    "deploy": {"data", "encoder", "search", "settings", "system", "vocabulary"},
    "encoder": {"data", "settings", "system", "vocabulary"},
    "evaluation": {"data", "encoder", "search", "settings", "system", "training", "transfer", "vocabulary"},
    "pipeline": {
        "data",
        "encoder",
        "evaluation",
        "recipe",
        "report",
        "search",
        "settings",
        "system",
        "training",
        "transfer",
        "vocabulary",
    },
    "recipe": {"data", "encoder", "settings", "system"},
    "report": {"data", "encoder", "evaluation", "search", "settings", "system", "training", "transfer", "vocabulary"},
    "search": {"data", "encoder", "settings", "system", "vocabulary"},
    "settings": set(),
    "system": set(),
    "training": {"data", "encoder", "search", "settings", "system", "vocabulary"},
    "transfer": {"data", "encoder", "search", "settings", "system", "vocabulary"},
    "vocabulary": {"data", "settings", "system"},
    "vtkit": {
        "commands",
        "data",
        "deploy",
        "encoder",
        "evaluation",
        "pipeline",
        "recipe",
        "search",
        "settings",
        "system",
        "training",
        "transfer",
        "vocabulary",
    },
}
"""Room -> the rooms it may import. A new arrow is a decision; one that is no longer used is removed."""

NO_RECIPE_SETS: dict[str, str] = {
    "adapt.flops": "strength of a penalty; target_active sets it by its result",
    "adapt.target_active.document": "recipes give one number for both sides",
    "adapt.target_active.query": "recipes give one number for both sides",
    "calibrate.shift": "an alternative to target_activation",
    "evaluate.bm25": "switches the baseline off where it has been computed elsewhere",
    "evaluate.ignore_identical_ids": "for collections of one's own; named ones have it in their record",
    "evaluate.max_queries": "shortens a trial; figures are labelled then",
    "evaluate.peers": "embedders that one has; a dense source is one by itself",
    "finetune.loss_weights": "several losses at once",
    "finetune.mining.absolute_margin": "depends on the scale of a model's scores",
    "finetune.mining.range_min": "an alternative to a margin, for rankings from files",
    "finetune.target_active.document": "recipes give one number for both sides",
    "finetune.target_active.query": "recipes give one number for both sides",
    "finetune.teacher_scale": "scores of teachers on another scale",
    "finetune.validation.every": "the cost of validation",
    "gates.off": "the way past a gate that its message names",
    "index.alias": "a name on a cluster of one's own",
    "index.bm25_analyser": "the language's own analyser, which needs an extra",
    "index.engine": "an engine that one runs already",
    "index.own_tokens": "for queries by a static table, docs/language.md",
    "index.query_log": "data that only some users have",
    "index.replicas": "the size of a cluster of one's own",
    "index.shards": "the size of a cluster of one's own",
    "index.url": "the address of an engine",
    "report.training": "an account or a package of one's own",
    "run.address": "the address of a cluster of one's own",
    "run.cpus": "the size of a machine of one's own",
    "run.executor": "chosen by the machine; a recipe is the same everywhere",
    "run.gpus": "the size of a machine of one's own",
    "run.workers": "the size of a machine of one's own",
    "source.units.active": "units a token, of the paper",
    "source.units.dictionary": "units that one has already",
    "sweep.baseline": "the row that a table compares with",
    "transfer.fallback": "rows without evidence, compared in docs/transfer.md",
    "transfer.parallel.estimator": "the two estimators of docs/transfer.md",
    "transfer.parallel.min_probability": "of the translation table",
    "transfer.wechsel.dictionary": "WECHSEL's own inputs, which no recipe of a paper uses",
    "transfer.wechsel.source_vectors": "WECHSEL's own inputs, which no recipe of a paper uses",
    "vocabulary.clean": "texts that are clean already",
    "vocabulary.epsilon": "AdaLM's stopping rule",
    "vocabulary.increment": "AdaLM's step",
    "vocabulary.stop": "AdaLM's stopping rule",
    "vocabulary.strip_accents": "a choice of casing, docs/casing.md",
}
"""Settings that no shipped recipe or template shows, each with the reason why it is a setting all the same."""

_NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def room_of(path: Path) -> str:
    """``recipe`` for ``vtkit/recipe/load.py``; modules at the top share the room ``vtkit``."""
    parts = path.relative_to(ROOT / "vtkit").parts
    return parts[0] if len(parts) > 1 else "vtkit"


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def code_lines(source: str) -> int:
    """The number of lines with code: without docstrings, comments, blank lines and imports."""
    other: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if is_text(node) or isinstance(node, ast.Import | ast.ImportFrom):
            other.update(range(node.lineno, node.end_lineno + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - other)


def docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each definition's name with its docstring."""
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS) and (text := ast.get_docstring(node)):
            yield node.name, text


@cache
def sizes() -> dict[str, tuple[int, int]]:
    """Room -> code lines and definitions."""
    lines: Counter[str] = Counter()
    definitions: Counter[str] = Counter()
    for path in MODULES:
        source = path.read_text(encoding="utf-8")
        lines[room_of(path)] += code_lines(source)
        definitions[room_of(path)] += sum(isinstance(node, _DEFINITIONS) for node in ast.walk(ast.parse(source)))
    return {room: (lines[room], definitions[room]) for room in sorted(lines)}


@cache
def concepts() -> dict[str, int]:
    """Counts of :data:`CONCEPTS`."""
    counts = dict.fromkeys(CONCEPTS, 0)
    modules: dict[str, set[Path]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, _DEFINITIONS):
                continue
            decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
            if isinstance(node, ast.ClassDef):
                is_record = "dataclass" in decorators or "NamedTuple" in map(ast.unparse, node.bases)
                counts["dataclasses and named tuples"] += is_record
                counts["results"] += "Result" in map(ast.unparse, node.bases)
            elif "jit" not in decorators:
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                many = len([one for one in given if one.arg not in ("self", "cls")]) >= 8
                counts["functions with eight parameters or more"] += many
            if not node.name.startswith("__"):
                modules.setdefault(node.name, set()).add(path)
    counts["names defined in more than three modules"] = sum(len(paths) > 3 for paths in modules.values())
    return counts


def arrows() -> dict[str, set[str]]:
    """Room -> the other rooms that its modules import, inside functions or outside."""
    found: dict[str, set[str]] = {}
    for path in MODULES:
        room = room_of(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "vtkit":
                parts = node.module.split(".")[1:] or [alias.name for alias in node.names]
                targets = {part if (ROOT / "vtkit" / part).is_dir() else "vtkit" for part in parts[:1]}
                found.setdefault(room, set()).update(targets - {room})
    return {room: found[room] for room in sorted(found)}


def test_code_lines_are_counted_without_what_is_no_code() -> None:
    source = '"""Module."""\n\nimport os\n\n# why\ndef f():\n    """Text\n    of two lines."""\n    return """a\nb"""\n'
    assert code_lines(source) == 3  # def, and the two lines of the text that is returned


@pytest.mark.parametrize("room", sizes())
def test_a_room_stays_below_its_ceiling(room: str) -> None:
    lines, definitions = sizes()[room]
    most_lines, most_definitions = CEILINGS[room]
    assert lines <= most_lines, f"{room} has {lines} code lines; what leaves for those that came?"
    assert definitions <= most_definitions, f"{room} has {definitions} definitions; what leaves for those that came?"
    assert lines >= most_lines - 60, f"{room} has shrunk to {lines} code lines: lower its ceiling"
    assert definitions >= most_definitions - 8, f"{room} has shrunk to {definitions} definitions: lower its ceiling"


def test_there_are_not_more_things_to_learn() -> None:
    assert concepts() == CONCEPTS, "a count above is too much; one below is written down"


def test_rooms_import_each_other_only_as_the_list_of_arrows_says() -> None:
    assert arrows() == ARROWS


def test_every_setting_is_shown_by_a_recipe_or_has_a_reason() -> None:
    recipes = [*(ROOT / "recipes").glob("*.toml"), *(ROOT / "vtkit" / "recipe" / "templates").glob("*.toml")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in recipes)
    shown = set(re.findall(r"\b(\w+)\"? *=", text))
    shown |= {part for table in re.findall(r"\[([\w.]+)\]", text) for part in table.split(".")}
    settings = {".".join(path) for path in all_settings()}
    tables = {setting.rpartition(".")[0] for setting in settings}
    hidden = {setting for setting in settings - tables if setting.rpartition(".")[2] not in shown}
    assert hidden == set(NO_RECIPE_SETS)


def test_names_in_docstrings_exist() -> None:
    """``vtkit.room.module`` (with a name in it) and ``room/module.py`` refer to something that is there."""
    stale: list[str] = []
    for path in MODULES:
        for text in [text for _, text in docstrings(ast.parse(path.read_text(encoding="utf-8")))]:
            stale += [f"{path.name}: {name}" for name in re.findall(r"\bvtkit(?:\.\w+)+", text) if not exists(name)]
            stale += [
                f"{path.name}: {name}"
                for name in re.findall(r"``([\w/]+/\w+\.(?:py|md))``", text)
                if not ((ROOT / name).exists() or (ROOT / "vtkit" / name).exists())
            ]
    assert not stale, "\n".join(stale)


def exists(name: str) -> bool:
    """Whether a dotted name is a module of the package or an attribute of one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:end])
        if path.is_dir() or path.with_suffix(".py").is_file():
            module = importlib.import_module(".".join(parts[:end]))
            return end == len(parts) or hasattr(module, parts[end])
    return False
