"""``vtkit calibrate``: rescale, shift and fold the logits of a model, with one table of what that does."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from vtkit import console
from vtkit.commands.options import DownloadOption, JsonOption, allow_downloads
from vtkit.data.hub import located
from vtkit.errors import RecipeError
from vtkit.outputs import new_folder


def calibrate(
    model: Annotated[str, typer.Argument(help="Folder or hub id of a sparse encoder.", show_default=False)],
    corpus: Annotated[
        list[Path],
        typer.Option(
            "--corpus", "-c", metavar="FILE", help="Probe texts: .txt, .jsonl, BEIR folder. Repeatable.",
            show_default=False,
        ),
    ],
    target: Annotated[
        float | None,
        typer.Option(
            "--target", metavar="SHARE", help="Share of activations wanted above zero. Default: 0.35, unless another "
            "method is given.", show_default=False,
        ),
    ] = None,
    definition: Annotated[
        Literal["token", "pooled"],
        typer.Option("--definition", help="What counts: (position, token) logits, or dimensions after max-pooling."),
    ] = "token",
    shift: Annotated[
        float | None,
        typer.Option("--shift", metavar="C", help="Lower the decoder bias by this much.", show_default=False),
    ] = None,
    head_scale: Annotated[
        float | None,
        typer.Option("--head-scale", metavar="K", help="Divide all logits by this, first.", show_default=False),
    ] = None,
    tokens: Annotated[
        Literal["document-frequency", "held"] | None,
        typer.Option(
            "--tokens", help="Shift each token's bias by its document frequency in the corpus, or raise it until the "
            "token is active in almost all texts that hold it.", show_default=False
        ),
    ] = None,
    token_strength: Annotated[
        float, typer.Option("--token-strength", metavar="SHARE", help="How far each token goes; 1 is all the way.")
    ] = 0.5,
    token_bound: Annotated[
        float, typer.Option("--token-bound", metavar="LOGITS", help="Largest shift of a token.")
    ] = 1.0,
    fold: Annotated[
        Literal["max", "sum"] | None,
        typer.Option("--fold", help="Let case and word-start variants share one dimension.", show_default=False),
    ] = None,
    query_encoder: Annotated[
        Literal["binary", "idf"] | None,
        typer.Option(
            "--query-encoder", help="Let a static table encode queries: every token weighs 1, or its inverse document "
            "frequency in the corpus.", show_default=False,
        ),
    ] = None,
    texts: Annotated[int, typer.Option("--texts", min=8, help="Probe texts sampled; half of them are held out.")] = 512,
    max_length: Annotated[int, typer.Option("--max-length", min=3, help="Tokens a probe text is cut at.")] = 128,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the sampling.")] = 42,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Where the calibrated model goes. Default: only the table is shown.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    download: DownloadOption = False,
) -> None:  # fmt: skip
    """Calibrate a sparse encoder: set the share of positive activations, and show what it changes.

    The options are applied in this order: --head-scale, --shift, --tokens (held: after
    --target), --target, --fold, --query-encoder. Half of the probe texts solve for the
    shifts, the other half fill the table.
    """
    if target is not None and not 0 < target < 1:
        raise RecipeError(f"--target is a share between 0 and 1, not {target:g}.")
    if head_scale is not None and not head_scale > 0:
        raise RecipeError(f"--head-scale must be above 0, not {head_scale:g}.")
    if not 0 < token_strength <= 1:
        raise RecipeError(f"--token-strength is a share above 0 and up to 1, not {token_strength:g}.")
    if not token_bound > 0:
        raise RecipeError(f"--token-bound must be above 0, not {token_bound:g}.")
    allow_downloads(download)

    from vtkit.api import calibrate_encoder, load_encoder, save_encoder, with_static_queries
    from vtkit.data.corpora import read_corpora
    from vtkit.stages.calibrate_head import HELD_WANTS_TABLE

    with new_folder(out) if out is not None else nullcontext() as work:
        encoder = load_encoder(located(model))
        if query_encoder is not None and not any((target, shift, head_scale, tokens, fold)):
            shift = 0.0  # the table of queries alone, without the target that else is the default
        found = calibrate_encoder(
            encoder,
            read_corpora(corpus),
            target_activation=target,
            definition=definition,
            shift=shift,
            head_scale=head_scale,
            tokens=tokens,
            token_strength=token_strength,
            token_bound=token_bound,
            fold=fold,
            texts=texts,
            max_length=max_length,
            seed=seed,
        )
        if query_encoder is not None:
            encoder = with_static_queries(encoder, query_encoder, read_corpora(corpus))
        elif tokens == "held":
            console.warn(HELD_WANTS_TABLE)
        if work is not None:
            save_encoder(encoder, work)
    if as_json:
        console.write_json(replace(found, query_encoder=query_encoder).to_json())
    else:
        queries = "" if query_encoder is None else f", queries by a static table ({query_encoder})"
        console.write(f"{found.done()}{queries}\n")
        console.write_table(["", "before", "after"], found.table())
    if out is not None:
        console.say(f"wrote {out}")
