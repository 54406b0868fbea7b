"""What many tests write, and what they expect to be refused."""

import gzip
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import zstandard

PACKED: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstandard.compress}


def put(path: Path, content: str | bytes | Iterable[object]) -> Path:
    """Write ``content`` in the form that the ending of ``path`` says, compressed for ``.gz`` and ``.zst``.

    Rows become a table of parquet or, in a ``.tsv``, a line of names and their values; else a line of JSON each.
    Strings among them are lines as they are.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(content, str | bytes):
        rows: list[Any] = list(content)
        if path.suffix == ".parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
            return path
        if ".tsv" in path.name and rows and isinstance(rows[0], Mapping):
            rows = ["\t".join(rows[0]), *("\t".join(map(str, row.values())) for row in rows)]
        lines = (row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows)
        content = "".join(f"{line}\n" for line in lines)
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(PACKED.get(path.suffix, bytes)(raw))
    return path


def refused(error: type[Exception], words: str, call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """The message of the ``error`` of a call, or of reading the iterator that it gives; it matches ``words``, if
    any are given."""
    with pytest.raises(error, match=words or None) as raised:
        _read(call(*arguments, **options))
    return str(raised.value)


def _read(result: object) -> None:
    if isinstance(result, Iterator):
        deque(result, maxlen=0)


def write_pdf(path: Path, pages: Sequence[str]) -> Path:
    """A PDF with a text on each page; a picture for a page of ""."""
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"pdf.fonttype": 42}), PdfPages(path, metadata={"Title": "Rivers"}) as pdf:
        for text in pages:
            figure = Figure()
            figure.text(0.1, 0.5, text, size=8) if text else figure.figimage([[0.0, 1.0]])
            pdf.savefig(figure)
    return path


def flip(path: Path, place: int, bit: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[place] ^= 1 << bit
    path.write_bytes(raw)
