"""How long it takes to encode one query: with the encoder of documents, and by a static table (inference-free).

Both are timed through vtkit's search path (``encode_side``) and through plain sentence-transformers (``encode_query``),
one query at a time on one thread, over the words of a made-up vocabulary. Processor time is what
is compared, as the machine may be shared. The library walks over all modules of an encoder at every call, those of the
documents' side too; its query side alone is a row of its own.

    python tests/benchmarks/query_encoding.py [--repeats 300]

The encoder is the small one with random weights of ``sparse_head.py``, of 30,522 tokens.
"""

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from measuring import options
from sentence_transformers import SparseEncoder
from sparse_head import build

from vtkit.encoder.checkpoint import load_encoder, save_encoder
from vtkit.encoder.folding import set_folding
from vtkit.encoder.query_tables import idf_query_weights, with_query_table
from vtkit.encoder.sides import encode_side

WARM_UP = 20


def times(encode: Callable[[str], object], queries: list[str], repeats: int) -> list[float]:
    """Milliseconds of each of ``repeats`` queries."""
    found = []
    for number in range(WARM_UP + repeats):
        query = queries[number % len(queries)]
        start = time.process_time()
        encode(query)
        found.append(1000 * (time.process_time() - start))
    return found[WARM_UP:]


def main() -> None:
    given = options(__doc__, repeats=300).parse_args()
    torch.set_num_threads(1)
    draw = random.Random(0)
    shared = build(30_522).eval()
    words = [f"t{draw.randrange(10_000)}" for _ in range(4_000)]
    queries = [" ".join(draw.choices(words, k=draw.randint(3, 12))) for _ in range(100)]
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        save_encoder(with_query_table(shared, idf_query_weights(shared, queries), frozen=True), Path(folder))
        table, library = load_encoder(folder), SparseEncoder(folder, device="cpu")
        found["table, vtkit"] = times(lambda query: encode_side(table, [query], "query", 64), queries, given.repeats)
        found["table, library"] = times(library.encode_query, queries, given.repeats)
        alone = SparseEncoder(modules=list(library[0].sub_modules["query"]), device="cpu")
        found["table alone, library"] = times(alone.encode_query, queries, given.repeats)
        set_folding(table, True)
        name = "table, vtkit, folded"
        found[name] = times(lambda query: encode_side(table, [query], "query", 64), queries, given.repeats)
    found["shared, vtkit"] = times(lambda query: encode_side(shared, [query], "query", 64), queries, given.repeats)
    found["shared, library"] = times(shared.encode_query, queries, given.repeats)

    medians = {name: statistics.median(each) for name, each in found.items()}
    for name, each in found.items():
        times_as_fast = medians[f"shared, {'library' if 'library' in name else 'vtkit'}"] / medians[name]
        worst = statistics.quantiles(each, n=100)[98]
        print(
            f"{name:22} median {medians[name]:7.3f} ms, 99th of 100 {worst:7.3f} ms, {times_as_fast:5.1f} times as fast"
        )
    print(json.dumps({name: round(value, 4) for name, value in medians.items()}))


if __name__ == "__main__":
    main()
