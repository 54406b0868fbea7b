"""The streaming sparse head against sentence-transformers' own path: time of a training step and of the head alone,
and peak memory.

Both see the same model and batch: a small encoder with random weights whose decoder bias makes a realistic share of
dimensions active, in float32 but for what the head screens in bf16. Each path is a process of its own, for its peak of
memory; processor time is what is compared, as the machine may be shared. The head alone is what follows the
transformer: decoder, pooling, and their gradients. A third process takes the step without a head, the transformer that
both paths have in common: no head can make a step faster or smaller than that.

    python tests/benchmarks/sparse_head.py [--vocabulary 30522] [--batch 8] [--length 128] [--repeats 5]
"""

import argparse
import json
import resource
import signal
import statistics
import subprocess
import tempfile
import time
from contextlib import nullcontext

import torch
from measuring import alone, options
from sentence_transformers import SparseEncoder
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from tokenizers import Tokenizer, models
from torch import nn
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from vtkit.encoder.kernels.sparse_head import StreamingSpladePooling, streaming, without_decoder
from vtkit.system.runtime import reuse_memory

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BIAS = -2.0
PATHS = ("vtkit", "library", "transformer")


def build(vocabulary: int, dropout: float = 0.0) -> SparseEncoder:
    """A 6-layer, 384-wide encoder over a made-up vocabulary; without dropout both paths see one function."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.03,
    )
    model = BertForMaskedLM(config)
    with torch.no_grad():
        model.cls.predictions.bias.fill_(BIAS)
    tokens = {token: i for i, token in enumerate([*SPECIAL, *(f"t{i}" for i in range(vocabulary - len(SPECIAL)))])}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(tokens, unk_token="[UNK]")),
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        transformer = Transformer(folder, transformer_task="fill-mask")
    return SparseEncoder(modules=[transformer, SpladePooling("max")], device="cpu").train()


def step(encoder: SparseEncoder, features: dict[str, torch.Tensor]) -> tuple[float, torch.Tensor]:
    """Seconds of processor time of one forward and backward pass, and the term weights."""
    encoder.zero_grad(set_to_none=True)
    start = time.process_time()
    weights = encoder(dict(features))["sentence_embedding"]
    loss = (weights @ weights.t()).mean() + weights.mean(dim=0).square().sum()
    loss.backward()
    return time.process_time() - start, weights.detach()


def transformer_step(encoder: SparseEncoder, features: dict[str, torch.Tensor]) -> tuple[float, torch.Tensor]:
    """The same of the transformer alone, without decoder and pooling: the seconds, and the hidden states."""
    model = encoder[0].auto_model
    encoder.zero_grad(set_to_none=True)
    start = time.process_time()
    with without_decoder(model.get_output_embeddings()):
        hidden = model(**features).logits
    hidden.square().mean().backward()
    return time.process_time() - start, hidden.detach()


def head(encoder: SparseEncoder, features: dict[str, torch.Tensor]) -> tuple[float, float]:
    """Seconds of the head's forward pass, and of its forward and backward pass."""
    encoder.zero_grad(set_to_none=True)
    decoder = encoder[0].auto_model.get_output_embeddings()
    # the streaming head projects what it is given, the library's module pools what its transformer has projected
    streamed = isinstance(encoder[1], StreamingSpladePooling)
    with torch.no_grad(), nullcontext() if streamed else without_decoder(decoder):
        hidden = encoder[0].auto_model(**features).logits
    hidden.requires_grad_()
    start = time.process_time()
    given = hidden if streamed else nn.functional.linear(hidden, decoder.weight, decoder.bias)
    pooled = encoder[1]({"token_embeddings": given, "attention_mask": features["attention_mask"]})
    forward = time.process_time() - start
    weights = pooled["sentence_embedding"]
    weights.backward(torch.full_like(weights, 1e-3))
    return forward, time.process_time() - start


def product(encoder: SparseEncoder, features: dict[str, torch.Tensor]) -> float:
    """Seconds of the bare product of hidden states and decoder rows in bf16, in the blocks that are fastest."""
    rows = encoder[0].auto_model.get_output_embeddings().weight.detach().bfloat16()
    hidden = torch.randn(features["input_ids"].numel(), rows.shape[1]).bfloat16()
    best = float("inf")
    for block in (512, 1024, 4096, len(rows)):
        start = time.process_time()
        for first in range(0, len(rows), block):
            torch.mm(hidden, rows[first : first + block].t())
        best = min(best, time.process_time() - start)
    return best


def measure(arguments: argparse.Namespace, path: str) -> dict[str, float]:
    encoder = build(arguments.vocabulary)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, arguments.vocabulary, (arguments.batch, arguments.length), generator=generator)
    features = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    torch.set_num_threads(1)
    if path == "vtkit":
        reuse_memory()
    with streaming(encoder) if path == "vtkit" else nullcontext():
        taken = transformer_step if path == "transformer" else step
        taken(encoder, features)
        seconds = [taken(encoder, features)[0] for _ in range(arguments.repeats)]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        steps = {
            "median_s": statistics.median(seconds),
            "worst_s": max(seconds),
            "peak_mib": peak / 1024,
            "extra_mib": (peak - before) / 1024,
        }
        if path == "transformer":
            return steps
        head(encoder, features)
        # by turns, since the machine's load changes
        turns = [(*head(encoder, features), product(encoder, features)) for _ in range(arguments.repeats)]
    forwards, heads, products = zip(*turns, strict=True)
    return steps | {
        "head_s": statistics.median(heads),
        "head_forward_s": statistics.median(forwards),
        "best_head_s": min(heads),
        "best_head_forward_s": min(forwards),
        "best_product_s": min(products),
    }


def measured(path: str) -> dict[str, float] | None:
    """What :func:`measure` says in a process of its own; None where that was killed for memory."""
    try:
        return alone("--path", path)
    except subprocess.CalledProcessError as error:
        if error.returncode == -signal.SIGKILL:
            return None
        raise


def main() -> None:
    parser = options(__doc__, vocabulary=30_522, batch=8, length=128, repeats=5)
    parser.add_argument("--path", choices=PATHS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.path:
        print(json.dumps(measure(arguments, arguments.path)))
        return
    results = {path: measured(path) for path in PATHS}
    if results["library"] is None:
        ours = results["vtkit"]
        assert ours is not None, "vtkit was killed for memory"
        print(
            f"training step, {arguments.batch} x {arguments.length} tokens, {arguments.vocabulary} terms: vtkit "
            f"{ours['median_s']:.2f} s (worst {ours['worst_s']:.2f}), peak memory of the process "
            f"{ours['peak_mib'] / 1024:.1f} GiB, of the steps {ours['extra_mib'] / 1024:.1f} GiB; "
            "sentence-transformers was killed for memory"
        )
        print(json.dumps({"benchmark": "sparse_head", **results}))
        return
    library, ours, common = results["library"], results["vtkit"], results["transformer"]
    assert ours is not None
    assert library is not None
    assert common is not None
    ratio = library["median_s"] / ours["median_s"]
    memory = ours["extra_mib"] / library["extra_mib"]
    print(
        f"training step, {arguments.batch} x {arguments.length} tokens, {arguments.vocabulary} terms, "
        f"vtkit {ours['median_s']:.2f} s (worst {ours['worst_s']:.2f}), "
        f"sentence-transformers {library['median_s']:.2f} s (worst {library['worst_s']:.2f}), ratio {ratio:.1f}; "
        f"peak memory of the steps {ours['extra_mib']:.0f} against {library['extra_mib']:.0f} MiB ({memory:.0%})"
    )
    print(
        f"of these the transformer, which both have: {common['median_s']:.2f} s and {common['extra_mib']:.0f} MiB, so "
        f"no head can be more than {library['median_s'] / common['median_s']:.1f} times faster or need less than "
        f"{common['extra_mib'] / library['extra_mib']:.0%} of the memory"
    )
    heads = library["head_s"] / ours["head_s"]
    bare = ours["best_head_forward_s"] / ours["best_product_s"]
    large = arguments.vocabulary >= 65_000
    for words, found, target, met in (
        ("head, forward and backward, times faster", heads, 5 if large else 4, heads >= (5 if large else 4)),
        ("whole step, times faster", ratio, 4 if large else 2.5, ratio >= (4 if large else 2.5)),
        ("extra peak memory, share", memory, 1 / 4 if large else 1 / 3, memory <= (1 / 4 if large else 1 / 3)),
        ("head's forward against the bare bf16 product, best of each", bare, 1.5, bare <= 1.5),
    ):
        print(f"  {words}: {found:.2f} (target {target:.2f}: {'met' if met else 'MISSED'})")
    print(
        json.dumps(
            {
                "benchmark": "sparse_head",
                "ratio": ratio,
                "head_ratio": heads,
                "bare": bare,
                "memory_share": memory,
                **results,
            }
        )
    )


if __name__ == "__main__":
    main()
