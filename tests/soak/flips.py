"""A flipped bit in every kind of stored file: found, made again, and the numbers stay; search never shows garbage."""

import random
import re
from pathlib import Path

from harness import Findings, copy, numbers, vtkit


def kinds(runs: Path) -> dict[str, list[Path]]:
    """Stored files by what they are: the stage and the file's place in its output, ids and numbers aside."""
    found: dict[str, list[Path]] = {}
    for path in sorted(runs.rglob("*")):
        if path.is_file() and not path.is_symlink() and ".locks" not in path.parts and path.stat().st_size:
            parts = path.relative_to(runs).parts
            name = "/".join(re.sub(r"-[0-9a-f]{20}$", "", part) for part in parts)
            found.setdefault(re.sub(r"(index|evaluate)-\w+", r"\1", name), []).append(path)
    return found


def soak(finished: Path, draw: random.Random) -> Findings:
    """One file of each kind at a time, in a copy of a finished run."""
    found = Findings("flips", finished.parent / "flips.log")
    folder = copy(finished, finished.parent / "flipped")
    expected = numbers(finished)
    for kind in kinds(folder / "runs"):
        files = kinds(folder / "runs").get(kind)
        if not files:
            continue
        path = draw.choice(files)
        raw = bytearray(path.read_bytes())
        at = draw.randrange(len(raw))
        raw[at] ^= 1 << draw.randrange(8)
        path.unlink()  # what is published is a hard link to what is stored
        path.write_bytes(raw)
        query = ("search", "runs/korean", "금의 녹는점")
        found.note(f"search after a flip at {at} of {kind}", vtkit(folder, *query), (0, 1))
        done = vtkit(folder, "run", "korean.toml")
        if found.note(f"run after a flip at {at} of {kind}", done, (0,)) and numbers(folder) != expected:
            found.fail(f"flip at {at} of {kind}: other numbers than undisturbed")
            folder = copy(finished, finished.parent / "flipped")
        if not found.note(f"search after the run ({kind})", vtkit(folder, *query), (0,)):
            folder = copy(finished, finished.parent / "flipped")
    return found
