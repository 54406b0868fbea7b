"""``vtkit inspect-vocab``: the composition of vocabularies, side by side."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from vtkit.commands.candidates import all_candidates, list_candidates, short_names
from vtkit.commands.corpora import EncodingErrorsOption, texts_of
from vtkit.commands.options import argument, option
from vtkit.system import console
from vtkit.system.outputs import refuse_folder, write_file


def inspect_vocab(
    tokenizers: Annotated[
        list[str] | None,
        argument(
            "Folder, file (tokenizer.json, vocab.txt, SentencePiece .model) or hub id. Several are compared. "
            "Default: list what can be inspected here.",
            "MODEL_OR_TOKENIZER",
        ),
    ] = None,
    languages: Annotated[
        str,
        option(
            "Languages to distinguish: all (the 75 that lingua knows), sembridge (en,ar,zh,hi,ko,ru), or ISO "
            "639-1 codes with commas between.",
            "CODES",
        ),
    ] = "all",
    han: Annotated[
        Literal["zh", "ja", "ko", "undecided"],
        option("Language of Han characters that Chinese, Japanese and Korean share."),
    ] = "zh",
    corpus: Annotated[
        list[str] | None,
        option(
            "Text to count the tokens in: .txt, .jsonl, BEIR folder, - for standard input. May be repeated.", "PATH"
        ),
    ] = None,
    html: Annotated[Path | None, option("Write an HTML page with charts.", "FILE")] = None,
    png: Annotated[Path | None, option("Write the charts as a PNG image.", "FILE")] = None,
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:
    """Show what vocabularies consist of, and what they share.

    Shows languages, scripts, casing and unused tokens. The script decides the language if only one candidate uses it.
    Otherwise lingua decides for tokens that start a word and have at least five letters; other tokens are undecided.
    """
    if not tokenizers:
        candidates = all_candidates()
        if not console.answered([each._asdict() for each in candidates]):
            list_candidates(candidates, "vtkit inspect-vocab")
        return
    console.say(f"reading {', '.join(tokenizers)}")
    from vtkit.vocabulary.composition import parse_languages
    from vtkit.vocabulary.existing import load_tokenizer
    from vtkit.vocabulary.inspection import Inspection, corpus_use, inspect_vocabulary, overlap_matrix

    codes = parse_languages(languages)
    for file in (html, png):
        refuse_folder(file)
    loaded = list(map(load_tokenizer, tokenizers))
    named = console.tracked(zip(loaded, short_names(tokenizers), strict=True), "vocabularies", len(loaded))
    vocabularies = [inspect_vocabulary(tokenizer, name, codes, han) for tokenizer, name in named]
    texts = chain.from_iterable(texts_of(name, encoding_errors) for name in corpus or [])
    report = Inspection(
        vocabularies, overlap_matrix(loaded) if len(loaded) > 1 else None, corpus_use(loaded, texts) if corpus else None
    )
    if html is not None:
        from vtkit.report.blocks import Page
        from vtkit.report.pages import html_page
        from vtkit.report.vocabulary_page import sections

        write_file(html, html_page(Page("What the vocabularies are made of", "vtkit inspect-vocab", sections(report))))
    if png is not None:
        from vtkit.report.blocks import Chart
        from vtkit.report.plots import write_png
        from vtkit.report.vocabulary_page import sections

        write_png([block for part in sections(report) for block in part.blocks if isinstance(block, Chart)], png)
    if console.answered({name: value for name, value in asdict(report).items() if value is not None}):
        return
    from vtkit.report.pages import write_sections
    from vtkit.report.vocabulary_page import sections

    write_sections(sections(report))
