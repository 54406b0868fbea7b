"""``vtkit expand-documents``: documents with the words that their queries are likely to have."""

from typing import Annotated

from vtkit.commands.options import NewFolderOption, argument, executed, option, set_option
from vtkit.data.hub import located
from vtkit.data.sources import DOCUMENT_FORMS
from vtkit.settings.expand_documents import ExpandDocumentsSection
from vtkit.system import console
from vtkit.system.outputs import refuse_existing


@executed
def expand_documents(
    expander: Annotated[
        str, argument("Model that a run with [expand_documents] trained: RUN/expander, or a hub id.", "EXPANDER")
    ],
    texts: Annotated[str, argument(f"Documents: {DOCUMENT_FORMS}.", "TEXTS")],
    out: NewFolderOption,
    language: Annotated[str, option("Language of the stop words to leave out.")] = "en",
    max_length: Annotated[int, option("Tokens the encoder will read, added words included.", min=4)] = 256,
    settings: Annotated[list[str] | None, set_option("[expand_documents]", "keep=40")] = None,
) -> None:
    """Add to documents the words that queries will have (TILDE).

    Use it for an encoder that was trained on expanded documents; `vtkit encode` then reads the folder.
    """
    refuse_existing(out)
    from vtkit.api import expand_documents as expand
    from vtkit.recipe.load import load_section

    given = load_section(ExpandDocumentsSection, "expand_documents", settings or ())
    count, words = expand(located(expander), texts, out, language=language, max_length=max_length, **given)
    if console.answered({"documents": count, "words": words}):
        return
    console.write(f"{count:,} documents, {words:.1f} words added to each on average")
    console.say(f"wrote {out}")
