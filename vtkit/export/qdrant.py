"""Target ``qdrant``: a collection of sparse vectors, points in requests of their own, and FastEmbed's folder layout.

Qdrant can multiply a query's weights by IDF (``modifier: idf``), counted in its own collection. A query table has its
weights already, and BM25's terms theirs, so the modifier stays off: scores are then vtkit's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtkit.encoder.asymmetric import query_table
from vtkit.export.documents import Collection, Entry, json_line
from vtkit.export.readme import Section, code

if TYPE_CHECKING:
    from vtkit.export.portable import Portable, Source

VECTOR = "text"
"""Name of the sparse vector."""


def write_for_qdrant(source: Source, portable: Portable, collection: Collection | None, folder: Path) -> list[Section]:
    """Write ``collection.json`` and ``points/part-00000.json`` and so on, each the body of a request."""
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
{
        code(
            '''
pip install qdrant-client onnxruntime tokenizers numpy
docker run -p 6333:6333 qdrant/qdrant    # or any Qdrant; QDRANT=ADDRESS names another, QDRANT_API_KEY lets you in
python index.py load
python index.py search "a query"
''',
            "bash",
        )
    }

`QDRANT=some-folder` keeps the collection in that folder, without a server (slow, to try it). Without Python:

{
        code(
            f'''
curl -X PUT localhost:6333/collections/{name} -H 'Content-Type: application/json' -d @collection.json
for part in points/*.json; do
  curl -X PUT 'localhost:6333/collections/{name}/points?wait=true' -H 'Content-Type: application/json' -d @$part
done
''',
            "bash",
        )
    }

Leave the collection's `modifier` off: `idf` would multiply weights that are there already.
"""


def _fastembed(source: Source, portable: Portable) -> str:
    if not portable.pools_elsewhere:
        return (
            "FastEmbed pools the logits itself and would give other weights here (see below): encode with `encode.py`."
        )
    queries = ""
    if query_table(source.encoder) is not None or source.lexical:
        queries = " It encodes documents only: queries have weights of their own, so encode them with `encode.py`."
    prompts = ""
    if portable.prompts:
        prompts = " FastEmbed puts no prompt before a text; here there is one, in `settings.json`."
    return f"""
FastEmbed knows sparse models by a list of names and takes no others, but its files may lie anywhere:

{
        code(
            '''
from fastembed import SparseTextEmbedding        # pip install fastembed
model = SparseTextEmbedding("prithivida/Splade_PP_en_v1", specific_model_path="PATH/OF/THIS/FOLDER")
(vector,) = model.embed(["a text"])              # vector.indices, vector.values
''',
            "python",
        )
    }

Texts are cut at {source.document_length} tokens, as the documents were.{queries}{prompts}
"""
