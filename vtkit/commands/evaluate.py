"""``vtkit evaluate``: any systems on any collections, compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vtkit.commands.options import argument, executed, option, set_option
from vtkit.commands.search import QueryLanguageOption
from vtkit.system import console
from vtkit.system.interrupt import same_command_continues

MEASURES = ["nDCG@10", "RR@10", "R@100", "R@1000", "AP", "Judged@10"]


@executed
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
    split: Annotated[str | None, option("Judgements to use. Default: test.")] = None,
    measure: Annotated[
        list[str], option("Name from ir_measures. May be repeated.", "NAME", "--measure", "-m")
    ] = MEASURES,
    baseline: Annotated[
        str | None, option("System to test the others against. Default: BM25, or else the first.", "SYSTEM")
    ] = None,
    correction: Annotated[
        Literal["holm", "bonferroni"], option("Correction of p values for several systems.")
    ] = "holm",
    balance: Annotated[
        str | None,
        option(
            "Judgements that choose the weight of MODEL+bm25; the model must not be trained on them. Default: spans "
            "of the documents choose it.",
            "SPLIT",
        ),
    ] = None,
    query_language: QueryLanguageOption = None,
    rerank: Annotated[
        str | None, option("Cross-encoder that reranks each system; adds a row for each.", "MODEL")
    ] = None,
    depth: Annotated[int, option("Results per query that --rerank scores.", min=1)] = 100,
    results: Annotated[int, option("Results per query.", min=1, max=10_000)] = 1000,
    language: Annotated[str | None, option("Language for BM25, or several: en,ko. Default: detected.", "CODE")] = None,
    max_queries: Annotated[int | None, option("Evaluate a sample of this many queries.", min=1)] = None,
    seed: Annotated[int, option("Seed of samples.", min=0)] = 42,
    ignore_identical_ids: Annotated[
        bool, typer.Option("--ignore-identical-ids", help="Leave a document with a query's id out of its results.")
    ] = False,
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
    from vtkit.api import evaluate as evaluated
    from vtkit.recipe.load import load_section
    from vtkit.settings.index import IndexSection

    given = load_section(IndexSection, "index", settings or ())
    comparison = evaluated(
        systems, on, split=split, measures=measure, baseline=baseline, correction=correction, balance=balance,
        query_language=query_language, rerank=rerank, rerank_depth=depth, depth=results, language=language,
        max_queries=max_queries, seed=seed, out=out, ignore_identical_ids=ignore_identical_ids, **given,
    )  # fmt: skip
    if not console.answered(comparison.to_json()):
        from vtkit.report.evaluated import evaluated_page
        from vtkit.report.pages import write_sections

        write_sections(
            [section for section in evaluated_page(comparison, (), "").sections if section.key != "failures"]
        )
        if out is not None:
            console.say(f"wrote {out}")
    if comparison.failures:
        named = "\n".join(f"  {each.system} on {each.collection}: {each.reason}" for each in comparison.failures)
        console.fail(f"not everything could be evaluated:\n{named}")
        raise typer.Exit(1)
