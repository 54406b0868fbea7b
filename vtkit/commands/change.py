"""``vtkit add``, ``vtkit delete`` and ``vtkit merge``: documents of an index change, without building it again."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from vtkit.commands.options import WhereOption, argument, columns_of, executed, grouped, option
from vtkit.data.rows import Columns
from vtkit.data.sources import DOCUMENT_FORMS
from vtkit.data.text import read_lines
from vtkit.system import console
from vtkit.system.errors import RecipeError
from vtkit.system.interrupt import same_command_continues

if TYPE_CHECKING:
    from vtkit.search.changes import Changed

IndexArgument = Annotated[Path, argument("Folder of an index that `vtkit build` or `vtkit index` made.", "FOLDER")]


@executed
@grouped("columns", columns_of)
def add(
    folder: IndexArgument,
    documents: Annotated[str, argument(f"Documents: {DOCUMENT_FORMS}.", "DOCUMENTS")],
    columns: Columns,
) -> None:
    """Add documents to an index.

    Documents take the places of those with their ids. Only they are encoded, and the index then equals one built anew
    (in bf16, but for rounding). Searches go on meanwhile, and `vtkit serve` takes the new state. If the command is
    interrupted, repeat it.
    """
    same_command_continues()
    from vtkit.api import add_documents

    _print(folder, add_documents(folder, documents, columns=columns))


def delete(
    folder: IndexArgument,
    ids: Annotated[list[str] | None, argument("Ids of documents.", "ID...")] = None,
    file: Annotated[Path | None, option("Text file with an id a line.", "FILE", "--ids")] = None,
    where: WhereOption = None,
) -> None:
    """Delete documents from an index.

    They are named by their ids, or by a condition on their fields.
    """
    wanted = [*(ids or ()), *(filter(None, map(str.strip, read_lines(file))) if file is not None else ())]
    if bool(wanted) == (where is not None):
        raise RecipeError("Give either the ids of documents, also in a file with --ids, or a condition with --where.")
    from vtkit.api import delete_documents

    _print(folder, delete_documents(folder, wanted, where=where))


def merge(folder: IndexArgument) -> None:
    """Merge the segments of an index.

    One remains, without deleted documents. This happens by itself where it is due. Run it to free their space, or if
    files that a search reads are damaged: they are made anew.
    """
    from vtkit.api import merge_segments

    _print(folder, merge_segments(folder))


def _print(folder: Path, changed: "Changed") -> None:
    if console.answered(changed):
        return
    counts = {"added": changed.added, "replaced": changed.replaced, "deleted": changed.deleted}
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "merged"
    segments = "1 segment" if changed.segments == 1 else f"{changed.segments} segments"
    console.write(f"{said}: {changed.documents:,} documents in {segments}")
    if (drift := changed.drift) is not None:
        lost = "" if drift.lost is None else f"the trimmed vocabulary lacks {drift.lost:.2%} of their tokens; "
        console.write(
            f"the new documents: {lost}{drift.other_scripts:.1%} of their letters are in other scripts, "
            f"{drift.unread:.1%} cannot be read; {drift.tokens:.0f} tokens each ({drift.old_tokens:.0f} before)"
        )
    if changed.reasons:
        console.warn(f"it is time to build the index again: {'; '.join(changed.reasons)}")
    console.say(f"search it: {shlex.join(['vtkit', 'search', str(folder), 'your query'])}")
