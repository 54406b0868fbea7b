"""Corpora, the texts for vocabularies, transfers and trainings: documents in any form, and columns of datasets, read as
streams."""

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from vtkit.data.document_files import DOCUMENT_FORMS, chosen_files
from vtkit.data.problems import Problems
from vtkit.data.retrieval import documents_in
from vtkit.data.rows import NUMBERED, Columns, form_of, is_header, read_rows
from vtkit.data.streaming import read_column
from vtkit.data.text import Invalid, contents, read_lines, read_pieces
from vtkit.data.text_files import READERS, read_files
from vtkit.system.errors import DataError

CORPUS_FORMS = f"{DOCUMENT_FORMS}:COLUMN"


def read_corpus(spec: str | Path, invalid: Invalid = "strict") -> Iterator[str]:
    """The texts of one corpus (:data:`CORPUS_FORMS`), in the order of the file; of rows, title and text joined.

    Blank lines of ``.txt`` are skipped, and lines of more than :data:`vtkit.data.text.LONGEST_TEXT` bytes are cut into
    several texts, at white space.

    Raises:
        DataError: it does not exist, has an unknown format, damaged or binary lines (the first few are named), or no
            text.
    """
    path = Path(spec)
    if str(spec).startswith("datasets:"):
        texts = read_column(str(spec))
    elif path.is_file():
        if fault := form_fault(path):
            raise DataError(fault)
        texts = read_pieces(path, invalid) if form_of(path) == ".txt" else _texts([path], invalid)
    elif (chosen := chosen_files(spec)) is not None:
        texts = _texts(chosen, invalid)
    else:
        raise DataError(f"{path}: there is no such file or folder. A corpus is {CORPUS_FORMS}.")
    stripped = filter(None, map(str.strip, texts))
    if not (first := next(stripped, "")):
        raise DataError(f"{spec}: holds no text. A corpus is {CORPUS_FORMS}.")
    yield first
    yield from stripped


def read_corpora(specs: Iterable[str | Path]) -> Iterator[str]:
    """The texts of several corpora, one corpus after the other (see :func:`read_corpus`)."""
    for spec in specs:
        yield from read_corpus(spec)


def form_fault(path: Path) -> str | None:
    """The reason why a file cannot be a corpus, judging by its name; None if it can. A .tsv without a line of names
    cannot: nothing shows which of its columns is text in the language."""
    match form_of(path):
        case ".tsv" if not is_header(next(read_lines(path, "replace"), "").split("\t")):
            unpack = {".gz": "gzip -dc {} | cut -f2", ".zst": "zstd -dc {} | cut -f2"}
            cut = unpack.get(path.suffix.lower(), "cut -f2 {}").format(shlex.quote(str(path)))
            command = f"{cut} > {shlex.quote(path.name.partition('.')[0])}.txt"
            return (
                f"{path} has columns, but a corpus has one text per line. Write the column in the corpus's language to "
                f"its own file (the second: {command}) and name that file."
            )
        case form if form in (".jsonl", ".parquet", ".csv", ".tsv", *READERS):
            return None
        case _:
            return f"{path} has an unknown format. A corpus is {CORPUS_FORMS}."


def _texts(paths: Iterable[Path], invalid: Invalid) -> Iterator[str]:
    """Title and text of the documents in files, and in the rows of tables."""
    problems = Problems()
    for path in paths:
        if form_of(path) in READERS:
            yield from (contents(title, text) for _, title, text in read_files([path]))
            continue
        for _, document in documents_in(path, read_rows(path, invalid), Columns(id=NUMBERED), problems):
            if not problems.found:
                yield document.contents
    problems.stop_if_any()
