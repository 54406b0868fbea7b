"""The cells of a recipe's [sweep]: a recipe for each row, column, value and seed, and the problems of all of them."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from vtkit.recipe.load import LoadedRecipe, load_recipe
from vtkit.recipe.problems import plain
from vtkit.recipe.write import toml_value
from vtkit.settings.recipe import SEEDS
from vtkit.system.errors import RecipeError, VtkitError

T = TypeVar("T")
R = TypeVar("R")

MOST_CELLS = 2_000

NAME_LENGTH = 40  # characters of one value in the name of a run
LONGEST_NAME = 190  # characters of the name of a run; file systems take 255 bytes


@dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    name: str  # of its run: the recipe's name and the cell's values
    row: tuple[str, ...]  # what tables call its row, under heads
    column: str  # what tables call its column; empty where there are none
    seed: int
    values: Mapping[str, Any]  # setting -> value, of the settings with values
    loaded: LoadedRecipe  # with its own settings laid over the recipe's, under its own name, and without [sweep]


@dataclass(frozen=True)
class Grid:
    """A sweep: its cells in order, the seeds of a row beside each other."""

    name: str  # of the recipe
    heads: tuple[str, ...]  # what varies between rows: `row` if they have names, and settings with values but the seed
    baseline: str  # label of the row that the others are tested against; empty: the first
    cells: tuple[Cell, ...]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return list(dict.fromkeys(cell.row for cell in self.cells))

    def label(self, row: Sequence[str]) -> str:
        """A row in one line: ``alpha=2.0``; the names of [sweep.rows] stand by themselves."""
        named = (value if head == "row" else f"{head}={value}" for head, value in zip(self.heads, row, strict=True))
        return ", ".join(named) or "the recipe"


def grid_of(path: Path, overrides: Sequence[str] = ()) -> Grid:
    """The cells of the recipe in ``path``, all of them loaded."""
    base = load_recipe(path, overrides)
    section = base.recipe.sweep
    if section is None:
        raise RecipeError(f"{base.shown} has no [sweep]. Run it with vtkit run; docs/recipes.md describes grids.")
    settings = [setting for setting in section.values if setting != SEEDS]
    seeds = section.seeds or (base.recipe.recipe.seed,)
    axes: list[list[Any]] = [list(section.columns) or [""], list(section.rows) or [""]]
    axes += [list(range(len(section.values[setting]))) for setting in settings] + [list(range(len(seeds)))]
    count = math.prod(map(len, axes))
    if count > MOST_CELLS:
        raise RecipeError(f"{base.shown}: [sweep] has {count:,} cells, and at most {MOST_CELLS:,} can be run.")
    last = [setting.rpartition(".")[2] for setting in settings]  # or all of it, where two have the same
    heads = tuple(part if last.count(part) == 1 else whole for part, whole in zip(last, settings, strict=True))
    shown = {setting: _labels_of(values) for setting, values in section.values.items()}
    slugs = {setting: _slugs(labels) for setting, labels in shown.items()}
    named = {
        axis: dict(zip(of, _slugs(list(of)), strict=True))
        for axis, of in {"rows": section.rows, "columns": section.columns}.items()
    }
    wanted: list[tuple[str, dict[str, int | str], tuple[str, ...]]] = []
    for column, row, *numbers, seed in product(*axes):
        chosen: dict[str, int | str] = {} if not section.seeds else {SEEDS: seed}
        chosen |= ({"columns": column} if column else {}) | ({"rows": row} if row else {})
        chosen |= dict(zip(settings, numbers, strict=True))
        parts = [named[axis][name] for axis, name in (("columns", column), ("rows", row)) if name]
        parts += [f"{head}-{slugs[setting][n]}" for head, setting, n in zip(heads, settings, numbers, strict=True)]
        parts += [f"seed-{seeds[seed]}"] if section.seeds else []
        labels = (*([row] if row else []), *(shown[setting][n] for setting, n in zip(settings, numbers, strict=True)))
        name = "-".join([base.recipe.recipe.name, *parts])
        if len(name) > LONGEST_NAME:
            name = f"{name[:LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
        wanted.append((name, chosen, labels))

    def load(cell: tuple[str, dict[str, int | str], tuple[str, ...]]) -> Cell:
        name, chosen, labels = cell
        loaded = load_recipe(path, (*overrides, f"recipe.name={json.dumps(name)}"), cell=chosen)
        values = {setting: section.values[setting][int(chosen[setting])] for setting in settings}
        return Cell(name, labels, str(chosen.get("columns", "")), loaded.recipe.recipe.seed, values, loaded)

    cells = for_every_cell(wanted, load, lambda cell: cell[0])
    grid = Grid(base.recipe.recipe.name, (*(["row"] if section.rows else []), *heads), section.baseline, tuple(cells))
    known = [grid.label(row) for row in grid.rows]
    if section.baseline not in ("", "BM25", *known):
        raise RecipeError(f"{base.shown}: sweep.baseline: there is no such row. Choose from {', '.join(known)}, BM25.")
    return grid


def for_every_cell(cells: Iterable[T], work: Callable[[T], R], called: Callable[[T], str]) -> list[R]:
    """The results of ``work`` for every cell; the problems of all cells are raised together. A recipe that is no cell
    is ``called`` nothing."""
    done: list[R] = []
    problems: dict[str, list[str]] = {}
    kinds: set[type[VtkitError]] = set()
    for cell in cells:
        try:
            done.append(work(cell))
        except VtkitError as error:
            kinds.add(type(error))
            problems.setdefault(str(error), []).append(called(cell))
    if problems:
        kind = kinds.pop() if len(kinds) == 1 else RecipeError
        kind = kind if kind.__init__ is VtkitError.__init__ else VtkitError
        said: list[str] = []
        for what, names in problems.items():
            new = [line for line in what.splitlines() if line not in said]  # cells share most of what is missing
            where = f"{len(names)} cells, such as " * (len(names) > 1) + names[0]
            said += [*new, f"  (in {where})"] if new and where else new
        raise kind("\n".join(said))
    return done


def _labels_of(values: Sequence[Any]) -> list[str]:
    """Values as tables show them: the last part of a path, if these parts differ."""
    whole = [value if isinstance(value, str) else toml_value(value) for value in values]
    short = [
        text.rstrip("/").rpartition("/")[2] if isinstance(value, str) else text
        for value, text in zip(values, whole, strict=True)
    ]
    return [plain(text) for text in (short if len(set(short)) == len(short) else whole)]


def _slugs(labels: Sequence[str]) -> list[str]:
    """Labels as parts of a run's name; with a digest if a label is cut or equals another."""
    slugs = [re.sub(r"[^A-Za-z0-9._]+", "-", label).strip("-.") for label in labels]
    return [
        slug
        if 0 < len(slug) <= NAME_LENGTH and [other.lower() for other in slugs].count(slug.lower()) == 1
        else f"{slug[:NAME_LENGTH].rstrip('-.')}-{hashlib.sha256(label.encode()).hexdigest()[:6]}".lstrip("-")
        for slug, label in zip(slugs, labels, strict=True)
    ]
