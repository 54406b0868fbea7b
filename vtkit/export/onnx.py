"""Target ``onnx``: the network for ONNX Runtime and OpenVINO, and the documents as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.export.documents import Collection, Entry, json_line
from vtkit.export.readme import Section, code

if TYPE_CHECKING:
    from vtkit.export.portable import Portable, Source


def write_for_onnx(source: Source, portable: Portable, collection: Collection | None, folder: Path) -> list[Section]:
    """Write ``documents/part-00000.jsonl`` and so on: ``id``, ``title``, ``text``, ``vector`` by dimension."""
    sections = []
    if collection is not None:
        collection.write(folder / "documents", "part-{}.jsonl", _lines)
        sections.append(Section("First result", _FIRST))
    return [*sections, Section("OpenVINO", _OPENVINO)]


def _lines(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        yield json_line({"id": entry.id, "title": entry.title, "text": entry.text, "vector": entry.vector()})


_FIRST = f"""
`documents/` has the vectors for whatever you search with: a line of JSON a document. `index.py` multiplies them with a
query's:

{
    code(
        '''
pip install onnxruntime tokenizers numpy scipy
python index.py load                     # documents/ as one matrix
python index.py search "a query"
''',
        "bash",
    )
}
"""

_OPENVINO = f"""
{
    code(
        '''
import openvino as ov
model = ov.Core().compile_model("model.onnx", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
''',
        "python",
    )
}

Without the hint OpenVINO computes in half precision where the processor has it, which moves weights by some
thousandths.
"""
