"""Encoding on one thread: vtkit, sentence-transformers, and the exported network in float32 and 8 bits (ONNX Runtime).

    python tests/benchmarks/onnx_encoding.py EXPORT TEXTS [--count 64] [--repeats 3]

EXPORT is a folder of ``vtkit export MODEL --for onnx``; TEXTS has a text a line. Texts go in as they come, and each way
makes batches of its own. Processor time, since the machine may be
shared; that of opening an ONNX file is in it.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from sentence_transformers import SparseEncoder

from vtkit.deploy.network import MODEL, QUANTISED, run_onnx
from vtkit.encoder.checkpoint import load_encoder
from vtkit.encoder.encoding import encode

MAX_LENGTH = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    texts = [line for line in given.texts.read_text("utf-8").splitlines() if line.strip()][: given.count]
    own, library = load_encoder(str(given.export)), SparseEncoder(str(given.export), device="cpu")
    ways: dict[str, Callable[[], object]] = {
        "vtkit": lambda: encode(own, texts, MAX_LENGTH),
        "sentence-transformers": lambda: library.encode_document(texts, batch_size=16),
        "ONNX float32": lambda: run_onnx(given.export / MODEL, own, texts, MAX_LENGTH),
        "ONNX 8 bits": lambda: run_onnx(given.export / QUANTISED, own, texts, MAX_LENGTH),
    }
    found: dict[str, list[float]] = {}
    for name, way in ways.items():
        way()
        for _ in range(given.repeats):
            start = time.process_time()
            way()
            found.setdefault(name, []).append(1000 * (time.process_time() - start) / len(texts))
    for name, each in found.items():
        print(f"{name:24} {statistics.median(each):7.1f} ms a text (worst {max(each):.1f})")
    print(json.dumps({name: statistics.median(each) for name, each in found.items()}))


if __name__ == "__main__":
    main()
