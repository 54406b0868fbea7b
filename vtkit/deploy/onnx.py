"""Target ``onnx``: the network for ONNX Runtime and OpenVINO, and the documents as lines of JSON."""

from pathlib import Path

from vtkit.deploy.documents import Collection, json_line
from vtkit.deploy.portable import Source
from vtkit.deploy.target import Facts, Target


def write(source: Source, collection: Collection | None, folder: Path) -> Facts:
    """Write ``documents/part-00000.jsonl`` and so on: ``id``, ``title``, ``text``, ``vector`` by dimension."""
    if collection is not None:
        collection.write(
            folder / "documents", "part-{}.jsonl", lambda entry: json_line({**entry.document, "vector": entry.vector()})
        )
    return {}


TARGET = Target(name="onnx", write=write)
