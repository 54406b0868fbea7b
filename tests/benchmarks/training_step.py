"""A whole fine-tuning step against sentence-transformers' own path, and against vtkit's own without its shortcuts.

A step is what the trainer makes of one batch: 32 queries and 32 documents through the encoder in mixed precision, the
loss with its FLOPS penalties, the backward pass, clipping, and AdamW. All paths take turns in this process on the
same model and batch: a 6-layer, 384-wide encoder with random weights, dropout 0.1, whose decoder bias makes a
realistic share of
dimensions active. The machine may be shared, so processor time counts; wall time stands beside it. Memory is read from
child processes, one for each path, because peak memory only ever grows.

    vtkit       as vtkit trains
    plain       groups of 8 texts, float32 head with positions over all terms, dense gradients, torch's dropout
    library     SparseEncoder.forward and SpladeLoss of sentence-transformers, bf16 autocast as vtkit has it
    library32   the same in float32, the library's default

    python tests/benchmarks/training_step.py [--vocabulary 32500] [--pairs 32] [--length 96] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss
from sparse_head import build
from torch import Tensor

from vtkit.encoder import sparse_head
from vtkit.encoder.sparse_head import StreamingSpladePooling, streaming
from vtkit.recipe.sections import FinetuneSection
from vtkit.runtime import bf16_is_fast, reuse_memory
from vtkit.training import objective
from vtkit.training.finetune import objective_terms
from vtkit.training.gates import CollapseGate
from vtkit.training.objective import Objective

PATHS = ("vtkit", "plain", "library", "library32")
SECTION = FinetuneSection(data="unused")
RAMP = 100
"""Steps until the penalties are at full strength; measured at that step."""


def texts(vocabulary: int, count: int, shortest: int, longest: int, seed: int) -> dict[str, Tensor]:
    """Random texts of ``shortest`` to ``longest`` tokens, padded."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, vocabulary, (count, longest), generator=generator)
    lengths = torch.randint(shortest, longest + 1, (count, 1), generator=generator)
    mask = (torch.arange(longest) < lengths).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


@contextmanager
def plain() -> Iterator[None]:
    """vtkit's training without its shortcuts."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(StreamingSpladePooling, "screen", lambda self: None))
        for name in ("row_gradients", "fast_dropout"):
            stack.enter_context(patch.object(sparse_head, name, lambda *_: nullcontext()))
        stack.enter_context(patch.object(sparse_head, "SPARSE_ROWS_SHARE", 0.0))
        stack.enter_context(patch.object(objective, "TOKENS_A_GROUP", 0))
        yield


def losses(encoder: SparseEncoder, path: str) -> Callable[[list[dict[str, Tensor]]], Tensor]:
    """The loss of a batch, as the path computes it."""
    if path.startswith("library"):
        loss = SpladeLoss(
            encoder,
            loss=SparseMultipleNegativesRankingLoss(encoder, scale=SECTION.scale),
            query_regularizer_weight=SECTION.query_flops,
            document_regularizer_weight=SECTION.document_flops,
        )
    else:
        gate = CollapseGate(encoder[0].auto_model.config.vocab_size, ramp_ends=10**9)
        loss = Objective(encoder, objective_terms(SECTION, RAMP), step=lambda: RAMP, gate=gate)
    return lambda features: torch.stack(list(loss([dict(column) for column in features], None).values())).sum()


def step(encoder: SparseEncoder, optimizer: torch.optim.Optimizer, path: str, batch: list[dict[str, Tensor]]) -> None:
    """One optimiser step."""
    with plain() if path == "plain" else nullcontext(), ExitStack() as stack:
        if not path.startswith("library"):
            stack.enter_context(streaming(encoder))
        loss = losses(encoder, path)
        with torch.autocast("cpu", torch.bfloat16, enabled=path != "library32" and bf16_is_fast()):
            value = loss(batch)
        value.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def measure(arguments: argparse.Namespace, paths: list[str]) -> dict[str, dict[str, float]]:
    """Seconds and memory of steps along each path, which take turns."""
    encoder = build(arguments.vocabulary, dropout=0.1)
    batch = [
        texts(arguments.vocabulary, arguments.pairs, 8, 24, seed=1),
        texts(arguments.vocabulary, arguments.pairs, arguments.length * 2 // 3, arguments.length, seed=2),
    ]
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-7, fused=True)
    times: dict[str, list[tuple[float, float]]] = {path: [] for path in paths}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(arguments.repeats + 1):
        for path in paths:
            cpu, wall = time.process_time(), time.perf_counter()
            step(encoder, optimizer, path, batch)
            times[path].append((time.process_time() - cpu, time.perf_counter() - wall))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {}
    for path in paths:
        cpu_times, wall_times = zip(*times[path][1:], strict=True)  # the first warms up
        found[path] = {
            "cpu_s": statistics.median(cpu_times),
            "best_cpu_s": min(cpu_times),
            "wall_s": statistics.median(wall_times),
            "extra_mib": (peak - before) / 1024,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=32_500)
    parser.add_argument("--pairs", type=int, default=32)
    parser.add_argument("--length", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--paths", nargs="+", default=list(PATHS), choices=PATHS)
    parser.add_argument("--no-memory", action="store_true", help="Times only.")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    reuse_memory()
    torch.set_num_threads(1)
    found = measure(arguments, arguments.paths)
    if arguments.child:
        print(json.dumps(found))
        return
    for path in [] if arguments.no_memory else arguments.paths:
        command = [sys.executable, str(Path(__file__).resolve()), "--child", "--repeats", "1", "--paths", path]
        for name in ("vocabulary", "pairs", "length"):
            command += [f"--{name}", str(getattr(arguments, name))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[path]["extra_mib"] = json.loads(done.stdout.splitlines()[-1])[path]["extra_mib"]
    print(
        f"fine-tuning step, {arguments.pairs} pairs, documents of {arguments.length} tokens, "
        f"{arguments.vocabulary} terms, one thread"
    )
    ours = found.get("vtkit")
    for path, values in found.items():
        line = f"  {path:<10} {values['cpu_s']:6.2f} s processor time (best {values['best_cpu_s']:.2f})"
        line += f", {values['wall_s']:6.2f} s"
        if not arguments.no_memory:
            line += f", {values['extra_mib']:,.0f} MiB"
        if ours is not None and path != "vtkit":
            line += f"; vtkit is {values['cpu_s'] / ours['cpu_s']:.1f} times faster"
            if not arguments.no_memory:
                line += f" with {ours['extra_mib'] / values['extra_mib']:.0%} of the memory"
        print(line)
    print(json.dumps({"benchmark": "training_step", "vocabulary": arguments.vocabulary, **found}))


if __name__ == "__main__":
    main()
