"""Documents without judgements: read to be encoded, from the forms that collections have, and kept beside vectors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from vtkit.data.corpora import shards_in
from vtkit.data.problems import Problems
from vtkit.data.queries import is_blank, read_query_file
from vtkit.data.retrieval import Document, read_documents, read_query_columns
from vtkit.data.text import find_file, read_lines
from vtkit.errors import DataError

DOCUMENTS = "documents.jsonl"
"""File of the documents beside their vectors or their index, in the same order."""

DOCUMENT_FORMS = (
    "a folder with corpus.jsonl (BEIR), .jsonl with _id, text and perhaps title, .tsv of id and text, or a text a "
    "line; each plain, .gz or .zst"
)


def write_documents(documents: Iterable[Document], path: Path) -> None:
    """Write the file ``path``, :data:`DOCUMENTS` or a collection's ``corpus.jsonl``: ``_id``, ``title`` and ``text`` a
    line."""
    with path.open("w", encoding="utf-8") as file:
        for document in documents:
            entry = {"_id": document.id, "title": document.title, "text": document.text}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def read_document_file(name: str) -> Sequence[Document]:
    """The documents of a file or folder; without ids they are called by their line.

    Raises:
        DataError: nothing is there, or it has damaged lines, ids that occur twice or hold white space, or no text;
            every problem at once.
    """
    path = Path(name)
    if not path.exists():
        raise DataError(f"{name}: there is no such file or folder. Documents are {DOCUMENT_FORMS}.")
    problems = Problems()
    form = path.suffixes[-2 if path.suffix in (".gz", ".zst") else -1 :][:1]
    documents: Sequence[Document]
    if path.is_dir():
        corpus = find_file(path, "corpus.jsonl")
        shards = [corpus] if corpus else shards_in(path)
        if not shards:
            raise DataError(f"{name}: holds no corpus.jsonl. Documents are {DOCUMENT_FORMS}.")
        documents = read_documents(shards, problems, "docid" if corpus is None else "_id")
    elif form == [".jsonl"]:
        documents = read_documents([path], problems)
    elif form == [".tsv"]:
        documents = [Document(row.id, "", row.text) for row in read_query_columns(path, problems)]
    else:
        lines = enumerate(read_lines(path), 1)
        documents = [Document(str(number), "", line.strip()) for number, line in lines if not is_blank(line)]
    problems.stop_if_any()
    if not documents:
        raise DataError(f"{name}: holds no text. Documents are {DOCUMENT_FORMS}.")
    return documents


def read_queries_as_documents(name: str) -> list[Document]:
    """The queries of a file (see :func:`vtkit.data.queries.read_query_file`) or of a folder in BEIR's layout.

    Raises:
        DataError: as of :func:`read_document_file`.
    """
    folder = Path(name)
    path = find_file(folder, "queries.jsonl") if folder.is_dir() else folder
    if path is None:
        raise DataError(f"{name}: holds no queries.jsonl.")
    queries = read_query_file(str(path))
    if not queries:
        raise DataError(f"{name}: holds no query.")
    return [Document(query.id, "", query.text) for query in queries]
