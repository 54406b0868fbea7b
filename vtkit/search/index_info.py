"""Facts about an index, whichever engine searches it: counts, and the parts of a document's score."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from vtkit.search.measures.cost import Sparsity
from vtkit.settings.analysers import Analysis
from vtkit.system.checksums import REMEDIES
from vtkit.system.errors import CollapseError
from vtkit.system.results import Result

if TYPE_CHECKING:
    import scipy.sparse as sp

RECORD = "index.json"  # file of the manifest, in the folder of an index
_LARGEST_WEIGHT = 1e15  # its square, and sums of many squares, are finite in float32

REBUILD = REMEDIES[RECORD]  # what to do about a damaged index

Ids = npt.NDArray[np.int32]
Scores = npt.NDArray[np.float32]


@dataclass(frozen=True)
class IndexInfo:
    """The spread of an index's weights over its documents, or their passages, and dimensions."""

    document_frequencies: npt.NDArray[np.int64]  # documents with a weight at each dimension, (vocabulary,)
    document_sizes: npt.NDArray[np.int64]  # active dimensions of each document, (documents,)

    @property
    def documents(self) -> int:
        """Number of documents, or of passages if they are cut into these."""
        return len(self.document_sizes)

    @property
    def vocabulary(self) -> int:
        """Number of dimensions, the width of the vectors."""
        return len(self.document_frequencies)

    @property
    def postings(self) -> int:
        """Number of weights."""
        return int(self.document_sizes.sum())

    @property
    def mean_size(self) -> float:
        """Mean number of active dimensions of a document; 0 without documents."""
        return self.postings / max(self.documents, 1)

    @property
    def activation_shares(self) -> npt.NDArray[np.float64]:
        """Share of the documents that activate each dimension, (vocabulary,); see ``flops``."""
        return np.asarray(self.document_frequencies / max(self.documents, 1))

    def sparsity(self, of: npt.NDArray[np.bool_], bins: int) -> Sparsity:
        """The share of the dimensions ``of``, (vocabulary,), that no document activates, 0 of none; the documents by
        size, in ``bins`` bins; and how common the other dimensions are."""
        dead = float((self.document_frequencies[of] == 0).mean()) if of.any() else 0.0
        counts, edges = np.histogram(self.document_sizes, bins=bins)
        shares = self.activation_shares[self.document_frequencies > 0]
        return Sparsity(
            dead_dimensions=dead,
            size_edges=tuple(edges.tolist()),
            size_counts=tuple(counts.tolist()),
            largest_share=float(shares.max(initial=0.0)),
            median_share=float(np.median(shares)) if len(shares) else 0.0,
        )


@dataclass(frozen=True)
class Contributions:
    """The dimensions that a query and a document share, whose products sum to the score."""

    dimensions: npt.NDArray[np.int64]  # (shared,), in the order of the query
    query_weights: npt.NDArray[np.float64]
    document_weights: npt.NDArray[np.float64]
    row: int  # of the document's vector, or of its best passage's

    @property
    def products(self) -> npt.NDArray[np.float64]:
        """The part of the score that each dimension contributes, (shared,)."""
        return self.query_weights * self.document_weights


def check_weights(weights: Scores, side: str) -> None:
    """Check that all weights can be multiplied and summed."""
    if not -_LARGEST_WEIGHT <= weights.min(initial=0) <= weights.max(initial=0) <= _LARGEST_WEIGHT:  # False for NaN
        unsound = np.count_nonzero(~(np.abs(weights) <= _LARGEST_WEIGHT))
        raise CollapseError(
            f"{unsound} of {len(weights)} {side} weights are infinite, NaN or too large, so nothing "
            "can be ranked. The model's training diverged: lower its learning rate."
        )


def digest_of(documents: sp.csr_matrix, groups: Ids | None = None) -> str:
    """SHA-256 of a canonical matrix, and of the ``groups`` that its rows belong to, the name of an index on a
    server."""
    digest = hashlib.sha256(repr(documents.shape).encode())
    if groups is not None:
        digest.update(groups.astype("<i4").tobytes())
    for array in (documents.indptr.astype("<i8"), documents.indices.astype("<i4"), documents.data.astype("<f4")):
        digest.update(memoryview(array))
    return digest.hexdigest()


@dataclass(frozen=True)
class LexicalRecord(Result):
    """The lexical part in the manifest of an index."""

    language: str
    analysis: Analysis
    terms: int  # dimensions of the part
    document_scale: float
    """BM25's impacts in documents are multiplied by it, so that the largest weight of both parts was the same when the
    index was made: an engine that rounds weights to steps then spends all steps on each part."""

    encoder_factor: float
    term_factor: float  # the two parts of a query are multiplied by these


Kind = Literal["text", "integer", "number", "date", "datetime", "boolean", "words"]
"""The type of a field; ``words`` is a list of texts."""
