"""Text files of the user's: opened whether compressed or not, read strictly as UTF-8, digested by content.

A byte that is not UTF-8 is an error with its place, never a replacement character: silently damaged text
would end up in a vocabulary or in an index without anyone noticing.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from vtkit.errors import DataError

CORPUS_FORMS = (
    "a text file with a document a line (.txt), a .jsonl file with title and text, a .tsv file of parallel text "
    "(its second column), each plain or .gz, or a folder with corpus.jsonl or corpus.jsonl.gz"
)
_UNPAIRED = re.compile(r"\\u[dD][89a-fA-F]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def open_text(path: str | Path) -> TextIO:
    """``path`` opened for reading as strict UTF-8; ``.gz`` is decompressed on the way.

    Prefer :func:`read_lines`, whose errors name the line.

    Raises:
        DataError: the file is missing, cannot be opened, or is compressed in another way.
    """
    return io.TextIOWrapper(_open_bytes(Path(path)), encoding="utf-8", errors="strict", newline="\n")


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a text file, without their ends (``\\n`` or ``\\r\\n``) and without a byte order mark.

    Only ``\\n`` ends a line: characters such as U+2028 may stand inside one.

    Raises:
        DataError: the file is missing, damaged, or not UTF-8 (with line number and byte position).
    """
    path = Path(path)
    offset = 0
    with _open_bytes(path) as file:
        number = 0
        while True:
            try:
                line = file.readline()
            except (EOFError, OSError, zlib.error) as error:
                raise DataError(
                    f"{path}: cannot be read past line {number} ({error}). The file is damaged or was not copied to "
                    "its end; fetch it again."
                ) from error
            if not line:
                return
            number += 1
            try:
                text = line.removeprefix(_BYTE_ORDER_MARK).decode() if number == 1 else line.decode()
            except UnicodeDecodeError as error:
                skipped = len(_BYTE_ORDER_MARK) if number == 1 and line.startswith(_BYTE_ORDER_MARK) else 0
                position = error.start + skipped
                raise DataError(
                    f"{path}: line {number} is not UTF-8: byte 0x{line[position]:02x} at position {position + 1} of "
                    f"the line (byte {offset + position + 1} of the text). Convert the file to UTF-8, for example "
                    "with: iconv -f ENCODING -t UTF-8"
                ) from error
            offset += len(line)
            yield text.removesuffix("\n").removesuffix("\r")


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Line number (from 1) and object of each line that is not blank; a line that is no JSON object comes as
    the sentence that says what is wrong with it, so that a caller can report all such lines together."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, f"is not JSON ({error})"
            continue
        if not isinstance(entry, dict):
            yield number, f"is not a JSON object but {_json_kind(entry)}"
        elif _UNPAIRED.search(line) and not _can_be_written(entry):
            yield number, "holds half of a surrogate pair (\\ud800 to \\udfff), which is no character"
        else:
            yield number, entry


def contents(title: str, text: str) -> str:
    """What is indexed and encoded of a document: title and text with a space between, or the one that is there."""
    return f"{title.strip()} {text.strip()}".strip()


def read_corpus(spec: str | Path) -> Iterator[str]:
    """The texts of one corpus, in the order of the file.

    ``.txt`` a document a line (blank lines skipped); ``.jsonl`` the fields ``title`` and ``text`` joined; ``.tsv``
    the second of two columns (the target side of parallel text); each also with ``.gz`` behind. A
    folder: its ``corpus.jsonl`` or ``corpus.jsonl.gz``, else its ``docs-*.jsonl.gz`` (MIRACL).

    Raises:
        DataError: nothing is there, the form is unknown, a line is damaged, or there is no text at all.
    """
    path = Path(spec)
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder. A corpus is {CORPUS_FORMS}.")
    any_text = False
    for text in _texts(path):
        text = text.strip()
        if text:
            any_text = True
            yield text
    if not any_text:
        raise DataError(f"{path}: holds no text. A corpus is {CORPUS_FORMS}.")


def read_corpora(specs: Iterable[str | Path]) -> Iterator[str]:
    """The texts of several corpora, one corpus after the other (see :func:`read_corpus`)."""
    for spec in specs:
        yield from read_corpus(spec)


def digest(path: str | Path) -> str:
    """SHA-256, in hexadecimal, of a file's content or of a folder's files, their relative names included.

    Names that begin with a dot are left out (caches, editor files); times and owners never count.

    Raises:
        DataError: nothing is there, or it cannot be read.
    """
    path = Path(path)
    try:
        if path.is_file():
            return _file_digest(path)
        if not path.is_dir():
            raise DataError(f"{path}: there is no such file or folder.")
        files = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
        whole = hashlib.sha256()
        for name in sorted(files):
            if not any(part.startswith(".") for part in name.split("/")):
                whole.update(f"{name}\0{_file_digest(files[name])}\n".encode())
        return whole.hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error


def find_file(folder: Path, name: str) -> Path | None:
    """``folder/name``, plain or compressed, whichever is there first; None where neither is."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def _texts(path: Path) -> Iterator[str]:
    if path.is_dir():
        corpus = find_file(path, "corpus.jsonl")
        shards = [corpus] if corpus else shards_in(path)
        if not shards:
            raise DataError(f"{path}: holds neither corpus.jsonl nor corpus.jsonl.gz. A corpus is {CORPUS_FORMS}.")
        for shard in shards:
            yield from _jsonl_texts(shard)
        return
    match _form(path):
        case ".txt":
            yield from read_lines(path)
        case ".jsonl":
            yield from _jsonl_texts(path)
        case ".tsv":
            from vtkit.data.parallel import read_pairs

            for _, target in read_pairs(path):
                yield target
        case _:
            raise DataError(f"{path}: unknown form of corpus. A corpus is {CORPUS_FORMS}.")


def shards_in(folder: Path) -> list[Path]:
    """The ``docs-N.jsonl.gz`` files of a MIRACL corpus folder, in the order of their numbers."""
    shards = [*folder.glob("docs-*.jsonl.gz"), *folder.glob("docs-*.jsonl")]
    return sorted(shards, key=lambda shard: (len(shard.name), shard.name))


def _jsonl_texts(path: Path) -> Iterator[str]:
    for number, entry in read_jsonl(path):
        if isinstance(entry, str):
            raise DataError(f"{path}: line {number} {entry}.")
        title, text = entry.get("title") or "", entry.get("text")
        if not isinstance(title, str) or not isinstance(text, str):
            raise DataError(f'{path}: line {number} needs a string "text" (and a string "title", if any).')
        yield contents(title, text)


def _form(path: Path) -> str:
    """The ending that says what is inside, without the one that says how it is compressed."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


def _open_bytes(path: Path) -> BinaryIO:
    try:
        match path.suffix.lower():
            case ".gz":
                return cast(BinaryIO, gzip.open(path, "rb"))
            case ".zst" | ".bz2" | ".xz" | ".zip" | ".7z":
                raise DataError(f"{path}: only gzip is read. Decompress the file, or compress it with gzip.")
            case _:
                return path.open("rb")
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file.") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror or error}).") from error


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _can_be_written(entry: dict[str, Any]) -> bool:
    """Whether every string in ``entry`` is made of characters."""
    try:
        json.dumps(entry, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _json_kind(value: object) -> str:
    if value is None:
        return "null"
    return {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}[type(value)]
