"""``vtkit compare``: runs beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtkit.commands.options import argument, option
from vtkit.system import console
from vtkit.system.outputs import refuse_folder, write_file


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
) -> None:
    """Compare runs and test the differences of their results.

    Shows results, what differs in their recipes, vocabulary and cost, and the queries won and lost. p is that of a
    paired randomisation test against the first run, corrected for all runs of a set (Holm). A query is won where its
    value of the first measure is larger than in the first run; beside it are the tokens whose part in the score of the
    relevant document changed most.
    """
    from vtkit.pipeline.compare import compare_runs
    from vtkit.report.compared import compared_page, compared_sections
    from vtkit.report.pages import write_sections

    refuse_folder(html)
    comparison, reports = compare_runs(
        runs, model=model, queries=queries, min_words=min_words, max_words=max_words, split=split
    )
    for note in comparison.notes:
        console.warn(note)
    if html is not None:
        write_file(html, compared_page(comparison, reports))
        console.say(f"page: {html}")
    if console.answered(comparison.to_json()):
        return
    write_sections(compared_sections(comparison))
