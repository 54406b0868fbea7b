"""New tokens as noise that looks like the source's embeddings, or every token as noise: the baselines of transfer."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from vtkit.transfer.mixture import METHODS, Mixture, assemble
from vtkit.vocabulary.alignment import Alignment


def univariate_mixture(alignment: Alignment, source_rows: int) -> Mixture:
    """Overlapping tokens keep their row, new ones are N(μ, σ²) with the moments of all entries of the source."""
    return assemble(alignment, source_rows, rest="univariate")


def multivariate_mixture(alignment: Alignment, source_rows: int) -> Mixture:
    """Overlapping tokens keep their row, new ones are normal noise with the moments of each dimension of the source.

    The dimensions are drawn independently of one another, as FOCUS, WECHSEL and OFA do for tokens without evidence.
    """
    return assemble(alignment, source_rows, rest="multivariate")


def random_all_mixture(alignment: Alignment, source_rows: int) -> Mixture:
    """Every token, overlapping and special ones included, is noise N(0, 0.02²): the embeddings start from nothing."""
    methods = np.full(alignment.target_size, METHODS.index("random"), dtype=np.int8)
    return Mixture(csr_matrix((alignment.target_size, source_rows), dtype=np.float32), methods)
