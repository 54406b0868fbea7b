"""``vtkit recipe``: recipes written, checked and shown."""

import shlex
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from vtkit.commands.options import STYLE, PlainCommand, RecipeArgument, SetOption, option, shared
from vtkit.system import console
from vtkit.system.errors import RecipeError
from vtkit.system.outputs import refuse_existing, write_file

recipe = typer.Typer(help="Write recipes, check them, and show what is in them.", no_args_is_help=True, **STYLE)


@recipe.command("check", cls=PlainCommand)
@shared("recipe check")
def check_recipe(
    recipe: RecipeArgument,
    settings: SetOption = None,
    data: Annotated[
        bool, option("Read the collections, corpora, parallel text, word vectors and models too.", None, "--data")
    ] = False,
) -> None:
    """Find everything that keeps a recipe from running.

    Lists every mistake in the settings with its line, then every file, model and collection that is not available
    here; the exit code is 2 if there are any. With --data, the files are read as well, as before a run; problems in
    them give exit code 1. The vocabulary is then made in a temporary folder and checked as a run's first check does.
    With [sweep], every cell is checked in this way.
    """
    from vtkit.pipeline.run import check_contents, check_first_stage, check_settings
    from vtkit.pipeline.store import Store
    from vtkit.recipe.load import load_recipe
    from vtkit.recipe.sweep import for_every_cell, grid_of

    loaded = load_recipe(recipe, settings or [])
    cells, command, what = {"": loaded}, "run", ""
    if loaded.recipe.sweep is not None:
        cells = {cell.name: cell.loaded for cell in grid_of(recipe, settings or []).cells}
        command, what = "sweep", f", a grid of {len(cells)} run{'s' * (len(cells) > 1)}"
    for_every_cell(cells, lambda name: check_settings(cells[name]), str)
    if data:
        with TemporaryDirectory(prefix="vtkit-check-") as folder:
            for_every_cell(cells, lambda name: check_contents(cells[name], Store(Path(folder))), str)
        vocabularies = {repr(each.recipe.vocabulary): name for name, each in cells.items()}
        for_every_cell(vocabularies.values(), lambda name: check_first_stage(cells[name].recipe), str)
    changed = [word for setting in settings or [] for word in ("--set", setting)]
    console.write(f"{recipe} is fine{what}. Next: {shlex.join(['vtkit', command, str(recipe), *changed])}")


@recipe.command("show", cls=PlainCommand)
def show_recipe(recipe: RecipeArgument, settings: SetOption = None) -> None:
    """Print a recipe with all its settings.

    Every setting is printed with its value and meaning: inherited ones, those changed by --set, and defaults. Paths
    are absolute, so the output is a complete recipe.
    """
    from vtkit.pipeline.steps.texts import used_where_left_open
    from vtkit.recipe.load import load_recipe
    from vtkit.recipe.write import resolved_toml

    loaded = load_recipe(recipe, settings or []).recipe
    console.write(resolved_toml(loaded, used_where_left_open(loaded)).removesuffix("\n"))


@recipe.command("schema", cls=PlainCommand)
def show_schema() -> None:
    """Print the JSON Schema of recipes.

    Editors use it to complete and explain settings if the recipe begins with: #:schema recipe.json
    """
    from vtkit.recipe.reference import json_schema

    console.write_json(json_schema())


@recipe.command("new", cls=PlainCommand)
def write_new_recipe(
    name: Annotated[str | None, option("Name of the run: letters, digits, dots, hyphens.", "NAME")] = None,
    language: Annotated[str | None, option("ISO 639 code of the language, or several: en,ko.", "CODE")] = None,
    source: Annotated[
        str | None, option("Sparse encoder to start from: hub id or folder. Default: --embedder.", "MODEL")
    ] = None,
    source_language: Annotated[str, option("ISO 639 code of the encoder's language.", "CODE")] = "en",
    tokenizer: Annotated[
        str | None,
        option(
            "Tokenizer whose vocabulary to use. Default: the source's own in its language, one trained on the corpus "
            "in another.",
            "TOKENIZER",
        ),
    ] = None,
    corpus: Annotated[
        list[str] | None, option("Text of the language or domain: .txt, .jsonl, BEIR folder. Repeatable.", "PATH")
    ] = None,
    parallel: Annotated[
        list[str] | None, option("Parallel text: two tab-separated columns, source first. Repeatable.", "FILE")
    ] = None,
    embedder: Annotated[
        str | None,
        option(
            "Dense embedder that knows the language, to start from. With --source: one that knows both languages, in "
            "place of parallel text.",
            "MODEL",
        ),
    ] = None,
    train: Annotated[str | None, option("Collection with judged queries to fine-tune on.", "COLLECTION")] = None,
    evaluate: Annotated[
        list[str] | None, option("Collection to evaluate the run on. Repeatable.", "COLLECTION")
    ] = None,
    out: Annotated[Path | None, option("File to write. Default: NAME.toml here.", "FILE")] = None,
) -> None:
    """Write a first recipe, with comments.

    On a terminal it prompts for missing options. Paths are given relative to the current folder and written relative
    to the recipe's folder.
    """
    from vtkit.recipe.load import load_recipe
    from vtkit.recipe.new import as_written_in, new_recipe, reads_lower_case

    if out is not None:
        refuse_existing(out)
    if sys.stdin.isatty():
        name = name or _ask("Name of the run")
        language = language or _ask("Language searched in (ISO 639 code, such as ko)")
        if not embedder:
            source = source or _ask("Sparse encoder to start from (hub id or folder; Enter: a dense embedder)", True)
        if not source:
            embedder = embedder or _ask("Dense embedder to start from (hub id or folder)")
        own = source_language in language.split(",")
        default = "the source's own" if own else "train one on a corpus"
        if source:
            tokenizer = tokenizer or _ask(f"Tokenizer whose vocabulary to use (Enter: {default})", optional=True)
        trains = bool(source) and not tokenizer and not own
        corpus = corpus or _ask_list("Corpora for training" + ("" if trains else " (Enter: none)"), not trains)
        if source and not own:
            parallel = parallel or _ask_list("Parallel text, tab-separated (Enter: none)", optional=True)
        if source and not own and not parallel:
            embedder = embedder or _ask("Embedder that knows both languages (Enter: none)", optional=True)
        train = train or _ask("Collection to fine-tune on (Enter: none)", optional=True)
        evaluate = evaluate or _ask_list("Collections to judge the run on (Enter: none)", optional=True)
    out = out or Path(f"{name}.toml")
    refuse_existing(out)

    written = partial(as_written_in, out.absolute().parent)
    text = new_recipe(
        name=name,
        language=language,
        source=written(source, "model") if source else None,
        source_language=source_language,
        lowercase=source is not None and reads_lower_case(source),
        tokenizer=written(tokenizer, "tokenizer") if tokenizer else None,
        corpus=[written(entry, "corpus") for entry in corpus or ()],
        parallel=[written(entry, "pairs") for entry in parallel or ()],
        embedder=written(embedder, "model") if embedder else None,
        train=written(train, "retrieval") if train else None,
        evaluate=[written(entry, "retrieval") for entry in evaluate or ()],
    )
    load_recipe(out, text=text)
    write_file(out, text)
    console.say(f"Wrote {out}. Next: vtkit recipe check {out} --data")
    if train and not source:
        console.say("Judged queries choose the weight of the index; training units on them is commented out.")
    if source and source_language not in (language or "").split(",") and not parallel and not embedder:
        console.warn(
            f"there is no bridge from {source_language} to {language}: new tokens start without a meaning, and the "
            "encoder learns the texts from adaptation alone. Give sentence pairs or a dictionary (--parallel), an "
            "embedder that knows both languages (--embedder), or another --source-language."
        )


def _ask(question: str, optional: bool = False) -> str:
    answer: str = typer.prompt(question, err=True, default="" if optional else None, show_default=False)
    if not console.is_utf8(answer):
        raise RecipeError("The answer is not UTF-8. Set the terminal and the locale to UTF-8, and start again.")
    return answer.strip()


def _ask_list(question: str, optional: bool = False) -> list[str]:
    answer = _ask(f"{question}, several with commas between", optional)
    return [entry.strip() for entry in answer.split(",") if entry.strip()]
