"""The Hugging Face hub: its cache, and downloads into it by the hub's client if the user allows them."""

import json
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

from vtkit.system import console
from vtkit.system.checksums import file_digest
from vtkit.system.errors import DataError, MachineError, VtkitError, free_bytes, machine_failure

DOWNLOAD_VARIABLE = "VTKIT_DOWNLOAD"
RepositoryKind = Literal["model", "dataset"]

TIMEOUT_S = 30.0  # seconds that the hub may take to list the files of a repository

_SHA256, _GIT_SHA1 = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{40}")
_revisions: dict[str, str] = {}


def located(name: str) -> str:
    """``name`` as an absolute path if it exists or can only be a path; else unchanged."""
    return os.path.abspath(os.path.expanduser(name)) if os.path.exists(name) or name.startswith((".", "~")) else name


def downloads_allowed() -> bool:
    """Whether files may be downloaded from the hub: the environment variable that ``--download`` sets to 1."""
    return os.environ.get(DOWNLOAD_VARIABLE) == "1"


def cache_folder() -> Path:
    """The cache folder of the hub's client (HF_HUB_CACHE, HF_HOME)."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def in_cache(repo_id: str, repo_type: RepositoryKind = "model", revision: str | None = None) -> bool:
    """Whether a commit of a repository (any, unless given) is in the cache; files may be missing after an interrupted
    download."""
    commits = _commits(repo_id, repo_type)
    return revision in commits if _GIT_SHA1.fullmatch(revision or "") else bool(commits)


def reachable(timeout_s: float = 1.5) -> bool:
    """Whether the hub answers within ``timeout_s`` seconds; False, without a request, if downloads are not allowed."""
    from huggingface_hub import constants

    if not downloads_allowed():
        return False
    answers: list[bool] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=timeout_s).close()
            answers.append(True)
        except (OSError, ValueError) as error:
            answers.append(isinstance(error, urllib.error.HTTPError))  # an answer, if an unfriendly one

    thread = threading.Thread(target=ask, daemon=True)  # because the lookup of a host name has no time limit
    thread.start()
    thread.join(timeout_s)
    return any(answers)


def fetch(
    repo_id: str, patterns: Sequence[str], repo_type: RepositoryKind = "dataset", revision: str | None = None
) -> Path:
    """Folder with the files of a repository that match ``patterns``, from the cache or, if allowed, the hub.

    Files arrive whole or not at all, and count once their checksums equal the hub's; those that arrived stay after an
    interruption. If the cache has all files of a commit, the hub is not asked.

    Args:
        patterns: of the needed files; ``*`` also matches slashes.
        revision: commit, branch or tag; None for ``main``.

    Raises:
        DataError: its terms have not been accepted; downloads are not allowed and the cache lacks the revision, or
            files of a data set (those of a model are missed by its reader); there is no such repository or revision;
            the hub does not answer; a file in the cache is damaged.
        MachineError: the disk has too little space.
    """
    snapshot = _storage(repo_id, repo_type) / "snapshots" / str(revision)
    listed = _GIT_SHA1.fullmatch(revision or "") and _listed_sizes(snapshot, repo_id, repo_type)
    if downloads_allowed() and not (listed and not _missing(snapshot, patterns, repo_id, repo_type)):
        _download(repo_id, patterns, repo_type, revision)
    folder = _cached(repo_id, patterns, repo_type, revision)
    _refuse_damage(folder, patterns, repo_id, repo_type)
    _revisions[repo_id] = folder.name
    return folder


def revisions() -> dict[str, str]:
    """Repository -> commit, for everything that this process has read from the hub or its cache."""
    return dict(sorted(_revisions.items()))


def bytes_to_fetch(repo_id: str, patterns: Sequence[str]) -> int:
    """Bytes that :func:`fetch` would download of a model; asks the hub, if downloads are allowed."""
    with _hub_errors(repo_id, "model", None):
        return sum(_lacking(repo_id, patterns, "model", None).values())


def read_settings(path: Path, label: str) -> dict[str, Any]:
    """The JSON object in a model's file, or an empty one if there is no such file."""
    content = read_json(path, label)
    if not isinstance(content, dict | None):
        raise DataError(f"{label}: {path} is damaged: it should hold a JSON object. {fetch_again()}")
    return content or {}


def read_json(path: Path, label: str) -> Any:
    """The content of a model's JSON file, or None if there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{label}: {path} cannot be read ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{label}: {path} is damaged: it is not valid JSON ({error}). {fetch_again()}") from error


def fetch_again() -> str:
    """Advice for a damaged file."""
    again = "Fetch or copy the model again (one of the hub comes with --download)."
    return "Remove it and fetch it again." if downloads_allowed() else again


def _download(repo_id: str, patterns: Sequence[str], repo_type: RepositoryKind, revision: str | None) -> None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import tqdm

    class Received(tqdm):  # type: ignore[misc]
        """A bar that is not drawn: the bytes of all files advance one of vtkit's."""

        def __init__(self, *args: Any, name: str | None = None, **options: Any) -> None:
            self.advance = bar.advance if name == "huggingface_hub.snapshot_download" else None
            super().__init__(*args, **options | {"disable": True})

        def update(self, n: float | None = 1) -> None:
            if self.advance is not None:
                self.advance(int(n or 0))

    with _hub_errors(repo_id, repo_type, revision):
        try:
            files = _lacking(repo_id, patterns, repo_type, revision)
        except Exception as error:
            answered = getattr(error, "response", None) is not None
            if not answered and in_cache(repo_id, repo_type, revision):
                return  # the hub does not answer: use earlier downloads
            raise
        if (total := sum(files.values())) > (free := free_bytes(cache_folder())):
            raise MachineError(
                f"{cache_folder()}: {repo_id} needs {console.size(total)}, but only {console.size(free)} are free. "
                "Free some space, or set the environment variable HF_HOME to a folder on another disk."
            )
        options = {"repo_type": repo_type, "revision": revision, "allow_patterns": list(patterns)}
        with console.progress(f"fetching {repo_id}", total, in_bytes=True) as bar:
            snapshot = Path(snapshot_download(repo_id, **options, tqdm_class=Received))
        for name in files:
            blob = (snapshot / name).resolve()
            if not _is_whole(blob, blob.stat().st_mtime_ns):
                blob.unlink()
                raise DataError(
                    f"{repo_id}: the checksum of {name} differs from the hub's, so it was removed. Run again with "
                    "--download."
                )


def _lacking(repo_id: str, patterns: Sequence[str], repo_type: RepositoryKind, revision: str | None) -> dict[str, int]:
    """The bytes of each file that matches ``patterns`` and is not in the cache."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils import filter_repo_objects

    info = HfApi().repo_info(repo_id, repo_type=repo_type, revision=revision, files_metadata=True, timeout=TIMEOUT_S)
    snapshot = _storage(repo_id, repo_type) / "snapshots" / str(info.sha)
    wanted = filter_repo_objects(info.siblings or (), allow_patterns=list(patterns), key=lambda file: file.rfilename)
    return {file.rfilename: file.size or 0 for file in wanted if not (snapshot / file.rfilename).exists()}


def _cached(repo_id: str, patterns: Sequence[str], repo_type: RepositoryKind, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import IncompleteSnapshotError, LocalEntryNotFoundError

    label = _label(repo_id, repo_type, revision)
    try:
        options = {"repo_type": repo_type, "revision": revision, "allow_patterns": list(patterns)}
        return Path(snapshot_download(repo_id, **options, local_files_only=True))
    except IncompleteSnapshotError as error:
        snapshot = Path(error.snapshot_path)
        if repo_type == "model":
            return snapshot
        gone = _missing(snapshot, patterns, repo_id, repo_type)
        raise DataError(
            f"{label} is incomplete in the cache: it lacks {', '.join(gone[:3])}"
            f"{f' and {len(gone) - 3} more files' if len(gone) > 3 else ''}. Run again with --download."
        ) from error
    except LocalEntryNotFoundError as error:
        others = _commits(repo_id, repo_type)
        revisions = f" (which has its revisions {', '.join(others)})" if others else ""
        raise DataError(
            f"{label} is not in the cache {cache_folder()}{revisions}. Run again with --download, or name a folder."
        ) from error
    except ValueError as error:  # not the name of a repository
        raise DataError(
            f"{repo_id}: this is neither a folder nor the name of a {repo_type} on the Hugging Face hub (OWNER/NAME)."
        ) from error


def _missing(snapshot: Path, patterns: Sequence[str], repo_id: str, repo_type: RepositoryKind) -> list[str]:
    from huggingface_hub.utils import filter_repo_objects

    listed = filter_repo_objects(_listed_sizes(snapshot, repo_id, repo_type), allow_patterns=list(patterns))
    return [name for name in listed if not (snapshot / name).exists()]


def _refuse_damage(folder: Path, patterns: Sequence[str], repo_id: str, repo_type: RepositoryKind) -> None:
    """Check that the files in the cache have the sizes listed by the hub; without a list (of older clients), files of
    data sets are compared with the checksum in their names."""
    from huggingface_hub.utils import filter_repo_objects

    sizes = _listed_sizes(folder, repo_id, repo_type)
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    damaged: list[str] = []
    for name in filter_repo_objects(names, allow_patterns=list(patterns)):
        blob = (folder / name).resolve()
        size = blob.stat().st_size if blob.exists() else 0
        if size != sizes.get(name, size):
            damaged.append(f"{blob} ({name}) has {size:,} of {sizes[name]:,} bytes")
        elif name not in sizes and repo_type == "dataset" and not _is_whole(blob, blob.stat().st_mtime_ns):
            damaged.append(f"{blob} ({name}) has another checksum than on the hub")
    if damaged:
        lines = "".join(f"\n  {line}" for line in damaged)
        raise DataError(
            f"{_label(repo_id, repo_type, folder.name)} is damaged in the cache:{lines}\n"
            f"Remove {'these files' if len(damaged) > 1 else 'this file'}, and run again with --download."
        )


def _listed_sizes(snapshot: Path, repo_id: str, repo_type: RepositoryKind) -> dict[str, int]:
    """File -> bytes in the hub's list of a commit, if the cache has the list."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        listed = get_cached_repo_tree(repo_id, repo_type=repo_type, revision=snapshot.name)
    except (CachedRepoTreeNotFoundError, ValueError):
        return {}
    return {file.path: file.size for file in listed}


@cache
def _is_whole(blob: Path, changed: int) -> bool:
    """Whether a file of the cache has the checksum that is its name, or its name is none; read once per process."""
    from huggingface_hub.utils.sha import git_hash

    if _GIT_SHA1.fullmatch(blob.name):  # of a small file
        return bool(git_hash(blob.read_bytes()) == blob.name)
    return not _SHA256.fullmatch(blob.name) or file_digest(blob) == blob.name


@contextmanager
def _hub_errors(repo_id: str, repo_type: RepositoryKind, revision: str | None) -> Iterator[None]:
    from huggingface_hub import errors

    page = f"https://huggingface.co/{'datasets/' * (repo_type == 'dataset')}{repo_id}"
    kept = " Files that arrived whole are kept."
    explained = {
        errors.GatedRepoError: f"is gated: accept its terms at {page}, log in with: hf auth login, and run again.",
        errors.RevisionNotFoundError: "cannot be downloaded: the hub does not have this revision. "
        f"{page}/commits/main lists all.",
        errors.RepositoryNotFoundError: f"cannot be downloaded: {page} does not exist or is private. Check the name, "
        "or request access there and log in with: hf auth login.",
    }
    try:
        yield
    except VtkitError:
        raise
    except Exception as error:  # the client's HTTP library has its own errors of connections
        if failure := machine_failure(error, cache_folder(), kept):
            raise failure from error
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        unknown = f"cannot be downloaded: {first_line} Check the connection, and run again with --download.{kept}"
        said = next((text for kind, text in explained.items() if isinstance(error, kind)), unknown)
        raise DataError(f"{_label(repo_id, repo_type, revision)} {said}") from error


def _storage(repo_id: str, repo_type: RepositoryKind) -> Path:
    return cache_folder() / f"{repo_type}s--{repo_id.replace('/', '--')}"


def _commits(repo_id: str, repo_type: RepositoryKind) -> list[str]:
    """The commits of a repository with files in the cache."""
    snapshots = _storage(repo_id, repo_type) / "snapshots"
    if not os.path.isdir(snapshots):  # unlike Path.is_dir, no error if the name is too long
        return []
    return sorted(folder.name for folder in snapshots.iterdir() if folder.is_dir() and any(folder.iterdir()))


def _label(repo_id: str, repo_type: RepositoryKind, revision: str | None) -> str:
    return f"{repo_id} ({repo_type} of the Hugging Face hub, revision {revision or 'main'})"
