"""Documents without judgements: read for encoding, from the formats of collections, and kept beside vectors."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from vtkit.data.collections import files_of, is_collection
from vtkit.data.problems import Problems
from vtkit.data.queries import is_blank, read_query_file
from vtkit.data.retrieval import Document, read_documents, read_queries
from vtkit.data.rows import ending_of
from vtkit.data.text import read_lines
from vtkit.system.errors import DataError

DOCUMENTS = "documents.jsonl"  # file of the documents beside their vectors or their index, in the same order

DOCUMENT_FORMS = (
    "a collection (a folder with corpus.jsonl, or a public name such as miracl:ko), .jsonl or .parquet with _id, text "
    "and perhaps title, .tsv with id and text, or one text per line; each plain, .gz or .zst"
)


def write_documents(documents: Iterable[Document], path: Path) -> None:
    """Write :data:`DOCUMENTS`, or a collection's ``corpus.jsonl``: ``_id``, ``title`` and ``text`` per line."""
    with path.open("w", encoding="utf-8") as file:
        for document in documents:
            entry = {"_id": document.id, "title": document.title, "text": document.text}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def read_document_file(name: str) -> Sequence[Document]:
    """The documents of a file or of a collection (:mod:`vtkit.data.collections`); missing ids are line numbers.

    Raises:
        DataError: it does not exist, or has damaged lines, ids that occur twice or contain white space, or no text;
            all problems at once.
    """
    path = Path(name)
    problems = Problems()
    documents: Sequence[Document]
    if ending_of(path) and path.is_file():
        documents = read_documents([path], problems)
    elif path.is_file():
        lines = enumerate(read_lines(path), 1)
        documents = [Document(str(number), "", line.strip()) for number, line in lines if not is_blank(line)]
    elif is_collection(name):
        documents = read_documents(files_of(name, "corpus"), problems)
    else:
        raise DataError(f"{name}: there is no such file or folder. Documents are {DOCUMENT_FORMS}.")
    problems.stop_if_any()
    if not documents:
        raise DataError(f"{name}: holds no text. Documents are {DOCUMENT_FORMS}.")
    return documents


def read_queries_as_documents(name: str) -> list[Document]:
    """The queries of a file (see :func:`vtkit.data.queries.read_query_file`) or of a collection."""
    if Path(name).is_file() or not is_collection(name):
        queries = read_query_file(name)
    else:
        problems = Problems()
        queries = read_queries(files_of(name, "queries"), problems)
        problems.stop_if_any()
    if not queries:
        raise DataError(f"{name}: holds no queries.")
    return [Document(query.id, "", query.text) for query in queries]
