"""The documents of a folder, a file each, in one of :data:`FORMS`: text, web pages, PDF and Word files.

Reading them is the work of libraries made for it: pypdf and python-docx, the usual readers of both formats, and
inscriptis, which lays HTML out as a browser does, so that words of neighbouring blocks and cells stay apart.
"""

import io
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from vtkit.data import text as texts
from vtkit.data.rows import form_of
from vtkit.system import console
from vtkit.system.errors import DataError, MissingExtra

LONGEST = 2**24  # characters of a document, and bytes of a text or HTML file
UNPACKED = 2**28  # bytes that a Word file may unpack to ...
UNPACKED_XML = 2**26  # ... and one of its XML files, which takes ten times its size in memory

_UNSAFE = re.compile(r"[\s%\x00-\x1f\x7f\udc80-\udcff]")


def document_id(name: str) -> str:
    """The id of the document in the file ``name``: the name, in which white space, percent signs and bytes that are not
    UTF-8 are percent-encoded, as in an address."""
    return _UNSAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in os.fsencode(match[0])), name)


def read_files(paths: Iterable[Path]) -> Iterator[tuple[Path, str, str]]:
    """Each of ``paths`` with the title and the text of its document; files that cannot be read are named, left out, and
    counted at the end."""
    broken = read = 0
    for path in paths:
        try:
            title, text = read_file(path)
        except DataError as error:
            broken += 1
            console.warn(f"left out: {error}")
        else:
            read += 1
            yield path, title, text
    if broken:
        console.warn(f"{broken:,} of {broken + read:,} files were left out because they cannot be read")


def read_file(path: Path) -> tuple[str, str]:
    """Title ("" without one) and text of a document. Both halves of a surrogate pair, as PDF files may hold, become
    their character, and half a pair U+FFFD: no tokenizer takes it.

    Raises:
        DataError: it cannot be read, or has no text.
        MissingExtra: its library is not installed.
    """
    form = READERS[form_of(path)]
    if not path.is_file():
        raise DataError(f"{path}: is no file, or a link to none.")
    if form.compressed and path.suffix.lower() in (".gz", ".zst"):
        raise DataError(f"{path}: is compressed, as only text may be. Decompress it first.")
    try:
        title, text = (part.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for part in form.read(path))
    except (DataError, MissingExtra):
        raise
    except ImportError as error:
        raise MissingExtra(f"{path.suffix} files: reading them", str(error.name), "documents") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except Exception as error:  # the libraries have their own errors, and damaged files others
        first_line = (str(error).strip().splitlines() or [""])[0]
        raise DataError(
            f"{path}: is damaged, or no {path.suffix} file ({type(error).__name__}: {first_line})."
        ) from error
    if len(text) > LONGEST:
        raise _too_long(path)
    if not any(map(str.isalnum, text)):
        raise DataError(f"{path}: has no text.{form.textless}")
    return " ".join(title.split()), text


def _too_long(path: Path) -> DataError:
    return DataError(f"{path}: has more than {LONGEST >> 20} MiB of text, which is no document. Split it.")


def _bytes(path: Path) -> bytes:
    with texts.open_bytes(path) as file:
        data = file.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise _too_long(path)
    return data


def _plain(path: Path) -> tuple[str, str]:
    read = io.TextIOWrapper(io.BytesIO(_bytes(path)), "utf-8", "surrogateescape", newline="")
    lines = ((number, 0, line) for number, line in enumerate(read, 1))
    return "", "\n".join(texts.decoded(path, lines, "strict", text_only=True))


def _markdown(path: Path) -> tuple[str, str]:
    from markdown_it import MarkdownIt

    return _from_html(MarkdownIt().render(_plain(path)[1]).encode())


def _html(path: Path) -> tuple[str, str]:
    return _from_html(_bytes(path))


def _from_html(data: bytes) -> tuple[str, str]:
    import lxml.html
    from inscriptis import Inscriptis

    try:
        encoding = data.decode() and "utf-8"
    except UnicodeDecodeError:
        encoding = None  # the one that the page declares
    page = lxml.html.document_fromstring(data, parser=lxml.html.HTMLParser(encoding=encoding))
    title = next((element.text_content() for name in ("title", "h1") for element in page.iter(name)), "")
    return title, Inscriptis(page).get_text()


def _pdf(path: Path) -> tuple[str, str]:
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    pages: list[str] = []
    with path.open("rb") as file:
        reader = PdfReader(file)
        for page in reader.pages:
            pages.append(page.extract_text())
            if sum(map(len, pages)) > LONGEST:
                raise _too_long(path)
        title = reader.metadata.title if reader.metadata is not None else ""
    return title or "", "\n".join(pages)


def _word(path: Path) -> tuple[str, str]:
    import docx
    from docx.table import Table

    with ZipFile(path) as packed:
        parts = packed.infolist()
    xml = max((part.file_size for part in parts if part.filename.endswith((".xml", ".rels"))), default=0)
    unpacked = sum(part.file_size for part in parts)
    if unpacked > UNPACKED or xml > UNPACKED_XML:
        raise DataError(f"{path}: unpacks to {console.size(unpacked)}, which is no document.")
    document = docx.Document(str(path))

    def lines(content: Iterable[object]) -> Iterator[str]:
        for block in content:
            if isinstance(block, Table):
                for row in block.rows:
                    yield "\t".join(" ".join(cell.text.split()) for cell in row.cells)
            else:
                yield str(block.text)  # type: ignore[attr-defined]

    return document.core_properties.title or "", "\n".join(lines(document.iter_inner_content()))


class Form(NamedTuple):
    """A form of files with a document each."""

    read: Callable[[Path], tuple[str, str]]  # title and text of a file
    endings: tuple[str, ...]  # in lower case; help texts name the first
    compressed: bool = False  # whether it is compressed by itself, so that it is never .gz or .zst too
    textless: str = ""  # why a file may have no text, and the remedy


FORMS = (
    Form(_plain, (".txt",)),
    Form(_markdown, (".md", ".markdown")),
    Form(_html, (".html", ".htm", ".xhtml")),
    Form(_pdf, (".pdf",), True, " A scanned page is a picture: recognise its text first (with ocrmypdf)."),
    Form(_word, (".docx",), True),
)
READERS = {ending: form for form in FORMS for ending in form.endings}
