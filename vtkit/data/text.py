"""A user's text files: opened plain or compressed, read strictly as UTF-8 in lines of bounded length, digested by
content."""

import glob
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar, cast

import regex

from vtkit.data.problems import Problems
from vtkit.system import console
from vtkit.system.checksums import file_digest
from vtkit.system.errors import DataError

Invalid = Literal["strict", "replace"]
"""What becomes of bytes that are not UTF-8: an error, or replacement characters and a warning."""

STREAMS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # names that shells give to what a command writes

LONGEST_LINE = 64 * 2**20  # characters of a line that cannot be cut (jsonl, tsv), at most

LONGEST_TEXT = 2**20
"""Characters of a line of a text corpus that are read at a time; longer lines are cut at white space or punctuation."""

_UNPAIRED = re.compile(r"\\u[dD][89a-fA-F]")
_LAST_PUNCTUATION = regex.compile(r"(?r)[\p{P}\p{S}\p{Z}]")


Item = TypeVar("Item", bound=str | tuple[object, ...])  # a text, or a tuple with texts
TEXTS_AT_ONCE = 1024  # largest number of texts that are tokenized together

CHARACTERS_AT_ONCE = 4_000_000
"""Approximate characters that are tokenized together: encodings take a hundred times the memory of their text."""


def read_lines(path: str | Path, invalid: Invalid = "strict", *, text_only: bool = False) -> Iterator[str]:
    r"""The lines of a text file, without their ends (``\n``, ``\r\n`` or ``\r``) and without a byte order mark. With
    ``text_only``, NUL bytes are refused.

    Nothing else ends a line: lines may contain characters such as U+2028.

    Raises:
        DataError: the file is missing, damaged, has a line of more than :data:`LONGEST_LINE` characters, or is not
            UTF-8 (with the number of bad positions, and line and byte of the first).
    """
    return decoded(Path(path), _pieces(Path(path)), invalid, text_only=text_only)


def read_pieces(path: str | Path, invalid: Invalid = "strict") -> Iterator[str]:
    """:func:`read_lines`, lines of more than :data:`LONGEST_TEXT` characters in pieces, cut at white space or
    punctuation."""
    return decoded(Path(path), _pieces(Path(path), LONGEST_TEXT, cut=True), invalid, text_only=True)


def read_jsonl(
    path: str | Path, invalid: Invalid = "strict", kinds: tuple[type, ...] = (dict,)
) -> Iterator[tuple[int, Any]]:
    """Line number (from 1) and object of each line that is not blank, or number and object of each entry of a file that
    is one array; for a line that is not JSON, or of none of the ``kinds``, a description of the problem, so that a
    caller can report all such lines together."""
    path = Path(path)
    for number, line in enumerate(_entries(path) if _is_array(path) else read_lines(path, invalid), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            # the library's own message would call every line line 1
            said = f"{error.msg} at character {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
            yield number, f"is not JSON ({said})"
            continue
        if not isinstance(entry, kinds):
            yield number, f"is not a JSON object but {_JSON_KINDS[type(entry)]}"
        elif line.count('"_id"') > 1 and _twice(line, "_id"):
            yield number, 'has "_id" twice'
        elif _UNPAIRED.search(line) and not console.is_utf8(json.dumps(entry, ensure_ascii=False)):
            yield number, "holds half of a surrogate pair (\\ud800 to \\udfff), which is no character"
        else:
            yield number, entry


def _is_array(path: Path) -> bool:
    """Report whether a file of JSON begins as an array of objects; a stream is not looked at, as it is read once."""
    with suppress(OSError):  # a damaged file is named by its reader
        if path.is_file():
            with open_bytes(path) as file:
                return re.match(rb"(\xef\xbb\xbf)?\s*\[\s*\{", file.read(2**16)) is not None
    return False


def _entries(path: Path) -> Iterator[str]:
    """The JSON text of each entry of an array, which may be larger than the memory."""
    import duckdb

    with path.open("rb") as file:
        compression = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd"}.get(file.read(2), "none")
    asked = "SELECT json FROM read_json_objects(?, format = 'array', maximum_object_size = ?, compression = ?)"
    try:
        with duckdb.connect(":memory:") as database:
            rows = database.execute(asked, [glob.escape(str(path)), LONGEST_LINE, compression])
            while batch := rows.fetchmany(TEXTS_AT_ONCE):
                yield from (entry for (entry,) in batch)
    except duckdb.Error as error:
        raise DataError(f"{path}: cannot be read as an array of JSON ({str(error).splitlines()[0]}).") from error


def _twice(line: str, name: str) -> bool:
    """Report whether the JSON object of a line has two entries called ``name``, of which readers take the last."""
    names: list[list[str]] = []  # of each object; the outermost one ends last
    json.loads(line, object_pairs_hook=lambda pairs: names.append([key for key, _ in pairs]))
    return bool(names) and names[-1].count(name) > 1


def as_texts(texts: str | Iterable[str], name: str) -> Iterator[str]:
    """Each of ``texts``, a string being one text.

    Raises:
        DataError: one is no string, or cannot be written as UTF-8, so that no tokenizer takes it.
    """
    for position, text in enumerate([texts] if isinstance(texts, str) else texts):
        if not isinstance(text, str) or not console.is_utf8(text):
            said = "None" if text is None else f"of the type {type(text).__name__}"
            fault = "holds half of a surrogate pair" if isinstance(text, str) else f"is {said}, not a string"
            raise DataError(f"{name}[{position}] {fault}. Remove it, or pass its text.")
        yield text


def contents(title: str, text: str) -> str:
    """The text of a document that is indexed and encoded: title and text, joined by a space, or one of them."""
    return f"{title.strip()} {text.strip()}".strip()


def batches(
    items: Iterable[Item], size: int = TEXTS_AT_ONCE, most_characters: int = CHARACTERS_AT_ONCE
) -> Iterator[list[Item]]:
    """Texts, or tuples of texts, in lists of at most ``size`` and about ``most_characters`` characters."""
    batch: list[Item] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += len(item) if isinstance(item, str) else sum(len(text) for text in item if isinstance(text, str))
        if len(batch) == size or characters >= most_characters:
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


def _pieces(path: Path, longest: int = LONGEST_LINE, *, cut: bool = False) -> Iterator[tuple[int, int, str]]:
    """Number of each line, the bytes of it that came before, and its text with its end, bytes that are not UTF-8 as
    lone surrogates; lines of more than ``longest`` characters are cut into pieces, or refused."""
    number, column, carry = 1, 0, ""
    with io.TextIOWrapper(open_bytes(path), "utf-8", "surrogateescape", newline="") as file:
        while True:
            try:
                piece = carry + file.readline(longest - len(carry) + 1)
            except OSError as error:
                raise DataError(
                    f"{path}: cannot be read after line {number - 1} ({error}). The file is damaged or incomplete: "
                    "download it again."
                ) from error
            if not piece:
                return
            carry, ends = "", piece.endswith(("\n", "\r"))
            if len(piece) > longest and not ends:
                if not cut:
                    raise DataError(
                        f"{path}: line {number} is longer than {longest >> 20} MiB. The file must have one record per "
                        "line: split it into lines first."
                    )
                border = max(piece.rfind(space, 1) for space in " \t\f")
                if border < 1 and (match := _LAST_PUNCTUATION.search(piece, 1)):
                    border = match.end()
                if border < 1:
                    raise DataError(
                        f"{path}: line {number} has more than {longest >> 20} MiB without white space or punctuation: "
                        "this is not text."
                    )
                piece, carry = piece[:border], piece[border:]
            yield number, column, piece
            column = 0 if ends else column + len(piece.encode("utf-8", "surrogateescape"))
            number += ends


def decoded(
    path: Path, pieces: Iterable[tuple[int, int, str]], invalid: Invalid, *, text_only: bool = False
) -> Iterator[str]:
    """The ``pieces`` of lines (bytes that are not UTF-8 as lone surrogates) without line ends, each with its number and
    the bytes of its line that came before; after the first bad byte, a strict reader continues only to count the
    others. With ``text_only``, NUL bytes are refused too."""
    bad, binary, offset, first, problems = 0, 0, 0, "", Problems()
    with problems.reading(path):
        for number, column, text in pieces:
            if text_only and "\0" in text:
                binary = binary or number
            try:
                raw = text.encode()
            except UnicodeEncodeError as error:
                raw, start = text.encode("utf-8", "surrogateescape"), len(text[: error.start].encode())
                if not bad:
                    first = f"line {number} is not UTF-8: byte 0x{raw[start]:02x} at position "
                    first += f"{column + start + 1} of the line (byte {offset + start + 1} of the text)"
                text = raw.decode("utf-8", "replace")
                bad += text.count("\ufffd") - raw.count("\ufffd".encode())
            if not binary and (not bad or invalid == "replace"):
                yield text.removeprefix("" if offset else "\ufeff").removesuffix("\n").removesuffix("\r")
            offset += len(raw)
    if binary:
        problems.add(
            path,
            f"line {binary} holds NUL bytes, so this is not UTF-8 text but a binary file, or text in UTF-16 (convert "
            "it with: iconv -f UTF-16 -t UTF-8)",
        )
    if bad and invalid == "replace":
        replaced = f"{bad} such places were" if bad > 1 else "It was"
        console.warn(f"{path}: {first}. {replaced} replaced by U+FFFD.")
    elif bad:
        others = f", the first of {bad:,} such places" if bad > 1 else ""
        problems.add(path, f"{first}{others}. Convert the file to UTF-8 (with: iconv -f ENCODING -t UTF-8)")
    problems.stop_if_any()


def open_bytes(path: Path) -> BinaryIO:
    """The bytes of ``path``, decompressed if its name or its first bytes show that it is compressed."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir() or str(path).startswith(STREAMS)):
            raise DataError(f"{path}: is no regular file. Write what it gives to a file first.")
        file = path.open("rb")
        suffix, first = path.suffix.lower(), file.peek(4)[:4]
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file.") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror or error}).") from error
    if suffix in (".bz2", ".xz", ".zip", ".7z") or first == b"PK\x03\x04":
        raise DataError(f"{path}: only gzip and zstandard are supported. Decompress the file first.")
    for ending, start, compression in ((".gz", b"\x1f\x8b", "gzip"), (".zst", b"\x28\xb5\x2f\xfd", "zstd")):
        if suffix == ending or first.startswith(start):
            import pyarrow

            unpacked = pyarrow.CompressedInputStream(file, compression)
            return cast(BinaryIO, io.BufferedReader(unpacked, buffer_size=2**17))
    return file


_JSON_KINDS = {
    type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list",
}  # fmt: skip
