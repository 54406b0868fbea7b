"""The ``vtkit`` command: parse the arguments, call, print what came out.

Results go to standard output, messages to standard error. An error a user can act on is one message and the
exit code of its class (1, or 2 for a recipe or arguments that cannot be run), never a traceback; an interrupted
command leaves with 130, and a defect of vtkit with 70 and its traceback in a file. What is slow to import is
imported by the command that needs it.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from vtkit import __version__, console
from vtkit.commands.calibrate import calibrate
from vtkit.commands.casing import casing
from vtkit.commands.expand import expand
from vtkit.commands.fragmentation import fragmentation
from vtkit.commands.gap import gap
from vtkit.commands.inspect_vocab import inspect_vocab
from vtkit.commands.options import DownloadOption, allow_downloads
from vtkit.commands.overlap import overlap
from vtkit.commands.provenance import provenance
from vtkit.commands.search import explain, search, shown_tokens
from vtkit.commands.tokenizer import tokenizers
from vtkit.commands.transfer import transfer
from vtkit.errors import RecipeError, VtkitError, machine_failure
from vtkit.interrupt import INTERRUPTED, leave_interrupted, leave_promptly

DEFECT = 70
"""Exit code after an error that vtkit does not know (EX_SOFTWARE): never that of an error a user can act on."""

app = typer.Typer(
    name="vtkit",
    help="Move a learned sparse retrieval encoder onto the vocabulary its user needs, and prove that it worked.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # in rich's markup [transfer] would be a style, and vanish from the help
    context_settings={"help_option_names": ["-h", "--help"]},
)
recipes = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(recipes, name="recipe", help="Write recipes, check them, and show what is in them.")
app.add_typer(tokenizers, name="tokenizer", help="Learn a vocabulary from corpora, or build that of a specification.")

RecipeArgument = Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe, a TOML file.", show_default=False)]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Give a setting another value, e.g. transfer.alpha=2.5 or 'transfer.parallel=[\"a.tsv\"]'; "
        "none drops a setting or a whole section. May be repeated.",
        show_default=False,
    ),
]


def main() -> None:
    """Run the command line and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a letter gets its number
    leave_promptly()
    try:
        app(prog_name="vtkit")
    except VtkitError as error:
        console.fail(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        leave_interrupted()
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:  # typer has taken the interrupt
            leave_interrupted()
        raise
    except Exception as error:
        failure = machine_failure(error)
        if failure is None:
            _report_defect(error)
            sys.exit(DEFECT)
        console.fail(str(failure))
        sys.exit(failure.exit_code)


def _report_defect(error: Exception) -> None:
    """Say in a line that vtkit has a defect; what its authors need to mend it goes into a file."""
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="vtkit-defect-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(f"vtkit {__version__}, Python {sys.version}\n{shlex.join(sys.argv)}\n\n{text}")
        where = f"Its traceback is in {file.name}"
    except OSError:
        console.say(text)
        where = "Its traceback stands above"
    lines = str(error).strip().splitlines()
    console.fail(
        f"this is a defect of vtkit, not of what it was given: {type(error).__name__}: {lines[0] if lines else ''}\n"
        f"{where}; please report it with the command. What was finished is kept."
    )


def _answer(help: str, metavar: str) -> Any:
    return typer.Option(help=help, metavar=metavar, show_default=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        console.write(f"vtkit {__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What stands before the command."""


@app.command("run")
def run_recipe(
    recipe: RecipeArgument,
    settings: SetOption = None,
    runs: Annotated[
        Path, typer.Option("--runs", metavar="FOLDER", help="Where runs and their shared stage outputs are kept.")
    ] = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run and why, and stop.")] = False,
    until: Annotated[
        str | None, typer.Option("--until", metavar="STAGE", help="Stop after this stage.", show_default=False)
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="STAGE", help="Make this stage and all later ones again.", show_default=False),
    ] = None,
    force: Annotated[
        list[str] | None,
        typer.Option("--force", metavar="STAGE", help="Make this stage again. May be repeated.", show_default=False),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", min=1, help="Processor threads. Default: OMP_NUM_THREADS, else all cores.", show_default=False
        ),
    ] = None,
    download: DownloadOption = False,
) -> None:
    """Run a recipe: vocabulary, transfer, adapt, calibrate, finetune, index, evaluate, report.

    Checks after vocabulary, transfer and calibration stop a run that cannot work. What is done already is skipped,
    what was interrupted goes on, and each stage says why it runs. The results are in RUNS/NAME: model, index, TREC
    runs, report.html.
    """
    from vtkit.runs.run import run

    allow_downloads(download)
    try:
        folder = run(
            recipe,
            tuple(settings or ()),
            runs=runs,
            dry_run=dry_run,
            until=until,
            start=start,
            force=tuple(force or ()),
            threads=threads,
        )
    except KeyboardInterrupt:
        console.say("stopped. The same command goes on from here.")
        raise
    if dry_run:
        return
    if until is not None and until != "report":
        console.say(f"stopped after {until}, as asked. The same command without --until goes on.")
        return
    _show_results(folder)
    for page in sorted(folder.glob("report.*"), key=lambda path: path.suffix != ".html")[:1]:
        console.say(f"report: {page}")
    if (folder / "index").is_dir():
        console.say(f"search it: {shlex.join(['vtkit', 'search', str(folder), 'your query'])}")


def _show_results(folder: Path) -> None:
    """The results of a run as tables, and its example search."""
    from vtkit.runs.folder import report_of

    report = report_of(folder)
    if report is None:
        return
    for result in report["results"]:
        measures = list(result["rows"][0]["measures"])
        console.show_table(
            f"{result['set']}: {result['queries']} queries, {result['documents']} documents",
            ["model", *measures, "query dims", "document dims"],
            [
                [
                    row["model"],
                    *(f"{row['measures'][name]:.4f}" for name in measures),
                    *(_number(row[side]) for side in ("query_dimensions", "document_dimensions")),
                ]
                for row in result["rows"]
            ],
        )
    example = report["example"]
    if example is not None and example["results"]:
        console.say(f"example search: {console.one_line(example['query'])}")
        for found in example["results"][:3]:
            console.say(f"  {found['rank']}. {console.one_line(found['id'])}  {console.one_line(found['text'], 90)}")
            console.say(f"     {shown_tokens(found['tokens'][:6])}")
    if report["demonstration"]:
        console.say("This run is a demonstration on a small collection, not a result to quote.")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


@recipes.command("check")
def check_recipe(
    recipe: RecipeArgument,
    settings: SetOption = None,
    download: DownloadOption = False,
    data: Annotated[
        bool, typer.Option("--data", help="Read the collections, corpora, parallel text and word vectors too.")
    ] = False,
) -> None:
    """Find what keeps a recipe from being run.

    Every mistake in its settings is listed, with its line; then every file, model and collection it names that
    cannot be had here. The exit code is 2 if there is any. With --data the files are read as well, as vtkit run does
    before its first stage, and what is wrong with any of them is listed, with exit code 1.
    """
    from vtkit.measures.effectiveness import validate_measures
    from vtkit.recipe.load import load_recipe
    from vtkit.recipe.preflight import preflight

    allow_downloads(download)
    loaded = load_recipe(recipe, settings or [])
    complaints: list[str] = []
    try:
        preflight(loaded.recipe, path=recipe, places=loaded.places)
    except RecipeError as error:
        complaints.append(str(error))
    try:
        if loaded.recipe.evaluate is not None:
            validate_measures(loaded.recipe.evaluate.measures, loaded.recipe.evaluate.depth)
    except RecipeError as error:
        complaints.append(str(error))
    if complaints:
        raise RecipeError("\n".join(complaints))
    if data:
        from vtkit.recipe.data_check import check_data

        check_data(loaded.recipe, path=recipe, places=loaded.places)
    console.write(f"{recipe} is fine")


@recipes.command("show")
def show_recipe(recipe: RecipeArgument, settings: SetOption = None) -> None:
    """Print a recipe with all its settings.

    Every setting stands there with its value and what it means. What the recipe extends, what --set changes and
    what is left to defaults is all written out, paths absolute, so the output is a recipe that stands on its own.
    """
    from vtkit.recipe.load import load_recipe
    from vtkit.recipe.write import resolved_toml

    console.write(resolved_toml(load_recipe(recipe, settings or []).recipe).removesuffix("\n"))


@recipes.command("schema")
def show_schema() -> None:
    """Print the JSON Schema of recipes.

    Editors complete and explain settings by it, with a first line in the recipe such as: #:schema recipe.json
    """
    from vtkit.recipe.schema import json_schema

    console.write_json(json_schema())


@recipes.command("new")
def write_new_recipe(
    name: Annotated[str | None, _answer("Name of the run: letters, digits, dots, hyphens.", "NAME")] = None,
    language: Annotated[str | None, _answer("ISO 639 code of the language searched in, e.g. ko.", "CODE")] = None,
    source: Annotated[str | None, _answer("Encoder to start from: hub id or folder.", "MODEL")] = None,
    tokenizer: Annotated[
        str | None, _answer("Tokenizer whose vocabulary to use. Default: train one on the corpus.", "TOKENIZER")
    ] = None,
    corpus: Annotated[
        list[str] | None, _answer("Text of the language or domain: .txt, .jsonl, BEIR folder. Repeatable.", "PATH")
    ] = None,
    parallel: Annotated[
        list[str] | None, _answer("Parallel text: two tab-separated columns, source first. Repeatable.", "FILE")
    ] = None,
    embedder: Annotated[
        str | None, _answer("Instead of parallel text: an embedder that knows both languages.", "MODEL")
    ] = None,
    train: Annotated[str | None, _answer("Collection with judged queries to fine-tune on.", "COLLECTION")] = None,
    evaluate: Annotated[list[str] | None, _answer("Collection to judge the run on. Repeatable.", "COLLECTION")] = None,
    out: Annotated[Path | None, _answer("File to write. Default: NAME.toml here.", "FILE")] = None,
) -> None:
    """Write a first recipe, with comments.

    On a terminal what is not given is asked for. Paths are given relative to the current folder and written
    relative to the recipe's.
    """
    from vtkit.recipe.load import load_recipe
    from vtkit.recipe.new import as_written_in, new_recipe

    if out is not None:
        _refuse_existing(out)
    if sys.stdin.isatty():
        name = name or _ask("Name of the run")
        language = language or _ask("Language searched in (ISO 639 code, such as ko)")
        source = source or _ask("Encoder to start from (hub id or folder)")
        tokenizer = tokenizer or _ask("Tokenizer whose vocabulary to use (Enter: train one on a corpus)", optional=True)
        corpus = corpus or _ask_list("Corpora for training" + (" (Enter: none)" if tokenizer else ""), bool(tokenizer))
        parallel = parallel or _ask_list("Parallel text, tab-separated (Enter: none)", optional=True)
        if not parallel:
            embedder = embedder or _ask("Embedder that knows both languages (Enter: none)", optional=True)
        train = train or _ask("Collection to fine-tune on (Enter: none)", optional=True)
        evaluate = evaluate or _ask_list("Collections to judge the run on (Enter: none)", optional=True)
    if not name or not language or not source or not (tokenizer or corpus):
        given = [("--name", name), ("--language", language), ("--source", source)]
        missing = [flag for flag, value in given if not value]
        missing += [] if tokenizer or corpus else ["--tokenizer (or --corpus, to train one)"]
        raise RecipeError(f"recipe new needs also: {', '.join(missing)}")
    out = out or Path(f"{name}.toml")
    _refuse_existing(out)

    def written(value: str, what: str) -> str:
        return as_written_in(out.absolute().parent, value, what)

    text = new_recipe(
        name=name,
        language=language,
        source=written(source, "model"),
        tokenizer=written(tokenizer, "tokenizer") if tokenizer else None,
        corpus=[written(entry, "corpus") for entry in corpus or ()],
        parallel=[written(entry, "pairs") for entry in parallel or ()],
        embedder=written(embedder, "model") if embedder else None,
        train=written(train, "retrieval") if train else None,
        evaluate=[written(entry, "retrieval") for entry in evaluate or ()],
    )
    load_recipe(out, text=text)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        _refuse_existing(out)
        raise
    except OSError as error:
        raise VtkitError(f"{out} cannot be written: {error.strerror}") from error
    console.say(f"Wrote {out}. Next: vtkit recipe check {out}")


def _refuse_existing(out: Path) -> None:
    if os.path.lexists(out):
        raise RecipeError(f"{out} is there already, and is not overwritten. Give another --out, or remove it.")


def _ask(question: str, optional: bool = False) -> str:
    answer: str = typer.prompt(question, err=True, default="" if optional else None, show_default=False)
    return answer.strip()


def _ask_list(question: str, optional: bool = False) -> list[str]:
    answer = _ask(f"{question}, several with commas between", optional)
    return [entry.strip() for entry in answer.split(",") if entry.strip()]


app.command("search")(search)
app.command("explain")(explain)
app.command("calibrate")(calibrate)
app.command("casing")(casing)
app.command("expand")(expand)
app.command("fragmentation")(fragmentation)
app.command("gap")(gap)
app.command("inspect-vocab")(inspect_vocab)
app.command("overlap")(overlap)
app.command("provenance")(provenance)
app.command("transfer")(transfer)

if __name__ == "__main__":
    main()
