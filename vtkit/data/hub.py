"""The Hugging Face hub, only as far as a check before a run needs it: what is in the cache, may it be reached.

The network is never touched unless the user allowed downloads.
"""

from __future__ import annotations

import os
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from vtkit.errors import DataError

DOWNLOAD_VARIABLE = "VTKIT_DOWNLOAD"
RepositoryKind = Literal["model", "dataset"]


def located(name: str) -> str:
    """``name`` as an absolute path where something is there under it or it can be nothing else, else as it is."""
    return os.path.abspath(os.path.expanduser(name)) if os.path.exists(name) or name.startswith((".", "~")) else name


def downloads_allowed() -> bool:
    """Whether files may be fetched from the hub: the environment variable that ``--download`` sets to 1."""
    return os.environ.get(DOWNLOAD_VARIABLE) == "1"


def cache_folder() -> Path:
    """Where the hub's client keeps what it downloaded (HF_HUB_CACHE, HF_HOME)."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def in_cache(repo_id: str, repo_type: RepositoryKind = "model") -> bool:
    """Whether some revision of a repository lies in the cache; a download broken off may still lack files."""
    snapshots = cache_folder() / f"{repo_type}s--{repo_id.replace('/', '--')}" / "snapshots"
    if not os.path.isdir(snapshots):  # unlike Path.is_dir, no error over a name that is too long
        return False
    return any(any(revision.iterdir()) for revision in snapshots.iterdir() if revision.is_dir())


def reachable(timeout_s: float = 1.5) -> bool:
    """Whether the hub answers within ``timeout_s`` seconds; False, without asking, where downloads are not allowed."""
    if not downloads_allowed():
        return False
    answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
    # In a thread, because looking up a host name cannot be given a time limit.
    threading.Thread(target=lambda: answers.put(_answers(timeout_s)), daemon=True).start()
    try:
        return answers.get(timeout=timeout_s)
    except queue.Empty:
        return False


def fetch(repo_id: str, patterns: Sequence[str], repo_type: RepositoryKind = "dataset") -> Path:
    """Folder with the files of a repository that match ``patterns``, from the cache or, where allowed, the hub.

    What the cache lacks of them is missing in the folder when downloads are not allowed.

    Raises:
        DataError: nothing is in the cache and downloads are not allowed, or the hub did not give the files.
    """
    from huggingface_hub import snapshot_download

    allowed = downloads_allowed()
    try:
        return Path(
            snapshot_download(repo_id, repo_type=repo_type, allow_patterns=list(patterns), local_files_only=not allowed)
        )
    except (OSError, ValueError) as error:  # the hub's own errors are kinds of these two
        if not allowed:
            raise DataError(
                f"{repo_id} ({repo_type} of the Hugging Face hub) is not in the cache {cache_folder()}. Run again with "
                "--download, or name a folder."
            ) from error
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{repo_id} ({repo_type} of the Hugging Face hub) cannot be fetched: {first_line} Check the connection, "
            f"and whether access has to be asked for at https://huggingface.co/{'datasets/' * (repo_type == 'dataset')}"
            f"{repo_id} (then log in with: hf auth login)."
        ) from error


def _answers(timeout_s: float) -> bool:
    from huggingface_hub import constants

    try:
        with urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=timeout_s):
            return True
    except urllib.error.HTTPError:
        return True  # an answer, if an unfriendly one
    except (OSError, ValueError):
        return False
