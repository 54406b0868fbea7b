"""The settings of [sweep]: a grid of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator

from vtkit.settings.types import Section

SEEDS = "recipe.seed"  # of the settings with values the one over which means are taken
AXES = ("rows", "columns")


class SweepSection(Section):
    """[sweep]: a grid of runs for `vtkit sweep`: every combination of row, column, value and seed (docs/recipes.md)."""

    values: Mapping[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = {}
    """Setting -> its values: `"transfer.sembridge.alpha" = [1.0, 2.0, 4.0]`. Figures are averaged over the values of
    `"recipe.seed"`. The value "none" removes a setting or a section."""

    rows: Mapping[str, Mapping[str, Any]] = {}
    """[sweep.rows.NAME]: settings that change together, one row of the table for each name; an empty table is the
    recipe as it is."""

    columns: Mapping[str, Mapping[str, Any]] = {}
    """[sweep.columns.NAME]: the same for columns of the table, such as languages. Rows are compared within a column."""

    baseline: str = ""
    """Row to test the others against, by its name in the table, or "BM25". Default: the first row."""

    @property
    def seeds(self) -> tuple[Any, ...]:
        """The values of ``recipe.seed``; none where only the recipe's own is used."""
        return self.values.get(SEEDS, ())

    @field_validator("values")
    @classmethod
    def _no_value_twice(cls, values: Mapping[str, tuple[Any, ...]]) -> Mapping[str, tuple[Any, ...]]:
        for setting, given in values.items():
            if setting == "recipe.name":
                raise ValueError("recipe.name: cells are named by their values")
            if any(value in given[:number] for number, value in enumerate(given)):
                raise ValueError(f"{setting}: a value is given twice")
        return values

    def _faults(self) -> Iterator[str]:
        if not (self.values or self.rows or self.columns):
            yield "nothing varies: give values, rows or columns"
