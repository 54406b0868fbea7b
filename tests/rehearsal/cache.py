"""A cache of the Hugging Face hub, as its client leaves it: blobs, refs, and a snapshot of links to the blobs."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from vtkit.data.public import PUBLIC

LARGE_FILE = 10_000_000
"""Bytes from which the hub keeps a file in its large-file store, where the SHA-256 of the content names it."""

REVISIONS: Mapping[str, str] = {
    "naver/splade-v3": "fdfeceb91d7b9de7985b38addd3ba9f53a59a355",
    "BAAI/bge-m3": "5617a9f61b028005a4858fdac845db406aefb181",
    "BAAI/bge-base-en-v1.5": "a5beb1e3e68b9ab74eb54cfd186867f64f240e1a",
    "intfloat/multilingual-e5-small": "614241f622f53c4eeff9890bdc4f31cfecc418b3",
    "cross-encoder/ms-marco-MiniLM-L6-v2": "c5ee24cb16019beea0893ab7796b1df96625c6b8",
    "sentence-transformers/msmarco-distilbert-base-tas-b": "b12d9352e776979147078a8975a4885042984fd1",
    "google-bert/bert-base-uncased": "86b5e0934494bd15c9632b12f734a8a67f723594",
    "google-bert/bert-base-cased": "cd5ef92a9fb2f889e972770a36d4ed042daf221e",
    "FacebookAI/roberta-base": "e2da8e2f811d1448a5b465c236feacd80ffbac7b",
    "answerdotai/ModernBERT-base": "8949b909ec900327062f0ebf497f51aef5e6f0c8",
    "wikimedia/wikipedia": "b04c8d1ceb2f5cd4588862100d08de323dccfbaa",
}
"""The commit that ``main`` stood at, of the repositories whose commit is known; others get one made from their name."""


PINNED = {repository.id: repository.revision for public in PUBLIC.values() for repository in public.repositories}
"""Repository of a public collection -> the commit that is fetched, if it is known."""


def revision_of(repository: str) -> str:
    """The commit under which ``repository`` lies in the rehearsal's cache."""
    return REVISIONS.get(repository) or PINNED.get(repository) or hashlib.sha1(repository.encode()).hexdigest()


def write_repository(
    cache: Path, kind: Literal["model", "dataset"], repository: str, files: Mapping[str, bytes | Path]
) -> Path:
    """Put ``files``, a path in the repository -> its content or the file that has it, into ``cache``; the snapshot."""
    folder = cache / f"{kind}s--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / revision_of(repository)
    (folder / "blobs").mkdir(parents=True, exist_ok=True)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text(revision_of(repository))
    for name, content in files.items():
        source = content.read_bytes() if isinstance(content, Path) else content
        blob = folder / "blobs" / _etag(source)
        if not blob.exists():
            blob.write_bytes(source)
        link = snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(blob, link.parent))
    return snapshot


def _etag(content: bytes) -> str:
    """The name of a blob: SHA-256 of a large file, else the id that git gives it."""
    if len(content) >= LARGE_FILE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
