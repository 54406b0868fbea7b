"""Names of dimensions in engines whose vectors are JSON objects, and the bulk files that Elasticsearch and OpenSearch
share.

A dimension is ``t`` and its number. Where the engine itself encodes texts with the model, it is the token that the
model in the engine calls it by.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtkit.encoder.asymmetric import dimension_names
from vtkit.export.documents import Collection, Entry, json_line

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

FIELD = "weights"
NAMES = "dimensions.json"
"""What the dimensions are called, where not by their numbers."""

_LEAST = 2.0**-126  # smaller floats are not normal, and refused
_LONGEST_ID = 512


def numbered(width: int) -> list[str]:
    """``t0``, ``t1`` and so on."""
    return [f"t{number}" for number in range(width)]


def token_names(encoder: SparseEncoder, called: Callable[[str], str] = str) -> list[str] | None:
    """What an engine calls the tokens of ``encoder``; None where two would have one name.

    Args:
        called: the name of a token.
    """
    tokens = dimension_names(encoder)
    names = [called(token) if token else f"t{number}" for number, token in enumerate(tokens)]
    return names if len(set(names)) == len(names) else None


def write_bulk(collection: Collection, folder: Path, names: Sequence[str]) -> None:
    """Write ``bulk/part-00000.ndjson`` and so on: an action and a document, alternately; and ``dimensions.json``."""
    (folder / NAMES).write_text(json.dumps(names, ensure_ascii=False), encoding="utf-8")
    collection.write(folder / "bulk", "part-{}.ndjson", lambda entries: _bulk(entries, names))


def text_properties() -> dict[str, Any]:
    """Of a mapping: ids, titles and texts, which are shown and not searched."""
    return {
        "id": {"type": "keyword"},
        "title": {"type": "text", "index": False},
        "text": {"type": "text", "index": False},
    }


def _bulk(entries: Iterable[Entry], names: Sequence[str]) -> Iterator[str]:
    for entry in entries:
        identity = entry.id if len(entry.id.encode()) <= _LONGEST_ID else str(entry.number)
        vector = {name: weight for name, weight in entry.vector(names).items() if weight >= _LEAST}
        yield json_line({"index": {"_id": identity}})
        yield json_line({"id": entry.id, "title": entry.title, "text": entry.text, FIELD: vector})
