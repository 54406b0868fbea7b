"""Target ``qdrant``: a collection of sparse vectors, files of points that are requests, and FastEmbed's folder layout.

Qdrant can multiply a query's weights by IDF (``modifier: idf``), counted in its own collection. Query tables and BM25's
terms already have their weights, so the modifier stays off, and the scores are vtkit's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtkit.encoder.asymmetric import query_table
from vtkit.export.documents import Collection, Entry, json_line
from vtkit.export.readme import Section

if TYPE_CHECKING:
    from vtkit.export.portable import Portable, Source

VECTOR = "text"  # name of the sparse vector


def write_for_qdrant(source: Source, portable: Portable, collection: Collection | None, folder: Path) -> list[Section]:
    """Write ``collection.json`` and ``points/part-00000.json`` and so on, each a request body."""
    sections = []
    if collection is not None:
        body: dict[str, Any] = {"sparse_vectors": {VECTOR: {}}}
        (folder / "collection.json").write_text(json.dumps(body, indent=1), encoding="utf-8")
        collection.write(folder / "points", "part-{}.json", _request)
        sections.append(Section("First result", _first(source.identifier)))
    return [*sections, Section("FastEmbed", _fastembed(source, portable))]


def _request(entries: Iterable[Entry]) -> Iterator[str]:
    yield '{"points":[\n'
    separator = ""
    for entry in entries:
        point = {
            "id": entry.number,
            "vector": {VECTOR: {"indices": entry.dimensions.tolist(), "values": entry.weights.tolist()}},
            "payload": {"id": entry.id, "title": entry.title, "text": entry.text},
        }
        yield separator + json_line(point)
        separator = ","
    yield "]}\n"


def _first(name: str) -> str:
    return f"""
```bash
pip install qdrant-client onnxruntime tokenizers numpy
docker run -p 6333:6333 qdrant/qdrant    # or another Qdrant: QDRANT=ADDRESS, and QDRANT_API_KEY if it needs one
python index.py load
python index.py search "a query"
```

`QDRANT=some-folder` keeps the collection in that folder, without a server (slow, for a trial). Without Python:

```bash
curl -X PUT localhost:6333/collections/{name} -H 'Content-Type: application/json' -d @collection.json
for part in points/*.json; do
  curl -X PUT 'localhost:6333/collections/{name}/points?wait=true' -H 'Content-Type: application/json' -d @$part
done
```

Leave the collection's `modifier` off: the weights already contain what `idf` would multiply in.
"""


def _fastembed(source: Source, portable: Portable) -> str:
    if not portable.pools_elsewhere:
        return (
            "FastEmbed pools the logits itself, which would give different weights here (see below). Encode with "
            "`encode.py`."
        )
    queries = ""
    if query_table(source.encoder) is not None or source.lexical:
        queries = " Use it for documents only: queries have other weights, so encode them with `encode.py`."
    prompts = ""
    if portable.prompts:
        prompts = " FastEmbed adds no prompt; add the one in `settings.json` yourself."
    return f"""
FastEmbed accepts only the sparse models on its list, but their files may be anywhere:

```python
from fastembed import SparseTextEmbedding        # pip install fastembed
model = SparseTextEmbedding("prithivida/Splade_PP_en_v1", specific_model_path="PATH/OF/THIS/FOLDER")
(vector,) = model.embed(["a text"])              # vector.indices, vector.values
```

Texts are cut at {source.document_length} tokens, like the documents.{queries}{prompts}
"""
