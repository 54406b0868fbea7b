"""Documents and queries without judgements: read from the formats of collections, and documents kept beside vectors."""

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from vtkit.data.collections import collection_in, files_of, is_collection
from vtkit.data.documents import METADATA, Place, gathered
from vtkit.data.problems import Problems
from vtkit.data.retrieval import Document, Query, read_documents, read_queries, too_long
from vtkit.data.rows import RECOGNISED, Columns, ending_of, form_of
from vtkit.data.streaming import PREFIX, read_dataset
from vtkit.data.text import LONGEST_TEXT, decoded, read_lines
from vtkit.data.text_files import FORMS, READERS, document_id, list_files, read_file, read_files
from vtkit.system import console
from vtkit.system.errors import DataError

_PAGES = re.compile(r"(readme|licen[cs]e|copying|notice|citation|changelog)(?![a-z])", re.IGNORECASE)
"""Names of pages about a folder of tables, which are not its documents."""

DOCUMENTS = "documents.jsonl"  # file of the documents beside their vectors or their index, in the same order

DOCUMENT_FORMS = (
    f"a folder of {' and '.join(', '.join(form.endings[0] for form in FORMS).rsplit(', ', 1))} files, a document each; "
    "a table with a line of names (.csv, .tsv, .jsonl, .parquet), or .txt with one text per line, each plain, .gz or "
    ".zst; a collection (a folder with corpus.jsonl, or a public name such as miracl:ko); or a data set, "
    "datasets:NAME:CONFIG:SPLIT"
)
QUERY_FORMS = (
    ".csv, .tsv, .jsonl or .parquet with columns id and text, .tsv with id and text, or .txt with a query a line; each "
    "plain, .gz or .zst"
)


def write_documents(documents: Iterable[Document], path: Path) -> None:
    """Write :data:`DOCUMENTS`, or a collection's ``corpus.jsonl``: ``_id``, ``title`` and ``text`` per line, and the
    fields, if any, as ``metadata``."""
    with path.open("w", encoding="utf-8") as file:
        for document in documents:
            entry: dict[str, object] = {"_id": document.id, "title": document.title, "text": document.text}
            entry |= {METADATA: document.fields} if document.fields else {}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def read_document_file(name: str, columns: Columns = RECOGNISED) -> Sequence[Document]:
    """The documents of :data:`DOCUMENT_FORMS`; the ids of lines of text are their numbers, those of files their paths.
    ``columns`` are those of a table that a user names.

    All that is wrong in a table (damaged lines, ids that occur twice or contain white space, no text) is one DataError;
    broken files in a folder are named, left out and counted (:func:`vtkit.data.text_files.read_files`).
    """
    path, problems = Path(name), Problems()
    documents: Sequence[Document]
    if name.startswith(PREFIX):
        documents = read_documents([path], problems, columns, lambda *_, **__: read_dataset(name))
    elif path.is_file() and ending_of(path):
        documents = read_documents([path], problems, columns)
    elif path.is_file() and form_of(path) in READERS and form_of(path) != ".txt":
        documents = [Document(document_id(path.name), *read_file(path))]
    elif path.is_file():
        lines = _lines(_text_lines(path, "Documents", DOCUMENT_FORMS))
        documents = [Document(line.id, "", line.text) for line in lines]
    elif (chosen := chosen_files(name)) is not None:
        documents = _documents_of(path, chosen, problems, columns)
    else:
        raise DataError(f"{name}: there is no such file or folder. Documents are {DOCUMENT_FORMS}.")
    problems.stop_if_any()
    if not documents:
        raise DataError(f"{name}: holds no text. Documents are {DOCUMENT_FORMS}.")
    return documents


def chosen_files(name: str | Path) -> list[Path] | None:
    """The files of the documents in a folder or a collection; None if ``name`` is neither.

    A folder is a collection if :func:`~vtkit.data.collections.collection_in` says so. Else its texts are read,
    or its tables if it has no texts but such as a README and a licence. Whatever is not read is counted by kind,
    but for the queries and judgements of a collection that has nothing else.
    """
    folder = Path(name)
    if not os.path.isdir(folder):
        return files_of(str(name), "corpus") if is_collection(name) else None
    texts, tables, others = list_files(folder)
    pages = {path for path in texts if _PAGES.match(path.name)}
    parts = collection_in(folder, {*texts, *tables} - pages)
    if parts is not None:
        files, what = files_of(str(name), "corpus"), "the corpus of a collection is read"
    elif tables and len(pages) == len(texts):
        files, what = tables, "tables are read, a document per row"
    else:
        files, what = texts, "texts are read, a document per file" + ("; tables are read alone" if tables else "")
    unread = {*texts, *tables} - {*files}
    if others or not unread <= (parts or set()):  # a whole collection and nothing else needs no word
        others.update(map(form_of, sorted(unread)))
    once = {os.path.realpath(path): path for path in sorted(files, key=Path.is_symlink, reverse=True)}
    if len(once) < len(files):
        others["link to another of the files"] += len(files) - len(once)
        files = [path for path in files if once[os.path.realpath(path)] == path]
    if others:
        counted = ", ".join(f"{number:,} {kind}" for kind, number in others.most_common())
        console.once(console.warn, f"{folder}: {what}. Not read: {counted}")
    return files


def _documents_of(folder: Path, files: list[Path], problems: Problems, columns: Columns) -> Sequence[Document]:
    """The documents of :func:`chosen_files`."""
    if files and ending_of(files[0]):
        return read_documents(files, problems, columns)
    names = {path: document_id(path.relative_to(folder).as_posix()) for path in files}

    def rows() -> Iterator[Place]:
        for path, title, text in read_files(files):
            yield path, 1, Document(names[path], title, text)

    return gathered(files, rows, problems, list(names.values()))


def read_queries_as_documents(name: str, columns: Columns = RECOGNISED) -> list[Document]:
    """The queries of a file (see :func:`read_query_file`) or of a collection."""
    queries = read_query_file(name, columns, collection=not Path(name).is_file() and is_collection(name))
    if not queries:
        raise DataError(f"{name}: holds no queries.")
    return [Document(query.id, "", query.text) for query in queries]


def is_blank(query: str) -> bool:
    """Whether ``query`` has only white space, control and format characters."""
    return all(unicodedata.category(letter)[0] in "ZC" for letter in query)


def read_query_file(name: str, columns: Columns = RECOGNISED, *, collection: bool = False) -> list[Query]:
    """The queries of a file, of the lines of standard input (``-``), or of a ``collection``; missing ids are line
    numbers. All that is wrong (damaged lines, ids that occur twice or contain white space, queries without text or too
    long) is one DataError."""
    path, problems = Path(name), Problems()
    if collection or ending_of(path):
        queries = read_queries(files_of(name, "queries") if collection else [path], problems, columns)
    else:
        queries = _lines(standard_input() if name == "-" else _text_lines(path, "Queries", QUERY_FORMS))
        for query in queries:
            if complaint := too_long(query.text):
                problems.add(Path("standard input") if name == "-" else path, f"line {query.id} {complaint}")
    problems.stop_if_any()
    return queries


def standard_input() -> Iterator[str]:
    """The lines of standard input, read as UTF-8 in every locale."""
    for number, line in enumerate(iter(lambda: sys.stdin.buffer.readline(LONGEST_TEXT + 1), b""), 1):
        if len(line) > LONGEST_TEXT:
            raise DataError(f"standard input: line {number} is longer than {LONGEST_TEXT >> 20} MiB. Split it first.")
        yield from decoded(Path("standard input"), [(number, 0, line.decode("utf-8", "surrogateescape"))], "strict")


def _text_lines(path: Path, what: str, forms: str) -> Iterator[str]:
    """The lines of a text file; a folder, and a file that is called otherwise than text, is refused."""
    if path.is_dir() or form_of(path) not in ("", ".txt"):
        raise DataError(f"{path} {'is a folder' if path.is_dir() else 'has an unknown format'}. {what} are {forms}.")
    return read_lines(path, text_only=True)


def _lines(lines: Iterable[str]) -> list[Query]:
    return [Query(str(number), line.strip()) for number, line in enumerate(lines, 1) if not is_blank(line)]
