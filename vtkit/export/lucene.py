"""Target ``lucene``: impact documents for Anserini and Pyserini, and a Common Index File for PISA and others, weights
rounded to 255 steps. Terms are ``t`` and a number, since Anserini splits terms at white space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from vtkit.export.documents import Collection, Entry, json_line
from vtkit.export.portable import Portable, Source
from vtkit.export.readme import Facts
from vtkit.system import console

CIFF = "index.ciff"
_AT_ONCE = 4096


def write_for_lucene(source: Source, portable: Portable, collection: Collection | None, folder: Path) -> Facts:
    """Write ``documents/part-00000.jsonl`` and so on (``JsonVectorCollection``) and ``index.ciff``."""
    assert collection is not None
    collection.write(folder / "documents", "part-{}.jsonl", _line)
    if not (folder / CIFF).exists():
        fresh = folder / f"{CIFF}.partial"
        with fresh.open("wb") as file:
            write_ciff(collection, file)
        fresh.rename(folder / CIFF)
    return {}


def _line(entry: Entry) -> str:
    vector = {f"t{number}": int(weight) for number, weight in entry.vector().items()}
    return json_line({"id": entry.id, "contents": entry.text, "vector": vector})


def write_ciff(collection: Collection, file: BinaryIO) -> None:
    """Write the collection as a Common Index File (Lin et al. 2020, arXiv:2003.08276): protobuf messages, each after
    its length: a header, the postings of each term in the order of the terms' names (gaps of document numbers, and
    weights as term frequencies), and a record for each document. One list at a time is in memory."""
    lengths = np.zeros(len(collection), dtype=np.int64)
    for start in range(0, len(collection), _AT_ONCE):
        rows = collection.rows(start, min(start + _AT_ONCE, len(collection)))
        lengths[start : start + rows.shape[0]] = np.asarray(rows.sum(axis=1)).ravel()
    kept = _Kept.of(collection)
    terms = np.flatnonzero(np.diff(collection.postings.starts)).tolist()
    terms = sorted((term for term in terms if len(_list(collection, term, kept)[0])), key=lambda term: f"t{term}")
    total = int(lengths.sum())
    header = _integers({1: 1, 2: len(terms), 3: len(collection), 4: len(terms), 5: len(collection), 6: total})
    mean = np.float64(total / max(1, len(collection))).tobytes()
    _message(file, header + _varint(7 << 3 | 1) + mean + _text(8, "impacts, exported by vtkit"))
    with console.progress(CIFF, total=len(terms)) as bar:
        for term in terms:
            numbers, weights = _list(collection, term, kept)
            gaps = np.diff(numbers, prepend=0).tolist()
            pairs = (_integers({1: gap, 2: weight}) for gap, weight in zip(gaps, weights.tolist(), strict=True))
            entries = b"".join(_varint(4 << 3 | 2) + _varint(len(pair)) + pair for pair in pairs)
            _message(file, _text(1, f"t{term}") + _integers({2: len(numbers), 3: int(weights.sum())}) + entries)
            bar.advance()
    for number in range(len(collection)):
        identity = collection.documents[number]["_id"]
        _message(file, _integers({1: number}) + _text(2, identity) + _integers({3: int(lengths[number])}))


@dataclass(frozen=True)
class _Kept:
    """The weights of each document that ``top_dimensions`` keeps: those above ``least``, and those equal to it up to
    the dimension ``last``; both (documents,)."""

    least: NDArray[np.float32]
    last: NDArray[np.int64]

    @classmethod
    def of(cls, collection: Collection) -> _Kept | None:
        if collection.top_dimensions is None:
            return None
        whole = replace(collection, step=None)
        kept = cls(np.zeros(len(collection), dtype=np.float32), np.zeros(len(collection), dtype=np.int64))
        for start in range(0, len(collection), _AT_ONCE):
            rows = whole.rows(start, min(start + _AT_ONCE, len(collection)))
            for row in np.flatnonzero(np.diff(rows.indptr)).tolist():
                part = slice(rows.indptr[row], rows.indptr[row + 1])
                kept.least[start + row] = rows.data[part].min()
                kept.last[start + row] = rows.indices[part][rows.data[part] == kept.least[start + row]].max()
        return kept


def _list(collection: Collection, term: int, kept: _Kept | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Document numbers and whole-number weights of a term."""
    postings, step = collection.postings, collection.step or 1.0
    part = slice(int(postings.starts[term]), int(postings.starts[term + 1]))
    numbers, values = postings.documents[part].astype(np.int64), postings.weights[part]
    levels = np.rint(values.astype(np.float64) / step).astype(np.int64)
    good = levels > 0
    if kept is not None:
        least = kept.least[numbers]
        good &= (values > least) | ((values == least) & (term <= kept.last[numbers]))
    return numbers[good], levels[good]


def _message(file: BinaryIO, content: bytes) -> None:
    file.write(_varint(len(content)) + content)


def _integers(fields: dict[int, int]) -> bytes:
    return b"".join(_varint(number << 3) + _varint(value) for number, value in fields.items() if value)


def _text(number: int, text: str) -> bytes:
    content = text.encode()
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
