"""Corpora as arguments of a command: files, folders and standard input."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from vtkit.commands.options import option
from vtkit.data.document_files import read_corpus
from vtkit.data.sources import CORPUS_FORMS
from vtkit.data.text import Invalid
from vtkit.system.errors import DataError

EncodingErrorsOption = Annotated[
    Invalid, option("Bytes that are not UTF-8: stop, or replace them with U+FFFD and warn.", None, "--encoding-errors")
]
LanguageOption = Annotated[
    str | None, option("Language of the texts. Default: decided by their script.", "CODE", "--language")
]
PunctuationOption = Annotated[
    Literal["keep", "cut"],
    option("Punctuation inside a white-space word: keep wild-type one word, or cut it in two.", None, "--punctuation"),
]
CORPUS_HELP = f"A corpus: {CORPUS_FORMS}; or - for standard input, a document a line."


def texts_of(corpus: str, invalid: Invalid) -> Iterator[str]:
    """The texts of ``corpus``; ``-`` is standard input, which waits in a temporary file."""
    if corpus != "-":
        yield from read_corpus(corpus, invalid)
        return
    with tempfile.TemporaryDirectory(prefix="vtkit-stdin-") as folder:
        path = Path(folder, "stdin.txt")
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            yield from read_corpus(path, invalid)
        except DataError as error:
            raise DataError(str(error).replace(str(path), "standard input")) from error


def name_of(corpus: str) -> str:
    """The name of a corpus in printed results."""
    return "standard input" if corpus == "-" else Path(corpus).name or corpus
