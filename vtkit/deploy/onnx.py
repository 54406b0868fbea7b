"""Target ``onnx``: the network for ONNX Runtime and OpenVINO, and the documents as lines of JSON."""

from pathlib import Path

from vtkit.deploy.documents import Collection, Entry, json_line
from vtkit.deploy.portable import Portable, Source
from vtkit.deploy.readme import Facts


def write(source: Source, portable: Portable, collection: Collection | None, folder: Path) -> Facts:
    """Write ``documents/part-00000.jsonl`` and so on: ``id``, ``title``, ``text``, ``vector`` by dimension."""
    if collection is not None:
        collection.write(folder / "documents", "part-{}.jsonl", _line)
    return {}


def _line(entry: Entry) -> str:
    return json_line({"id": entry.id, "title": entry.title, "text": entry.text, "vector": entry.vector()})
