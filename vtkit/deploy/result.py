"""The facts of an export, for its ``export.json`` and the console."""

from dataclasses import dataclass

from vtkit.deploy.target import TargetName
from vtkit.system.results import Result

LEAST_COSINE = 0.99  # smallest mean cosine of 8-bit vectors with vtkit's own; below it, the file is left out


@dataclass(frozen=True)
class Export(Result):
    """A finished export."""

    target: TargetName
    documents: int  # documents, or their passages, with weights; the others can never be found
    dimensions: int
    queries: int
    largest_difference: float  # of a weight of the ONNX file from vtkit's own
    quantised_cosine: float  # mean cosine of 8-bit vectors with vtkit's own; no such file if it is too low
    step: float | None  # the weight of 1, if the engine needs whole numbers
    results_kept: float | None
    """Share of the first ten results that rounded or pruned vectors still find; None if the vectors are unchanged."""

    characters_replaced: int = 0  # that the engine refuses, written as spaces
    documents_replaced: int = 0  # documents with such characters
