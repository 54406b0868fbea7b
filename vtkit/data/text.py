"""A user's text files: opened plain or compressed, read strictly as UTF-8 in lines of bounded length, digested by
content."""

import gzip
import hashlib
import io
import json
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar, cast

from vtkit.data.problems import Problems
from vtkit.system import console
from vtkit.system.errors import DataError

Invalid = Literal["strict", "replace"]
"""What becomes of bytes that are not UTF-8: an error, or replacement characters and a warning."""

LONGEST_LINE = 64 * 2**20  # largest line in bytes, if it cannot be cut (jsonl, tsv)

LONGEST_TEXT = 2**20
"""Bytes of a line of a text corpus that are read at a time; longer lines are cut at white space or punctuation."""

_UNPAIRED = re.compile(r"\\u[dD][89a-fA-F]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


Item = TypeVar("Item", str, tuple[str, str])  # a text, or a pair of texts
TEXTS_AT_ONCE = 1024  # largest number of texts that are tokenized together

CHARACTERS_AT_ONCE = 4_000_000
"""Approximate characters that are tokenized together: encodings take a hundred times the memory of their text."""


def read_lines(path: str | Path, invalid: Invalid = "strict") -> Iterator[str]:
    r"""The lines of a text file, without their ends (``\n`` or ``\r\n``) and without a byte order mark.

    Only ``\n`` ends a line: lines may contain characters such as U+2028.

    Raises:
        DataError: the file is missing, damaged, has a line of more than :data:`LONGEST_LINE` bytes, or is not UTF-8
            (with the number of bad positions, and line and byte of the first).
    """
    return _decoded(Path(path), _byte_lines(Path(path)), invalid)


def read_pieces(path: str | Path, invalid: Invalid = "strict") -> Iterator[str]:
    """:func:`read_lines`, longer lines than :data:`LONGEST_TEXT` bytes in pieces, cut at white space or punctuation."""
    path = Path(path)
    return _decoded(path, _byte_lines(path, LONGEST_TEXT, cut=True), invalid, text_only=True)


def read_jsonl(path: str | Path, invalid: Invalid = "strict") -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Line number (from 1) and object of each line that is not blank; for a line that is not a JSON object, a
    description of the problem, so that a caller can report all such lines together."""
    for number, line in enumerate(read_lines(path, invalid), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            # the library's own message would call every line line 1
            said = f"{error.msg} at character {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
            yield number, f"is not JSON ({said})"
            continue
        if not isinstance(entry, dict):
            yield number, f"is not a JSON object but {_JSON_KINDS[type(entry)]}"
        elif _UNPAIRED.search(line) and not _can_be_written(entry):
            yield number, "holds half of a surrogate pair (\\ud800 to \\udfff), which is no character"
        else:
            yield number, entry


def as_texts(texts: str | Iterable[str], name: str) -> Iterator[str]:
    """Each of ``texts``, a string being one text."""
    for position, text in enumerate([texts] if isinstance(texts, str) else texts):
        if not isinstance(text, str):
            said = "None" if text is None else f"of the type {type(text).__name__}"
            raise DataError(f"{name}[{position}] is {said}, not a string. Remove it, or pass its text.")
        yield text


def contents(title: str, text: str) -> str:
    """The text of a document that is indexed and encoded: title and text, joined by a space, or one of them."""
    return f"{title.strip()} {text.strip()}".strip()


def batches(items: Iterable[Item], size: int = TEXTS_AT_ONCE) -> Iterator[list[Item]]:
    """Texts, or pairs of texts, in lists of at most ``size`` and about :data:`CHARACTERS_AT_ONCE` characters."""
    batch: list[Item] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += len(item) if isinstance(item, str) else sum(map(len, item))
        if len(batch) == size or characters >= CHARACTERS_AT_ONCE:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def digest(path: str | Path) -> str:
    """SHA-256, in hexadecimal, of a file's content or of a folder's files with their relative names, but for those that
    begin with a dot (caches, editor files); times and owners do not count."""
    path = Path(path)
    try:
        if path.is_file():
            return file_digest(path)
        if not path.is_dir():
            raise DataError(f"{path}: there is no such file or folder.")
        files = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
        whole = hashlib.sha256()
        for name in sorted(files):
            if not any(part.startswith(".") for part in name.split("/")):
                whole.update(f"{name}\0{file_digest(files[name])}\n".encode())
        return whole.hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    column: int  # bytes of the line before it
    offset: int  # bytes of the text before it
    raw: bytes


def _byte_lines(path: Path, longest: int = LONGEST_LINE, *, cut: bool = False) -> Iterator[_Line]:
    """The lines of a file with their ends; lines longer than ``longest`` bytes are cut into pieces, or refused."""
    number, column, offset, carry = 1, 0, 0, b""
    with open_bytes(path) as file:
        while True:
            try:
                raw = carry + file.readline(longest - len(carry) + 1)
            except (EOFError, OSError, zlib.error) as error:
                raise DataError(
                    f"{path}: cannot be read after line {number - 1} ({error}). The file is damaged or incomplete: "
                    "download it again."
                ) from error
            if not raw:
                return
            carry = b""
            if not offset and raw.startswith(_BYTE_ORDER_MARK):
                raw = raw.removeprefix(_BYTE_ORDER_MARK)
                column = offset = len(_BYTE_ORDER_MARK)
            if len(raw) > longest and not raw.endswith(b"\n"):
                if not cut:
                    raise DataError(
                        f"{path}: line {number} is longer than {longest >> 20} MiB. The file must have one record per "
                        "line: split it into lines first."
                    )
                border = _border(raw)
                if not border:
                    raise DataError(
                        f"{path}: line {number} has more than {longest >> 20} MiB without white space or punctuation: "
                        "this is not text."
                    )
                raw, carry = raw[:border], raw[border:]
            yield _Line(number, column, offset, raw)
            offset += len(raw)
            column = 0 if raw.endswith(b"\n") else column + len(raw)
            number += raw.endswith(b"\n")


def _border(raw: bytes) -> int:
    """The position at which to cut a piece of a line: before its last white space, else after its last punctuation; 0
    without either."""
    space = max(raw.rfind(byte) for byte in (b" ", b"\t", b"\r", b"\f"))
    if space > 0:
        return space
    text = raw.decode("utf-8", "surrogateescape")
    for place in range(len(text) - 1, 0, -1):
        if not text[place].isalnum() and unicodedata.category(text[place])[0] in "PSZ":
            return len(text[: place + 1].encode("utf-8", "surrogateescape"))
    return 0


def _decoded(path: Path, lines: Iterable[_Line], invalid: Invalid, *, text_only: bool = False) -> Iterator[str]:
    """The text of ``lines``; after the first bad byte, a strict reader continues only to count the others. With
    ``text_only``, NUL bytes are refused too."""
    bad, first = 0, ""
    binary: list[int] = []
    problems = Problems()
    with problems.reading(path):
        for line in lines:
            raw = line.raw
            if text_only and b"\0" in raw and line.number not in binary[-1:]:
                binary.append(line.number)
            try:
                text = raw.decode()
            except UnicodeDecodeError as error:
                if not bad:
                    byte, column, place = raw[error.start], line.column + error.start + 1, line.offset + error.start + 1
                    first = f"line {line.number} is not UTF-8: byte 0x{byte:02x} at position {column} of the line"
                    first += f" (byte {place} of the text)"
                text = raw.decode("utf-8", "replace")
                bad += text.count("\ufffd") - raw.count("\ufffd".encode())
            if not binary and (not bad or invalid == "replace"):
                yield text.removesuffix("\n").removesuffix("\r")
    if binary:
        problems.add(
            path,
            f"line {binary[0]} holds NUL bytes{_first_of(len(binary), 'line')}, so this is not UTF-8 text but a binary "
            "file, or text in UTF-16 (convert it with: iconv -f UTF-16 -t UTF-8)",
        )
    if bad and invalid == "replace":
        replaced = f"{bad} such places were" if bad > 1 else "It was"
        console.warn(f"{path}: {first}. {replaced} replaced by U+FFFD.")
    elif bad:
        problems.add(
            path, f"{first}{_first_of(bad, 'place')}. Convert the file to UTF-8 (with: iconv -f ENCODING -t UTF-8)"
        )
    problems.stop_if_any()


def _first_of(count: int, what: str) -> str:
    return f", the first of {count:,} such {what}s" if count > 1 else ""


def open_bytes(path: Path) -> BinaryIO:
    """The bytes of ``path``, decompressed if its name or its first bytes show that it is compressed."""
    try:
        suffix, first = path.suffix.lower(), b""
        if not path.is_fifo():  # a pipe can be read only once
            with path.open("rb") as file:
                first = file.read(4)
        if suffix == ".gz" or first.startswith(b"\x1f\x8b"):
            return cast(BinaryIO, gzip.open(path, "rb"))
        if suffix == ".zst" or first == b"\x28\xb5\x2f\xfd":
            import pyarrow

            frames = pyarrow.CompressedInputStream(path.open("rb"), "zstd")
            return cast(BinaryIO, io.BufferedReader(frames, buffer_size=2**17))
        if suffix in (".bz2", ".xz", ".zip", ".7z") or first == b"PK\x03\x04":
            raise DataError(f"{path}: only gzip and zstandard are supported. Decompress the file first.")
        return path.open("rb")
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file.") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror or error}).") from error


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_JSON_KINDS = {
    type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list",
}  # fmt: skip


def _can_be_written(entry: dict[str, Any]) -> bool:
    try:
        json.dumps(entry, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
