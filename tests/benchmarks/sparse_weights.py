"""Sparse weights of similarities against ``entmax.entmax_bisect`` on full rows: time, and distance to a float64
reference.

Both start from the same unit vectors in this process: the peer makes all similarities with one matrix product and
solves every row over all of them, vtkit finds the few that matter. The vectors are those of a made-up vocabulary, words
in clusters of different tightness around topics.

    python tests/benchmarks/sparse_weights.py [--queries 512] [--anchors 30522] [--width 384] [--alpha 4] [--repeats 5]
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from entmax import entmax_bisect
from measuring import forget_peak, options, peak_mebibytes
from numpy.typing import NDArray

from vtkit.transfer.entmax import entmax_rows


def clustered(count: int, width: int, seed: int, topics: int = 800) -> NDArray[np.float32]:
    """Unit vectors in clusters, made a few at a time: cosines as embedders give them, high within a topic only."""
    shape = np.random.default_rng(0)
    common = 0.7 * shape.normal(size=width).astype(np.float32)
    centres = shape.normal(size=(topics, width)).astype(np.float32)
    draw = np.random.default_rng(seed)
    vectors = np.empty((count, width), dtype=np.float32)
    for begin in range(0, count, 1000):
        rows = vectors[begin : begin + 1000]
        spread = draw.uniform(0.25, 1.2, size=(len(rows), 1)).astype(np.float32)
        rows[:] = common + centres[draw.zipf(1.3, size=len(rows)) % topics]
        rows += spread * draw.standard_normal((len(rows), width), dtype=np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return vectors


def timed(call: Callable[[], Any], repeats: int) -> dict[str, float]:
    call()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return {"median_s": statistics.median(seconds), "worst_s": max(seconds)}


def main() -> None:
    arguments = options(__doc__, queries=512, anchors=30_522, width=384, alpha=4.0, repeats=5).parse_args()
    queries, anchors = (
        clustered(getattr(arguments, name), arguments.width, seed) for name, seed in (("queries", 1), ("anchors", 2))
    )
    single = torch.from_numpy(queries), torch.from_numpy(anchors)

    weights = entmax_rows(queries, anchors, arguments.alpha)  # the first call imports what finds the device
    before = forget_peak()
    ours = timed(lambda: entmax_rows(queries, anchors, arguments.alpha), arguments.repeats)
    ours["extra_mib"] = peak_mebibytes() - before
    product = timed(lambda: single[0] @ single[1].T, arguments.repeats)
    before = forget_peak()
    peer = timed(lambda: entmax_bisect(single[0] @ single[1].T, arguments.alpha, dim=1), max(1, arguments.repeats // 2))
    peer["extra_mib"] = peak_mebibytes() - before

    exact = entmax_bisect(single[0].double() @ single[1].double().T, arguments.alpha, dim=1, n_iter=100).numpy()
    off = float(np.abs(weights.toarray() - exact).max())
    peer_off = float(np.abs(entmax_bisect(single[0] @ single[1].T, arguments.alpha, dim=1).numpy() - exact).max())
    ratio = peer["median_s"] / ours["median_s"]
    print(
        f"entmax, alpha {arguments.alpha:g}, {len(queries)} x {len(anchors)}, {queries.shape[1]} dimensions, "
        f"{weights.nnz / len(queries):.1f} anchors a row: vtkit {ours['median_s']:.3f} s (worst "
        f"{ours['worst_s']:.3f}), entmax_bisect {peer['median_s']:.2f} s (worst {peer['worst_s']:.2f}), ratio "
        f"{ratio:.0f}; of it the matrix product {product['median_s']:.3f} s; extra memory {ours['extra_mib']:.0f} "
        f"against {peer['extra_mib']:.0f} MiB; away from the float64 reference {off:.1e} (entmax_bisect in single "
        f"precision {peer_off:.1e})"
    )
    facts = {"benchmark": "sparse_weights", "ratio": ratio, "error": off, "vtkit": ours, "entmax": peer}
    facts["product"] = product
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
