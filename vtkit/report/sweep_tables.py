"""What came of a sweep, and its tables as papers print them: Markdown, LaTeX, and CSV with every single figure."""

import csv
import io
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vtkit.evaluation.comparison import Tested
from vtkit.evaluation.judging import Evaluated
from vtkit.evaluation.measures.significance import CHANCE
from vtkit.report.pages import markdown_words
from vtkit.report.wording import visible


@dataclass(frozen=True)
class Swept:
    """One system of one run on one evaluation set."""

    run: str
    row: str  # its label
    column: str
    seed: int
    set: str
    system: str  # `encoder`, `deployed`, `hybrid`, `BM25` or `source`
    evaluated: Evaluated


@dataclass(frozen=True)
class Place:
    """A group of columns: an evaluation set under the settings of a column of the sweep."""

    column: str
    set: str
    measures: tuple[str, ...]

    @property
    def label(self) -> str:
        return " · ".join(filter(None, (self.column, self.set)))


@dataclass(frozen=True)
class SweepTable:
    """One system in every row and place."""

    title: str
    system: str
    values: Mapping[tuple[str, Place], Sequence[Swept]]  # (row, place) -> what each seed has
    tested: Mapping[tuple[str, Place, str], Tested] = field(default_factory=dict)  # by (row, place, measure)

    def mean(self, row: str, place: Place, measure: str) -> float | None:
        """Over the seeds; None where there is no result."""
        found = [each.evaluated.measures[measure] for each in self.values.get((row, place), ())]
        return statistics.fmean(found) if found else None

    def deviation(self, row: str, place: Place, measure: str) -> float | None:
        """Sample standard deviation over the seeds; None of fewer than two."""
        found = [each.evaluated.measures[measure] for each in self.values.get((row, place), ())]
        return statistics.stdev(found) if len(found) > 1 else None


@dataclass(frozen=True)
class SweepResults:
    """A sweep as far as it is finished."""

    name: str
    heads: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]  # label -> its values under the heads, in their order
    places: tuple[Place, ...]
    tables: tuple[SweepTable, ...]
    references: SweepTable  # BM25 and the source where they are the same in all rows: rows of every table
    baseline: str
    seeds: int  # of the row that has most
    unfinished: tuple[str, ...] = ()  # cells without results

    @property
    def note(self) -> str:
        """How the tables are to be read."""
        over = f"Means over {self.seeds} seeds ± standard deviation. " if self.seeds > 1 else ""
        missing = f" Without {len(self.unfinished)} cells that are not finished." if self.unfinished else ""
        return (
            f"{over}† p < {CHANCE} against {self.baseline}: paired randomisation test over queries"
            f"{', of their means over seeds' if self.seeds > 1 else ''}, Holm over the rows. Bold: the best of the "
            f"sweep's own rows.{missing}"
        )


@dataclass(frozen=True)
class Entry:
    """A figure as it is printed."""

    mean: str
    deviation: str = ""
    best: bool = False
    significant: bool = False


def table_rows(results: SweepResults, table: SweepTable) -> Iterator[tuple[tuple[str, ...], list[Entry]]]:
    """Labels under the heads, and an entry for each measure of each place; BM25 and the source first."""
    best = {
        (place, measure): max(
            (value for row in results.rows if (value := table.mean(row, place, measure)) is not None), default=None
        )
        for place in results.places
        for measure in place.measures
    }

    def entries(of: SweepTable, row: str) -> list[Entry]:
        made = []
        for place in results.places:
            for measure in place.measures:
                mean, deviation = of.mean(row, place, measure), of.deviation(row, place, measure)
                tested = of.tested.get((row, place, measure))
                made.append(
                    Entry(
                        "–" if mean is None else f"{mean:.4f}",
                        "" if deviation is None else f"{deviation:.4f}",
                        of is table and mean is not None and mean == best[place, measure],
                        tested is not None and tested.randomization < CHANCE,
                    )
                )
        return made

    for row in dict.fromkeys(row for row, _ in results.references.values):
        yield (row, *[""] * (len(results.heads) - 1)), entries(results.references, row)
    for row, labels in results.rows.items():
        yield labels, entries(table, row)


def markdown_tables(results: SweepResults) -> str:
    """All tables."""
    parts = [f"# {_plain(results.name)}", "", _plain(results.note)]
    heads = [*results.heads, *(f"{p.label} {measure}" for p in results.places for measure in p.measures)]
    for table in results.tables:
        parts += ["", f"## {_plain(table.title)}", "", f"| {' | '.join(map(_plain, heads))} |"]
        parts += [f"|{'---|' * len(results.heads)}{'---:|' * (len(heads) - len(results.heads))}"]
        for labels, entries in table_rows(results, table):
            cells = [_plain(label) for label in labels]
            for entry in entries:
                shown = f"**{entry.mean}**" if entry.best else entry.mean
                shown += f" ± {entry.deviation}" if entry.deviation else ""
                cells.append(f"{shown} †" if entry.significant else shown)
            parts.append(f"| {' | '.join(cells)} |")
    return "\n".join(parts) + "\n"


def latex_tables(results: SweepResults) -> str:
    r"""All tables for ``\usepackage{booktabs}``, the sets above their measures."""
    parts = ["% \\usepackage{booktabs}"]
    width, columns = len(results.heads), sum(len(place.measures) for place in results.places)
    for table in results.tables:
        groups, rules, at = [], [], width + 1
        for place in results.places:
            groups.append(rf"\multicolumn{{{len(place.measures)}}}{{c}}{{{_tex(place.label)}}}")
            rules.append(rf"\cmidrule(lr){{{at}-{at + len(place.measures) - 1}}}")
            at += len(place.measures)
        measures = [_tex(measure) for place in results.places for measure in place.measures]
        caption = _tex(f"{results.name}: {table.title}. {results.note}")
        parts += [
            "", r"\begin{table}", r"\centering", rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{{'l' * width}{'r' * columns}}}", r"\toprule",
            rf"{' & '.join([*[''] * width, *groups])} \\", "".join(rules),
            rf"{' & '.join([*map(_tex, results.heads), *measures])} \\", r"\midrule",
        ]  # fmt: skip
        for labels, entries in table_rows(results, table):
            cells = [_tex(label) for label in labels]
            for entry in entries:
                shown = rf"\textbf{{{entry.mean}}}" if entry.best else entry.mean.replace("–", "--")
                shown += rf" {{\scriptsize$\pm$ {entry.deviation}}}" if entry.deviation else ""
                cells.append(rf"{shown}$^\dagger$" if entry.significant else shown)
            parts.append(rf"{' & '.join(cells)} \\")
        parts += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(parts) + "\n"


def csv_table(results: SweepResults) -> str:
    """Every figure of every run, one a line."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*results.heads, "column", "seed", "run", "set", "system", "measure", "value"])
    for table in (*results.tables, results.references):
        for (row, _), found in table.values.items():
            labels = results.rows.get(row, (row, *[""] * (len(results.heads) - 1)))
            for each in found:
                of = each.evaluated
                costs = {"FLOPS": of.flops, "query dimensions": of.query_dimensions}
                costs["document dimensions"] = of.document_dimensions
                for name, value in {**of.measures, **costs}.items():
                    if value is not None:
                        place = (each.column, each.seed, each.run, each.set, each.system)
                        writer.writerow([*labels, *place, name, value])
    return file.getvalue()


def _plain(text: str) -> str:
    return markdown_words(visible(text))


_TEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "†": r"$\dagger$", "±": r"$\pm$",
    "<": "$<$", ">": "$>$", "·": r"$\cdot$", "–": "--", "α": r"$\alpha$", "λ": r"$\lambda$",
    **{char: f"\\{char}" for char in "&%$#_{}"},
}  # fmt: skip


def _tex(text: str) -> str:
    return re.sub(r".", lambda match: _TEX.get(match[0], match[0]), visible(text))
