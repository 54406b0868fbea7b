"""Target ``qdrant``: a collection of sparse vectors, files of points that are requests, and FastEmbed's folder layout.
Weights are complete, so Qdrant's own IDF (``modifier: idf``) stays off."""

import json
import re
from pathlib import Path
from typing import Any

from vtkit.deploy.documents import Collection, Entry, json_line
from vtkit.deploy.portable import DOCUMENT_WEIGHTS, Source
from vtkit.deploy.target import ORDERED, Facts, Target
from vtkit.encoder.asymmetric import query_side
from vtkit.encoder.documents import LENGTH, OWN_TOKENS
from vtkit.search.index_info import Kind

VECTOR = "text"  # name of the sparse vector
REFUSED_IN_NAMES = re.compile(r'[.\[\]"\\]')  # they would be read as part of a path
INDEXES = {"text": "keyword", "words": "keyword", "number": "float", "boolean": "bool", "date": "datetime"}
"""Qdrant's names of types that are called otherwise."""

LISTED = "prithivida/Splade_PP_en_v1"
INFERENCE_FREE = "opensearch-project/opensearch-neural-sparse-encoding-doc-v3-gte"
"""Names on FastEmbed's list whose arithmetic is that of a model without and with a query table."""


def write(source: Source, collection: Collection | None, folder: Path) -> Facts:
    """Write ``collection.json``, fields' types in ``indexes.json``, and ``points/part-00000.json`` and so on, each a
    request body; say by which name FastEmbed gives the encoder's weights."""
    if collection is not None:
        (folder / "collection.json").write_text(json.dumps({"sparse_vectors": {VECTOR: {}}}, indent=1), "utf-8")
        if collection.columns:
            indexes = {_path(name): INDEXES.get(kind, kind) for name, kind in collection.columns.items()}
            (folder / "indexes.json").write_text(json.dumps(indexes, indent=1), encoding="utf-8")
        collection.write(folder / "points", "part-{}.json", _point, ('{"points":[\n', ",", "]}\n"))
    encoder = source.encoder
    listed = INFERENCE_FREE if source.inference_free else LISTED if query_side(encoder) is None else None
    as_listed = source.pools_elsewhere and encoder.similarity_fn_name == "dot" and not source.lexical
    weighted = any((folder / name).is_file() for name in (DOCUMENT_WEIGHTS, OWN_TOKENS, LENGTH))
    return {"listed": listed if as_listed else None, "reweighted": weighted or source.document_dimensions is not None}


def _point(entry: Entry) -> str:
    point = {
        "id": entry.number,
        "vector": {VECTOR: {"indices": entry.dimensions.tolist(), "values": entry.weights.tolist()}},
        "payload": entry.document,
    }
    return json_line(point)


def _path(name: str) -> str:
    """The path of a field in payloads; names with other than ASCII letters and digits stand in quotes."""
    return f"fields.{name}" if re.fullmatch(r"[\w-]+", name, re.ASCII) else f'fields."{name}"'


def _condition(name: str, kind: Kind, value: Any) -> dict[str, Any]:
    test, wanted = ("range", {"gte": value}) if kind in ORDERED else ("match", {"value": value})
    return {"must": [{"key": _path(name), test: wanted}]}


TARGET = Target(
    name="qdrant", write=write, condition=_condition, double_logarithm=True, refused_in_names=REFUSED_IN_NAMES
)
