"""``vtkit analyse``: why one vocabulary retrieves better than another, by the analyses of the papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtkit.commands.candidates import short_names
from vtkit.commands.options import argument, option
from vtkit.system import console

if TYPE_CHECKING:
    from vtkit.evaluation.analyses.together import Analyses


def analyse(
    models: Annotated[list[str], argument("Sparse encoders: folder of a model or run, or hub id.", "MODEL_OR_RUN")],
    collection: Annotated[str, option("Folder or name of a collection with judgements.", "COLLECTION", "--on")],
    split: Annotated[str | None, typer.Option(help="Split of its judgements.", show_default="its usual one")] = None,
    language: Annotated[str, option("Language of its texts, ISO 639 code.")] = "en",
    documents: Annotated[int, option("Maximum number of documents, relevant ones included.", min=2)] = 5000,
    queries: Annotated[int, option("Most queries.", min=1)] = 500,
    max_length: Annotated[int, option("Tokens read of each document.", min=4)] = 256,
) -> None:
    """Compare how encoders use their vocabularies.

    On a judged collection, compares term weights with the judgements (RSJ), and reports split words, tokens that
    relevant documents contain, activation by frequency, confusion of case, and the cost of merging case variants
    (docs/evaluation.md).
    """
    from vtkit.data.collections import load_retrieval
    from vtkit.data.hub import located
    from vtkit.data.sources import default_split
    from vtkit.encoder.model_folder import find_model
    from vtkit.pipeline.search import encoder_settings

    names = [located(encoder_settings(model)[0]) for model in models]
    for name in names:
        find_model(name, "encoder")  # before imports that take seconds
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.evaluation.analyses.together import analyse as look
    from vtkit.evaluation.analyses.together import sample_of
    from vtkit.system.runtime import fastest_device

    judged = load_retrieval(located(collection), split or default_split(collection))
    sample = sample_of(judged, language, documents=documents, queries=queries)
    analyses = [look(load_encoder(name, fastest_device(), "encoder"), sample, max_length=max_length) for name in names]
    if console.answered([{"model": model, **each.to_json()} for model, each in zip(models, analyses, strict=True)]):
        return
    console.write(
        f"{analyses[0].queries:,} queries, {analyses[0].documents:,} documents of {console.one_line(collection)}\n"
    )
    lines = [[words, *(_shown(each, figure, form) for each in analyses)] for words, figure, form in FIGURES]
    console.write_table(["", *(console.one_line(name, 40) for name in short_names(models))], lines)


FIGURES = (  # words, figure of Analyses, form
    ("ΔRSJ, telling and rare terms (0: as the judgements say)", "rsj.high_rsj_high_idf.mean", "{:.3f}"),
    ("ΔRSJ, telling and frequent terms (0: as the judgements say)", "rsj.high_rsj_low_idf.mean", "{:.3f}"),
    ("ΔRSJ, other rare terms (0: as the judgements say)", "rsj.low_rsj_high_idf.mean", "{:.3f}"),
    ("ΔRSJ, other frequent terms (0: as the judgements say)", "rsj.low_rsj_low_idf.mean", "{:.3f}"),
    ("words of several tokens", "coverage.words_split", "{:.1%}"),
    ("queries with such a word", "coverage.queries_split", "{:.1%}"),
    ("query tokens active in relevant documents", "coverage.own_tokens_met", "{:.1%}"),
    ("... in all documents", "coverage.own_tokens_met_elsewhere", "{:.1%}"),
    ("score from the query's own tokens", "coverage.score_by_own_tokens", "{:.1%}"),
    ("activation and frequency, rank correlation", "activation.correlation", "{:.3f}"),
    ("tokens of the collection never active", "activation.never_active", "{:,}"),
    ("dimensions active, token in no document", "activation.only_expansion", "{:,}"),
    ("active dimensions of queries that are cased", "case_confusion.cased_output", "{:.1%}"),
    ("dimensions", "coarse_graining.dimensions", "{:,}"),
    ("... with case variants merged", "coarse_graining.merged_dimensions", "{:,}"),
    ("complexity of this encoder's features (Rademacher)", "coarse_graining.rademacher", "{:.3f}"),
    ("... with case variants merged (cannot be larger)", "coarse_graining.rademacher_merged", "{:.3f}"),
    ("cost of merging on these pairs (ε_RC over the largest feature)", "coarse_graining.relative", "{:.1%}"),
)


def _shown(analyses: Analyses, figure: str, form: str) -> str:
    value: Any = analyses
    for name in figure.split("."):
        value = getattr(value, name, None)
    return "–" if value is None else form.format(value).replace("%", " %")
