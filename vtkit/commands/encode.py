"""``vtkit encode`` and ``vtkit index``: texts to vectors on disk, and these to an index that can be searched."""

from pathlib import Path
from typing import Annotated

from vtkit.commands.options import (
    CollectionOption,
    NewFolderOption,
    argument,
    columns_of,
    executed,
    grouped,
    option,
    options_of,
    set_option,
)
from vtkit.data.hub import located
from vtkit.data.rows import Columns
from vtkit.data.sources import DOCUMENT_FORMS
from vtkit.settings.encode import EncodeSettings
from vtkit.settings.index import IndexSection
from vtkit.system import console
from vtkit.system.interrupt import same_command_continues
from vtkit.system.outputs import refuse_existing


@executed
@options_of(EncodeSettings, "max_length", "top_dimensions", "mass", "precision", "part", "join")
@grouped("columns", columns_of)
def encode(
    model: Annotated[str, argument("Folder or hub id of a sparse encoder, or folder of a run.", "MODEL")],
    texts: Annotated[str, argument(f"Documents: {DOCUMENT_FORMS}.", "TEXTS")],
    out: NewFolderOption,
    settings: EncodeSettings,
    columns: Columns,
    queries: Annotated[bool, option("Encode queries; in a BEIR folder, its queries.jsonl.", None, "--queries")] = False,
    passages: Annotated[
        int | None, option("Cut documents into passages of so many words, which overlap by a quarter.", "N", min=4)
    ] = None,
) -> None:
    """Encode documents or queries into vectors on disk.

    If the command is interrupted, repeat it to continue. `vtkit index` makes an index of the vectors. With --part or
    --executor ray, several machines that share the folder of --out encode one collection. A run's model is used with
    its settings.
    """
    refuse_existing(out)
    same_command_continues()
    from vtkit.api import encode_texts

    given = settings.model_dump(exclude_unset=True) | {"side": "query" if queries else "document"}
    if passages is not None:
        given["passages"] = {"words": passages, "overlap": passages // 4}
    encoded = encode_texts(located(model), texts, out, columns=columns, **given)
    if console.answered(encoded):
        return
    console.write(f"{encoded.texts:,} texts, {encoded.postings / max(encoded.texts, 1):.1f} weights each")
    if encoded.postings_removed:
        console.write(
            f"{encoded.postings_removed:.1%} of the weights were removed, with {encoded.mass_removed:.1%} of their sum"
        )
    part = settings.part
    console.say(
        f"wrote {out}" if part is None else f"wrote part {part}; once all parts are written, --join makes {out}"
    )


@executed
def index(
    vectors: Annotated[Path, argument("Folder that `vtkit encode` wrote, or of a run.", "VECTORS")],
    out: NewFolderOption,
    engine: Annotated[str | None, option("Search engine: exact (default), lucene, seismic or opensearch.")] = None,
    language: Annotated[str | None, option("Language for BM25, or several: en,ko. Default: detected.", "CODE")] = None,
    collection: CollectionOption = None,
    settings: Annotated[list[str] | None, set_option("[index]", "lexical=bm25")] = None,
) -> None:
    """Make an index of encoded documents for `vtkit search`.

    With `--set lexical=bm25`, BM25's words stand beside the encoder's dimensions; snippets of the documents determine
    the weight of both. No queries are needed. Vectors of a run's model are indexed with its settings.

    The index of a run itself is copied as it is, with hard links, which takes no time: the copy can be changed by
    `vtkit add` and `vtkit delete`.
    """
    refuse_existing(out)
    from vtkit.api import index_vectors
    from vtkit.recipe.load import load_section

    given = load_section(IndexSection, "index", settings or (), **({} if engine is None else {"engine": engine}))
    built = index_vectors(vectors, out, language=language, collection=collection, **given)
    if console.answered(built):
        return
    console.write(f"{built.documents:,} documents, {built.postings:,} postings, engine {built.engine}")
    console.say(f"wrote {out}")
