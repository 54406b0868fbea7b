"""``make soak``: what kills, Ctrl-C, flipped bits and random input do to vtkit, in a table.

Each part works on copies of one small finished run, or on random files (:mod:`random_cases`), in a folder of its own. A
defect is a traceback, a hang, an exit code that does not fit, a message without content, raw control characters, a
changed number, something left behind, or random input that takes 10 seconds or 2 GiB; the exit code is 1 if there was
any. The seed is printed: the same seed kills at the same moments and makes the same input. PART.log in that folder has
a line for each case, and folders of cases with defects stay with --folder, which also goes on where an earlier call
with that folder ended. --case N is one case of random input. What recipes, full disks and each kind of fault in a file
lead to is tested by name in ``make test``.
"""

import argparse
import gc
import json
import multiprocessing
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import command_line
from hub_server import serving
from random_cases import CASES, request_case, write_material
from test_run_cli import DATA, ENGLISH, KOREAN, SETTINGS, numbers

import vtkit as vtkit_api
from vtkit.pipeline.search import open_searcher, open_served
from vtkit.system import console
from vtkit.system.errors import DataError, VtkitError

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that must never reach a terminal: they move its cursor, change its colours or its reading direction."""

LONGEST_MESSAGE = 20_000
KILLS = 20  # runs that are killed
TIMES = 30  # kills of each command that makes a folder or a repository
CHANGES = 100  # additions to an index and merges of it that are killed
HANDED_FLIPS = 500  # before an export, and as many before an evaluation
FLIPS = 1000  # bits that are flipped, one at a time, in the files of a run
MOMENTS = (0.6, 2.0, 5.0, 9.0)  # seconds after which Ctrl-C is pressed
RANDOM = {"recipes": 1500, "corpora": 900, "models": 600, "requests": 2000}  # cases of random input
WORKER = 250  # cases of a process
SECONDS = 10.0  # of the processor, for a case of random input
MEMORY = 2 * 2**30  # bytes, for a command on small files
QUERY = ("search", "runs/korean", "금의 녹는점")


@dataclass
class Done:
    """What one call of the command line left."""

    code: int
    out: str
    seconds: float
    memory: int = 0  # bytes, the most at a time

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
    memory: int = 0

    def note(self, case: str, done: Done, allowed: tuple[int, ...], slowest: float = 300.0) -> bool:
        """Count a case and say what is wrong with how it ended; True where nothing is."""
        self.codes[done.code] += 1
        self.slowest = max(self.slowest, done.seconds)
        self.memory = max(self.memory, done.memory)
        complaints = {
            f"exit code {done.code}, not {' or '.join(map(str, allowed))}": done.code not in allowed,
            "traceback": "Traceback (most recent call last)" in done.out,
            "raw control character": bool(CONTROL.search(done.out)),
            "no error message": done.code in (1, 2) and not re.search("error: |Usage: ", done.out),
            f"{len(done.out):,} characters of output": done.code != 0 and len(done.out) > LONGEST_MESSAGE,
            f"{done.seconds:.0f} seconds": done.seconds > slowest,
            f"{done.memory / 2**30:.1f} GiB of memory": done.memory > MEMORY,
        }
        wrong = "; ".join(complaint for complaint, is_so in complaints.items() if is_so)
        cost = f"{done.seconds:.1f} s\t{done.memory / 2**20:.0f} MiB"
        line = f"{case}\texit {done.code}\t{cost}\t{wrong or 'fine'}\t{done.message}"
        line = line.replace("\n", " ")
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
            f"slowest {self.slowest:.1f} s; at most {self.memory / 2**20:.0f} MiB; {len(self.defects)} defects"
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
    half; what was acknowledged stays. Two additions at once both happen."""
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
    for number in range(CHANGES // 10):
        before, both = seen()[0], []
        for name in ("first", "second"):
            (folder / f"{name}.jsonl").write_text(json.dumps({"_id": f"{name}-{number}", "text": QUERY[-1]}), "utf-8")
            (folder / f"{name}-{number}").mkdir()
            arguments = ("add", "index", f"{name}.jsonl")
            both.append(command_line.start(folder, arguments, environment, folder / f"{name}-{number}"))
        for process in both:
            process.join(300)
        found.codes.update(process.exitcode or 0 for process in both)
        codes = [process.exitcode for process in both]
        if codes != [0, 0] or sorted(seen()[0]) != sorted([*before, f"first-{number}", f"second-{number}"]):
            found.fail(f"two additions at once {number}: {codes}, or not all documents are there")
    if left := [path.name for path in index.rglob(".*.new-*")]:
        found.fail(f"left behind: {left[:3]}")


PUBLISH = """
import os, sys
from huggingface_hub import _commit_api, constants, hf_api
for module in (constants, hf_api, _commit_api):
    module.ENDPOINT = os.environ["HF_ENDPOINT"]  # read when it was imported, before this process was forked
constants.HF_HUB_OFFLINE = False
sys.argv = ["vtkit", "publish", "runs/korean", "me/korean", "--license", "mit", "--yes"]
from vtkit.__main__ import main
main()
"""


def content_of(folder: Path) -> dict[str, bytes]:
    """The files of a folder, without hidden ones, which hold times."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def handed(finished: Path, draw: random.Random, found: Findings) -> None:
    """SIGKILL at random moments of commands that make a folder or a repository: nothing half-written is there under its
    name, and the same command again makes what one undisturbed makes, without leftovers. Two at once end with one
    result, and the other says why it made none."""
    folder = copy(finished, "handed")
    corpus = str(next((folder / "data").rglob("corpus.jsonl")))
    vtkit(folder, "encode", "runs/korean", corpus, "--out", "vectors")
    found.note("index", vtkit(folder, "index", "vectors", "--out", "index", "--language", "ko"), (0,))
    before = set(os.listdir(folder))
    with serving() as hub:
        hub.token = "hf_soak"
        environment = {**os.environ, **SETTINGS, "HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token}

        def made() -> dict[str, bytes]:
            commits = hub.repositories.get("me/korean", {})
            published = {f"hub/{name}": each for name, each in (list(commits.values()) or [{}])[-1].items()}
            return published if published else content_of(folder / "out") if (folder / "out").exists() else {}

        def start(arguments: Sequence[str], name: str = "outputs") -> BaseProcess:
            outputs = folder / name
            shutil.rmtree(outputs, ignore_errors=True)
            outputs.mkdir()
            return command_line.start(folder, arguments, environment, outputs)

        def cleared() -> None:
            hub.repositories.clear()
            for name in set(os.listdir(folder)) - before:
                path = folder / name
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

        def finish(process: BaseProcess, name: str, case: str, allowed: tuple[int, ...]) -> int:
            process.join(300)
            out = "".join(path.read_text("utf-8") for path in sorted((folder / name).iterdir()))
            found.note(case, Done(process.exitcode if process.exitcode is not None else -1, out, 0.0), allowed)
            return process.exitcode or 0

        for arguments, times in (
            (("encode", "runs/korean", corpus, "--out", "out"), TIMES),
            (("index", "vectors", "--out", "out", "--language", "ko", "--set", "lexical=bm25"), TIMES),
            (("export", "runs/korean", "--for", "elasticsearch", "--out", "out"), TIMES),
            (("export", "index", "--for", "vespa", "--out", "out"), TIMES),
            (("-c", PUBLISH), TIMES),
        ):
            called = arguments[0] if arguments[0] != "-c" else "publish"
            cleared()
            began = time.monotonic()
            finish(start(arguments), "outputs", called, (0,))
            seconds, whole = time.monotonic() - began, made()
            for number in range(times):
                cleared()
                for _ in range(draw.choice((1, 1, 2))):
                    process = start(arguments)
                    process.join(draw.uniform(0, 1.1 * seconds))
                    process.kill()
                    process.join()
                    found.codes[process.exitcode or 0] += 1
                    if made() not in ({}, whole):
                        found.fail(f"{called} {number}: half of it is there after a kill")
                    if made():
                        break
                if not made():
                    finish(start(arguments), "outputs", f"{called} {number} again", (0,))
                if made() != whole:
                    found.fail(f"{called} {number}: another result than undisturbed: {_differing(made(), whole)}")
                if left := [name for name in os.listdir(folder) if ".new-" in name or name.endswith(".parts")]:
                    found.fail(f"{called} {number}: left behind: {left[:3]}")
            for number in range(times // 3):
                cleared()
                first, second = start(arguments), start(arguments, "others")
                codes = sorted(
                    (finish(first, "outputs", f"{called} {number} first", (0, 1, 2)),
                     finish(second, "others", f"{called} {number} second", (0, 1, 2)))
                )  # fmt: skip
                if codes[0] != 0 or (called != "publish" and codes[1] == 0):
                    found.fail(f"{called} {number}: two at once end with {codes}")
                if made() != whole:
                    found.fail(f"{called} {number}: two at once make another result: {_differing(made(), whole)}")


def _differing(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> list[str]:
    return [name for name in sorted({*first, *second}) if first.get(name) != second.get(name)][:5]


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
        encoder = open_served([str(run)])[1]
        vectors = encoder.encode_document(queries, convert_to_tensor=True, show_progress_bar=False)
        return [results, searcher.explain(queries[0], results[0][0][0]), vectors.to_dense().tolist()]

    flipped(run, seen, FLIPS, draw, found)


def handed_flips(finished: Path, draw: random.Random, found: Findings) -> None:
    """The same before the run is exported: it is noticed, or every exported file is the same."""
    run = Path(shutil.copytree(finished / "runs" / "korean", finished.parent / "exported"))
    out = finished.parent / "export"
    (finished.parent / "queries.txt").write_text(QUERY[-1], "utf-8")

    def exported() -> object:
        shutil.rmtree(out, ignore_errors=True)
        vtkit_api.export_for(run, "elasticsearch", out, queries=finished.parent / "queries.txt")
        return content_of(out)

    flipped(run, exported, HANDED_FLIPS, draw, found)


def judged_flips(finished: Path, draw: random.Random, found: Findings) -> None:
    """The same before the run is evaluated: it is noticed, or rankings and scores are the same."""
    run = Path(shutil.copytree(finished / "runs" / "korean", finished.parent / "judged"))
    collection, measures = str(finished / "data" / "elements-ko"), ["nDCG@10", "R@100"]
    out = finished.parent / "rankings"

    def evaluated() -> object:
        shutil.rmtree(out, ignore_errors=True)
        done = vtkit_api.evaluate(str(run), collection, measures=measures, max_queries=5, out=out, depth=100)
        if done.failures:  # the command says them and exits with 1
            raise DataError(done.failures[0].reason)
        return {name: content for name, content in content_of(out).items() if ".trec" in name}

    flipped(run, evaluated, HANDED_FLIPS, draw, found)


def flipped(run: Path, seen: Callable[[], object], times: int, draw: random.Random, found: Findings) -> None:
    """Flip one bit of a file of ``run`` that is read, ``times``; each is noticed, or what is ``seen`` stays. A file is
    read if something else is seen without it; hidden files, which are made again, are taken to be."""
    console.be_silent()
    undisturbed = seen()
    if undisturbed != seen():
        found.fail(f"{seen.__name__}: differs from itself without a flip")

    def is_read(path: Path) -> bool:
        hidden = path.rename(path.with_name("hidden"))
        try:
            return path.name.startswith(".") or seen() != undisturbed
        except VtkitError:
            return True
        finally:
            hidden.rename(path)

    files = [path for path in sorted(run.rglob("*")) if path.is_file() and path.stat().st_size and is_read(path)]
    print(f"    {seen.__name__}: {', '.join(path.relative_to(run).as_posix() for path in files)}", flush=True)
    for _ in range(times):
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


def of_random_input(folder: Path, seed: int, found: Findings, only: int | None = None) -> None:
    """Random input through commands that end without training: each ends in a result or in a sentence, soon. One
    process has many cases; it is killed, and another goes on, if a case waits for minutes or takes far more than
    :data:`SECONDS` and :data:`MEMORY`."""
    material, noted = of_material(folder, found)
    left = [number for number in range(RANDOM[found.part]) if number not in noted] if only is None else [only]
    command_line.start_server()  # imports count for no case
    while left:
        work = folder / f"{found.part}.work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        arguments = (found.part, seed, material, folder / found.part, work, left[:WORKER])
        process = multiprocessing.get_context("forkserver").Process(target=_work, args=arguments)
        process.start()
        number, begun, spent = left[0], time.monotonic(), 0.0
        seconds, memory = 0.0, 0
        while True:
            process.join(0.2)
            ended, done = not process.is_alive(), sorted(map(int, os.listdir(work)))
            for each in done:
                path = work / str(each)
                case, code, out, case_seconds, case_memory = json.loads(path.read_text("utf-8"))
                path.unlink()
                left.remove(each)
                if found.note(f"{each} {case}", Done(code, out, case_seconds, case_memory), (0, 1, 2), SECONDS):
                    shutil.rmtree(folder / found.part / str(each), ignore_errors=True)
                    (folder / found.part / f"{each}.output").unlink()
                if only is not None:
                    print(out)
                number, begun, spent = (left[0] if left else -1), time.monotonic(), seconds
            if ended:
                break
            with suppress(OSError):  # it has ended
                numbers_of = Path(f"/proc/{process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
                seconds = (int(numbers_of[11]) + int(numbers_of[12])) / os.sysconf("SC_CLK_TCK")
                memory = peak_of(process.pid)
            waited = time.monotonic() - begun > 180
            if waited or seconds - spent > 4 * SECONDS or memory > 2 * MEMORY:
                process.kill()
                process.join()
                break
        if process.exitcode and number in left:  # killed, or it ended the whole process
            output = folder / found.part / f"{number}.output"
            said = output.read_text("utf-8", "replace") if output.exists() else "killed while its input was written"
            found.note(f"{number} killed", Done(process.exitcode, said, seconds - spent, memory), (0, 1, 2), SECONDS)
            left.remove(number)


def _work(part: str, seed: int, material: Path, folder: Path, work: Path, numbers: Sequence[int]) -> None:
    """Run cases in this process, and write arguments, exit code, output, seconds and memory of each into ``work``."""
    from vtkit import cli

    cli.leave_promptly = lambda: None  # it starts a thread, once in a process
    os.environ.update(SETTINGS)
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode, encoding="utf-8") for n, mode in enumerate("rww"))
    if part != "recipes":
        vtkit_api.inspect_vocabulary(material / "target")  # lingua's models take 7 s and 1 GiB, once in a process
    gc.freeze()  # what is imported; to look at it after each case would take longer than the cases
    for number in numbers:
        place = folder / str(number)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        printed = folder / f"{number}.output"  # not among the files that the case alters
        output = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(output)
        arguments = CASES[part](random.Random(f"{seed} {part} {number}"), material, place)
        os.chdir(place)
        Path("/proc/self/clear_refs").write_text("5", "utf-8")  # the most memory is counted anew
        sys.argv = ["vtkit", *arguments]
        began, code = time.process_time(), 0
        try:
            cli.main()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        seconds = time.process_time() - began
        sys.stdout.flush()
        sys.stderr.flush()
        said = printed.read_text("utf-8", "replace")
        entry = [f"vtkit {shlex.join(arguments)}", code, said, seconds, peak_of(os.getpid())]
        (work.parent / f".{part}.{number}").write_text(json.dumps(entry), "utf-8")
        (work.parent / f".{part}.{number}").rename(work / str(number))
        gc.collect()


def peak_of(process: int | None) -> int:
    """The most bytes of memory that a process had."""
    status = Path(f"/proc/{process}/status").read_text("utf-8")
    held = re.search(r"VmHWM:\s+(\d+) kB", status)  # one that has ended has none
    return int(held[1]) * 1024 if held else 0


def requests(folder: Path, seed: int, found: Findings, only: int | None = None) -> None:
    """Random requests to one server: none is answered with 500, and afterwards the server answers as it did, and ends
    when it is asked to. A connection whose request is not whole is closed from here."""
    from test_serve import running  # takes seconds

    material, noted = of_material(folder, found)
    with running(material, "index", "bert", "--timeout", "3") as server:
        usual = server.search(q="maple otter", why="1")
        for number in range(RANDOM[found.part]) if only is None else [only]:
            if number in noted and only is None:
                continue
            pieces = request_case(random.Random(f"{seed} {found.part} {number}"), material)
            began, answer = time.monotonic(), b""
            with server.connect() as connection, suppress(ConnectionError):
                for piece in pieces:
                    connection.sendall(piece)
                connection.settimeout(0.5)
                with suppress(TimeoutError):
                    while received := connection.recv(2**16):
                        answer += received
                        if b"\r\n0\r\n\r\n" in answer or _complete(answer):
                            break
            status = int(match[1]) if (match := re.match(rb"HTTP/1.1 (\d+)", answer)) else 0
            said = answer.decode("utf-8", "replace") if status >= 500 and status not in (503, 501) else ""
            done = Done(int(bool(said)), f"error: {said}", time.monotonic() - began, peak_of(server.process.pid))
            found.note(f"{number} {pieces[0][:60]!r} {status}", done, (0,), SECONDS)
            if only is not None:
                print(b"".join(pieces)[:2000], answer[:2000])
            if number % 100 == 0 and server.search(q="maple otter", why="1") != usual:
                found.fail(f"{number}: afterwards a search is answered otherwise")
        if server.search(q="maple otter", why="1") != usual or server.ask("GET", "/health")[0] != 200:
            found.fail("afterwards a search is answered otherwise")
        server.signal(signal.SIGTERM)
        code, said = server.ended()
        if code or "Traceback" in said or "bug" in said:
            found.fail(f"the server ended with {code} and says: {said[-2000:]}")


def _complete(answer: bytes) -> bool:
    """Whether an answer with a stated length is whole."""
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    return length is not None and len(body) >= int(length[1])


def of_material(folder: Path, found: Findings) -> tuple[Path, set[int]]:
    """What all cases share, and the numbers of the cases that an earlier call with this folder tried."""
    if not (folder / "material").exists():
        write_material(folder / "material")  # the index names its model by the absolute path
    log = folder / f"{found.part}.log"
    lines = log.read_text("utf-8").splitlines() if log.exists() else []
    return folder / "material", {int(line.split(" ", 1)[0]) for line in lines}


PARTS = {
    "kills": kills,
    "interrupts": interrupts,
    "changes": changes,
    "handed": handed,
    "flips": flips,
    "handed_flips": handed_flips,
    "judged_flips": judged_flips,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    names = [*PARTS, *RANDOM]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="one case of a part with random input, with what it prints")
    parser.add_argument("--folder", type=Path, help="use this folder, and leave it; default: a temporary one")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job would ignore
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="vtkit-soak-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, in {folder}", flush=True)
    findings = [Findings(name, folder) for name in options.parts or names]
    finished = folder / "finished"
    if not finished.exists() and any(found.part in PARTS for found in findings):
        done = vtkit(write_run(finished), "run", "korean.toml")
        if done.code:
            print(done.out)
            return 1
        print(f"an undisturbed run takes {done.seconds:.0f} s", flush=True)
    for found in findings:
        if found.part in RANDOM:
            part = requests if found.part == "requests" else of_random_input
            part(folder, options.seed, found, options.case)
        else:
            PARTS[found.part](finished, random.Random(f"{options.seed} {found.part}"), found)
        print(found.summary(), flush=True)
    if options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return int(any(found.defects for found in findings))


if __name__ == "__main__":
    sys.exit(main())
