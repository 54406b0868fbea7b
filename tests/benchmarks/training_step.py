"""A whole fine-tuning step: vtkit's, and sentence-transformers' own path.

A step is what the trainer makes of one batch: queries and documents through the encoder, InfoNCE with FLOPS penalties
on both sides, the backward pass, clipping, and AdamW. Each path is a process of its own, and the processes take turns,
a step each: they see the same load of the machine, and peak memory is that of one path. Processor time counts; wall
time stands beside it. Model, texts, loss, optimiser and mixed precision (bf16 where it is fast) are the same; what
differs is how they are computed:

    vtkit       as vtkit trains
    library     SparseEncoder.forward (MLM transformer, SPLADE pooling) and SpladeLoss of sentence-transformers, bf16
    library32   the same in float32, the library's default
    transformer as vtkit trains but without a head, the maximum of the hidden states in its place: what is left of a
                step if the head costs nothing

The encoder has 6 layers of width 384 and random weights, over texts of random tokens; its decoder bias makes a
realistic share of dimensions active. Peak memory is what the steps take above the loaded model.

    python tests/benchmarks/training_step.py [--vocabulary 32500] [--pairs 32] [--length 96] [--repeats 7]
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from measuring import options

PATHS = ("vtkit", "library", "library32", "transformer")

RAMP = 100
"""Steps until the penalties are at full strength; measured at that step."""

TARGETS = {"library32": 5.0}


def highest_states() -> Any:
    """A pooling that makes the maximum of the hidden states a text's vector."""
    from torch import nn

    class HighestStates(nn.Module):
        def forward(self, features: dict[str, Any]) -> dict[str, Any]:
            features["sentence_embedding"] = features["token_embeddings"].float().amax(dim=1).relu()
            return features

    return HighestStates()


def batch_of(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Padded queries and documents."""
    import torch

    columns = []
    for shortest, longest, seed in ((8, 24, 1), (arguments.length * 2 // 3, arguments.length, 2)):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(5, arguments.vocabulary, (arguments.pairs, longest), generator=generator)
        lengths = torch.randint(shortest, longest + 1, (arguments.pairs, 1), generator=generator)
        mask = (torch.arange(longest) < lengths).long()
        columns.append({"input_ids": ids * mask, "attention_mask": mask})
    return columns


def losses(encoder: Any, path: str) -> Callable[[list[dict[str, Any]], None], dict[str, Any]]:
    """The loss of a batch, as the path computes it."""
    from vtkit.settings.finetune import FinetuneSection
    from vtkit.training.gates import Gate

    section = FinetuneSection(data="unused")
    if path.startswith("library"):
        from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss

        return SpladeLoss(  # type: ignore[no-any-return]
            encoder,
            SparseMultipleNegativesRankingLoss(encoder, scale=section.infonce_scale),
            query_regularizer_weight=section.penalties("query")["flops"],
            document_regularizer_weight=section.penalties("document")["flops"],
        )
    gate = Gate("benchmark", vocabulary=encoder[0].auto_model.config.vocab_size, ramp_ends=10**9)
    from vtkit.training.finetune import objective_terms
    from vtkit.training.objective import Objective

    return Objective(encoder, objective_terms(section, RAMP, encoder), step=lambda: RAMP, gate=gate)


def follow(arguments: argparse.Namespace) -> None:
    """A path's process: one step for each line of standard input, its figures in a line of standard output."""
    import torch

    path = arguments.path
    from measuring import forget_peak, peak_mebibytes
    from sparse_head import build

    from vtkit.encoder.kernels.sparse_head import streaming
    from vtkit.system.runtime import bf16_is_fast, reuse_memory

    if not path.startswith("library"):
        reuse_memory()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    encoder = build(arguments.vocabulary, dropout=0.1)
    batch = batch_of(arguments)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-7, fused=True)
    tokens = sum(int(column["attention_mask"].sum()) for column in batch)
    print(json.dumps({"tokens": tokens}), flush=True)
    with ExitStack() as stack:
        if not path.startswith("library"):
            stack.enter_context(streaming(encoder))
        if path == "transformer":
            encoder[1] = highest_states()
        loss = losses(encoder, path)
        gc.collect()
        before = forget_peak()
        for _ in sys.stdin:
            cpu, wall = time.process_time(), time.perf_counter()
            with (
                nullcontext() if path == "library32" else torch.autocast("cpu", torch.bfloat16, enabled=bf16_is_fast())
            ):
                value = torch.stack(list(loss([dict(column) for column in batch], None).values())).sum()
            forward = time.process_time()
            value.backward()
            backward = time.process_time()
            torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            done = time.process_time()
            figures = {
                "cpu_s": done - cpu,
                "wall_s": time.perf_counter() - wall,
                "forward_s": forward - cpu,
                "backward_s": backward - forward,
                "optimizer_s": done - backward,
                "loss": value.item(),
                "extra_mib": peak_mebibytes() - before,
            }
            print(json.dumps(figures), flush=True)


def started(path: str) -> subprocess.Popen[str]:
    """The process of a path, with its encoder loaded."""
    here = Path(__file__).resolve()
    command = [sys.executable, *sys.argv, "--path", path]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{here.parents[2]}{os.pathsep}{here.parent}",
        "PYTHONWARNINGS": "ignore",
    }
    environment |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True, env=environment
    )
    process.tokens = answer(process)["tokens"]  # type: ignore[attr-defined]
    return process


def answer(process: subprocess.Popen[str]) -> dict[str, float]:
    """The next line of figures."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, float] = json.loads(line)
            return found
    raise SystemExit(f"a path ended with code {process.wait()}")


def main() -> None:
    parser = options(__doc__, vocabulary=32_500, pairs=32, length=96, repeats=7)
    parser.add_argument("--paths", nargs="+", default=list(PATHS), choices=PATHS)
    parser.add_argument("--path", choices=PATHS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.path:
        follow(arguments)
        return
    report(arguments, run(arguments))


def run(arguments: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Figures of every step, by path; the first two steps of each warm up and are left out."""
    processes = {path: started(path) for path in arguments.paths}
    steps: dict[str, list[dict[str, float]]] = {path: [] for path in processes}
    try:
        print(f"{next(iter(processes.values())).tokens} tokens", flush=True)  # type: ignore[attr-defined]
        for _ in range(arguments.repeats + 2):
            for path, process in processes.items():
                assert process.stdin is not None
                process.stdin.write("step\n")
                process.stdin.flush()
                steps[path].append(answer(process))
    finally:
        for process in processes.values():
            process.terminate()
            process.communicate()
    return {path: found[2:] for path, found in steps.items()}


def report(arguments: argparse.Namespace, steps: dict[str, list[dict[str, float]]]) -> None:
    """The table, ratios with their targets, and one line of JSON."""
    found = {
        path: {name: statistics.median(step[name] for step in taken) for name in taken[0]}
        | {"best_cpu_s": min(step["cpu_s"] for step in taken), "extra_mib": max(step["extra_mib"] for step in taken)}
        for path, taken in steps.items()
    }
    print(
        f"fine-tuning step, {arguments.pairs} pairs, documents of up to {arguments.length} tokens, "
        f"{arguments.vocabulary} terms, one thread; median of {arguments.repeats}"
    )
    print("path            processor   best   (forward backward optimiser)    wall   peak above model    loss")
    for path, values in found.items():
        print(
            f"{path:<15} {values['cpu_s']:7.2f} s {values['best_cpu_s']:6.2f}   "
            f"({values['forward_s']:6.2f} {values['backward_s']:8.2f} {values['optimizer_s']:9.2f})     "
            f"{values['wall_s']:7.2f} {values['extra_mib']:12,.0f} MiB   {values['loss']:.3f}"
        )
    ours = found.get("vtkit")
    if ours is not None:
        for path in found:
            if path == "vtkit":
                continue
            # of each turn, since the machine's load changes from turn to turn
            ratio = statistics.median(
                its["cpu_s"] / mine["cpu_s"] for its, mine in zip(steps[path], steps["vtkit"], strict=True)
            )
            share = ours["extra_mib"] / found[path]["extra_mib"]
            found[path] |= {"ratio": ratio, "memory_share": share}
            line = f"vtkit is {ratio:.2f} times faster than {path} with {share:.0%} of its memory"
            if path == "transformer":
                line = f"without a head vtkit takes {ratio:.0%} of the time and {1 / share:.0%} of the memory"
            if path in TARGETS:
                line += f" (target {TARGETS[path]} times: {'met' if ratio >= TARGETS[path] else 'MISSED'})"
            print(line)
    print(json.dumps({"benchmark": "training_step", "vocabulary": arguments.vocabulary, **found}))


if __name__ == "__main__":
    main()
