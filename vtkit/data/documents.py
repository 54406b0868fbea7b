"""The documents of a collection: a list or, if there are many, a file that is mapped and read by position, named after
the content of its sources, which later stages and runs open again."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import starmap
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vtkit.data import text as texts
from vtkit.data.problems import Problems
from vtkit.data.sequences import ByNumber
from vtkit.system import console
from vtkit.system.checksums import file_digest

LARGE = 2**28  # larger collections (bytes of text) are mapped instead of held in memory
COMPRESSED = 4  # approximate ratio of the size of a decompressed file to the compressed one
FORM = 3  # version of the file's format
METADATA = "metadata"  # the fields of a document, in a line of a BEIR corpus
_ROWS, _CHARACTERS = 50_000, 2**26  # of an Arrow batch, at most

_STORED = ["id", "title", "text", "fields"]

_folder: Path | None = None
_temporary_folder = cache(partial(tempfile.TemporaryDirectory, prefix="vtkit-", ignore_cleanup_errors=True))


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a collection."""

    id: str
    title: str
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further values by name, as JSON holds them: an address, a year, a list of words."""

    @property
    def contents(self) -> str:
        """The text that is indexed and encoded: title and text, joined by a space, or one of them."""
        return texts.contents(self.title, self.text)


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a collection."""

    id: str
    text: str


Item = TypeVar("Item", Document, Query)
Place = tuple[Path, int, Document]  # file and line (or row) of a document, and the document


def keep_large_collections(folder: Path) -> None:
    """Keep the files of large collections in ``folder``; otherwise they are removed when the process ends."""
    global _folder
    _folder = folder


def text_hash(text: str) -> bytes:
    """An eight-byte hash of ``text``."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def text_hashes(documents: Sequence[Document]) -> npt.NDArray[np.uint64]:
    """Hash of the contents of each document, (documents,)."""
    if isinstance(documents, StoredDocuments):
        return np.asarray(documents.table["text_hash"].to_numpy())
    return np.frombuffer(b"".join(text_hash(document.contents) for document in documents), np.uint64)


def gathered(
    files: Sequence[Path], rows: Callable[[], Iterable[Place]], problems: Problems, how: Sequence[str | None] = ()
) -> Sequence[Document]:
    """The documents of ``rows``, which is called unless the ``files`` were read before in the same way, ``how``; the
    size of the files decides whether documents are held or mapped. Repeated ids go to ``problems``."""
    sizes = (path.stat().st_size * (COMPRESSED if path.suffix in (".gz", ".zst", ".parquet") else 1) for path in files
             if path.is_file())  # fmt: skip
    if sum(sizes) < LARGE:
        return without_repeated(rows(), problems)
    digests = [file_digest(path) for path in files if path.is_file() and os.access(path, os.R_OK)]
    key = hashlib.sha256(json.dumps([FORM, how, digests]).encode()).hexdigest()[:20]
    folder = _folder or Path(_temporary_folder().name)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(f"documents-{key}-*.arrow"):
        if _digest(path, path.stat().st_mtime_ns) == path.stem.rpartition("-")[2]:
            return StoredDocuments(path)
        console.warn(f"{path} is damaged and will be made again")
        path.unlink()
    with tempfile.TemporaryDirectory(prefix=".documents-", dir=folder) as aside:
        new = Path(aside, "documents.arrow")
        _write_arrow(rows(), new, problems)
        if problems.found or not len(StoredDocuments(new)):
            return []
        return StoredDocuments(new.rename(folder / f"documents-{key}-{file_digest(new)}.arrow"))


class StoredDocuments(ByNumber[Document]):
    """Documents in an Arrow file, mapped into memory."""

    def __init__(self, path: Path) -> None:
        import pyarrow

        self.table = pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all()
        self._columns = [self.table[name] for name in _STORED]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def item(self, number: int) -> Document:
        """A document."""
        identity, title, text, fields = (column[number].as_py() for column in self._columns)
        return Document(identity, title, text, json.loads(fields))

    def __iter__(self) -> Iterator[Document]:
        for batch in self.table.select(_STORED).to_batches(1000):
            *parts, fields = (column.to_pylist() for column in batch.columns)
            yield from map(Document, *parts, map(json.loads, fields))

    @cached_property
    def _sorted_hashes(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
        """The hashes of the ids in ascending order, and the number of the document of each."""
        hashes = self.table["id_hash"].to_numpy()
        order = np.argsort(hashes, kind="stable").astype(np.int32)
        return hashes[order], order

    def id_of(self, number: int) -> str:
        """The id of a document."""
        return str(self._columns[0][number])

    def numbers_of(self, names: Sequence[str]) -> npt.NDArray[np.int32]:
        """The number of the document with each of the ids ``names``, -1 if there is none."""
        hashes, order = self._sorted_hashes
        wanted = np.frombuffer(b"".join(map(text_hash, names)), np.uint64)
        ranges = zip(*(np.searchsorted(hashes, wanted, side).tolist() for side in ("left", "right")), strict=True)
        alike = (order[start:stop].tolist() for start, stop in ranges)
        numbers = [
            next((number for number in each if self.id_of(number) == name), -1)
            for name, each in zip(names, alike, strict=True)
        ]
        return np.array(numbers, np.int32)

    def repeated(self) -> Iterator[tuple[int, int]]:
        """The numbers of each document whose id occurred before, and of the first with that id."""
        hashes, order = self._sorted_hashes
        same = np.flatnonzero(hashes[1:] == hashes[:-1])
        first: dict[str, int] = {}
        for number in sorted({int(order[at]) for at in [*same, *(same + 1)]}):
            before = first.setdefault(self.id_of(number), number)
            if before != number:
                yield number, before


def without_repeated(rows: Iterable[tuple[Path, int, Item]], problems: Problems) -> list[Item]:
    """The documents or queries of ``rows``, each with its file and line; repeated ids go to ``problems``."""
    items: list[Item] = []
    places: dict[str, tuple[Path, int]] = {}
    for path, line, item in rows:
        before = places.setdefault(item.id, (path, line))
        if before != (path, line):
            problems.add_repeated(path, line, item.id, before)
        else:
            items.append(item)
    return items


def _write_arrow(rows: Iterable[Place], path: Path, problems: Problems) -> None:
    import pyarrow

    types = dict.fromkeys(_STORED, "string") | {"id_hash": "uint64", "text_hash": "uint64", "file": "int32",
             "line": "int64"}  # fmt: skip
    schema = pyarrow.schema([(name, getattr(pyarrow, kind)()) for name, kind in types.items()])
    files: dict[Path, int] = {}

    def entry(file: Path, line: int, document: Document) -> tuple[Any, ...]:
        hashes = np.frombuffer(text_hash(document.id) + text_hash(document.contents), np.uint64).tolist()
        own = document.id, document.title, document.text, json.dumps(document.fields, ensure_ascii=False, default=str)
        return *own, *hashes, files.setdefault(file, len(files)), line

    with pyarrow.OSFile(str(path), "wb") as out, pyarrow.ipc.new_file(out, schema) as writer:
        for batch in texts.batches(starmap(entry, rows), _ROWS, _CHARACTERS):
            columns = zip(zip(*batch, strict=True), schema.types, strict=True)
            writer.write_batch(pyarrow.record_batch([pyarrow.array(*column) for column in columns], schema))
    stored, sources = StoredDocuments(path), list(files)
    for pair in stored.repeated():
        places = (stored.table.slice(number, 1).to_pylist()[0] for number in pair)
        again, before = ((sources[place["file"]], place["line"]) for place in places)
        problems.add_repeated(*again, stored.id_of(pair[0]), before)


@cache
def _digest(path: Path, changed: int) -> str:
    """The digest of a file, which is read once per process."""
    return file_digest(path)
