"""``vtkit tokenizer``: a vocabulary learned from corpora, or built from a specification, without a recipe."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vtkit.commands.corpora import CORPUS_HELP, EncodingErrorsOption, texts_of
from vtkit.commands.options import (
    STYLE,
    NewFolderOption,
    PlainCommand,
    argument,
    grouped,
    option,
    options_of,
    set_option,
    shared,
)
from vtkit.settings.casing import CasingSection
from vtkit.settings.vocabulary import TrainedVocabulary
from vtkit.system import console
from vtkit.system.outputs import new_folder, refuse_existing

if TYPE_CHECKING:
    from vtkit.vocabulary.statistics import Built

tokenizer = typer.Typer(help="Learn a vocabulary, or build one from a specification.", no_args_is_help=True, **STYLE)


@tokenizer.command("build", cls=PlainCommand)
@shared("tokenizer")
def build_specification(
    specification: Annotated[Path, argument("A TOML file with [vocabulary].", "SPECIFICATION")],
    out: NewFolderOption,
    settings: Annotated[
        list[str] | None, set_option("the specification", "'vocabulary.corpus=[\"mine.txt\"]'", "SECTION.KEY=VALUE")
    ] = None,
) -> None:
    """Build the tokenizer of a specification.

    A recipe can also name the specification as its tokenizer; the first run that needs it builds it.
    """
    from vtkit.api import build_tokenizer

    _build(lambda: build_tokenizer(specification, settings or []), out)


def casing_of(
    lowercase: Annotated[bool, option("Lower-case the input first.", None, "--lowercase")] = False,
    language: Annotated[str | None, option("Language whose lower case it is: tr or az make I to ı.", "CODE")] = None,
) -> CasingSection:
    """The input casing of a tokenizer that is built."""
    return CasingSection(input="lowercase" if lowercase else "keep", language=language)


@tokenizer.command("train", cls=PlainCommand)
@shared("tokenizer")
@options_of(TrainedVocabulary, fixed={"kind": "trained", "corpus": ("corpora",)})
@grouped("casing", casing_of)
def train_tokenizer(
    corpora: Annotated[list[str], argument(CORPUS_HELP, "CORPUS")],
    out: NewFolderOption,
    settings: TrainedVocabulary,
    casing: CasingSection,
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:
    """Learn a vocabulary from corpora.

    The same corpora in the same order give the same bytes (docs/vocabulary.md).
    """
    from vtkit.vocabulary.specification import build

    texts = (text for corpus in corpora for text in texts_of(corpus, encoding_errors))
    _build(lambda: build(settings, casing, texts), out)


def _build(make: Callable[[], Built], out: Path) -> None:
    refuse_existing(out)
    from vtkit.system.runtime import peak_bytes
    from vtkit.vocabulary.inspection import algorithm, normalizer_steps
    from vtkit.vocabulary.saved import save_tokenizer

    started = time.monotonic()
    with new_folder(out) as folder:
        built = make()
        save_tokenizer(built.tokenizer, folder)
    peak = peak_bytes()
    stats = {
        "folder": str(out),
        "size": len(built.tokenizer),
        "algorithm": algorithm(built.tokenizer),
        "text": ", ".join(normalizer_steps(built.tokenizer)),
        **({"corpus": built.corpus.to_json()} if built.corpus is not None else {}),
        **({"expansion": built.expansion.to_json()} if built.expansion is not None else {}),
        "seconds": round(time.monotonic() - started, 1),
        "peak_memory_mib": None if peak is None else peak >> 20,
    }
    if console.answered(stats):
        return
    console.write(f"{out}: {stats['size']:,} tokens, {stats['algorithm']}\ntext: {stats['text']}")
    if (corpus := built.corpus) is not None:
        console.write(
            f"corpus: {corpus.texts:,} texts, {corpus.characters:,} characters, {corpus.words:,} words "
            f"({corpus.distinct_words:,} different)"
        )
    if (expansion := built.expansion) is not None:
        console.write(f"expansion: {expansion.added:,} new tokens; stopped: {expansion.why}")
    memory = "" if peak is None else f", {peak >> 20:,} MiB of memory at the most"
    console.write(f"{stats['seconds']} s{memory}")
    console.say(f'In a recipe: [vocabulary] kind = "existing", tokenizer = "{out}"')
