"""The documents of a collection: a list or, if there are many, files that are mapped and read by position, in a folder
named after the content of their sources that later stages and runs open again."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import shutil
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vtkit.data import text as texts
from vtkit.data.problems import Problems
from vtkit.data.sequences import ByNumber
from vtkit.system import console

LARGE = 2**28  # larger collections (bytes of text) are mapped instead of held in memory
COMPRESSED = 4  # approximate ratio of the size of a decompressed file to the compressed one
FORM = 1  # version of the folder's format
_ROWS, _CHARACTERS = 50_000, 2**26  # of an Arrow batch, at most
_DOCUMENTS, _RECORD = "documents.arrow", "store.json"
_ARRAYS = ("id_hashes", "id_numbers", "text_hashes")

_folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a collection."""

    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """The text that is indexed and encoded: title and text, joined by a space, or one of them."""
        return texts.contents(self.title, self.text)


Place = tuple[Path, int, Document]  # file and line (or row) of a document, and the document


def keep_large_collections(folder: Path) -> None:
    """Keep the files of large collections below ``folder``; otherwise they are removed when the process ends."""
    global _folder
    _folder = folder


def text_hash(text: str) -> bytes:
    """An eight-byte hash of ``text``."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def text_hashes(documents: Sequence[Document]) -> npt.NDArray[np.uint64]:
    """Hash of the contents of each document, (documents,)."""
    if isinstance(documents, StoredDocuments):
        return documents.text_hashes
    return np.frombuffer(b"".join(text_hash(document.contents) for document in documents), np.uint64)


def gathered(
    files: Sequence[Path], rows: Callable[[], Iterable[Place]], form: str, problems: Problems
) -> Sequence[Document]:
    """The documents of ``rows``, which is called unless the ``files`` were read in this ``form`` before; the size of
    the files decides whether documents are held or mapped. Repeated ids go to ``problems``."""
    sizes = (path.stat().st_size * (COMPRESSED if path.suffix in (".gz", ".zst", ".parquet") else 1) for path in files
             if path.is_file())  # fmt: skip
    if sum(sizes) < LARGE:
        return _held(rows(), problems)
    key = json.dumps([FORM, form, [texts.file_digest(path) for path in files]])
    name = f"documents-{hashlib.sha256(key.encode()).hexdigest()[:20]}"
    folder = (_folder or _temporary_folder()) / name
    stored = StoredDocuments.open(folder)
    if stored is not None:
        return stored
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        if not _write(rows(), aside, problems):
            return []
        with contextlib.suppress(OSError):  # another process was faster
            aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return StoredDocuments.open(folder) or []


class StoredDocuments(ByNumber[Document]):
    """Documents in a folder, mapped into memory."""

    def __init__(self, folder: Path, count: int) -> None:
        import pyarrow

        self.folder, self._count = folder, count
        reader = pyarrow.ipc.open_file(pyarrow.memory_map(str(folder / _DOCUMENTS)))
        self._batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        self._columns = [[batch.column(name) for name in ("id", "title", "text")] for batch in self._batches]
        self._starts = np.cumsum([0, *(len(batch) for batch in self._batches)]).tolist()

    @classmethod
    def open(cls, folder: Path) -> StoredDocuments | None:
        """The documents that :func:`gathered` left in ``folder``; None if it is missing or damaged."""
        try:
            record = json.loads((folder / _RECORD).read_text("utf-8"))
            files, count = dict(record["files"]), int(record["documents"])
            if all(_unchanged(folder / name, size, digest) for name, (size, digest) in files.items()):
                return cls(folder, count)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        console.warn(f"{folder} is damaged and will be made again")
        return None

    def __len__(self) -> int:
        return self._count

    def item(self, number: int) -> Document:
        """A document."""
        batch = bisect_right(self._starts, number) - 1
        row = number - self._starts[batch]
        return Document(*(column[row].as_py() for column in self._columns[batch]))

    def __iter__(self) -> Iterator[Document]:
        for columns in self._columns:
            for start in range(0, len(columns[0]), 1000):
                yield from map(Document, *(column.slice(start, 1000).to_pylist() for column in columns))

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Id -> number."""
        return DocumentNumbers(self)

    @cached_property
    def text_hashes(self) -> npt.NDArray[np.uint64]:
        """Hash of the contents of each document, (documents,)."""
        return self.array("text_hashes")

    def array(self, name: str) -> npt.NDArray[Any]:
        """One of the arrays beside the documents, mapped."""
        return np.asarray(np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))

    def id_of(self, number: int) -> str:
        """The id of a document."""
        batch = bisect_right(self._starts, number) - 1
        return str(self._columns[batch][0][number - self._starts[batch]])


class DocumentNumbers(Mapping[str, int]):
    """Id -> number of stored documents, through the sorted hashes of the ids."""

    def __init__(self, documents: StoredDocuments) -> None:
        self._documents = documents
        self._hashes, self._numbers = documents.array("id_hashes"), documents.array("id_numbers")

    def __len__(self) -> int:
        return len(self._documents)

    def __iter__(self) -> Iterator[str]:
        return (document.id for document in self._documents)

    def __getitem__(self, name: str) -> int:
        wanted = np.frombuffer(text_hash(name), np.uint64)[0]
        place = int(np.searchsorted(self._hashes, wanted))
        while place < len(self._hashes) and self._hashes[place] == wanted:
            number = int(self._numbers[place])
            if self._documents.id_of(number) == name:
                return number
            place += 1
        raise KeyError(name)

    def of(self, names: Sequence[str]) -> npt.NDArray[np.int32]:
        """The number of each of ``names``, -1 if there is none."""
        numbers_of_names = np.full(len(names), -1, np.int32)
        for start in range(0, len(names), _ROWS):
            part = list(names[start : start + _ROWS])
            hashes = np.frombuffer(b"".join(map(text_hash, part)), np.uint64)
            places = np.searchsorted(self._hashes, hashes)
            numbers = self._numbers[np.minimum(places, len(self._hashes) - 1)].tolist()
            if list(map(self._documents.id_of, numbers)) != part:  # missing, or equal hashes
                numbers = [self.get(name, -1) for name in part]
            numbers_of_names[start : start + _ROWS] = numbers
        return numbers_of_names


def _held(rows: Iterable[Place], problems: Problems) -> list[Document]:
    documents: list[Document] = []
    places: dict[str, tuple[Path, int]] = {}
    for path, line, document in rows:
        before = places.setdefault(document.id, (path, line))
        if before != (path, line):
            problems.add_repeated(path, line, document.id, before)
        else:
            documents.append(document)
    return documents


def _write(rows: Iterable[Place], folder: Path, problems: Problems) -> bool:
    """Fill ``folder``; False if there are problems, so that it should not be kept."""
    import pyarrow

    ids, contents, lines = bytearray(), bytearray(), array("q")
    files: list[tuple[int, Path]] = []
    schema = pyarrow.schema([(name, pyarrow.string()) for name in ("id", "title", "text")])
    batch: list[Document] = []
    characters = 0

    def flush() -> None:
        columns = [[getattr(document, name) for document in batch] for name in schema.names]
        writer.write_batch(
            pyarrow.record_batch([pyarrow.array(column, pyarrow.string()) for column in columns], schema)
        )
        batch.clear()

    with pyarrow.OSFile(str(folder / _DOCUMENTS), "wb") as out, pyarrow.ipc.new_file(out, schema) as writer:
        for path, line, document in rows:
            if not files or files[-1][1] is not path:
                files.append((len(lines), path))
            ids += text_hash(document.id)
            contents += text_hash(document.contents)
            lines.append(line)
            batch.append(document)
            characters += len(document.text) + len(document.title)
            if len(batch) == _ROWS or characters > _CHARACTERS:
                flush()
                characters = 0
        flush()
    hashes = np.frombuffer(ids, np.uint64)
    order = np.argsort(hashes, kind="stable").astype(np.int32)
    arrays: tuple[npt.NDArray[Any], ...] = (hashes[order], order, np.frombuffer(contents, np.uint64))
    for name, values in zip(_ARRAYS, arrays, strict=True):
        np.save(folder / f"{name}.npy", values, allow_pickle=False)
    _find_repeated(StoredDocuments(folder, len(lines)), arrays[0], order, lines, files, problems)
    if problems.found or not lines:
        return False
    names = [_DOCUMENTS, *(f"{name}.npy" for name in _ARRAYS)]
    record = {name: [(folder / name).stat().st_size, texts.file_digest(folder / name)] for name in names}
    (folder / _RECORD).write_text(json.dumps({"documents": len(lines), "files": record}), "utf-8")
    return True


def _find_repeated(
    documents: StoredDocuments,
    hashes: npt.NDArray[np.uint64],
    order: npt.NDArray[np.int32],
    lines: Sequence[int],
    files: Sequence[tuple[int, Path]],
    problems: Problems,
) -> None:
    def place(number: int) -> tuple[Path, int]:
        return files[bisect_right(files, number, key=lambda entry: entry[0]) - 1][1], lines[number]

    same = np.flatnonzero(hashes[1:] == hashes[:-1])
    first: dict[str, int] = {}
    repeated: list[tuple[int, str, int]] = []
    for number in sorted({int(order[at]) for at in [*same, *(same + 1)]}):
        name = documents.id_of(number)
        if first.setdefault(name, number) != number:
            repeated.append((number, name, first[name]))
    for number, name, before in repeated:
        problems.add_repeated(*place(number), name, place(before))


@cache
def _checked(path: Path, size: int, changed: int, digest: str) -> bool:
    return texts.file_digest(path) == digest


def _unchanged(path: Path, size: int, digest: str) -> bool:
    """Whether a file is unchanged; it is read once per process."""
    stat = path.stat()
    return stat.st_size == size and _checked(path, size, stat.st_mtime_ns, digest)


@cache
def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="vtkit-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
