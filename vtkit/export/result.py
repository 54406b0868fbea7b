"""What an export says of itself, in its ``export.json`` and on the console."""

from __future__ import annotations

from dataclasses import dataclass

from vtkit.export.target import Target
from vtkit.system.results import Result


@dataclass(frozen=True)
class Export(Result):
    """What was handed over."""

    target: Target
    documents: int
    """Those with weights: the others can never be found."""

    dimensions: int
    queries: int
    largest_difference: float
    """Of a weight that the ONNX file gives, from vtkit's own."""

    quantised_cosine: float | None
    """Mean cosine of the vectors that the file in 8 bits gives with vtkit's own; None where it was too low."""

    step: float | None
    """What a whole number stands for, where the engine takes whole numbers only."""

    results_kept: float | None
    """Share of the first ten results that rounded or cut vectors still find; None where they are those of the index."""
