"""Documents and queries without judgements: read from the formats of collections, and documents kept beside vectors."""

import json
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from vtkit.data.collections import files_of, is_collection
from vtkit.data.problems import Problems
from vtkit.data.retrieval import Document, Query, read_documents, read_queries
from vtkit.data.rows import conversion, ending_of, form_of
from vtkit.data.text import read_lines
from vtkit.system.errors import DataError

DOCUMENTS = "documents.jsonl"  # file of the documents beside their vectors or their index, in the same order

DOCUMENT_FORMS = (
    "a collection (a folder with corpus.jsonl, or a public name such as miracl:ko), .jsonl or .parquet with _id, text "
    "and perhaps title, .tsv with id and text, or .txt with one text per line; each plain, .gz or .zst"
)
QUERY_FORMS = (
    ".jsonl or .parquet with _id and text, .tsv with id and text, or .txt with a query a line; each plain, .gz or .zst"
)


def write_documents(documents: Iterable[Document], path: Path) -> None:
    """Write :data:`DOCUMENTS`, or a collection's ``corpus.jsonl``: ``_id``, ``title`` and ``text`` per line."""
    with path.open("w", encoding="utf-8") as file:
        for document in documents:
            entry = {"_id": document.id, "title": document.title, "text": document.text}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def read_document_file(name: str) -> Sequence[Document]:
    """The documents of a file or of a collection (:mod:`vtkit.data.collections`); missing ids are line numbers. All
    that is wrong (damaged lines, ids that occur twice or contain white space, no text) is one DataError."""
    path, problems = Path(name), Problems()
    documents: Sequence[Document]
    if path.is_file() and not ending_of(path):
        lines = _lines(_text_lines(path, "Documents", DOCUMENT_FORMS))
        documents = [Document(line.id, "", line.text) for line in lines]
    elif path.is_file() or is_collection(name):
        documents = read_documents([path] if path.is_file() else files_of(name, "corpus"), problems)
    else:
        raise DataError(f"{name}: there is no such file or folder. Documents are {DOCUMENT_FORMS}.")
    problems.stop_if_any()
    if not documents:
        raise DataError(f"{name}: holds no text. Documents are {DOCUMENT_FORMS}.")
    return documents


def read_queries_as_documents(name: str) -> list[Document]:
    """The queries of a file (see :func:`read_query_file`) or of a collection."""
    queries = read_query_file(name, collection=not Path(name).is_file() and is_collection(name))
    if not queries:
        raise DataError(f"{name}: holds no queries.")
    return [Document(query.id, "", query.text) for query in queries]


def is_blank(query: str) -> bool:
    """Whether ``query`` has only white space, control and format characters."""
    return all(unicodedata.category(letter)[0] in "ZC" for letter in query)


def read_query_file(name: str, *, collection: bool = False) -> list[Query]:
    """The queries of a file, of the lines of standard input (``-``), or of a ``collection``; missing ids are line
    numbers. All that is wrong (damaged lines, ids that occur twice or contain white space, queries without text) is one
    DataError."""
    path, problems = Path(name), Problems()
    if collection or ending_of(path):
        queries = read_queries(files_of(name, "queries") if collection else [path], problems)
    else:
        queries = _lines(standard_input() if name == "-" else _text_lines(path, "Queries", QUERY_FORMS))
    problems.stop_if_any()
    return queries


def standard_input() -> Iterator[str]:
    """The lines of standard input, read as UTF-8 in every locale."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode().removeprefix("\ufeff" if number == 1 else "").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"standard input: line {number} is not UTF-8: byte 0x{line[error.start]:02x} at position "
                f"{error.start + 1}. Convert it first (with: iconv -f ENCODING -t UTF-8)."
            ) from error


def _text_lines(path: Path, what: str, forms: str) -> Iterator[str]:
    """The lines of a text file; a folder, and a file that is called otherwise than text, is refused."""
    if path.is_dir() or form_of(path) not in ("", ".txt"):
        fault = "is a folder" if path.is_dir() else "has an unknown format"
        raise DataError(f"{path} {fault}.{conversion(path) or f' {what} are {forms}.'}")
    return read_lines(path)


def _lines(lines: Iterable[str]) -> list[Query]:
    return [Query(str(number), line.strip()) for number, line in enumerate(lines, 1) if not is_blank(line)]
