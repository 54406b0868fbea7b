"""Encoding by each executor of ``[run]``: seconds and memory, and with ``--kills`` what deaths cost.

One process with all threads, processes that share the threads, and Ray with as many workers encode the same documents,
an even sample of the collections, one executor after the other, by ``vtkit encode``. Memory is the proportional set of
all processes of a command, the largest of a look a second: ten looks a second take a quarter of a core. The vectors of
processes and Ray must have the same bytes, for they have equally many threads.

    python tests/benchmarks/executors.py MODEL COLLECTION... [--texts 1000] [--max-length 256] [--workers 2] [--kills]

With ``--kills``, a worker, the driver and Ray's head die of SIGKILL once two shards are there; the same command is
repeated if it ended. It must end in the same bytes, and no finished shard may be computed again. Linux only.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vtkit.data.document_files import read_document_file, write_documents

SHARDS_BEFORE_A_KILL = 2


def processes_of(driver: int) -> dict[int, str]:
    """A process and all that it started, with their command lines."""
    parents, commands = dict[int, int](), dict[int, str]()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
    found = {driver}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {process: commands.get(process, "") for process in found}


def megabytes(driver: int) -> float:
    """The proportional set of a process and all that it started."""
    total = 0
    for process in processes_of(driver):
        try:
            rows = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(row.split()[1]) for row in rows if row.startswith("Pss:"))
    return total / 1024


class Encoding:
    """A command that encodes, and what was seen of it."""

    def __init__(self, arguments: list[str], out: Path, threads: int) -> None:
        self.arguments, self.out, self.threads = arguments, out, threads
        self.peak, self.seconds, self.again = 0.0, 0.0, 0
        self._records: dict[str, int] = {}

    def run(self, kill: Callable[[int], int | None] | None = None) -> int:
        """Run the command to its end; its exit code. ``kill`` names a process of the driver's to be killed."""
        environment = os.environ | {"OMP_NUM_THREADS": str(self.threads), "RAYON_NUM_THREADS": str(self.threads)}
        begun = looked = time.monotonic()
        command = [sys.executable, "-m", "vtkit", "encode", *self.arguments, "--out", str(self.out)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            self._look()
            if time.monotonic() - looked > 1:
                self.peak, looked = max(self.peak, megabytes(process.pid)), time.monotonic()
            if kill is not None and len(self._records) >= SHARDS_BEFORE_A_KILL and (named := kill(process.pid)):
                os.kill(named, signal.SIGKILL)
                kill = None
            time.sleep(0.1)
        assert kill is None, "it ended before anything was killed: give more texts"
        self.seconds += time.monotonic() - begun
        return process.returncode

    def _look(self) -> None:
        """Count the shards that were there and have been made again."""
        for record in self.out.with_name(f".{self.out.name}.parts").glob("[0-9]*/shard.json"):
            try:
                made = record.stat().st_ino
            except OSError:
                continue
            self.again += self._records.setdefault(record.parent.name, made) != made
            self._records[record.parent.name] = made

    def vectors(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted((self.out / "vectors").iterdir())}


def named(word: str) -> Callable[[int], int | None]:
    """The first process of a driver whose command line has ``word``."""
    return lambda driver: next((each for each, line in processes_of(driver).items() if word in line), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("collections", nargs="+")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--max-length", default="256")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kills", action="store_true")
    given = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, workers = Path(name), str(given.workers)
        every = [document for collection in given.collections for document in read_document_file(collection)]
        sample = [every[number * len(every) // given.texts] for number in range(given.texts)]
        documents = [replace(document, id=str(number)) for number, document in enumerate(sample)]
        write_documents(documents, folder / "texts.jsonl")
        shared = [given.model, str(folder / "texts.jsonl"), "--max-length", given.max_length, "--executor"]
        of = {"here": [*shared, "here"]}
        of |= {each: [*shared, each, "--workers", workers, "--cpus", "1"] for each in ("processes", "ray")}
        vectors = {}
        for executor, arguments in of.items():
            encoding = Encoding(arguments, folder / executor, given.workers)
            assert encoding.run() == 0, executor
            vectors[executor] = encoding.vectors()
            rows[executor] = {"seconds": round(encoding.seconds, 1), "MiB": round(encoding.peak)}
            load = os.getloadavg()[0]
            print(f"{executor:10} {encoding.seconds:7.1f} s, {encoding.peak:6.0f} MiB, load {load:.1f}", flush=True)
        assert vectors["processes"] == vectors["ray"], "the bytes differ"
        kills = {
            "processes: a worker": named("import serve"),
            "processes: the driver": lambda driver: driver,
            "ray: a worker": named("ray::"),
            "ray: the head": named("gcs_server"),
            "ray: the driver": lambda driver: driver,
        }
        for what, kill in kills.items() if given.kills else ():
            encoding = Encoding(of[what.partition(":")[0]], folder / "killed", given.workers)
            tries = 1
            if encoding.run(kill) != 0:
                tries = 2
                assert encoding.run() == 0, what
            assert encoding.vectors() == vectors["processes"], f"{what}: the bytes differ"
            assert not encoding.again, f"{what}: {encoding.again} finished shards were computed again"
            rows[what] = {"seconds": round(encoding.seconds, 1), "commands": tries}
            print(f"{what:22} killed: the same bytes after {tries} commands, {encoding.seconds:.1f} s", flush=True)
            for path in (encoding.out / "vectors").iterdir():
                path.unlink()
            encoding.out.rename(folder / f"done {what}")
    print(json.dumps({"texts": len(documents), **rows}))


if __name__ == "__main__":
    main()
