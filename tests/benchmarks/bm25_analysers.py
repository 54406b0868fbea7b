"""BM25's analysers on judged collections: nDCG@10 of each that knows the language, terms a document, and seconds.

    python tests/benchmarks/bm25_analysers.py [--split test] [--queries 0] [--analysis full ...] FOLDER...

Folders are BEIR folders whose names end in the language's code, such as scifact-en. Prints a line for each analyser and
collection, and all of it as one line of JSON last.
"""

import argparse
import json
import time
from pathlib import Path
from typing import get_args

from vtkit.data.collections import load_retrieval
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.trec import to_run
from vtkit.search.bm25 import Bm25
from vtkit.search.measures.effectiveness import evaluate
from vtkit.settings.analysers import Analysis, known_as

DEPTH = 100


def judged(collection: RetrievalSet, language: str, analysis: Analysis) -> dict[str, float]:
    """What BM25 reaches on ``collection``, and what its index holds and costs."""
    started = time.process_time()
    index = Bm25.build((document.contents for document in collection.documents), language, analysis)
    built = time.process_time()
    ids, scores = index.search([query.text for query in collection.queries], DEPTH)
    searched = time.process_time()
    run = to_run([q.id for q in collection.queries], [d.id for d in collection.documents], ids, scores)
    measured = evaluate(run, collection.qrels, ["nDCG@10", "R@100"])
    return {
        **measured,
        "terms_a_document": index.parts[0].info.mean_size,
        "terms": len(index.terms),
        "build_seconds": built - started,
        "search_seconds": searched - built,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--queries", type=int, default=0, help="judge so many, sampled; 0: all")
    parser.add_argument("--analysis", nargs="*", default=get_args(Analysis), choices=get_args(Analysis))
    asked = parser.parse_args()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for folder in asked.folders:
        language = folder.name.rpartition("-")[2]
        collection = load_retrieval(folder, asked.split).sample(asked.queries or None, 42)
        for analysis in asked.analysis:
            if known_as(analysis, language) is None:
                continue
            of = found.setdefault(folder.name, {})[analysis] = judged(collection, language, analysis)
            print(
                f"{folder.name:18} {analysis:10} nDCG@10 {of['nDCG@10']:.3f}  R@100 {of['R@100']:.3f}"
                f"  {of['terms_a_document']:6.0f} terms a document, {of['terms']:,} in all"
                f"  build {of['build_seconds']:.1f} s, search {of['search_seconds']:.1f} s",
                flush=True,
            )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
