"""Ctrl-C: one line, exit code 130, no traceback, soon, whatever the command is doing."""

import fcntl
import os
import random
import signal
import subprocess
import sys
import termios
import time
from array import array
from pathlib import Path

import pytest
from tiny import tokenizer

ROOT = Path(__file__).resolve().parents[1]
HANGING = 300.0
"""Seconds after which a command counts as one that does not leave; it takes one or two where nothing else runs."""


def interrupted(command: list[str], folder: Path, wait_for: str, then: float = 0.0) -> str:
    """What ``command`` wrote to standard error, interrupted ``then`` seconds after a line with ``wait_for``."""
    process = subprocess.Popen(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    heard = ""
    while wait_for not in heard:
        line = process.stderr.readline()
        assert line, heard
        heard += line
    time.sleep(then)
    assert process.poll() is None, "it ended before it was interrupted"
    process.send_signal(signal.SIGINT)
    heard += left(process)
    assert "Traceback" not in heard
    assert heard.count("interrupted") == 1
    return heard


def left(process: subprocess.Popen[str]) -> str:
    """What an interrupted command still wrote to standard error."""
    try:
        heard = process.communicate(timeout=HANGING)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 130, heard
    return heard


def interrupts_itself(code: str, folder: Path, said: str = "interrupted") -> None:
    """``code`` sends itself the signal, and ends with one line."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=HANGING,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, f"error: {said}\n")


CONTINUED = "interrupted; the same command continues"


@pytest.mark.parametrize(
    ("module", "command", "said"),
    [
        ("rich", "", "interrupted"),
        ("typer", "", "interrupted"),
        ("vtkit.commands.run", "run r.toml", "interrupted"),
        ("vtkit.pipeline.run", "run r.toml", CONTINUED),
        ("vtkit.pipeline.run", "run r.toml --dry-run", "interrupted"),
        ("vtkit.api", "encode model texts --out vectors", CONTINUED),
        ("vtkit.pipeline.evaluate", "evaluate bm25 --on data --out results", CONTINUED),
        ("vtkit.pipeline.evaluate", "evaluate bm25 --on data", "interrupted"),
        ("vtkit.api", "index vectors --out index", "interrupted"),  # begins again
    ],
)
def test_an_interrupt_while_the_command_line_is_imported(module: str, command: str, said: str, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\nclass Interrupting:\n    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n            os.kill(os.getpid(), signal.SIGINT)\n"
        f"sys.meta_path.insert(0, Interrupting())\nsys.argv = ['vtkit', *{command.split()}]\n"
        "from vtkit.__main__ import main\nmain()\n"
    )
    interrupts_itself(code, tmp_path, said)


def test_an_interrupt_in_a_destructor(tmp_path: Path) -> None:
    """The interpreter would print it with a traceback and go on."""
    code = (
        "import os, signal, time\nfrom vtkit.system.interrupt import leave_promptly\n"
        "class Left:\n    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n        time.sleep(0.01)\n"
        f"leave_promptly()\nleft = Left()\ndel left\ntime.sleep({HANGING})\n"
    )
    interrupts_itself(code, tmp_path)


def test_native_code_that_never_looks_at_signals_is_left(tmp_path: Path) -> None:
    code = (
        "import hashlib, sys\nfrom vtkit.system import console\n"
        "from vtkit.system.interrupt import leave_promptly, unfinished\n"
        "from pathlib import Path\nPath('half').mkdir()\nunfinished.add(Path('half'))\nleave_promptly()\n"
        "console.say('working')\nhashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)\n"
    )
    interrupted([sys.executable, "-c", code], tmp_path, "working", 0.2)
    assert not (tmp_path / "half").exists()


def test_inspect_vocab_speaks_soon_and_leaves_soon(tmp_path: Path) -> None:
    draw = random.Random(0)
    words = {"".join(draw.choices("aeiourstlnmdcpbg", k=draw.randint(5, 9))) for _ in range(20_000)}
    first = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "year", "in", "a", "test"]
    (tmp_path / "vocab.txt").write_text("\n".join([*first, *sorted(words)]))
    command = [sys.executable, "-m", "vtkit", "inspect-vocab", "vocab.txt"]
    interrupted(command, tmp_path, "reading vocab.txt")
    interrupted(command, tmp_path, "reading vocab.txt", 4.0)


@pytest.mark.parametrize("kind", ["tokenizer", "fragmentation", "gap"])
def test_commands_that_read_a_corpus_leave_soon(tmp_path: Path, kind: str) -> None:
    tokenizer().save_pretrained(str(tmp_path / "words"))
    commands = {
        "tokenizer": ["tokenizer", "train", "-", "--out", "made", "--size", "3000"],
        "fragmentation": ["fragmentation", "-", "-t", "words"],
        "gap": ["gap", "-", str(ROOT / "README.md")],
    }
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "vtkit", *commands[kind]], cwd=tmp_path, stdin=read, stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.write(write, b"the river\n")
    unread = array("i", [1])
    while unread[0]:  # then it waits for the rest of standard input
        assert process.poll() is None
        time.sleep(0.1)
        fcntl.ioctl(read, termios.FIONREAD, unread)
    process.send_signal(signal.SIGINT)
    heard = left(process)
    os.close(read)
    os.close(write)
    assert heard.count("interrupted") == 1
    assert "Traceback" not in heard
    assert not [path for path in tmp_path.iterdir() if "made" in path.name]
