"""Networks in 8 bits beside float32: size, mean cosine, nDCG@10 if both sides or only queries are encoded with them.

    python tests/benchmarks/eight_bits.py MODEL COLLECTION [--split test]

"per matrix" has one scale for each matrix, as exports had it before; the others are those of ``vtkit export``.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from scipy import sparse

from vtkit.data.collections import load_retrieval
from vtkit.deploy.network import MODEL, QUANTISED, mean_cosine, quantise, run_onnx, write_onnx
from vtkit.encoder.checkpoint import load_encoder
from vtkit.encoder.encoding import encode
from vtkit.search.exact import ExactIndex
from vtkit.search.measures.effectiveness import evaluate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("collection")
    parser.add_argument("--split", default="test")
    given = parser.parse_args()
    torch.set_num_threads(1)
    encoder, found = load_encoder(given.model), load_retrieval(given.collection, given.split)
    sides = (list(found.contents), 256), ([query.text for query in found.queries], 64)

    def judged(documents: sparse.csr_matrix, queries: sparse.csr_matrix) -> float:
        ids, scores = ExactIndex.build(documents).search(queries, 10)
        run = {
            query.id: {
                found.documents[number].id: float(score) for number, score in zip(*row, strict=True) if number >= 0
            }
            for query, row in zip(found.queries, zip(ids, scores, strict=True), strict=True)
        }
        return evaluate(run, found.qrels, ["nDCG@10"])["nDCG@10"]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_onnx(encoder, folder)
        documents, queries = (encode(encoder, *side) for side in sides)
        rows = {"float32": [(folder / MODEL).stat().st_size / 1e6, 1.0, judged(documents, queries)]}
        print("float32", *(f"{value:.4f}" for value in rows["float32"]), flush=True)
        ways = {
            "per matrix": lambda: quantize_dynamic(
                str(folder / MODEL), str(folder / QUANTISED), weight_type=QuantType.QInt8
            ),
            "per column": lambda: quantise(encoder, folder, whole=True),
            "per column, embeddings and head in float32": lambda: quantise(encoder, folder, whole=False),
        }
        for way, write in ways.items():
            write()
            rough = [run_onnx(folder / QUANTISED, encoder, *side) for side in sides]
            cosines = [mean_cosine(*pair) for pair in zip((documents, queries), rough, strict=True)]
            size = (folder / QUANTISED).stat().st_size / 1e6
            rows[way] = [size, *cosines, judged(*rough), judged(documents, rough[1])]
            print(way, *(f"{value:.4f}" for value in rows[way]), flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
