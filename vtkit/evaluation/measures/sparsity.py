"""How the dimensions of indexed vectors are used, as plain values for manifests and reports."""

from __future__ import annotations

from dataclasses import dataclass

from vtkit.system.results import Result


@dataclass(frozen=True)
class Histogram(Result):
    """``counts`` between ``edges``, of which there is one more."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class DocumentFrequencies(Result):
    """Share of the documents in which a dimension is active, over those active anywhere; 0 for none."""

    largest: float
    median: float


@dataclass(frozen=True)
class Sparsity(Result):
    """Use of the dimensions in one index."""

    dead_dimensions: float  # share of the dimensions that no document activates
    documents_histogram: Histogram | None = None  # documents by their active dimensions
    document_frequencies: DocumentFrequencies | None = None
