"""The ``vtkit`` command: its commands, and how it ends.

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
from collections import UserDict
from importlib import import_module
from typing import Annotated, Any

import typer

from vtkit import __version__
from vtkit.system import console
from vtkit.system.errors import RecipeError, VtkitError, machine_failure
from vtkit.system.interrupt import INTERRUPTED, leave_interrupted, leave_promptly
from vtkit.training.distributed import is_main

DEFECT = 70
"""Exit code after an error that vtkit does not know (EX_SOFTWARE): never that of an error a user can act on."""

STYLE: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # in rich's markup [transfer] would be a style, and vanish from the help
}

COMMANDS = {
    "run": "run:run",
    "sweep": "sweep:sweep",
    "runs": "runs:runs",
    "clean": "runs:clean",
    "publish": "publish:publish",
    "compare": "compare:compare",
    "doctor": "doctor:doctor",
    "encode": "encode:encode",
    "index": "encode:index",
    "analyse": "analyse:analyse",
    "search": "search:search",
    "explain": "search:explain",
    "evaluate": "evaluate:evaluate",
    "serve": "serve:serve",
    "calibrate": "calibrate:calibrate",
    "casing": "casing:casing",
    "expand": "expand:expand",
    "expand-documents": "expand_documents:expand_documents",
    "export": "export:export",
    "fragmentation": "fragmentation:fragmentation",
    "gap": "gap:gap",
    "inspect-vocab": "inspect_vocab:inspect_vocab",
    "overlap": "overlap:overlap",
    "provenance": "provenance:provenance",
    "transfer": "transfer:transfer",
    "recipe": "recipe:recipes",
    "tokenizer": "tokenizer:tokenizers",
}
"""Where each command is, in :mod:`vtkit.commands`; only the one that is asked for is imported."""


class _Imported(UserDict[str, Any]):
    """Commands by their names, each imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if not isinstance(command, str):  # registered on the app
            return command
        module, _, attribute = command.partition(":")
        found = getattr(import_module(f"vtkit.commands.{module}"), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(**STYLE)
            alone.command(name)(found)
            found = alone
        command = typer.main.get_command(found)
        command.name = name
        return command


class _Group(typer.core.TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Imported({**COMMANDS, **self.commands})


app = typer.Typer(
    name="vtkit",
    cls=_Group,
    help="Move a learned sparse retrieval encoder onto the vocabulary its user needs, and prove that it worked.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **STYLE,
)


def main() -> None:
    """Run the command line and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a letter gets its number
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="surrogateescape")  # prompts look at what was typed with console.is_utf8
    leave_promptly()
    try:
        _refuse_undecodable()
        if not is_main() and "run" not in sys.argv[1:2]:
            return  # of several processes one is enough
        app(prog_name="vtkit")
    except VtkitError as error:
        console.fail(error.with_names(lambda argument: f"--{argument.replace('_', '-')}"))
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


def _refuse_undecodable() -> None:
    """Refuse arguments and a working folder whose bytes are not UTF-8, for every command in one place.

    Python keeps such bytes as lone surrogates, which no file, model or engine can take later.

    Raises:
        RecipeError: all of them at once, or a locale in which they cannot be read.
    """
    encoding = sys.getfilesystemencoding().lower().replace("-", "")
    given = [(f"argument {number}", text) for number, text in enumerate(sys.argv[1:], 1)]
    named = [*given, ("the working folder", os.getcwd())]
    if encoding != "utf8" and not all(text.isascii() for _, text in named):
        raise RecipeError(
            f"the locale's encoding is {sys.getfilesystemencoding()}, in which the arguments cannot be read as text. "
            "Set a UTF-8 locale (LC_ALL=C.UTF-8) or PYTHONUTF8=1, and give the same command again."
        )
    bad = [(what, text) for what, text in named if not console.is_utf8(text)]
    if bad:
        shown = "; ".join(f"{what}, {os.fsencode(text)!r}" for what, text in bad)
        raise RecipeError(
            f"not UTF-8: {shown}. Give text in UTF-8, and rename files and folders that have other names."
        )


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
