"""Target ``onnx``: the network for ONNX Runtime and OpenVINO, and the documents as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.export.documents import Collection, Entry, json_line
from vtkit.export.readme import Facts

if TYPE_CHECKING:
    from vtkit.export.portable import Portable, Source


def write_for_onnx(source: Source, portable: Portable, collection: Collection | None, folder: Path) -> Facts:
    """Write ``documents/part-00000.jsonl`` and so on: ``id``, ``title``, ``text``, ``vector`` by dimension."""
    if collection is not None:
        collection.write(folder / "documents", "part-{}.jsonl", _lines)
    return {}


def _lines(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        yield json_line({"id": entry.id, "title": entry.title, "text": entry.text, "vector": entry.vector()})
