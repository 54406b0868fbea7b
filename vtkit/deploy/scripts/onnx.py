"""The documents as one matrix, searched by multiplying.

pip install onnxruntime tokenizers numpy scipy

python index.py load, python index.py search "a query", python index.py replay
"""

from __future__ import annotations

import json
import sys
from functools import cache

import numpy as np
import scipy.sparse as sp
from encode import HERE, Results, Vector, index_main

MATRIX, IDS = HERE / "documents.npz", HERE / "ids.json"


def load() -> None:
    """Read documents/ into documents.npz and ids.json."""
    ids: list[str] = []
    starts, dimensions, weights = [0], [], []
    for path in sorted((HERE / "documents").glob("part-*.jsonl")):
        with path.open(encoding="utf-8") as file:
            for line in file:
                document = json.loads(line)
                ids.append(document["id"])
                dimensions.append(np.fromiter(map(int, document["vector"]), dtype=np.int32))
                weights.append(np.fromiter(document["vector"].values(), dtype=np.float32))
                starts.append(starts[-1] + len(dimensions[-1]))
    width = json.loads((HERE / "settings.json").read_text("utf-8"))["dimensions"]
    parts = np.concatenate(weights), np.concatenate(dimensions), np.asarray(starts)
    sp.save_npz(MATRIX, sp.csr_matrix(parts, shape=(len(ids), width)))
    IDS.write_text(json.dumps(ids), encoding="utf-8")
    print(f"{len(ids):,} documents")


@cache
def opened() -> tuple[sp.csc_matrix, list[str]]:
    """The matrix, and the documents of its rows."""
    if not MATRIX.is_file():
        sys.exit("python index.py load comes first.")
    return sp.load_npz(MATRIX).tocsc(), json.loads(IDS.read_text("utf-8"))


def search(vector: Vector, top: int) -> Results:
    """The first documents of a query."""
    matrix, ids = opened()
    scores = matrix[:, list(vector)] @ np.asarray(list(vector.values()), dtype=np.float32)
    best: dict[str, float] = {}  # of each document, its best passage, if documents are cut into passages
    for number in np.lexsort((np.arange(len(scores)), -scores)).tolist():
        if len(best) == top or scores[number] <= 0:
            break
        best.setdefault(ids[number], float(scores[number]))
    return list(best.items())


if __name__ == "__main__":
    index_main(load, search)
