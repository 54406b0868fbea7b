"""``vtkit evaluate``: any systems on any collections, compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtkit.commands.options import argument, executed, option, options_of, set_option
from vtkit.settings.evaluate import ComparisonSettings
from vtkit.settings.index import IndexSection
from vtkit.system import console
from vtkit.system.interrupt import same_command_continues


@executed
@options_of(ComparisonSettings, called={"measures": "--measure"}, argument="compared")
def evaluate(
    systems: Annotated[
        list[str],
        argument(
            "A sparse encoder or dense embedder (folder or hub id), bm25, bm25-words, MODEL+bm25, "
            "MODEL+bm25:raw, MODEL+bm25:max, MODEL+bm25:product, a run, an index of `vtkit index`, or a TREC run file.",
            "SYSTEM",
        ),
    ],
    on: Annotated[list[str], option("Folder or name. May be repeated.", "COLLECTION")],
    compared: ComparisonSettings,
    settings: Annotated[list[str] | None, set_option("[index]", "document_length=128")] = None,
    out: Annotated[
        Path | None,
        option(
            "Write results.json, a page, mteb's files and, for each system, its run file and values by query.",
            "FOLDER",
            "--out",
            "-o",
        ),
    ] = None,
) -> None:
    """Evaluate any systems on collections, with paired tests.

    The measures have intervals of 95 %. A system that fails on a collection does not stop the others; it is named at
    the end.
    """
    if out is not None:
        same_command_continues()
    from vtkit.pipeline.evaluate import evaluate_named
    from vtkit.recipe.load import load_section

    index = IndexSection(**load_section(IndexSection, "index", settings)) if settings else None
    comparison = evaluate_named(systems, on, compared, index, out)
    if not console.answered(comparison.to_json()):
        from vtkit.report.evaluated import evaluated_page
        from vtkit.report.pages import write_sections

        sections = evaluated_page(comparison, (), "").sections
        write_sections([section for section in sections if section.key != "failures"])
        if out is not None:
            console.say(f"wrote {out}")
    if comparison.failures:
        named = "\n".join(f"  {each.system} on {each.collection}: {each.reason}" for each in comparison.failures)
        console.fail(f"not everything could be evaluated:\n{named}")
        raise typer.Exit(1)
