"""Target ``lucene``: impact documents for Anserini and Pyserini, and a Common Index File for PISA and others, weights
rounded to 255 steps. Terms are ``t`` and a number, since Anserini splits terms at white space."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from google.protobuf.internal.encoder import _VarintBytes  # protobuf comes with onnx

from vtkit.deploy.documents import PASSAGE_OF, Collection, Entry, json_line
from vtkit.deploy.portable import Source
from vtkit.deploy.target import Facts, Target
from vtkit.system import console

CIFF = "index.ciff"


def write(source: Source, collection: Collection | None, folder: Path) -> Facts:
    """Write ``documents/part-00000.jsonl`` and so on (``JsonVectorCollection``) and ``index.ciff``."""
    assert collection is not None
    collection.write(folder / "documents", "part-{}.jsonl", _line)
    with (folder / CIFF).open("wb") as file:
        write_ciff(collection, file)
    return {}


def _line(entry: Entry) -> str:
    vector = {f"t{number}": int(weight) for number, weight in entry.vector().items()}
    return json_line({"id": _docid(entry.document, entry.number), "contents": entry.document["text"], "vector": vector})


def _docid(document: dict[str, Any], row: int) -> str:
    """The document's id; of a passage, with ``#`` and its row behind, as pyserini's ``--max-passage`` reads it."""
    return f"{document['id']}#{row}" if PASSAGE_OF in document.get("fields", ()) else str(document["id"])


def write_ciff(collection: Collection, file: BinaryIO) -> None:
    """Write the collection as a Common Index File (Lin et al. 2020, arXiv:2003.08276): protobuf messages, each after
    its length: a header, the postings of each term in the order of the terms' names (gaps of document numbers, and
    weights as term frequencies), and a record for each document."""
    lists = collection.vectors.tocsc()
    lengths = np.asarray(collection.vectors.sum(axis=1, dtype=np.int64)).ravel()
    terms = sorted(np.flatnonzero(np.diff(lists.indptr)).tolist(), key=lambda term: f"t{term}")
    total = int(lengths.sum())
    header = _integers({1: 1, 2: len(terms), 3: len(collection), 4: len(terms), 5: len(collection), 6: total})
    mean = np.float64(total / max(1, len(collection))).tobytes()
    _message(file, header + _VarintBytes(7 << 3 | 1) + mean + _bytes(8, b"impacts, exported by vtkit"))
    for term in console.tracked(terms, CIFF, len(terms)):
        part = slice(lists.indptr[term], lists.indptr[term + 1])
        numbers, weights = lists.indices[part], lists.data[part]
        gaps = np.diff(numbers, prepend=0).tolist()
        pairs = (_integers({1: gap, 2: weight}) for gap, weight in zip(gaps, weights.tolist(), strict=True))
        entries = b"".join(_bytes(4, pair) for pair in pairs)
        _message(file, _bytes(1, f"t{term}".encode()) + _integers({2: len(numbers), 3: int(weights.sum())}) + entries)
    for number in range(len(collection)):
        identity = _docid(collection.document(number), number).encode()
        _message(file, _integers({1: number}) + _bytes(2, identity) + _integers({3: int(lengths[number])}))


def _message(file: BinaryIO, content: bytes) -> None:
    file.write(_VarintBytes(len(content)) + content)


def _integers(fields: dict[int, int]) -> bytes:
    return b"".join(_VarintBytes(number << 3) + _VarintBytes(value) for number, value in fields.items() if value)


def _bytes(number: int, content: bytes) -> bytes:
    return b"".join([_VarintBytes(number << 3 | 2), _VarintBytes(len(content)), content])


TARGET = Target(name="lucene", write=write, needs_documents=True, bits=8)
