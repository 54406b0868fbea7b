"""``vtkit export``: a model or a run's index in the form that an engine takes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from vtkit.commands.options import DownloadOption, JsonOption, allow_downloads
from vtkit.commands.search import CollectionOption, ModelOption
from vtkit.data.queries import QUERY_FORMS
from vtkit.export.target import Target
from vtkit.system import console
from vtkit.system.outputs import refuse_existing


def export(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_MODEL", show_default=False,
            help="Folder of a run, of an index that `vtkit index` made, or folder or hub id of a sparse encoder.",
        ),
    ],
    target: Annotated[Target, typer.Option("--for", help="Engine to export for.", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where it goes.", show_default=False)
    ],
    queries: Annotated[
        str | None,
        typer.Option(
            "--queries", metavar="FILE", show_default=False,
            help=f"Queries whose results are kept to compare the engine with ({QUERY_FORMS}). Default: the first words "
            "of documents.",
        ),
    ] = None,
    top_dimensions: Annotated[
        int | None,
        typer.Option(
            "--top-dimensions", metavar="N", min=1, show_default=False,
            help="Keep this many of a document's largest weights. An HNSW index of PostgreSQL takes at most 1,000.",
        ),
    ] = None,
    model: ModelOption = None,
    collection: CollectionOption = None,
    as_json: JsonOption = False,
    download: DownloadOption = False,
) -> None:  # fmt: skip
    """Hand a model and its index over to a search engine.

    The folder contains the encoder as ONNX and for sentence-transformers, the documents' vectors in the engine's bulk
    format, a README with every command to the first result, and queries with the results the engine should give. If
    the export is interrupted, repeat the command to continue.
    """
    refuse_existing(out)
    allow_downloads(download)
    from vtkit.api import export_for

    found = export_for(
        source, target, out, queries=queries, top_dimensions=top_dimensions, model=model, collection=collection
    )
    if as_json:
        console.write_json(asdict(found))
        return
    if found.documents:
        console.write(f"{found.documents:,} documents over {found.dimensions:,} dimensions")
    console.write(f"the ONNX file's weights differ from the encoder's by {found.largest_difference:.1g} at most")
    if found.quantised_cosine is not None:
        console.write(f"in 8 bits its vectors have a mean cosine of {found.quantised_cosine:.3f} with them")
    if found.results_kept is not None:
        console.write(f"as exported, the documents find {found.results_kept:.2%} of the index's first ten results")
    console.say(f"wrote {out}; its README.md has the commands")
