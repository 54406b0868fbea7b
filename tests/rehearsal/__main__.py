"""``make rehearsal``: make the cache, run the recipes one after the other, and print a table of time and memory."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from .measure import Outcome, rehearse, table
from .recipes import REHEARSED
from .stage import build


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(REHEARSED)}; default: all")
    parser.add_argument("--work", type=Path, help="folder for cache and runs, kept; default: a temporary one")
    parser.add_argument("--markdown", type=Path, help="write the table there too")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in REHEARSED]
    if unknown:
        parser.error(f"no recipe is called {', '.join(unknown)}")
    folder = (chosen.work or Path(tempfile.mkdtemp(prefix="vtkit-rehearsal-"))).absolute()
    build(folder)
    outcomes: list[Outcome] = []
    for name in chosen.names or REHEARSED:
        print(f"{name} …", flush=True)
        outcomes.append(rehearse(name, folder))
        print(outcomes[-1].line(), flush=True)
    text = table(outcomes)
    print(f"\n{text}")
    if chosen.markdown is not None:
        chosen.markdown.write_text(text + "\n", encoding="utf-8")
    if chosen.work is None:
        shutil.rmtree(folder, ignore_errors=True)
    return int(any(outcome.code for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
