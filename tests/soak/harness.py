"""What every part of the soak stands on: the tiny run, the command line in a forked child, and what counts as a defect.

Importing torch takes seconds, so it is imported once and each case is a child forked from that process: the same
``main`` a user's shell calls, with its own working folder, output and exit code, which can be killed at any moment.
"""

import json
import os
import random
import re
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
DATA = TESTS.parent / "recipes" / "quickstart_data"
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that must never reach a terminal: they move its cursor, change its colours or its reading direction."""

LONGEST_MESSAGE = 20_000
DOCUMENTS = 150
"""Of the quickstart's collection, so that a whole run takes seconds."""


@dataclass
class Done:
    """What one call of the command line left."""

    code: int
    out: str
    seconds: float

    @property
    def message(self) -> str:
        """The error message's beginning, or the last line where there is none."""
        lines = [line for line in self.out.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        return (errors or lines[-1:] or [""])[0][:300]


@dataclass
class Findings:
    """Exit codes and defects of one part."""

    part: str
    log: Path
    """One line for each case."""

    codes: Counter[int] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def note(self, case: str, done: Done, allowed: tuple[int, ...], slowest: float = 60.0) -> bool:
        """Count a case and say what is wrong with how it ended; True where nothing is."""
        self.codes[done.code] += 1
        self.slowest = max(self.slowest, done.seconds)
        wrong = []
        if done.code not in allowed:
            wrong.append(f"exit code {done.code}, not {' or '.join(map(str, allowed))}")
        if "Traceback (most recent call last)" in done.out:
            wrong.append("traceback")
        if CONTROL.search(done.out):
            wrong.append(f"raw control character {CONTROL.search(done.out).group()!r}")  # type: ignore[union-attr]
        if done.code in (1, 2) and "error: " not in done.out and "Usage: " not in done.out:
            wrong.append("no error message")
        if len(done.out) > LONGEST_MESSAGE:
            wrong.append(f"{len(done.out):,} characters of output")
        if done.seconds > slowest:
            wrong.append(f"{done.seconds:.0f} seconds")
        line = f"{case}\texit {done.code}\t{done.seconds:.1f} s\t{'; '.join(wrong) or 'fine'}\t{done.message}"
        with self.log.open("a", encoding="utf-8") as log:
            log.write(CONTROL.sub("?", line) + "\n")
        if wrong:
            self.fail(f"{case}: {', '.join(wrong)}. It says: {done.message}")
        return not wrong

    def fail(self, defect: str) -> None:
        self.defects.append(defect)
        print(f"    DEFECT {self.part}: {CONTROL.sub('?', defect)}", flush=True)

    def summary(self) -> str:
        codes = ", ".join(f"{count} × {code}" for code, count in sorted(self.codes.items()))
        return (
            f"{self.part:<12} {self.codes.total():>5} cases, exit codes {codes or '-'}; "
            f"slowest {self.slowest:.1f} s; {len(self.defects)} defects"
        )


Part = Callable[[Path, random.Random], Findings]


def warm_up() -> None:
    """Import what the commands import, so that children need not."""
    import sentence_transformers
    import torch

    import vtkit.cli
    import vtkit.pipeline.run
    import vtkit.pipeline.search  # noqa: F401

    assert sentence_transformers
    torch.set_num_threads(1)


def start(folder: Path, *arguments: str, log: Path, stdin: bytes = b"") -> int:
    """Fork a child that runs ``vtkit ARGUMENTS`` in ``folder`` with its output in ``log``; its process number."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        reading, writing = os.pipe()
        os.write(writing, stdin)
        os.close(writing)
        for descriptor, standard in ((reading, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, standard)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from vtkit.cli import main

        sys.argv = ["vtkit", *arguments]
        try:
            main()
            code = 0
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 70
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def finish(child: int, log: Path, began: float, limit: float = 300.0) -> Done:
    """Wait for a child; one that takes longer than ``limit`` seconds is killed and counts as hanging (code -9)."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() - began > limit:
            os.killpg(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            break
        time.sleep(0.005)
    code = os.waitstatus_to_exitcode(status)
    return Done(code, log.read_text("utf-8", errors="replace") if log.exists() else "", time.monotonic() - began)


def vtkit(folder: Path, *arguments: str, stdin: bytes = b"", limit: float = 300.0) -> Done:
    """``vtkit ARGUMENTS`` in ``folder``, to its end."""
    log = folder.parent / f"{folder.name}.log"
    began = time.monotonic()
    return finish(start(folder, *arguments, log=log, stdin=stdin), log, began, limit)


def write_tiny_run(folder: Path) -> None:
    """Recipes, collection and parallel text of a run of a few seconds, everything below ``folder``."""
    from test_run_cli import ENGLISH, KOREAN

    folder.mkdir(parents=True)
    (folder / "data").mkdir()
    for name in ("elements-en", "elements-ko"):
        shutil.copytree(DATA / name, folder / "data" / name)
    shutil.copy(DATA / "parallel-en-ko.tsv", folder / "data")
    kept = _cut_collection(folder / "data" / "elements-ko")
    for name, text in (("english", ENGLISH), ("korean", KOREAN)):
        text = text.replace(str(DATA), "data").replace("size = 2600", "size = 1900").replace("steps = 20", "steps = 8")
        text = text.replace("checkpoint_every = 5", "checkpoint_every = 3")
        (folder / f"{name}.toml").write_text(text.replace("max_queries = 60", f"max_queries = {kept}"), "utf-8")


def _cut_collection(folder: Path) -> int:
    """Keep the first documents and what is judged about them; how many test queries there are."""
    lines = (folder / "corpus.jsonl").read_text("utf-8").splitlines()[:DOCUMENTS]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    ids = {json.loads(line)["_id"] for line in lines}
    judged: set[str] = set()
    for split in ("train", "test"):
        path = folder / "qrels" / f"{split}.tsv"
        rows = path.read_text("utf-8").splitlines()
        kept = [row for row in rows[1:] if row.split("\t")[1] in ids]
        path.write_text("\n".join([rows[0], *kept]) + "\n", "utf-8")
        judged |= {row.split("\t")[0] for row in kept}
    queries = (folder / "queries.jsonl").read_text("utf-8").splitlines()
    kept_queries = [line for line in queries if json.loads(line)["_id"] in judged]
    (folder / "queries.jsonl").write_text("\n".join(kept_queries) + "\n", "utf-8")
    return 20


def numbers(folder: Path) -> dict[str, object]:
    """What a run found, without times, dates and versions."""
    report = json.loads((folder / "runs" / "korean" / "report.json").read_text("utf-8"))
    return {name: report[name] for name in ("results", "vocabulary", "curves", "calibration", "sparsity", "neighbours")}


def copy(folder: Path, to: Path) -> Path:
    """A copy of a run's folder that shares no file with it."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to, symlinks=True)
    return to
