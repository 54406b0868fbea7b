"""``make soak``: an hour of what users, disks and kills do to vtkit, and a table of how it ended.

Each part works on copies of one small finished run in a folder of its own. A defect is a traceback, a hang, an exit
code that does not fit, a message without content, raw control characters, a changed number, or something lost; the
exit code is 1 if there was any. The seed is printed: the same seed makes the same mutations. PART.log in that folder
has a line for each case; --keep leaves it.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import disk
import flips
import inputs
import interrupts
import kills
from harness import Part, vtkit, warm_up, write_tiny_run

import recipes

PARTS: dict[str, Part] = {
    "recipes": recipes.soak, "inputs": inputs.soak, "kills": kills.soak, "disk": disk.soak, "flips": flips.soak,
    "interrupts": interrupts.soak,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="leave the folder for a look")
    options = parser.parse_args()
    wanted = options.parts or list(PARTS)
    folder = Path(tempfile.mkdtemp(prefix="vtkit-soak-"))
    print(f"seed {options.seed}, in {folder}", flush=True)
    warm_up()
    finished = folder / "finished"
    write_tiny_run(finished)
    done = vtkit(finished, "run", "korean.toml")
    if done.code:
        print(done.out)
        return 1
    print(f"an undisturbed run takes {done.seconds:.0f} s", flush=True)
    findings = []
    for name in wanted:
        began = time.monotonic()
        print(f"{name} …", flush=True)
        findings.append(PARTS[name](finished, random.Random(f"{options.seed} {name}")))
        print(f"{findings[-1].summary()}; {time.monotonic() - began:.0f} s in all", flush=True)
    print("\n".join(["", *(found.summary() for found in findings)]))
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return int(any(found.defects for found in findings))


if __name__ == "__main__":
    sys.exit(main())
