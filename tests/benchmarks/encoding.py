"""Encoding documents on a CPU: vtkit in each precision against ``encode`` and ``encode_document`` of the library.

    python tests/benchmarks/encoding.py --model FOLDER --collection BEIR_FOLDER [--documents 20000] [--threads 1]
        [--sides vtkit-float32 vtkit-bf16 encode_document ...]

Each side is a process of its own, so that its peak of memory is its own; all of them encode the same documents of a
collection, cut at the same number of tokens, after a few that are not counted. What is counted is the processor's time
(the machine may be shared) and the wall's, and the peak of memory above what the loaded encoder took. Vectors of
float32 must be equal to those of sentence-transformers within 1e-4. Where the collection has judgements, nDCG@10 of
each side is in the table, its documents searched with queries encoded in float32; judged are those encoded.

The last line is one object of JSON; the ratios are documents a second of processor time over the library's faster way.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

LIBRARY = ("encode", "encode_document")
VTKIT = ("vtkit-float32", "vtkit-bf16")
LENGTH = 256
WARM_UP = 16
TOLERANCE = 1e-4
BATCH = 32
"""Of the library: its default."""


def side(name: str, given: argparse.Namespace, out: Path) -> None:
    """Encode with one side, and write its vectors and figures into ``out``; run in a process of its own."""
    import torch
    from memory import forget_peak, peak_mebibytes
    from sentence_transformers import SparseEncoder

    from vtkit.data.collections import default_split, load_retrieval

    torch.set_num_threads(given.threads)
    collection = load_retrieval(given.collection, given.split or default_split(given.collection))
    texts = [document.contents for document in collection.documents[: given.documents]]
    if name in LIBRARY:
        encoder = SparseEncoder(given.model, device="cpu")
        encoder.max_seq_length = min(LENGTH, encoder.max_seq_length or LENGTH)
        method = getattr(encoder, name)

        def encode(some: list[str]) -> Any:
            return method(some, batch_size=BATCH, show_progress_bar=False, save_to_cpu=True)
    else:
        from vtkit.encoder.checkpoint import load_encoder
        from vtkit.search.sharded_encoding import encode_to_disk
        from vtkit.search.stored_vectors import read_vectors

        encoder = load_encoder(given.model, "cpu")
        precision = name.removeprefix("vtkit-")

        def encode(some: list[str]) -> Any:
            with tempfile.TemporaryDirectory(dir=out) as folder:
                target = Path(folder)
                encode_to_disk(
                    encoder, some, "document", LENGTH, target / "vectors", target / "shards",
                    made_from={}, precision=precision, total=len(some),
                )  # fmt: skip
                return read_vectors(target / "vectors").copy()

    encode(texts[:WARM_UP])
    before = forget_peak()
    wall, processor = time.perf_counter(), time.process_time()
    vectors = encode(texts)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    peak = peak_mebibytes() - before
    if name in LIBRARY:
        vectors = vectors.coalesce()
        rows, columns = vectors.indices().numpy()
        vectors = sp.csr_matrix((vectors.values().numpy(), (rows, columns)), shape=tuple(vectors.shape))
    vectors.sort_indices()
    sp.save_npz(out / "vectors.npz", vectors, compressed=False)
    figures = {
        "side": name,
        "documents": len(texts),
        "documents_a_second": round(len(texts) / processor, 2),
        "documents_a_second_wall": round(len(texts) / wall, 2),
        "peak_mib": round(peak, 1),
        "weights_a_document": round(vectors.nnz / max(1, len(texts)), 1),
    }
    (out / "figures.json").write_text(json.dumps(figures), encoding="utf-8")


def effectiveness(given: argparse.Namespace, vectors: dict[str, sp.csr_matrix]) -> dict[str, float]:
    """nDCG@10 of each side's documents, searched with the same queries; empty without judgements of them."""
    from ir_measures import calc_aggregate, nDCG

    from vtkit.data.collections import default_split, load_retrieval
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.sides import encode_side
    from vtkit.search.exact import ExactIndex

    collection = load_retrieval(given.collection, given.split or default_split(given.collection))
    ids = [document.id for document in collection.documents[: given.documents]]
    there = set(ids)
    qrels = {
        query: judged
        for query, all_judged in collection.qrels.items()
        if any((judged := {d: grade for d, grade in all_judged.items() if d in there}).values())
    }
    queries = [query for query in collection.queries if query.id in qrels]
    if not queries:
        return {}
    asked = encode_side(load_encoder(given.model, "cpu"), [query.text for query in queries], "query", 64)
    found = {}
    for name, documents in vectors.items():
        numbers, _ = ExactIndex.build(documents).search(asked, 10)
        run = {
            query.id: {ids[number]: float(10 - rank) for rank, number in enumerate(row.tolist()) if number >= 0}
            for query, row in zip(queries, numbers, strict=True)
        }
        found[name] = round(float(calc_aggregate([nDCG @ 10], qrels, run)[nDCG @ 10]), 4)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="SparseEncoder folder")
    parser.add_argument("--collection", required=True, help="BEIR folder, or a name such as miracl:ko")
    parser.add_argument("--split", help="of its judgements")
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sides", nargs="+", default=[*VTKIT, *LIBRARY], choices=[*VTKIT, *LIBRARY])
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.out:
        side(given.sides[0], given, given.out)
        return
    figures: dict[str, dict[str, Any]] = {}
    vectors: dict[str, sp.csr_matrix] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in given.sides:
            out = Path(folder) / name
            out.mkdir()
            command = [sys.executable, __file__, "--model", given.model, "--collection", given.collection]
            command += ["--documents", str(given.documents), "--threads", str(given.threads)]
            command += ["--sides", name, "--out", str(out), *(["--split", given.split] if given.split else [])]
            environment = os.environ | {"OMP_NUM_THREADS": str(given.threads), "RAYON_NUM_THREADS": str(given.threads)}
            subprocess.run(command, check=True, env=environment)
            figures[name] = json.loads((out / "figures.json").read_text(encoding="utf-8"))
            vectors[name] = sp.load_npz(out / "vectors.npz")
            print(json.dumps(figures[name]), flush=True)
    scores = effectiveness(given, vectors)
    library = [name for name in figures if name in LIBRARY]
    fastest = max((figures[name]["documents_a_second"] for name in library), default=None)
    for name, found in figures.items():
        found["nDCG@10"] = scores.get(name)
        if fastest:
            found["ratio"] = round(found["documents_a_second"] / fastest, 2)
            reference = vectors[library[0]]
            found["largest_difference"] = float(abs(vectors[name] - reference).max())
            products = np.asarray(vectors[name].multiply(reference).sum(axis=1)).ravel()
            norms = np.sqrt(
                [np.asarray(each.multiply(each).sum(axis=1)).ravel() for each in (vectors[name], reference)]
            )
            norms = norms.prod(axis=0)
            found["least_cosine"] = round(float((products[norms > 0] / norms[norms > 0]).min(initial=1.0)), 5)
        print(f"{name:18}" + "  ".join(f"{key} {value}" for key, value in found.items() if key != "side"))
    for name in (*LIBRARY, "vtkit-float32"):
        if figures.get(name, {}).get("largest_difference", 0.0) > TOLERANCE:
            raise SystemExit(f"the vectors of {name} are not those of the library")
    load = round(os.getloadavg()[0], 2)
    print(
        json.dumps(
            {"benchmark": "encoding", "threads": given.threads, "cores": os.cpu_count(), "load": load, "sides": figures}
        )
    )


if __name__ == "__main__":
    main()
