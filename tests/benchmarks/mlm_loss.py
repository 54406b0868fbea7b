"""The loss of masked-language-model training and its gradients: in chunks, as vtkit computes it, against plain
cross-entropy over all logits.

Both see the same hidden states of masked positions, decoder and labels; an eighth of the dimensions is masked. Memory
is the peak of a forward and backward pass above what was there, in a process of its own for each path.

    python tests/benchmarks/mlm_loss.py [--vocabulary 32500] [--positions 1200] [--width 384] [--repeats 5]
"""

import argparse
import json
import statistics
import time

import torch
from measuring import alone, forget_peak, options, peak_mebibytes
from torch import Tensor, nn

from vtkit.encoder.masked import MASKED_BIAS
from vtkit.system.runtime import bf16_is_fast
from vtkit.training.mlm import masked_loss

PATHS = {
    "chunks": "in chunks, float32",
    "plain": "plain, float32",
    "autocast": "plain, bf16 product",
}


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds and memory of one path, and how far its gradients are from those in float64."""
    generator = torch.Generator().manual_seed(0)
    decoder = nn.Linear(arguments.width, arguments.vocabulary)
    nn.init.normal_(decoder.weight, std=0.1, generator=generator)
    masked = torch.arange(arguments.vocabulary) % 8 == 0
    with torch.no_grad():
        decoder.bias.masked_fill_(masked, MASKED_BIAS)
    labels = torch.randint(0, arguments.vocabulary // 8 - 1, (arguments.positions,), generator=generator) * 8 + 3
    hidden = torch.randn(arguments.positions, arguments.width, generator=generator).requires_grad_()

    def loss() -> Tensor:
        if arguments.path == "chunks":
            return masked_loss(hidden, labels, decoder, masked)
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.path == "autocast"):
            logits = decoder(hidden).masked_fill_(masked, -torch.inf)
            return nn.functional.cross_entropy(logits.float(), labels)

    before, seconds = forget_peak(), []
    for _ in range(arguments.repeats + 1):
        decoder.zero_grad()
        hidden.grad = None
        start = time.process_time()
        value = loss()
        value.backward()
        seconds.append(time.process_time() - start)
    peak = peak_mebibytes() - before
    assert hidden.grad is not None
    sample = hidden.grad[:32].double()
    with torch.no_grad():
        exact = (hidden[:32].double() @ decoder.weight.double().t() + decoder.bias.double()).masked_fill_(
            masked, -torch.inf
        )
        shares = exact.softmax(dim=1)
        shares[torch.arange(len(shares)), labels[:32]] -= 1
        wanted = shares @ decoder.weight.double() / arguments.positions
    error = float((sample - wanted).norm() / wanted.norm())
    return {"cpu_s": statistics.median(seconds[1:]), "peak_mib": peak, "gradient_error": error}


def main() -> None:
    parser = options(__doc__, vocabulary=32_500, positions=1200, width=384, repeats=5)
    parser.add_argument("--path", choices=PATHS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.path:
        print(json.dumps(measure(arguments)))
        return
    found = {}
    for path, words in PATHS.items():
        if path == "autocast" and not bf16_is_fast():
            continue
        found[path] = alone("--path", path)
        print(
            f"{words:<20} {found[path]['cpu_s']:6.2f} s processor time, peak {found[path]['peak_mib']:6,.0f} MiB, "
            f"error of gradients {found[path]['gradient_error']:.1e}"
        )
    print(json.dumps({"benchmark": "mlm_loss", "vocabulary": arguments.vocabulary, **found}))


if __name__ == "__main__":
    main()
