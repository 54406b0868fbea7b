"""The ``vtkit`` command: its commands, and how it ends.

Results go to standard output, messages to standard error. An error that a user can solve is one message and the exit
code of its class (1, or 2 for a recipe or arguments that cannot be run), without a traceback. An interrupted command
exits with 130, a bug in vtkit with 70 and a traceback in a file. Slow imports are left to the commands that need them.
"""

import os
import re
import shlex
import sys
import tempfile
import time
import traceback
from collections import UserDict
from contextlib import suppress
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from vtkit.commands.options import STYLE, PlainCommand, shared
from vtkit.system import console
from vtkit.system.distributed import is_main, leave
from vtkit.system.errors import RecipeError, VtkitError, as_exception, machine_failure
from vtkit.system.interrupt import INTERRUPTED, leave_interrupted, leave_promptly
from vtkit.system.runtime import threads
from vtkit.system.version import __version__

DEFECT = 70  # exit code after a bug in vtkit (EX_SOFTWARE), different from those of errors that a user can solve

GROUPS = {  # as the help lists them
    "Build": (
        "build",
        "run",
        "sweep",
        "recipe",
        "transfer",
        "tokenizer",
        "expand",
        "calibrate",
        "casing",
        "expand-documents",
    ),
    "Search": ("search", "explain", "encode", "index", "add", "delete", "merge"),
    "Evaluate": ("evaluate", "compare", "analyse"),
    "Inspect": ("inspect-vocab", "overlap", "fragmentation", "gap", "provenance", "runs", "check", "clean", "doctor"),
    "Deploy": ("serve", "export", "publish"),
}
SPIN, POLICY = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"
SHORT_SPIN = "3000"  # looks at the other threads, about 30 microseconds (docs/running.md has the measurements)
SAMPLES, SECONDS_BETWEEN_SAMPLES = 8, 0.002
MODULE = {"explain": "search", "index": "encode", "clean": "runs"} | dict.fromkeys(("add", "delete", "merge"), "change")
"""The module of each command that has none of its own name."""


class _Imported(UserDict[str, Any]):
    """Commands by name, imported on access."""

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if command is not None:  # registered on the app
            return command
        attribute = name.replace("-", "_")
        function = getattr(import_module(f"vtkit.commands.{MODULE.get(name, attribute)}"), attribute)
        if not isinstance(function, typer.Typer):
            alone = typer.Typer(**STYLE)
            alone.command(name, cls=PlainCommand)(shared(name)(function))
            function = alone
        command = typer.main.get_command(function)
        command.name = name
        return command


class _Group(typer.core.TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Imported(dict.fromkeys(chain(*GROUPS.values())))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for title, names in GROUPS.items():
            with formatter.section(title):
                helps = {name: self.commands[name].get_short_help_str(formatter.width) for name in names}
                formatter.write_dl([(name.ljust(width), text) for name, text in helps.items()])


app = typer.Typer(
    name="vtkit",
    cls=_Group,
    help="Move a learned sparse retrieval encoder onto the vocabulary its user needs, and prove that it worked.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **STYLE | {"add_completion": True},
)


def main() -> None:
    """Run the command line and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # terminals without a letter show its number
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="surrogateescape")  # prompts check their input with console.is_utf8
    leave_promptly()
    share_cores()
    reserve = bytearray(2**22)  # freed to report an error after memory has run out
    try:
        _refuse_undecodable()
        if not is_main() and "run" not in sys.argv[1:2]:
            return  # one of several processes is enough
        try:
            app(prog_name="vtkit")
        finally:
            with suppress(BrokenPipeError), console.standard_output():
                sys.stdout.flush()
    except KeyboardInterrupt:
        leave_interrupted()
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:  # typer caught the interrupt
            leave_interrupted()
        if not leaving.code:
            leave()
        raise
    except BaseException as raised:
        del reserve
        error = as_exception(raised)
        failure = error if isinstance(error, VtkitError) else machine_failure(error)
        if failure is None:
            _report_defect(error)
            sys.exit(DEFECT)
        console.fail(str(failure))
        sys.exit(failure.exit_code)


def share_cores() -> None:
    """Choose how OpenMP's threads wait for each other, before torch is imported: GNU OpenMP reads it only then.

    By default, a thread that waits spins for up to 3 ms before it sleeps. Beside another busy program it takes the core
    from the thread that it waits for, and both programs become several times slower. So threads spin for about 30 µs if
    there is a free core for each (:data:`SHORT_SPIN`), and sleep at once otherwise. The choice holds until the command
    ends and changes no number (docs/running.md). Variables that the user has set stay; other systems than Linux keep
    their defaults.
    """
    if sys.platform != "linux" or {SPIN, POLICY} & os.environ.keys():
        return
    others = 0.0  # processes that run or wait for a core, this one apart
    for _ in range(SAMPLES):
        time.sleep(SECONDS_BETWEEN_SAMPLES)
        running = re.search(r"^procs_running (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
        others += (int(running[1]) - 1 if running else 0) / SAMPLES
    if others + threads() > len(os.sched_getaffinity(0)) + 0.5:
        os.environ[POLICY] = "PASSIVE"
    else:
        os.environ[SPIN] = SHORT_SPIN


def _refuse_undecodable() -> None:
    """Refuse arguments and a working folder that are not UTF-8, for every command in one place.

    Python keeps their bytes as lone surrogates, which no file, model or engine accepts later.
    """
    encoding = sys.getfilesystemencoding().lower().replace("-", "")
    arguments = [(f"argument {number}", text) for number, text in enumerate(sys.argv[1:], 1)]
    named = [*arguments, ("the working folder", os.getcwd())]
    if encoding != "utf8" and not all(text.isascii() for _, text in named):
        raise RecipeError(
            f"The locale's encoding, {sys.getfilesystemencoding()}, cannot represent the arguments. Set a UTF-8 locale "
            "(LC_ALL=C.UTF-8) or PYTHONUTF8=1, and run the same command again."
        )
    bad = [(what, text) for what, text in named if not console.is_utf8(text)]
    if bad:
        shown = "; ".join(f"{what}, {os.fsencode(text)!r}" for what, text in bad)
        raise RecipeError(
            f"not UTF-8: {shown}. Write text in UTF-8, and rename files and folders whose names are not UTF-8."
        )


def _report_defect(error: Exception) -> None:
    """Report a bug in one line; the details that its authors need go into a file."""
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="vtkit-defect-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(f"vtkit {__version__}, Python {sys.version}\n{shlex.join(sys.argv)}\n\n{text}")
        where = f"Its traceback is in {file.name}"
    except OSError:
        console.say(text)
        where = "Its traceback is above"
    lines = str(error).strip().splitlines()
    console.fail(
        f"this is a bug in vtkit, not in your input: {type(error).__name__}: {lines[0] if lines else ''}\n"
        f"{where}; please report it with the command. Finished work is kept."
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
    """Options before the command."""
