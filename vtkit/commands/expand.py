"""``vtkit expand``: an existing vocabulary and the most frequent new tokens of a corpus."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from vtkit import console
from vtkit.commands.corpora import CORPUS_HELP, EncodingErrorsOption, texts_of
from vtkit.commands.options import DownloadOption, JsonOption, allow_downloads
from vtkit.commands.tokenizer import option_names
from vtkit.data.hub import located
from vtkit.errors import RecipeError, VtkitError
from vtkit.outputs import new_folder

NEW_TOKENS_SHOWN = 40


def expand(
    base: Annotated[
        str, typer.Argument(metavar="BASE", help="Tokenizer to expand: hub id, folder or file.", show_default=False)
    ],
    corpora: Annotated[list[str], typer.Argument(metavar="CORPUS...", help=CORPUS_HELP, show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Where to save it. Default: nothing is saved.", show_default=False
        ),
    ] = None,
    increment: Annotated[int, typer.Option("--increment", min=1, help="Tokens added in each step.")] = 3000,
    stop: Annotated[
        Literal["exhausted", "entropy-gain", "first-gain"], typer.Option("--stop", help="When to stop growing.")
    ] = "exhausted",
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon", help="Threshold of the rule. Default: 0.01 (entropy-gain), 0.1 (first-gain).",
            show_default=False,
        ),
    ] = None,
    size: Annotated[
        int | None, typer.Option("--size", help="Largest size wanted, BASE's tokens included.", show_default=False)
    ] = None,
    counting: Annotated[
        Literal["paper", "code"], typer.Option("--counting", help="What may be added: as in the paper, or in its code.")
    ] = "paper",
    min_frequency: Annotated[
        int, typer.Option("--min-frequency", min=1, help="A new token must occur at least this often.")
    ] = 2,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Make BASE lower-case its input first.")] = False,
    encoding_errors: EncodingErrorsOption = "strict",
    as_json: JsonOption = False,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Draw the curve.", show_default=False)
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page about it.", show_default=False)
    ] = None,
    download: DownloadOption = False,
) -> None:  # fmt: skip
    """Expand a vocabulary with the tokens that a corpus needs most (AdaLM).

    A table shows size, unigram entropy and tokens per word after each step, and why it stopped.
    """
    if out is not None and os.path.lexists(out):
        raise RecipeError(f"{out} already exists, and is not overwritten. Give another --out, or remove it.")
    allow_downloads(download)

    from vtkit.api import expand_tokenizer
    from vtkit.report.expansion import COLUMNS, cells, expansion_page, write_expansion_png
    from vtkit.vocabulary.saved import save_tokenizer

    texts = (text for corpus in corpora for text in texts_of(corpus, encoding_errors))
    with option_names():
        expansion = expand_tokenizer(
            located(base),
            texts,
            increment=increment,
            stop=stop,
            epsilon=epsilon,
            size=size,
            counting=counting,
            min_frequency=min_frequency,
            lowercase=lowercase,
        )
    stats = expansion.stats
    try:
        if out is not None:
            with new_folder(out) as folder:
                save_tokenizer(expansion.tokenizer, folder)
        if png is not None:
            write_expansion_png(stats, png)
        if page is not None:
            page.write_text(expansion_page(stats, base, corpora, expansion.added), encoding="utf-8")
    except OSError as error:
        raise VtkitError(f"{error.filename or out} cannot be written: {error.strerror or error}") from error
    if as_json:
        console.write_json({**stats.to_json(), "tokens": expansion.added})
        return
    console.write_table(COLUMNS, [cells(row) for row in stats.curve])
    console.write(f"\nstopped: {stats.why} ({stats.stopped})")
    console.write(f"{stats.added} new tokens, {stats.unused} of them made nowhere in the corpus; the first:")
    console.write("  " + " ".join(console.one_line(token, 40) for token in expansion.added[:NEW_TOKENS_SHOWN]))
    if out is not None:
        console.say(f'saved: {out}. In a recipe: [vocabulary] kind = "existing", tokenizer = "{out}"')
