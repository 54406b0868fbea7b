"""Target ``onnx``: the network for ONNX Runtime and OpenVINO, and the documents as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.export.documents import Collection, Entry, json_line
from vtkit.export.readme import Section

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


_FIRST = """
`documents/` has the vectors for any search engine, one line of JSON per document. `index.py` multiplies them with a
query's vector:

```bash
pip install onnxruntime tokenizers numpy scipy
python index.py load                     # documents/ as one matrix
python index.py search "a query"
```
"""

_OPENVINO = """
```python
import openvino as ov
model = ov.Core().compile_model("model.onnx", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
```

Without the hint, OpenVINO computes in half precision if the processor has it, which changes weights by some
thousandths.
"""
