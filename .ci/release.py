"""Whether the version of the sources is that of their tag; ``make wheel`` builds nothing otherwise.

The version stands in ``vtkit/system/version.py``, and not in the tags alone: archives, Docker images and shallow
clones have no tags, and an editable install would keep the version of the day on which it was made.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def problems(root: Path) -> list[str]:
    """What keeps the commit in ``root`` from being built: nothing where git or its tags are not there.

    A tagged commit must have the version of its tag, also in ``CITATION.cff``, and its entry in ``CHANGELOG.md``. A
    commit after a release must not have the version of that release.
    """
    version = _version(root / "vtkit" / "system" / "version.py", r'^__version__ = "(.+)"$')
    here, every = (_git(root, "tag", "--list", "v*", *more) for more in (["--points-at", "HEAD"], []))
    found = []
    for tag in here:
        for name, stands in (
            ("vtkit/system/version.py", version),
            ("CITATION.cff", _version(root / "CITATION.cff", r"^version: (.+)$")),
        ):
            if tag != f"v{stands}":
                found.append(f"This commit is tagged {tag}, but {name} says {stands}. Correct one of them.")
        if not re.search(rf"^## {re.escape(tag[1:])}\b", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE):
            found.append(f"CHANGELOG.md has no entry for {tag[1:]}. Rename its part 'Unreleased'.")
    if not here and f"v{version}" in every:
        found.append(
            f"v{version} is tagged already. Set the next version, such as X.Y.Z.dev0, in vtkit/system/version.py."
        )
    return found


def _version(file: Path, pattern: str) -> str:
    found = re.search(pattern, file.read_text("utf-8"), re.MULTILINE)
    return found[1] if found else "none"


def _git(root: Path, *arguments: str) -> list[str]:
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(root.parent)}  # an archive may lie in another repository
    try:
        done = subprocess.run(["git", *arguments], cwd=root, env=alone, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return done.stdout.split()


if __name__ == "__main__":
    sys.exit("\n".join(problems(Path(__file__).resolve().parents[1])) or 0)
