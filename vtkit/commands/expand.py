"""``vtkit expand``: an existing vocabulary and the most frequent new tokens of a corpus."""

from pathlib import Path
from typing import Annotated

from vtkit.commands.corpora import CORPUS_HELP, EncodingErrorsOption, texts_of
from vtkit.commands.options import OutOption, argument, grouped, option, options_of
from vtkit.commands.tokenizer import casing_of
from vtkit.data.hub import located
from vtkit.settings.casing import CasingSection
from vtkit.settings.vocabulary import ExpandedVocabulary
from vtkit.system import console
from vtkit.system.outputs import new_folder, refuse_existing, refuse_folder, write_file

NEW_TOKENS_SHOWN = 40


@options_of(ExpandedVocabulary, fixed={"kind": "expanded", "tokenizer": "base", "corpus": ("corpora",)})
@grouped("casing", casing_of)
def expand(
    base: Annotated[str, argument("Tokenizer to expand: hub id, folder or file.", "BASE")],
    corpora: Annotated[list[str], argument(CORPUS_HELP, "CORPUS")],
    settings: ExpandedVocabulary,
    casing: CasingSection,
    out: OutOption = None,
    encoding_errors: EncodingErrorsOption = "strict",
    png: Annotated[Path | None, option("Draw the curve as a PNG image.", "FILE")] = None,
    page: Annotated[Path | None, option("Write a page about it.", "FILE", "--html")] = None,
) -> None:
    """Expand a vocabulary with tokens that a corpus needs.

    The method is AdaLM's. A table shows size, unigram entropy and tokens per word after each step, and why the
    expansion stopped.
    """
    if out is not None:
        refuse_existing(out)
    for file in (png, page):
        refuse_folder(file)
    from vtkit.report.expansion import COLUMNS, cells, expansion_charts, expansion_page
    from vtkit.report.plots import write_png
    from vtkit.vocabulary.existing import load_tokenizer
    from vtkit.vocabulary.expanded import expand_vocabulary
    from vtkit.vocabulary.saved import save_tokenizer

    texts = (text for corpus in corpora for text in texts_of(corpus, encoding_errors))
    built = expand_vocabulary(load_tokenizer(located(base)), texts, settings, casing)
    stats = built.expansion
    assert stats is not None
    if out is not None:
        with new_folder(out) as folder:
            save_tokenizer(built.tokenizer, folder)
    if png is not None:
        write_png(expansion_charts(stats), png)
    if page is not None:
        write_file(page, expansion_page(stats, base, corpora, built.added))
    if console.answered({**stats.to_json(), "tokens": built.added}):
        return
    console.write_table(COLUMNS, [cells(row) for row in stats.curve])
    console.write(f"\nstopped: {stats.why} ({stats.stopped})")
    console.write(f"{stats.added} new tokens, of which {stats.unused} do not occur in the corpus; the first:")
    console.write("  " + " ".join(console.one_line(token, 40) for token in built.added[:NEW_TOKENS_SHOWN]))
    if out is not None:
        console.say(f'saved: {out}. In a recipe: [vocabulary] kind = "existing", tokenizer = "{out}"')
