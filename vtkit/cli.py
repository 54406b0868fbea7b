"""The ``vtkit`` command: its commands, and how it ends.

Results go to standard output, messages to standard error. An error a user can act on is one message and the
exit code of its class (1, or 2 for a recipe or arguments that cannot be run), never a traceback; an interrupted
command leaves with 130, and a defect of vtkit with 70 and its traceback in a file. What is slow to import is
imported by the command that needs it.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
import traceback
from typing import Annotated

import typer

from vtkit import __version__, console
from vtkit.commands.calibrate import calibrate
from vtkit.commands.casing import casing
from vtkit.commands.encode import encode, index
from vtkit.commands.expand import expand
from vtkit.commands.expand_documents import expand_documents
from vtkit.commands.fragmentation import fragmentation
from vtkit.commands.gap import gap
from vtkit.commands.inspect_vocab import inspect_vocab
from vtkit.commands.overlap import overlap
from vtkit.commands.provenance import provenance
from vtkit.commands.recipe import recipes
from vtkit.commands.run import run
from vtkit.commands.search import explain, search
from vtkit.commands.tokenizer import tokenizers
from vtkit.commands.transfer import transfer
from vtkit.errors import VtkitError, machine_failure
from vtkit.interrupt import INTERRUPTED, leave_interrupted, leave_promptly
from vtkit.launch import launched

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
app.add_typer(recipes, name="recipe", help="Write recipes, check them, and show what is in them.")
app.add_typer(tokenizers, name="tokenizer", help="Learn a vocabulary from corpora, or build that of a specification.")


def main() -> None:
    """Run the command line and leave with its exit code; of several processes launched together, the first does."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a letter gets its number
    here = launched()
    if here.rank:
        from vtkit.processes import work
        from vtkit.search.shared_encoding import ENCODE, serve_encoding
        from vtkit.training.workers import TRAIN, serve_training

        work({TRAIN: serve_training, ENCODE: serve_encoding})
    leave_promptly()
    try:
        _run()
    finally:
        if here.size > 1:
            from vtkit.processes import dismiss

            dismiss()


def _run() -> None:
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


app.command("run")(run)
app.command("encode")(encode)
app.command("index")(index)
app.command("search")(search)
app.command("explain")(explain)
app.command("calibrate")(calibrate)
app.command("casing")(casing)
app.command("expand")(expand)
app.command("expand-documents")(expand_documents)
app.command("fragmentation")(fragmentation)
app.command("gap")(gap)
app.command("inspect-vocab")(inspect_vocab)
app.command("overlap")(overlap)
app.command("provenance")(provenance)
app.command("transfer")(transfer)
