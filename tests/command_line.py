"""The command line as a user calls it, in a process of its own, without the seconds in which it would import torch.

A server that has imported what the commands import is forked for each call: folder, environment, arguments, output and
exit code are those of ``python -m vtkit``, or of ``python -c CODE`` where they begin with ``-c``. What a process does
while it imports is tested where it is the subject (``test_interrupt.py``, ``test_import_floors.py``).
"""

import multiprocessing
import os
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typer.testing import Result

SECONDS = 600
"""After which a call is taken to hang."""

_forkserver = multiprocessing.get_context("forkserver")
_forkserver.set_forkserver_preload(["preloaded"])


def start(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str], outputs: Path, stdin: Path | None = None
) -> BaseProcess:
    """``vtkit ARGUMENTS`` in ``folder``, with exactly ``environment``; what it prints goes to files in ``outputs``."""
    start_server()
    process = _forkserver.Process(
        target=_run, args=(folder, list(arguments), dict(environment), outputs, stdin or Path(os.devnull))
    )
    process.start()
    return process


def killed(folder: Path, arguments: Sequence[str], environment: Mapping[str, str], seen: Callable[[], object]) -> None:
    """``vtkit ARGUMENTS`` in ``folder``, killed as soon as ``seen`` says so."""
    process = start(folder, arguments, environment, folder)
    deadline = time.monotonic() + SECONDS
    while not seen():
        assert process.is_alive(), (folder / "stderr").read_text("utf-8")
        assert time.monotonic() < deadline, (folder / "stderr").read_text("utf-8")
        time.sleep(0.002)
    process.kill()
    process.join()


def call(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str], typed: str | bytes = ""
) -> subprocess.CompletedProcess[str]:
    """What ``vtkit ARGUMENTS`` printed, with ``typed`` on standard input, and its exit code."""
    with tempfile.TemporaryDirectory() as name:
        outputs = Path(name)
        (outputs / "stdin").write_bytes(typed.encode() if isinstance(typed, str) else typed)
        process = start(folder, arguments, environment, outputs, outputs / "stdin")
        process.join(SECONDS)
        if process.is_alive():
            process.kill()
            raise subprocess.TimeoutExpired(["vtkit", *arguments], SECONDS)
        out, error = ((outputs / stream).read_text("utf-8") for stream in ("stdout", "stderr"))
    assert process.exitcode is not None
    return subprocess.CompletedProcess(["vtkit", *arguments], process.exitcode, out, error)


def python(
    *arguments: object,
    cwd: Path | None = None,
    program: Path | str = sys.executable,
    without: tuple[str, ...] = (),
    typed: str = "",
    **environment: str,
) -> str:
    """What ``python ARGUMENTS`` prints, started as a user starts it, which ends well: in this environment but for what
    begins with one of ``without``, and with ``environment``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(without)} | environment
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(
        command, cwd=cwd, env=kept, input=typed, capture_output=True, encoding="utf-8", timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def invoke(*arguments: object, typed: str | bytes | None = None) -> "Result":
    """``vtkit ARGUMENTS`` in this process, with ``typed`` on standard input."""
    from typer.testing import CliRunner

    from vtkit.cli import app

    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=typed)


def succeeds(*arguments: object, typed: str | bytes | None = None) -> "Result":
    """The same, which must end well."""
    result = invoke(*arguments, typed=typed)
    assert result.exit_code == 0, f"{arguments}\n{result.output}\n{result.exception!r}"
    return result


@cache
def start_server() -> None:
    """Where Python starts it, it looks for what it is to import on PYTHONPATH alone, and passes over what it misses."""
    before = os.environ.get("PYTHONPATH")
    here = Path(__file__).parent
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [here, here.parent, *([before] if before else [])]))
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _run(folder: Path, arguments: list[str], environment: dict[str, str], outputs: Path, stdin: Path) -> None:
    assert "preloaded" in sys.modules
    from numba.core.config import reload_config

    for number, path in enumerate((stdin, outputs / "stdout", outputs / "stderr")):
        stream = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, encoding="utf-8") for number, mode in enumerate("rww"))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["vtkit", *arguments]
    reload_config()  # numba's threads are as many as the environment says now, not as it said when numba was imported
    if arguments[:1] == ["-c"]:
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        return
    from vtkit.__main__ import main

    main()


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "VTKIT_DOWNLOAD"}
    return {**kept, "PYTHONPATH": str(Path(__file__).parents[1]), "COLUMNS": "100", **more}


def on_a_terminal(folder: Path, arguments: list[str], answers: str) -> tuple[int, str]:
    """Exit code and what was shown of a command whose input is a terminal."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "vtkit", *arguments]
    pipes: dict[str, Any] = {"stdin": follower, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        with subprocess.Popen(command, cwd=folder, env=environment(), encoding="utf-8", **pipes) as process:
            os.write(leader, os.fsencode(answers))
            _, shown = process.communicate(timeout=300)
            return process.returncode, shown
    finally:
        os.close(leader)
        os.close(follower)
