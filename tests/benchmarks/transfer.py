"""A whole transfer by similarities against its bare matrix product: time and peak memory at full size.

32,000 new tokens, 30,000 source tokens, vectors of 1,024 dimensions, and source embeddings of 768: weights, mixture,
and new embeddings. The peer is the product of both sets of vectors, in the same blocks and in single precision, each
block thrown away. Memory is what a child process grows by over its inputs; the times are of this process.

    python tests/benchmarks/transfer.py [--new 32000] [--source 30000] [--width 1024] [--alpha 4] [--repeats 3]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from measuring import alone, options, peak_mebibytes
from numpy.typing import NDArray
from sparse_weights import clustered
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from vtkit.transfer.entmax import SIMILARITIES_AT_ONCE, entmax_rows
from vtkit.transfer.mixture import Mixture, Part, mixture_of_parts
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.overlap import Overlap
from vtkit.vocabulary.pair import VocabularyPair


def transfer(
    new: NDArray[np.float32], anchors: NDArray[np.float32], embeddings: NDArray[np.float32], alpha: float
) -> tuple[Mixture, NDArray[np.float32]]:
    """The mixture and the new embeddings, where no token is shared."""
    nothing = np.full(len(new), -1, dtype=np.int32)
    overlap = Overlap("exact", nothing, np.zeros(len(new), dtype=np.int8), len(anchors))
    letters = Vocabulary(PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}))))  # not asked
    pair = VocabularyPair(letters, letters, overlap, len(anchors))
    weights = entmax_rows(new, anchors, alpha)
    mixture = mixture_of_parts(pair, [Part("sembridge", np.arange(len(new)), weights)])
    return mixture, mixture.rows(embeddings)


def product(new: NDArray[np.float32], anchors: NDArray[np.float32]) -> None:
    for block in torch.split(torch.from_numpy(new), SIMILARITIES_AT_ONCE // len(anchors)):
        block @ torch.from_numpy(anchors).T


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def inputs(arguments: argparse.Namespace) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    embeddings = np.random.default_rng(3).standard_normal((arguments.source, 768), dtype=np.float32)
    new, anchors = clustered(arguments.new, arguments.width, 1), clustered(arguments.source, arguments.width, 2)
    return new, anchors, embeddings


def measure_memory(arguments: argparse.Namespace) -> dict[str, float]:
    """Peak growth of this process, from the moment all is imported: with its inputs, and beyond them."""
    small = clustered(64, 16, 4)
    transfer(small, small, small, arguments.alpha)
    empty = peak_mebibytes()
    given = inputs(arguments)
    loaded = peak_mebibytes()
    transfer(*given, arguments.alpha)
    return {"with_inputs_mib": peak_mebibytes() - empty, "beyond_inputs_mib": peak_mebibytes() - loaded}


def main() -> None:
    parser = options(__doc__, new=32_000, source=30_000, width=1024, alpha=4.0, repeats=3)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        print(json.dumps(measure_memory(arguments)))
        return
    memory = alone("--memory")
    new, anchors, embeddings = inputs(arguments)
    transfer(new[:1000], anchors, embeddings, arguments.alpha)
    product(new[:1000], anchors)
    ours, bare = [], []
    for _ in range(arguments.repeats):  # in turn, so that a machine that is busy for a while is so for both
        bare.append(seconds(lambda: product(new, anchors)))
        ours.append(seconds(lambda: transfer(new, anchors, embeddings, arguments.alpha)))
    weights = transfer(new[:1000], anchors, embeddings, arguments.alpha)[0].weights
    ratio = statistics.median(ours) / statistics.median(bare)
    print(
        f"transfer of {arguments.new} new x {arguments.source} source tokens, {arguments.width} dimensions, alpha "
        f"{arguments.alpha:g}, {weights.nnz / 1000:.1f} sources a token: vtkit {statistics.median(ours):.1f} s (worst "
        f"{max(ours):.1f}), the bare matrix product {statistics.median(bare):.1f} s (worst {max(bare):.1f}), ratio "
        f"{ratio:.2f}; peak memory {memory['with_inputs_mib']:.0f} MiB with its inputs, "
        f"{memory['beyond_inputs_mib']:.0f} MiB beyond them"
    )
    facts = {"benchmark": "transfer", "ratio": ratio, "vtkit_s": ours, "product_s": bare, **memory}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
