"""``vtkit compare``: runs beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from vtkit.commands.options import JsonOption, argument, option
from vtkit.system import console
from vtkit.system.outputs import refuse_folder, write_text

if TYPE_CHECKING:
    from vtkit.report.compared import ComparedSet, Line, QueryDifference


def compare(
    runs: Annotated[list[Path], argument("Folders of two runs or more; the first is the baseline.", "RUN")],
    model: Annotated[
        str | None, option("Compare another stage's model. Default: the deployed index, else the final model.", "STAGE")
    ] = None,
    queries: Annotated[int, option("Queries won and queries lost to show with their tokens.", min=0)] = 5,
    min_words: Annotated[int, option("Only queries with at least this many words.", min=0)] = 0,
    max_words: Annotated[int | None, option("Only queries with at most this many words.", min=1)] = None,
    split: Annotated[
        bool, option("Only queries with a word that the source's vocabulary splits.", None, "--split")
    ] = False,
    html: Annotated[Path | None, option("Write a page too.", "FILE")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare runs and test the differences of their results.

    Shows results, what differs in their recipes, vocabulary and cost, and the queries won and lost. p is that of a
    paired randomisation test against the first run, corrected for all runs of a set (Holm). A query is won where its
    value of the first measure is larger than in the first run; beside it are the tokens whose part in the score of the
    relevant document changed most.
    """
    from vtkit.pipeline.compare import QueryFilter, compare_runs

    refuse_folder(html)
    comparison, reports = compare_runs(
        runs, model=model, queries=queries, only=QueryFilter(min_words, max_words, split)
    )
    for note in comparison.notes:
        console.warn(note)
    if html is not None:
        from vtkit.report.compared import compared_page

        write_text(html, compared_page(comparison, reports))
        console.say(f"page: {html}")
    if as_json:
        console.write_json(comparison.to_json())
        return
    for compared in comparison.sets:
        _write_set(compared)
    _write_lines("settings that differ", comparison.runs, comparison.settings)
    if not comparison.settings:
        console.write("the recipes differ in their names only")
    _write_lines("figures", comparison.runs, comparison.figures)
    for compared in comparison.sets:
        for beside in compared.beside:
            for word, some in (("won", beside.queries_won), ("lost", beside.queries_lost)):
                for query in some:
                    _write_query(f"{compared.set}, {word} by {beside.run}", query)


def _write_set(compared: ComparedSet) -> None:
    console.write(f"{compared.set}: {compared.not_compared or f'{compared.queries} queries'}")
    rows = []
    for cell, beside in zip(compared.cells, (None, *compared.beside), strict=False):
        row = [cell.system]
        for measure in compared.measures:
            row.append(f"{cell.evaluated.measures[measure]:.4f}")
            tested = cell.tested.get(measure)
            row.append("" if tested is None else f"{tested.difference:+.4f}")
            row.append("" if tested is None else f"{tested.randomization:.3f}")
        rows.append([*row, "" if beside is None else f"{beside.won} / {beside.lost}"])
    if rows:
        heads = [head for measure in compared.measures for head in (measure, "+/-", "p")]
        console.write_table(["run", *heads, "won / lost"], rows)
    console.write()


def _write_lines(title: str, runs: tuple[str, ...], lines: tuple[Line, ...]) -> None:
    if lines:
        rows = [("–" if value is None else console.one_line(str(value), 60) for value in line.values) for line in lines]
        console.write_table([title, *runs], [[line.name, *row] for line, row in zip(lines, rows, strict=True)])
        console.write()


def _write_query(title: str, query: QueryDifference) -> None:
    console.write(f"{title}: {console.one_line(query.text, 100)}")
    ranks = " -> ".join("not found" if rank is None else f"rank {rank}" for rank in query.ranks)
    console.write(f"  {query.before:.3f} -> {query.after:.3f}; {console.one_line(query.document)} {ranks}")
    tokens = (f"{console.one_line(each.token, 40)} {each.before:.2f} -> {each.after:.2f}" for each in query.tokens)
    console.write(f"  {'  '.join(tokens)}")
