"""The results of a sweep: one long table of figures, and its tables as papers print them in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from vtkit.report.wording import visible
from vtkit.search.measures.significance import CHANCE, Difference

if TYPE_CHECKING:
    from pandas import DataFrame, Series

T = TypeVar("T")

TITLES = {  # system -> title of its table
    "encoder": "The encoder alone",
    "deployed": "The deployed index",
    "hybrid": "The encoder and BM25 together",
}

REFERENCES = ("BM25", "source")  # rows of every table in the places where they are the same in all cells
COSTS = ("FLOPS", "query dimensions", "document dimensions")
PLACE = ["system", "column", "set", "measure"]


@dataclass(frozen=True, eq=False)
class SweepResults:
    """A sweep as far as it is finished."""

    name: str
    heads: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]  # label -> its values under the heads, in their order
    frame: DataFrame
    """Every figure of every run: row (its label), column, seed, run, set, system (a key of :data:`TITLES` or one of
    :data:`REFERENCES`), measure (:data:`COSTS` too), value, and the value of each query (None for costs)."""

    tested: Mapping[tuple[str, ...], Difference]  # by system, column, set, measure and row
    baseline: str
    unfinished: tuple[str, ...] = ()  # cells without results

    @property
    def places(self) -> dict[tuple[str, str], list[str]]:
        """The measures of each column and evaluation set, without costs."""
        judged = self.frame[~self.frame["measure"].isin(COSTS)]
        return {place: list(of.unique()) for place, of in judged.groupby(["column", "set"], sort=False)["measure"]}

    def at(self, *place: str) -> Series[float]:
        """The value of each run by row, at a system, column, set and measure."""
        return self.frame[(self.frame[PLACE] == list(place)).all(axis=1)].set_index("row")["value"]

    def figures(self, *place: str) -> dict[str, tuple[float, float]]:
        """Mean over the seeds and sample standard deviation, NaN of fewer than two, by row."""
        of_rows = self.at(*place).groupby(level=0).agg(["mean", "std"])
        return {str(row): (float(mean), float(std)) for row, mean, std in of_rows.itertuples()}

    @property
    def systems(self) -> list[str]:
        """The systems that have tables; the sum with BM25 only if it is not the index to be used."""
        values = {system: self.frame["value"][self.frame["system"] == system].tolist() for system in TITLES}
        same = values["hybrid"] == values["deployed"]
        return [system for system, of in values.items() if of and not (system == "hybrid" and same)]

    @property
    def seeds(self) -> int:
        """The number of seeds of the row that has most."""
        return int(self.frame.groupby(["row", "column"])["seed"].nunique().max())

    @property
    def note(self) -> str:
        """How the tables are to be read."""
        several = self.seeds > 1
        over = f"Means over {self.seeds} seeds ± standard deviation. " if several else ""
        drawn = "over seeds and queries (Welch)" if several else "of one seed over queries (randomisation test)"
        missing = f" Without {len(self.unfinished)} cells that are not finished." if self.unfinished else ""
        return (
            f"{over}† p < {CHANCE} against {self.baseline}, {drawn}, Holm over the rows. Rows may differ in sparsity: "
            f"see Cost. Bold: the best of the sweep's own rows.{missing}"
        )


def label_of(place: Sequence[str]) -> str:
    """A column of the sweep and an evaluation set, as tables call them together."""
    return " · ".join(filter(None, place))


def table_rows(
    results: SweepResults, system: str, cell: Callable[[str, str, bool, bool], T]
) -> Iterator[tuple[tuple[str, ...], list[T]]]:
    """Labels under the heads, and a cell for each measure of each place; BM25 and the source first.

    Args:
        cell: makes it of the mean and the deviation as they are printed, and of whether the mean is the best and its
            difference from the baseline beyond chance.
    """
    columns = [(*place, measure) for place, measures in results.places.items() for measure in measures]
    for reference in REFERENCES:
        values = [results.at(reference, *column).unique() for column in columns]
        if any(len(each) == 1 for each in values):
            same = [cell(f"{each[0]:.4f}" if len(each) == 1 else "–", "", False, False) for each in values]
            yield (reference, *[""] * (len(results.heads) - 1)), same
    figures = {column: results.figures(system, *column) for column in columns}
    best = {column: max((mean for mean, _ in of.values()), default=0.0) for column, of in figures.items()}
    for row, labels in results.rows.items():
        cells = []
        for column in columns:
            mean, deviation = figures[column].get(row, (float("nan"),) * 2)
            tested = results.tested.get((system, *column, row))
            significant = tested is not None and tested.p < CHANCE
            shown = ["" if value != value else f"{value:.4f}" for value in (mean, deviation)]  # NaN: there is none
            cells.append(cell(shown[0] or "–", shown[1], mean == best[column], significant))
        yield labels, cells


def latex_tables(results: SweepResults) -> str:
    r"""All tables for ``\usepackage{booktabs}``, the sets above their measures."""
    from pandas import DataFrame, MultiIndex

    parts = ["% \\usepackage{booktabs}\n"]
    heads = [("", _tex(head)) for head in results.heads]
    heads += [(_tex(label_of(place)), _tex(each)) for place, measures in results.places.items() for each in measures]
    for system in results.systems:
        rows = [[*map(_tex, labels), *cells] for labels, cells in table_rows(results, system, _tex_cell)]
        parts.append(
            DataFrame(rows, columns=MultiIndex.from_tuples(heads)).to_latex(
                index=False,
                escape=False,
                multicolumn_format="c",
                column_format="l" * len(results.heads) + "r" * (len(heads) - len(results.heads)),
                caption=_tex(f"{results.name}: {TITLES[system]}. {results.note}"),
            )
        )
    return "\n".join(parts)


def _tex_cell(mean: str, deviation: str, best: bool, significant: bool) -> str:
    shown = rf"\textbf{{{mean}}}" if best else mean.replace("–", "--")
    shown += rf" {{\scriptsize$\pm$ {deviation}}}" if deviation else ""
    return rf"{shown}$^\dagger$" if significant else shown


def csv_table(results: SweepResults) -> str:
    """Every figure of every run, one a line."""
    frame = results.frame
    for number, head in enumerate(results.heads):
        frame = frame.assign(**{head: [results.rows[row][number] for row in results.frame["row"]]})
    others = [name for name in results.frame if name not in ("row", "queries")]
    return str(frame.to_csv(index=False, columns=[*results.heads, *others]))


_TEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "†": r"$\dagger$", "±": r"$\pm$",
    "<": "$<$", ">": "$>$", "·": r"$\cdot$", "–": "--", "α": r"$\alpha$", "λ": r"$\lambda$",
    **{char: f"\\{char}" for char in "&%$#_{}"},
}  # fmt: skip


def _tex(text: str) -> str:
    return re.sub(r".", lambda match: _TEX.get(match[0], match[0]), visible(text))
