"""``vtkit build``: documents to an index that can be searched, without a recipe and without judgements."""

import shlex
from pathlib import Path
from typing import Annotated

from vtkit.commands.options import (
    SetOption,
    ThreadsOption,
    VerboseOption,
    argument,
    columns_of,
    grouped,
    option,
    options_of,
)
from vtkit.data.rows import Columns
from vtkit.data.sources import DOCUMENT_FORMS
from vtkit.recipe.new import NewRecipe
from vtkit.system import console
from vtkit.system.interrupt import same_command_continues

CUT = 0.05  # share of cut documents from which it is advised to read more of them


@options_of(NewRecipe, "language", "source", "embedder", "parallel", argument="answers")
@grouped("columns", columns_of)
def build(
    documents: Annotated[str, argument(f"Documents: {DOCUMENT_FORMS}.", "DOCUMENTS")],
    out: Annotated[Path, option("Folder to write; of an unfinished build, to continue.", "FOLDER", "--out", "-o")],
    answers: NewRecipe,
    columns: Columns,
    settings: SetOption = None,
    threads: ThreadsOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Make an index of documents, beside BM25, for `vtkit search`.

    Writes a recipe into FOLDER and runs it; no queries and no judgements are needed. If the command is interrupted,
    repeat it to continue. FOLDER has the index, the model, the recipe and what is known without judgements. Very few
    texts get an index of BM25 alone.
    """
    same_command_continues()
    from vtkit.pipeline.build import build_index

    with console.details(verbose):
        built = build_index(documents, out, answers, columns=columns, settings=settings or (), threads=threads)
    if console.answered(built):
        return
    as_passages = "" if built.passages is None else f", as {built.passages:,} passages,"
    console.write(f"{built.documents:,} documents{as_passages} ({built.language}) in {built.seconds:.0f} s")
    if built.weight is not None:
        console.write(f"the encoder weighs {built.weight:g}, BM25 {1 - built.weight:g}: {built.fusion}")
    unit = "documents" if built.passages is None else "passages"
    console.write(f"{built.share_cut:.1%} of the {unit} are cut at {built.length} tokens")
    if built.lost_tokens is not None:
        console.write(f"new text loses about {built.lost_tokens:.2%} of its tokens to the trimmed vocabulary")
    console.write(f"index: {console.size(built.index_bytes)}; a query takes {built.query_ms:.1f} ms")
    console.write("\nsnippets as queries, and the first result of each:")
    for query, example in built.examples:
        found = " ".join(filter(None, [console.one_line(example.id, 40), console.one_line(example.title, 40)]))
        console.write(f"  {console.one_line(query, 60)}\n    {found}: {console.one_line(example.text, 80)}")
    console.say(f"\nsearch it: {shlex.join(['vtkit', 'search', str(out), 'your query'])}")
    console.say(f"serve it: {shlex.join(['vtkit', 'serve', str(out)])}")
    if built.share_cut > CUT:
        console.say(f"read more of each document: --set index.document_length={2 * built.length}")
    console.say(f"judge it: {shlex.join(['vtkit', 'evaluate', str(out), 'bm25', '--on', 'COLLECTION'])}")
