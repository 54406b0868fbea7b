"""``vtkit export``: a model or a run's index in the form that an engine takes."""

from typing import Annotated

from vtkit.commands.options import CollectionOption, NewFolderOption, argument, option
from vtkit.commands.search import ModelOption
from vtkit.data.sources import QUERY_FORMS
from vtkit.deploy.result import LEAST_COSINE
from vtkit.deploy.target import TargetName
from vtkit.system import console
from vtkit.system.interrupt import same_command_continues
from vtkit.system.outputs import refuse_existing


def export(
    source: Annotated[
        str,
        argument(
            "Folder of a run, of an index by `vtkit build` or `vtkit index`, or folder or hub id of a sparse encoder.",
            "RUN_OR_MODEL",
        ),
    ],
    target: Annotated[TargetName, option("Engine to export for.", None, "--for")],
    out: NewFolderOption,
    queries: Annotated[
        str | None,
        option(
            f"Queries whose results are kept to compare the engine with ({QUERY_FORMS}). Default: the first words "
            "of documents.",
            "FILE",
        ),
    ] = None,
    top_dimensions: Annotated[
        int | None,
        option(
            "Keep this many of a document's largest weights. An HNSW index of PostgreSQL takes at most 1,000.",
            "N",
            min=1,
        ),
    ] = None,
    model: ModelOption = None,
    collection: CollectionOption = None,
) -> None:
    """Hand a model and its index over to a search engine.

    The folder contains the encoder as ONNX and for sentence-transformers, the documents' vectors in the engine's bulk
    format, a README with every command to the first result, and queries with the results the engine should give.
    """
    refuse_existing(out)
    same_command_continues()
    from vtkit.api import export_for

    exported = export_for(
        source, target, out, queries=queries, top_dimensions=top_dimensions, model=model, collection=collection
    )
    if console.answered(exported):
        return
    if exported.documents:
        console.write(f"{exported.documents:,} vectors of documents over {exported.dimensions:,} dimensions")
    console.write(f"the ONNX file's weights differ from the encoder's by {exported.largest_difference:.1g} at most")
    left_out = "" if exported.quantised_cosine >= LEAST_COSINE else f", below {LEAST_COSINE}: there is no 8-bit file"
    console.write(f"8-bit vectors have a mean cosine of {exported.quantised_cosine:.3f} with them{left_out}")
    if exported.characters_replaced:
        console.warn(
            f"{exported.characters_replaced:,} characters in {exported.documents_replaced:,} documents are written as "
            f"spaces, because {target} refuses them"
        )
    if exported.results_kept is not None:
        console.write(f"as exported, the documents find {exported.results_kept:.2%} of the index's first ten results")
    console.say(f"wrote {out}; its README.md has the commands")
