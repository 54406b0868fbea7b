"""Ctrl-C in every command: one line, exit code 130, and no waiting."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import TESTS, Done, Findings, copy

SECONDS = 3.0
"""From the signal to the end, while another command may be using the processor."""

MOMENTS = (0.6, 2.0, 5.0, 9.0)


def commands(folder: Path) -> list[tuple[str, ...]]:
    """Every command that can take longer than a moment, with something to do."""
    model = str(next((folder / "runs" / "artifacts").glob("transfer-*/model")))
    return [
        ("run", "korean.toml", "--runs", "other"), ("run", "korean.toml", "--force", "finetune"),
        ("search", "runs/korean", "금의 녹는점"), ("explain", "runs/korean", "금의 녹는점", "d1"),
        ("recipe", "check", "korean.toml"), ("inspect-vocab", model, "--corpus", "big.txt"),
        ("fragmentation", "big.txt", "-t", model), ("gap", "big.txt", "big.txt"), ("overlap", model, model),
        ("tokenizer", "build", "specification.toml", "--out", "built"),
        ("expand", model, "big.txt", "--out", "expanded"), ("casing", model),
        ("transfer", model, model, "--parallel", "data/parallel-en-ko.tsv", "--corpus", "big.txt", "--out", "moved"),
        ("calibrate", model, "--corpus", "big.txt", "--target", "0.1", "--out", "calibrated"),
    ]  # fmt: skip


def soak(finished: Path, draw: random.Random) -> Findings:
    """Real processes, imports included; a command that ends before the signal comes is counted by its own code."""
    found = Findings("interrupts", finished.parent / "interrupts.log")
    folder = copy(finished, finished.parent / "interrupted")
    words = "".join(path.read_text("utf-8") for path in sorted((folder / "data").rglob("*.jsonl")))
    letters = [word for word in words.split() if word.isalpha()]
    big = "\n".join(" ".join(draw.choices(letters, k=12)) + f" {number:x}" for number in range(400_000))
    (folder / "big.txt").write_text(big, "utf-8")
    (folder / "specification.toml").write_text('[vocabulary]\nkind = "trained"\ncorpus = ["big.txt"]\nsize = 9000\n')
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent), "OMP_NUM_THREADS": "1"}
    for arguments in commands(folder):
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
            found.note(f"{' '.join(arguments)} after {moment} s", done, (130, 0, 1), SECONDS)
    return found
