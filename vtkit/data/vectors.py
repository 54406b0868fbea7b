"""Files of static word vectors, read as a stream: text formats of word2vec, GloVe and fastText (``.vec``), and the
binary format of word2vec."""

import codecs
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from vtkit.data.text import open_bytes, read_lines
from vtkit.system import console
from vtkit.system.errors import DataError

WORDS_AT_ONCE = 4096
BYTES_AT_ONCE = 1 << 20

LONGEST_WORD = 1 << 16  # largest word of a binary file in bytes; a longer one shows that the file is damaged
FASTTEXT_MODEL = b"\xba\x16\x4f\x2f"  # the first bytes of fastText's `.bin` files

FORMS = (
    "Word vectors are a file of word2vec (text or binary), GloVe or fastText (.vec), plain or .gz, with a word and its "
    "numbers per line."
)


@dataclass(frozen=True)
class VectorFile:
    """The facts about a file of word vectors in its first line."""

    path: Path
    width: int  # numbers per word
    words: int | None  # words of the file; None if its first line already is a word (GloVe)
    binary: bool


def open_vectors(path: str | Path) -> VectorFile:
    """Read the beginning of a file of word vectors."""
    path = Path(path)
    with open_bytes(path) as file:
        sample = _read(file, path, BYTES_AT_ONCE)
    if not sample:
        raise DataError(f"{path}: is empty. {FORMS}")
    if sample.startswith(FASTTEXT_MODEL):
        raise DataError(f"{path}: is a fastText model (.bin); vtkit needs its word vectors (.vec). {FORMS}")
    if sample.startswith((b"\x80", b"PK")):
        raise DataError(f"{path}: is a pickle or an archive, which vtkit does not open. {FORMS}")
    first, _, rest = sample.partition(b"\n")
    fields = first.decode("utf-8", "replace").split()
    if len(fields) == 2 and all(field.isascii() and field.isdecimal() for field in fields):
        words, width = int(fields[0]), int(fields[1])
        if not words or not width:
            raise DataError(f"{path}: the first line announces {words} words of {width} numbers, so the file is empty.")
        return VectorFile(path, width, words, _is_binary(rest, width))
    if _is_binary(sample):
        raise DataError(f"{path}: is neither text nor the binary form of word2vec. {FORMS}")
    width = len(fields) - 1
    if width < 1 or not _is_number(fields[-1]):
        raise DataError(
            f"{path}: line 1 is neither a header (words, numbers per word) nor a word with its numbers. {FORMS}"
        )
    return VectorFile(path, width, None, False)


def read_vectors(path: str | Path) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
    """Words and their vectors, (words, width), in the order of the file, some thousand at a time.

    If a word occurs more than once, its first vector counts; a warning gives their number. Blank words and vectors of
    zeros are left out.

    Raises:
        DataError: the file is missing, damaged or not UTF-8, numbers are missing, invalid or not finite (the first such
            line is named), or the number of words differs from the first line's.
    """
    file = open_vectors(path)
    seen: set[int] = set()  # hashes of the words, which would take several times as much memory
    repeated = 0
    entries = _read_binary(file) if file.binary else _read_text(file)
    while batch := list(islice(entries, WORDS_AT_ONCE)):
        words = [word for word, _ in batch]
        with np.errstate(over="ignore"):
            vectors = np.array([vector for _, vector in batch], dtype=np.float32)
        for bad in np.flatnonzero(~np.isfinite(vectors).all(axis=1)):
            word = console.one_line(words[bad], 40)
            raise DataError(f"{path}: the vector of {word!r} holds a value that is not a finite number (NaN).")
        keep: NDArray[np.bool_] = np.asarray(vectors.any(axis=1))
        for number, word in enumerate(words):
            repeated += hash(word) in seen
            keep[number] &= hash(word) not in seen and bool(word.strip())
            seen.add(hash(word))
        yield [words[number] for number in np.flatnonzero(keep)], vectors[keep]
    if repeated:
        console.warn(f"{file.path}: {repeated:,} words occur more than once; the first vector of each counts.")


def vectors_of(path: str | Path, wanted: Collection[str]) -> dict[str, NDArray[np.float32]]:
    """The vectors of the ``wanted`` words that the file has, each of shape (width,)."""
    vectors_by_word = {}
    for words, vectors in read_vectors(path):
        for word, vector in zip(words, vectors, strict=True):
            if word in wanted:
                vectors_by_word[word] = vector.copy()
    return vectors_by_word


def _read_text(file: VectorFile) -> Iterator[tuple[str, Sequence[float]]]:
    total, headers = 0, int(file.words is not None)
    for number, line in islice(enumerate(read_lines(file.path), 1), headers, None):
        fields = line.rstrip(" ").rsplit(" ", file.width)
        if not line.strip():
            continue
        total += 1
        # A word may contain spaces (GloVe has some), but not end in a number.
        if len(fields) != file.width + 1 or (" " in fields[0] and _is_number(fields[0].rpartition(" ")[2])):
            raise DataError(
                f"{file.path}: line {number} has {len(line.split()) - 1} numbers, but the first line says {file.width} "
                "for each word."
            )
        try:
            yield fields[0], [float(field) for field in fields[1:]]
        except ValueError as error:
            wrong = next(field for field in fields[1:] if not _is_number(field))
            raise DataError(f"{file.path}: line {number}: {console.one_line(wrong, 40)!r} is not a number.") from error
    if file.words is not None and total != file.words:
        raise DataError(
            f"{file.path}: the first line says {file.words:,} words, but there are {total:,}. The file is incomplete "
            "or was changed. If it is complete, correct its first line."
        )


def _read_binary(file: VectorFile) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """``word``, a space, and the numbers as little-endian single precision, one word after the other."""
    assert file.words is not None
    size = 4 * file.width
    with open_bytes(file.path) as stream:
        buffer = _read(stream, file.path, BYTES_AT_ONCE)
        place = buffer.index(b"\n") + 1
        for number in range(1, file.words + 1):
            while (end := buffer.find(b" ", place)) < 0 or len(buffer) < end + 1 + size:
                if end < 0 and len(buffer) - place > LONGEST_WORD:
                    raise DataError(f"{file.path}: word {number:,} does not end: the file is damaged. {FORMS}")
                more = _read(stream, file.path, max(BYTES_AT_ONCE, size))
                if not more:
                    raise DataError(
                        f"{file.path}: the first line says {file.words:,} words, but the file ends in word {number:,}. "
                        "It is incomplete: download it again."
                    )
                buffer, place = buffer[place:] + more, 0
            try:
                word = buffer[place:end].lstrip(b"\n").decode()
            except UnicodeDecodeError as error:
                raise DataError(f"{file.path}: word {number:,} is not UTF-8 ({error.reason}).") from error
            yield word, np.frombuffer(buffer, dtype="<f4", count=file.width, offset=end + 1)
            place = end + 1 + size
        if buffer[place:].strip(b"\n") or _read(stream, file.path, 1).strip(b"\n"):
            raise DataError(f"{file.path}: holds more than the {file.words:,} words in its first line.")


def _read(file: BinaryIO, path: Path, size: int) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error}). The file is damaged: download it again.") from error


def _is_binary(sample: bytes, width: int = 1) -> bool:
    """Whether the first line of ``sample`` is neither a word with its numbers nor any other text."""
    line = sample.partition(b"\n")[0]
    numbers = sum(_is_number(field) for field in line.decode("utf-8", "replace").split()[1:])
    if not line or 2 * numbers >= width:
        return False
    sample = sample[:4096]
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # accepts a character that is cut at the end
    except UnicodeDecodeError:
        return True
    return any(byte < 9 or 13 < byte < 32 for byte in sample)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
