"""``vtkit recipe``: recipes written, checked and shown."""

import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from vtkit.commands.options import STYLE, PlainCommand, RecipeArgument, SetOption, option, options_of, shared
from vtkit.recipe.new import NewRecipe, new_recipe
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
@options_of(NewRecipe, argument="answers")
def write_new_recipe(
    answers: NewRecipe,
    out: Annotated[Path | None, option("File to write. Default: NAME.toml here.", "FILE")] = None,
) -> None:
    """Write a first recipe, with comments.

    On a terminal it prompts for missing options. Paths are given relative to the current folder and written relative
    to the recipe's folder.
    """
    from vtkit.recipe.load import load_recipe

    if out is not None:
        refuse_existing(out)
    if sys.stdin.isatty():
        answers = _prompted(answers)
    out = out or Path(f"{answers.name}.toml")
    refuse_existing(out)
    text = new_recipe(answers, out.absolute().parent)
    load_recipe(out, text=text)
    write_file(out, text)
    console.say(f"Wrote {out}. Next: vtkit recipe check {out} --data")
    if answers.train and not answers.source:
        console.say("Judged queries choose the weight of the index; training units on them is commented out.")
    own = answers.source_language in (answers.language or "").split(",")
    if answers.source and not own and not answers.parallel and not answers.embedder:
        console.warn(
            f"there is no bridge from {answers.source_language} to {answers.language}: new tokens start without a "
            "meaning, and the encoder learns the texts from adaptation alone. Give sentence pairs or a dictionary "
            "(--parallel), an embedder that knows both languages (--embedder), or another --source-language."
        )


def _prompted(answers: NewRecipe) -> NewRecipe:
    """``answers``, those that are missing from the terminal."""
    given = dict(answers)

    def ask(name: str, question: str, optional: bool = False) -> None:
        if given[name]:
            return
        several = isinstance(given[name], tuple)
        question += ", several with commas between" if several else ""
        answer: str = typer.prompt(question, err=True, default="" if optional else None, show_default=False)
        if not console.is_utf8(answer):
            raise RecipeError("The answer is not UTF-8. Set the terminal and the locale to UTF-8, and start again.")
        parts = tuple(filter(None, map(str.strip, answer.split(",") if several else [answer])))
        given[name] = parts if several else next(iter(parts), None)

    ask("name", "Name of the run")
    ask("language", "Language searched in (ISO 639 code, such as ko)")
    if not given["embedder"]:
        ask("source", "Sparse encoder to start from (hub id or folder; Enter: a dense embedder)", True)
    source, own = given["source"], given["source_language"] in given["language"].split(",")
    if source:
        default = "the source's own" if own else "train one on a corpus"
        ask("tokenizer", f"Tokenizer whose vocabulary to use (Enter: {default})", True)
    else:
        ask("embedder", "Dense embedder to start from (hub id or folder)")
    trains = bool(source) and not given["tokenizer"] and not own
    ask("corpus", "Corpora for training" + ("" if trains else " (Enter: none)"), not trains)
    if source and not own:
        ask("parallel", "Parallel text, tab-separated (Enter: none)", True)
        if not given["parallel"]:
            ask("embedder", "Embedder that knows both languages (Enter: none)", True)
    ask("train", "Collection to fine-tune on (Enter: none)", True)
    ask("evaluate", "Collections to judge the run on (Enter: none)", True)
    return NewRecipe(**given)
