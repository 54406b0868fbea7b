"""Who may import whom, and what stays unimported until it is needed."""

from __future__ import annotations

import ast
import graphlib
import re
from pathlib import Path

import pytest
from command_line import python
from imports import MODULES, imports_in, module_name

ROOT = Path(__file__).resolve().parents[1]
FLOORS = [
    {"system"},
    {"settings"},
    {"data"},
    {"vocabulary"},
    {"encoder"},
    {"search"},
    {"transfer", "training", "deploy"},
    {"evaluation"},
    {"recipe", "report"},
    {"pipeline"},
    {"api"},
    {"commands"},
    {"cli", "__main__"},
]
"""Lowest first: a module imports from its own floor and those below."""

HEAVY = {"torch", "transformers", "sentence_transformers", "datasets", "numba", "scipy", "matplotlib", "entmax"}
HEAVY |= {"tokenizers", "sentencepiece", "pandas", "pyarrow", "huggingface_hub", "lingua"}
LIGHT = ("system", "settings", "recipe", "data", "pipeline", "api", "commands", "cli", "__main__")
"""Modules that ``--help``, ``recipe check`` or ``--dry-run`` import: nothing heavy outside their functions."""


def room_of(module: str) -> str:
    """``recipe`` for ``recipe.load``."""
    return module.split(".")[0]


def floor_of(room: str) -> int | None:
    return next((number for number, rooms in enumerate(FLOORS) if room in rooms), None)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_imports_only_from_its_floor_and_those_below(path: Path) -> None:
    module = module_name(path)
    own = floor_of(room_of(module))
    if not module:
        own = len(FLOORS)  # the package itself exports from all floors, lazily
    assert own is not None, f"{path.name} is on no floor: add it to FLOORS"
    for name in imports_in(ast.parse(path.read_text(encoding="utf-8")), module, when_imported=False):
        parts = name.split(".")
        if parts[0] == "vtkit" and len(parts) > 1:
            floor = floor_of(room_of(".".join(parts[1:])))
            assert floor is not None, f"{name}, imported by vtkit.{module}, is on no floor"
            assert floor <= own, f"vtkit.{module} must not import {name}"


@pytest.mark.parametrize("path", [path for path in MODULES if module_name(path).split(".")[0] in LIGHT])
def test_light_modules_import_heavy_ones_only_inside_functions(path: Path) -> None:
    module = module_name(path)
    for name in imports_in(ast.parse(path.read_text(encoding="utf-8")), module, when_imported=True):
        assert name.split(".")[0] not in HEAVY, f"vtkit.{module} imports {name} as it is imported"


def imported_modules() -> dict[str, set[str]]:
    """Each module with the others of vtkit that it imports. Imports inside functions count: a circle that is only put
    off ties two modules together all the same."""
    paths = {module_name(path): path for path in MODULES if module_name(path)}
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        names = imports_in(ast.parse(path.read_text(encoding="utf-8")), module, when_imported=False)
        named = [name.removeprefix("vtkit.") for name in names if name.startswith("vtkit.")]
        graph[module] = {part for name in named for part in (name, name.rpartition(".")[0]) if part in paths} - {module}
    return graph


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph = imported_modules()
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(graph)  # raises CycleError, naming it


def test_folders_do_not_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for module, others in imported_modules().items():
        folder = room_of(module)
        graph.setdefault(folder, set()).update({room_of(other) for other in others} - {folder})
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(graph)  # raises CycleError, naming it


def test_no_test_module_imports_another() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        names = set(re.findall(r"^(?:from|import) (test_\w+)", path.read_text("utf-8"), re.MULTILINE))
        assert names <= {path.stem}, path.name


def test_no_folder_shadows_a_library() -> None:
    assert not (ROOT / "tokenizers" / "__init__.py").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["recipe", "--help"],
        ["recipe", "check", "here.toml"],
        ["recipe", "check", "hub.toml"],
        ["recipe", "check", "bad.toml"],
        ["recipe", "show", "here.toml"],
        ["recipe", "schema"],
        ["run", "here.toml", "--dry-run"],
        ["recipe", "new", "--name", "new", "--language", "ko", "--source", "a/b", "--tokenizer", "a/b"],
    ],
    ids=" ".join,
)
def test_quick_commands_never_import_torch(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "vocab.txt").write_text("a\n")
    hub = '[recipe]\nname = "hub"\n[source]\nmodel = "a/b"\n[vocabulary]\nkind = "existing"\ntokenizer = "a/b"\n'
    hub += '[transfer]\nmethod = "mean"\n[evaluate]\nsets = ["miracl:ko", "webfaq:kor"]\nsplit = "train"\n'
    here = hub.replace('model = "a/b"', 'model = "./model"').replace("a/b", "vocab.txt").partition("[evaluate]")[0]
    for name, text in {"hub.toml": hub, "here.toml": here, "bad.toml": hub + "nothing = 1\n"}.items():
        (tmp_path / name).write_text(text)
    code = (
        "import sys\nfrom vtkit import cli\ntry:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "print('imported:', *sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    said = python("-c", code, *arguments, cwd=tmp_path, PYTHONPATH=str(ROOT))
    imported = set(said.rpartition("imported:")[2].split())
    assert "vtkit" in imported
    slow = HEAVY - {"huggingface_hub"}  # asked where its cache is
    assert not imported & slow
