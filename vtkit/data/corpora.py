"""Corpora, the texts that vocabularies, transfers and trainings are made from: files and folders of several forms, and
columns of datasets, read as streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from vtkit.data.parallel import read_pairs
from vtkit.data.problems import Problems
from vtkit.data.streaming import read_column
from vtkit.data.text import Invalid, contents, find_file, read_jsonl, read_pieces
from vtkit.errors import DataError

CORPUS_FORMS = (
    "a text file with a document a line (.txt), a .jsonl file with title and text, a .tsv file of parallel text "
    "(its second column), each plain, .gz or .zst, a folder with corpus.jsonl (or .gz, .zst), or "
    "datasets:NAME:CONFIG:SPLIT:COLUMN"
)


def read_corpus(spec: str | Path, invalid: Invalid = "strict") -> Iterator[str]:
    """The texts of one corpus, in the order of the file.

    ``.txt`` a document a line (blank lines skipped; one of more than :data:`vtkit.data.text.LONGEST_TEXT` bytes is cut
    into several texts, at white space); ``.jsonl`` the fields ``title`` and ``text`` joined; ``.tsv`` the second of
    two columns (the target texts of parallel text); each also with ``.gz`` or ``.zst`` behind. A folder: its
    ``corpus.jsonl`` (or ``.gz``, ``.zst``), else its ``docs-*.jsonl.gz`` (MIRACL).
    ``datasets:NAME:CONFIG:SPLIT:COLUMN``: a column of a dataset (see :func:`vtkit.data.streaming.read_column`).

    Args:
        spec: the corpus.
        invalid: what becomes of bytes that are not UTF-8.

    Raises:
        DataError: nothing is there, the form is unknown, lines are damaged or binary (the first few are named), or
            there is no text at all.
    """
    path = Path(spec)
    if str(spec).startswith("datasets:"):
        texts = read_column(str(spec))
    elif path.exists():
        texts = _texts(path, invalid)
    else:
        raise DataError(f"{path}: there is no such file or folder. A corpus is {CORPUS_FORMS}.")
    any_text = False
    for text in texts:
        text = text.strip()
        if text:
            any_text = True
            yield text
    if not any_text:
        raise DataError(f"{spec}: holds no text. A corpus is {CORPUS_FORMS}.")


def read_corpora(specs: Iterable[str | Path], invalid: Invalid = "strict") -> Iterator[str]:
    """The texts of several corpora, one corpus after the other (see :func:`read_corpus`)."""
    for spec in specs:
        yield from read_corpus(spec, invalid)


def shards_in(folder: Path) -> list[Path]:
    """The ``docs-N.jsonl.gz`` files of a MIRACL corpus folder, in the order of their numbers."""
    shards = [*folder.glob("docs-*.jsonl.gz"), *folder.glob("docs-*.jsonl")]
    return sorted(shards, key=lambda shard: (len(shard.name), shard.name))


def _texts(path: Path, invalid: Invalid) -> Iterator[str]:
    if path.is_dir():
        corpus = find_file(path, "corpus.jsonl")
        shards = [corpus] if corpus else shards_in(path)
        if not shards:
            raise DataError(
                f"{path}: holds neither corpus.jsonl nor corpus.jsonl.gz. A corpus is {CORPUS_FORMS}. For a folder of "
                f"parquet, json, csv, arrow or text files write datasets:{path}."
            )
        yield from _jsonl_texts(shards, invalid)
        return
    match _form(path):
        case ".txt":
            yield from read_pieces(path, invalid)
        case ".jsonl":
            yield from _jsonl_texts([path], invalid)
        case ".tsv":
            for _, target in read_pairs(path):
                yield target
        case _:
            raise DataError(f"{path}: unknown form of corpus. A corpus is {CORPUS_FORMS}.")


def _jsonl_texts(paths: Iterable[Path], invalid: Invalid) -> Iterator[str]:
    problems = Problems()
    for path in paths:
        with problems.reading(path):
            for number, entry in read_jsonl(path, invalid):
                if isinstance(entry, str):
                    problems.add(path, f"line {number} {entry}")
                    continue
                title, text = entry.get("title") or "", entry.get("text")
                if not isinstance(title, str) or not isinstance(text, str):
                    problems.add(path, f'line {number} needs a string "text" (and a string "title", if any)')
                elif not problems.found:
                    yield contents(title, text)
    problems.stop_if_any()


def _form(path: Path) -> str:
    """The ending that says what is inside, without the one that says how it is compressed."""
    compressed = path.suffix.lower() in (".gz", ".zst")
    return Path(path.stem).suffix.lower() if compressed else path.suffix.lower()
