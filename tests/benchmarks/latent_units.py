"""A step of the autoencoder that learns latent units: rows of the units that fire, against the product with all rows.

python tests/benchmarks/latent_units.py [--sizes 4096,16384,65536] [--steps 10]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from measuring import alone, options, peak_mebibytes
from torch import Tensor, nn

from vtkit.transfer.latent_units import LEARNING_RATE, POSITIONS, Autoencoder

WIDTH, ACTIVE = 384, 16


class Dense(Autoencoder):
    """The same equation by products of whole matrices, as autoencoders are usually written."""

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        units = nn.functional.linear(states - self.centre, self.encoder, self.bias).relu()
        highest, places = units.topk(self.active, dim=1)
        return torch.zeros_like(units).scatter(1, places, highest) @ self.decoder + self.centre, places


def measure(kind: type[Autoencoder], size: int, steps: int) -> None:
    """Print the median seconds of a step and the peak memory of this process in MiB."""
    torch.manual_seed(0)
    sae = kind(torch.zeros(WIDTH), torch.randn(size, WIDTH), ACTIVE)
    optimiser = torch.optim.AdamW(sae.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)
    seconds = []
    for _ in range(steps + 2):
        states = torch.randn(POSITIONS, WIDTH)
        began = time.perf_counter()
        optimiser.zero_grad()
        (sae(states)[0] - states).square().sum(1).mean().backward()
        optimiser.step()
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"s": statistics.median(seconds[2:]), "peak_mib": peak_mebibytes()}))


def main() -> None:
    parser = options(__doc__, sizes="4096,16384,65536", steps=10)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        name, size = arguments.measure
        measure({"rows": Autoencoder, "matrices": Dense}[name], int(size), arguments.steps)
        return
    print(f"{'units':>6}  {'matrices':>18}  {'rows':>18}  ratio")
    for size in arguments.sizes.split(","):
        figures = []
        for name in ("matrices", "rows"):
            figures.append(tuple(alone("--measure", name, size).values()))
        cells = "  ".join(f"{1000 * each:6.0f} ms {memory:5.0f} MiB" for each, memory in figures)
        print(f"{size:>6}  {cells}  {figures[0][0] / figures[1][0]:.1f}")


if __name__ == "__main__":
    main()
