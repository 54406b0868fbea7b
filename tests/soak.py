"""``make soak``: what kills, Ctrl-C and flipped bits do to vtkit, in a table.

Each part works on copies of one small finished run in a folder of its own. A defect is a traceback, a hang, an exit
code that does not fit, a message without content, raw control characters, a changed number, or something left behind;
the exit code is 1 if there was any. The seed is printed: the same seed kills at the same moments. PART.log in that
folder has a line for each case; --keep leaves it. What recipes, full disks and each kind of fault in a file lead to is
tested by name in ``make test``.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import command_line
from test_run_cli import DATA, ENGLISH, KOREAN, SETTINGS, numbers

from vtkit.pipeline.search import open_searcher, open_served
from vtkit.system.errors import VtkitError

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that must never reach a terminal: they move its cursor, change its colours or its reading direction."""

LONGEST_MESSAGE = 20_000
KILLS = 20  # runs that are killed
CHANGES = 100  # additions to an index and merges of it that are killed
FLIPS = 1000  # bits that are flipped, one at a time, in the files of a run
MOMENTS = (0.6, 2.0, 5.0, 9.0)  # seconds after which Ctrl-C is pressed
QUERY = ("search", "runs/korean", "금의 녹는점")


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
    folder: Path
    codes: Counter[int] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def note(self, case: str, done: Done, allowed: tuple[int, ...], slowest: float = 300.0) -> bool:
        """Count a case and say what is wrong with how it ended; True where nothing is."""
        self.codes[done.code] += 1
        self.slowest = max(self.slowest, done.seconds)
        complaints = {
            f"exit code {done.code}, not {' or '.join(map(str, allowed))}": done.code not in allowed,
            "traceback": "Traceback (most recent call last)" in done.out,
            "raw control character": bool(CONTROL.search(done.out)),
            "no error message": done.code in (1, 2) and not re.search("error: |Usage: ", done.out),
            f"{len(done.out):,} characters of output": len(done.out) > LONGEST_MESSAGE,
            f"{done.seconds:.0f} seconds": done.seconds > slowest,
        }
        wrong = "; ".join(complaint for complaint, is_so in complaints.items() if is_so)
        line = f"{case}\texit {done.code}\t{done.seconds:.1f} s\t{wrong or 'fine'}\t{done.message}"
        with (self.folder / f"{self.part}.log").open("a", encoding="utf-8") as log:
            log.write(CONTROL.sub("?", line) + "\n")
        if wrong:
            self.fail(f"{case}: {wrong}. It says: {done.message}")
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


def vtkit(folder: Path, *arguments: str) -> Done:
    """``vtkit ARGUMENTS`` in ``folder``, to its end; one that hangs is killed, and its code is -9."""
    began = time.monotonic()
    try:
        called = command_line.call(folder, arguments, {**os.environ, **SETTINGS})
    except subprocess.TimeoutExpired:
        return Done(-signal.SIGKILL, "", time.monotonic() - began)
    return Done(called.returncode, called.stdout + called.stderr, time.monotonic() - began)


def write_run(folder: Path) -> Path:
    """Recipes, collections and parallel text of a small run, everything below ``folder``."""
    shutil.copytree(DATA, folder / "data")
    for name, text in (("english", ENGLISH), ("korean", KOREAN)):
        (folder / f"{name}.toml").write_text(text.replace(str(DATA), "data"), "utf-8")
    return folder


def copy(folder: Path, name: str) -> Path:
    """A copy of a run's folder that shares no file with it."""
    shutil.rmtree(folder.parent / name, ignore_errors=True)
    return Path(shutil.copytree(folder, folder.parent / name, symlinks=True))


def kills(finished: Path, draw: random.Random, found: Findings) -> None:
    """SIGKILL at random moments: the same command goes on, and ends in the numbers of an undisturbed run."""
    environment = {**os.environ, **SETTINGS}
    while found.codes[-signal.SIGKILL] < KILLS and not found.defects:
        folder = write_run(finished.parent / f"killed-{found.codes.total()}")
        for _ in range(5):
            process = command_line.start(folder, ["run", "korean.toml"], environment, folder)
            process.join(draw.uniform(0.2, 10.0))
            process.kill()
            process.join()
            found.codes[process.exitcode or 0] += 1
        done = vtkit(folder, "run", "korean.toml")
        if found.note(f"run after kills ({folder.name})", done, (0,)) and numbers(folder) != numbers(finished):
            found.fail(f"{folder.name}: other numbers than undisturbed")
        if left := [path.name for path in (folder / "runs").rglob(".*.new-*")]:
            found.fail(f"left behind: {left[:3]}")


def interrupts(finished: Path, draw: random.Random, found: Findings) -> None:
    """Ctrl-C in every command that takes a while, imports included: one line, exit code 130, no waiting."""
    folder = copy(finished, "interrupted")
    model = str(next((folder / "runs" / "artifacts").glob("transfer-*/model")))
    words = "".join(path.read_text("utf-8") for path in sorted((folder / "data").rglob("*.jsonl"))).split()
    letters = [word for word in words if word.isalpha()]
    big = "\n".join(" ".join(draw.choices(letters, k=12)) + f" {number:x}" for number in range(400_000))
    (folder / "big.txt").write_text(big, "utf-8")
    (folder / "specification.toml").write_text('[vocabulary]\nkind = "trained"\ncorpus = ["big.txt"]\nsize = 9000\n')
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    for arguments in (
        ("run", "korean.toml", "--runs", "other"), ("run", "korean.toml", "--force", "finetune"),
        QUERY, ("explain", *QUERY[1:], "H-overview"), ("recipe", "check", "korean.toml"),
        ("inspect-vocab", model, "--corpus", "big.txt"), ("fragmentation", "big.txt", "-t", model),
        ("gap", "big.txt", "big.txt"), ("overlap", model, model), ("casing", model),
        ("tokenizer", "build", "specification.toml", "--out", "built"),
        ("expand", model, "big.txt", "--out", "expanded"),
        ("transfer", model, model, "--parallel", "data/parallel-en-ko.tsv", "--corpus", "big.txt", "--out", "moved"),
        ("calibrate", model, "--corpus", "big.txt", "--target", "0.1", "--out", "calibrated"),
    ):  # fmt: skip
        for moment in MOMENTS:
            process = subprocess.Popen(
                [sys.executable, "-m", "vtkit", *arguments],
                cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            try:
                process.wait(moment)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
            began = time.monotonic()
            out, _ = process.communicate(timeout=300)
            done = Done(process.returncode, out, time.monotonic() - began)
            found.note(f"{' '.join(arguments)} after {moment} s", done, (130, 0, 1), slowest=3.0)


def changes(finished: Path, draw: random.Random, found: Findings) -> None:
    """SIGKILL at random moments of ``vtkit add`` and ``vtkit merge``: the index is as before or as after, and never
    half; what was acknowledged stays."""
    folder = copy(finished, "changed")
    corpus = next((folder / "data").rglob("corpus.jsonl"))
    found.note("encode", vtkit(folder, "encode", "runs/korean", str(corpus), "--out", "vectors"), (0,))
    found.note("index", vtkit(folder, "index", "vectors", "--out", "index", "--language", "ko"), (0,))
    lines = corpus.read_text("utf-8").splitlines()[:40]
    seconds = {"add": 1.0, "merge": 1.0}  # that the last change of each kind took to its end
    index, environment = folder / "index", {**os.environ, **SETTINGS}

    def seen() -> tuple[list[str], list[tuple[str, float]]]:
        """The ids of all documents in order, and the results of a query."""
        searcher = open_searcher(index, model=None, collection=None)
        names = [searcher.documents[number].id for number in range(len(searcher.documents))]
        results = next(searcher.search([QUERY[-1]], 10)).results
        return names, [(each.id, each.score) for each in results]

    for number in range(CHANGES // 2):
        new = [{**json.loads(line), "_id": f"new-{number}-{place}"} for place, line in enumerate(lines)]
        written = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in new)
        (folder / "new.jsonl").write_text(written, "utf-8")
        removed = [f"new-{number - 1}-{place}" for place in range(len(lines))] if number else []
        for command in (("add", "index", "new.jsonl"), ("merge", "index")):
            before = seen()
            process = command_line.start(folder, command, environment, folder)
            process.join(draw.uniform(0, seconds[command[0]]))
            process.kill()
            process.join()
            found.codes[process.exitcode or 0] += 1
            after = seen()
            if command[0] == "merge" and after != before:
                found.fail(f"merge {number}: documents or scores changed")
            known = [name for name in after[0] if not name.startswith(f"new-{number}-")]
            if known != [name for name in before[0] if not name.startswith(f"new-{number}-")]:
                found.fail(f"{command[0]} {number}: acknowledged documents are lost")
            if len(after[0]) - len(known) not in (0, len(lines)):
                found.fail(f"{command[0]} {number}: {len(after[0]) - len(known)} of {len(lines)} documents are there")
            if command[0] == "add" and removed:
                found.note(f"delete {number}", vtkit(folder, "delete", "index", *removed), (0,))
            done = vtkit(folder, *command)
            found.note(f"{command[0]} {number} again", done, (0,))
            seconds[command[0]] = done.seconds
    if left := [path.name for path in index.rglob(".*.new-*")]:
        found.fail(f"left behind: {left[:3]}")


def flips(finished: Path, draw: random.Random, found: Findings) -> None:
    """One bit after the other in the files of a run's folder that lies alone: it is noticed when the run is opened, or
    search, explanation and what a server loads are the same."""
    run = Path(shutil.copytree(finished / "runs" / "korean", finished.parent / "alone"))
    queries = [QUERY[-1], "수소 원자", "가장 가벼운 금속 원소"]

    def seen() -> list[object]:
        searcher = open_searcher(run, model=None, collection=None)
        results = [
            [(each.id, each.score, each.title, each.text) for each in one.results]
            for one in searcher.search(queries, 5)
        ]
        served = open_served([str(run)])
        vectors = served.encoder.encode_document(queries, convert_to_tensor=True, show_progress_bar=False)
        return [results, searcher.explain(queries[0], results[0][0][0]), vectors.to_dense().tolist()]

    undisturbed = seen()
    files = [path for path in sorted(run.rglob("*")) if path.is_file() and path.stat().st_size]
    for _ in range(FLIPS):
        path = draw.choice(files)
        content = path.read_bytes()
        place = draw.randrange(len(content))
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :])
        try:
            same = seen() == undisturbed
            found.codes[0] += 1
            if not same:
                found.fail(f"{path.relative_to(run)}, byte {place:,}: other results, and nothing said")
        except VtkitError:
            found.codes[1] += 1
        except Exception as error:
            found.fail(f"{path.relative_to(run)}, byte {place:,}: {type(error).__name__}: {error}"[:300])
        finally:
            path.write_bytes(content)


PARTS = {"kills": kills, "interrupts": interrupts, "changes": changes, "flips": flips}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="leave the folder for a look")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job would ignore
    folder = Path(tempfile.mkdtemp(prefix="vtkit-soak-"))
    print(f"seed {options.seed}, in {folder}", flush=True)
    finished = write_run(folder / "finished")
    done = vtkit(finished, "run", "korean.toml")
    if done.code:
        print(done.out)
        return 1
    print(f"an undisturbed run takes {done.seconds:.0f} s", flush=True)
    findings = [Findings(name, folder) for name in options.parts or PARTS]
    for found in findings:
        PARTS[found.part](finished, random.Random(f"{options.seed} {found.part}"), found)
        print(found.summary(), flush=True)
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return int(any(found.defects for found in findings))


if __name__ == "__main__":
    sys.exit(main())
