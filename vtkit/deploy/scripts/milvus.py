"""The documents in Milvus: the server of MILVUS, or a file of that name (milvus.db) for the embedded one.

pip install pymilvus milvus-lite onnxruntime tokenizers numpy

python index.py load, python index.py search "a query", python index.py replay
"""

from __future__ import annotations

import json
import os
import re
import sys
from functools import cache
from typing import Any

import pymilvus
from encode import HERE, Results, Vector, index_main, opened

SETTINGS = opened(HERE / "settings.json")
COLLECTION = "c_" + re.sub(r"\W+", "_", SETTINGS["name"], flags=re.ASCII)
AT_ONCE = 1000
MOST_BYTES = 65_535
MOST_WORDS = 4096
FIELDS = opened(HERE / "fields.json") if (HERE / "fields.json").is_file() else {}
TEXT = {"datatype": pymilvus.DataType.VARCHAR, "max_length": MOST_BYTES}
TYPES = {
    "integer": {"datatype": pymilvus.DataType.INT64},
    "number": {"datatype": pymilvus.DataType.DOUBLE},
    "boolean": {"datatype": pymilvus.DataType.BOOL},
    "words": {"datatype": pymilvus.DataType.ARRAY, "element_type": pymilvus.DataType.VARCHAR, "max_length": MOST_BYTES,
              "max_capacity": MOST_WORDS},
}  # fmt: skip


@cache
def connected() -> Any:
    """The server or the file."""
    where = os.environ.get("MILVUS", str(HERE / "milvus.db"))
    return pymilvus.MilvusClient(where, token=os.environ.get("MILVUS_TOKEN", ""))


@cache
def loaded() -> Any:
    """The same with the collection in memory."""
    connected().load_collection(COLLECTION)
    return connected()


def load() -> None:
    """Create the collection and insert rows/, file by file."""
    client, name, sent = connected(), COLLECTION, 0
    if client.has_collection(name):
        sys.exit(f"there is a collection {name} already: drop it first")
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("number", pymilvus.DataType.INT64, is_primary=True)
    for field in ("id", "title", "text"):
        schema.add_field(field, pymilvus.DataType.VARCHAR, max_length=MOST_BYTES)
    schema.add_field("weights", pymilvus.DataType.SPARSE_FLOAT_VECTOR)
    for field, kind in FIELDS.items():
        schema.add_field(field, nullable=field != "document_number", **TYPES.get(kind, TEXT))
    kind = client.prepare_index_params()
    kind.add_index("weights", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
    client.create_collection(name, schema=schema, index_params=kind, consistency_level="Strong")
    for path in sorted((HERE / "rows").glob("part-*.json")):
        rows = json.loads(path.read_text("utf-8"))
        for row in rows:
            row["weights"] = {int(number): weight for number, weight in row["weights"].items()}
            row |= {field: cut(value) for field, value in row.items() if isinstance(value, str) and field != "id"}
            row |= {field: words(row[field]) for field, kind in FIELDS.items() if kind == "words" and row[field]}
        for start in range(0, len(rows), AT_ONCE):
            client.insert(name, rows[start : start + AT_ONCE])
        sent += len(rows)
    client.flush(name)
    print(f"{sent:,} documents")


def cut(text: str) -> str:
    """As much of a text as a field holds."""
    return text.encode()[:MOST_BYTES].decode(errors="ignore")


def words(values: list[str]) -> list[str]:
    """As many words of a list as a field holds."""
    return [cut(value) for value in values[:MOST_WORDS]]


def search(vector: Vector, top: int) -> Results:
    """The first documents of a query."""
    grouped = {"group_by_field": "document_number"} if SETTINGS["passages"] else {}
    (found,) = loaded().search(
        COLLECTION, data=[vector], anns_field="weights", limit=top, output_fields=["id"],
        search_params={"metric_type": "IP"}, filter=os.environ.get("FILTER", ""), **grouped,
    )  # fmt: skip
    return [(hit["entity"]["id"], float(hit["distance"])) for hit in found]


if __name__ == "__main__":
    index_main(load, search)
