"""Documents, queries and texts of corpora, read from what :mod:`vtkit.data.sources` finds; and documents kept beside
vectors."""

import json
import sys
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from vtkit.data.documents import METADATA, Document, Place, Query, gathered, without_repeated
from vtkit.data.parts import Part
from vtkit.data.problems import Problems
from vtkit.data.rows import (
    DOCUMENT_IDS,
    LOCATORS,
    NUMBERED,
    QUERY_IDS,
    QUERY_TEXTS,
    RECOGNISED,
    TEXTS,
    TITLE,
    Columns,
    Rows,
    check_id,
    form_of,
    identifier,
    read_rows,
)
from vtkit.data.sources import CORPUS_FORMS, DOCUMENT_FORMS, Source, source_of
from vtkit.data.streaming import read_column, read_dataset
from vtkit.data.text import LONGEST_TEXT, Invalid, decoded, read_lines, read_pieces
from vtkit.data.text_files import document_id, read_file, read_files
from vtkit.system import console
from vtkit.system.errors import DataError

LONGEST_QUERY = 100_000  # characters

DOCUMENTS = "documents.jsonl"  # file of the documents beside their vectors or their index, in the same order


def write_documents(documents: Iterable[Document], path: Path) -> None:
    """Write :data:`DOCUMENTS`, or a collection's ``corpus.jsonl``: ``_id``, ``title`` and ``text`` per line, and the
    fields, if any, as ``metadata``."""
    with path.open("w", encoding="utf-8") as file:
        for document in documents:
            entry: dict[str, object] = {"_id": document.id, "title": document.title, "text": document.text}
            entry |= {METADATA: document.fields} if document.fields else {}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def read_document_file(name: str, columns: Columns = RECOGNISED) -> Sequence[Document]:
    """The documents of :data:`~vtkit.data.sources.DOCUMENT_FORMS`; the ids of lines of text are their numbers, those of
    files their paths. ``columns`` are those of a table that a user names; the others are recognised by their names,
    which is said, and all further columns are fields.

    All that is wrong in a table (damaged lines, ids that occur twice or contain white space, no text) is one DataError;
    broken files in a folder are named, left out and counted (:func:`vtkit.data.text_files.read_files`).
    """
    problems = Problems()
    documents = documents_of(source_of(name), problems, columns)
    problems.stop_if_any()
    if not documents:
        raise DataError(f"{name}: holds no text. Documents are {DOCUMENT_FORMS}.")
    return documents


def documents_of(source: Source, problems: Problems, columns: Columns = RECOGNISED) -> Sequence[Document]:
    """The documents of a source, held in memory, or mapped if there are many."""
    names = [] if source.kind == "tables" else [source.kind, *(_id_of(source, path) for path in source.files())]
    placed = partial(_placed, source, problems, columns)
    return gathered(source.files(), placed, problems, [*astuple(columns), *names])


def read_corpus(name: str | Path, invalid: Invalid = "strict") -> Iterator[str]:
    """The texts of one corpus (:data:`~vtkit.data.sources.CORPUS_FORMS`), in the order of the file; of rows, title and
    text joined.

    Blank lines of ``.txt`` are skipped, and lines of more than :data:`vtkit.data.text.LONGEST_TEXT` bytes are cut into
    several texts, at white space.

    Raises:
        DataError: it does not exist, has an unknown format, damaged or binary lines (the first few are named), or no
            text.
    """
    source = source_of(name, corpus=True)
    match source.kind:
        case "dataset":
            texts = read_column(source.name)
        case "lines":
            texts = read_pieces(source.name, invalid)
        case _:
            texts = _contents(source, invalid)
    stripped = filter(None, map(str.strip, texts))
    if not (first := next(stripped, "")):
        raise DataError(f"{name}: holds no text. A corpus is {CORPUS_FORMS}.")
    yield first
    yield from stripped


def read_corpora(names: Iterable[str | Path]) -> Iterator[str]:
    """The texts of several corpora, one corpus after the other (see :func:`read_corpus`)."""
    for name in names:
        yield from read_corpus(name)


def read_queries_as_documents(name: str, columns: Columns = RECOGNISED) -> list[Document]:
    """The queries of a file or a collection (see :func:`read_query_file`)."""
    queries = read_query_file(name, columns)
    if not queries:
        raise DataError(f"{name}: holds no queries.")
    return [Document(query.id, "", query.text) for query in queries]


def read_query_file(name: str, columns: Columns = RECOGNISED) -> list[Query]:
    """The queries of a file, of the lines of standard input (``-``), or of a collection; missing ids are line numbers.
    All that is wrong (damaged lines, ids that occur twice or contain white space, queries without text or too long) is
    one DataError."""
    problems = Problems()
    queries = queries_in(source_of(name, "queries"), problems, columns)
    problems.stop_if_any()
    return queries


def queries_in(source: Source, problems: Problems, columns: Columns = RECOGNISED) -> list[Query]:
    """The queries of a source."""

    def placed() -> Iterator[tuple[Path, int, Query]]:
        for path, number, asked in _placed(source, problems, columns, "queries"):
            if not asked.text.strip():
                problems.add(path, f"line {number}: query {asked.id!r} has no text")
            elif complaint := too_long(asked.text):
                problems.add(path, f"line {number}: query {asked.id!r} {complaint}")
            yield path, number, Query(asked.id, asked.text)

    return without_repeated(placed(), problems)


def is_blank(query: str) -> bool:
    """Whether ``query`` has only white space, control and format characters."""
    return all(unicodedata.category(letter)[0] in "ZC" for letter in query)


def too_long(query: str) -> str:
    """The complaint about a query of more than :data:`LONGEST_QUERY` characters, else nothing: the analysis of a book
    as a query would take minutes."""
    if len(query) <= LONGEST_QUERY:
        return ""
    return f"has {len(query):,} characters. Cut it: a query has at most {LONGEST_QUERY:,}"


def standard_input() -> Iterator[str]:
    """The lines of standard input, read as UTF-8 in every locale."""
    for number, line in enumerate(iter(lambda: sys.stdin.buffer.readline(LONGEST_TEXT + 1), b""), 1):
        if len(line) > LONGEST_TEXT:
            raise DataError(f"standard input: line {number} is longer than {LONGEST_TEXT >> 20} MiB. Split it first.")
        yield from decoded(Path("standard input"), [(number, 0, line.decode("utf-8", "surrogateescape"))], "strict")


def _placed(
    source: Source,
    problems: Problems,
    columns: Columns,
    part: Part = "corpus",
    *,
    invalid: Invalid = "strict",
    known_only: bool = False,
) -> Iterator[Place]:
    """File, line and content of each document, or query, of a source; a line of text and a document in a file are rows
    with an id, a text and perhaps a title. ``invalid`` and ``known_only`` as in :func:`~vtkit.data.rows.read_rows`."""
    files, path = source.files(part), Path("standard input" if source.name == "-" else source.name)
    read: Iterable[tuple[Path, Rows]]
    match source.kind:
        case "dataset":
            read = [(path, read_dataset(source.name))]
        case "tables":
            read = ((file, read_rows(file, invalid, columns=columns, known_only=known_only)) for file in files)
        case "lines":
            lines = read_lines(path, invalid, text_only=True) if files else standard_input()
            numbered = ((number, line.strip()) for number, line in enumerate(lines, 1) if not is_blank(line))
            read = [(path, ((number, {"_id": str(number), "text": text}) for number, text in numbered))]
        case "texts":
            # a file alone that cannot be read is an error, among others it is left out
            titled = read_files(files) if path.is_dir() else ((file, *read_file(file)) for file in files)
            rows = ((file, {"_id": _id_of(source, file), "title": title, "text": text}) for file, title, text in titled)
            read = ((file, iter([(1, row)])) for file, row in rows)
    columns = columns if source.kind in ("dataset", "tables") else RECOGNISED
    names = (QUERY_IDS, QUERY_TEXTS) if part == "queries" else ()
    for file, of_file in read:
        yield from ((file, *placed) for placed in _documents_in(file, of_file, columns, problems, *names))


def _contents(source: Source, invalid: Invalid) -> Iterator[str]:
    """Title and text of the documents of a corpus; after the first problem, it is read to find the others."""
    problems = Problems()
    for *_, document in _placed(source, problems, Columns(id=NUMBERED), invalid=invalid, known_only=True):
        if not problems.found:
            yield document.contents
    problems.stop_if_any()


def _documents_in(
    path: Path,
    rows: Rows,
    columns: Columns,
    problems: Problems,
    ids: Sequence[str] = (*DOCUMENT_IDS, *LOCATORS),
    names: Sequence[str] = TEXTS,
) -> Iterator[tuple[int, Document]]:
    """Number and document of each valid row; its id is under one of ``ids``, its text under one of ``names``, unless
    ``columns`` names them. Unusual columns are said once."""
    of_keys: dict[tuple[str, ...], Columns] = {}  # rows of jsonl may differ
    form = form_of(path)
    for number, row in problems.sound(path, rows):
        keys = tuple(row)
        if keys not in of_keys:
            of_keys[keys] = columns.found_in(keys, ids, names)
            if ids != QUERY_IDS and (said := _said(path, of_keys[keys], keys)):
                console.once(console.say, said)
        of = of_keys[keys]
        identity = str(number) if of.id == NUMBERED else identifier(row.get(of.id or ""))
        text, title = row.get(of.text or ""), row.get(of.title or "")
        if isinstance(text, dict):  # of both
            title, text = text.get(TITLE), text.get(TEXTS[0])
        title = "" if title is None else title
        if identity is None or not isinstance(text, str) or not isinstance(title, str):
            needed = (columns.id or ids[0], identity), (columns.text or names[0], text), (columns.title or TITLE, title)
            wrong = [name for name, value in needed if not isinstance(value, str)]
            advice = ""
            if None in (of.id, of.text) and not any(each.id and each.text for each in of_keys.values()):
                options = [f"--{name} COLUMN" for name, there in (("id", of.id), ("text", of.text)) if there is None]
                advice = f". Its columns are {', '.join(keys)}: name {' and '.join(options)}"
                advice += f" (--id {NUMBERED} numbers the rows)" if of.id is None else ""
                advice += ", or rename them in the file"
            problems.add(path, f"line {number}: {' and '.join(wrong)} missing or not a string{advice}")
            if advice and form != ".jsonl":
                return  # every row has the same columns
        elif complaint := check_id(identity):
            problems.add(path, f"line {number}: {complaint}")
        else:
            used = {of.text, of.title, None if of.id in LOCATORS else of.id}
            fields = _fields(row, used)
            for name in [name for name, value in fields.items() if value is None]:
                del fields[name]
                lost = f"{path.name}: {name} is not kept: it is no text, number, date or list of words"
                console.once(console.say, lost)
            yield number, Document(identity, title, text, fields)


def _fields(row: Mapping[str, Any], used: Container[str | None]) -> dict[str, Any]:
    """The further values of a row: texts, numbers, dates (in ISO 8601), true or false, lists of words, objects of such
    values; None for values that are nothing of these. BEIR has them in ``metadata``, whose year is ``metadata.year`` in
    rows with a year of their own."""
    inner = row.get(METADATA)
    fields = {name: value for name, value in row.items() if name not in used and value is not inner}
    for name, value in inner.items() if isinstance(inner, dict) else [(METADATA, inner)]:
        while name in fields:
            name = f"{METADATA}.{name}"
        fields[name] = value
    # NaN stands for a missing value
    return {name: _kept(value) for name, value in fields.items() if value not in (None, "") and value == value}


def _kept(value: Any) -> Any:
    """A value as a field has it; None if fields cannot have it."""
    match value:
        case Decimal():
            number = int(value) if value == int(value) else float(value)
            return number if Decimal(repr(number)) == value else f"{value.normalize():f}"
        case date():  # or a time
            return value.isoformat()
        case list():
            words = [_kept(each) for each in value if each is not None]
            return words if all(isinstance(each, str) for each in words) else None
        case dict():
            values = {name: _kept(each) for name, each in value.items()}
            whole = all(isinstance(each, str | int | float) or value[name] is None for name, each in values.items())
            return values if whole else None
    return value if isinstance(value, str | int | float) else None


def _said(path: Path, of: Columns, keys: Sequence[str]) -> str:
    """The columns of a table in words, if any are unusual."""
    chosen = {"id": of.id, "title": of.title, "text": of.text}
    others = [key for key in keys if key not in (*chosen.values(), METADATA, "_id")]
    if None in (of.id, of.text) or ({of.id, of.text} <= {*DOCUMENT_IDS, *TEXTS, NUMBERED} and not others):
        return ""
    parts = [f"{part} is {column}" for part, column in chosen.items() if column]
    return f"{path.name}: {', '.join(parts)}" + (f"; fields: {', '.join(others)}" if others else "")


def _id_of(source: Source, path: Path) -> str:
    """The id of the document in a file: its path in the folder, or its name."""
    folder = Path(source.name)
    return document_id(path.relative_to(folder if folder.is_dir() else folder.parent).as_posix())
