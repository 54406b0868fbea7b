"""Methods that know nothing of a new token, which all others have to beat: the mean of source rows, or noise."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from vtkit.settings.transfer import Fallback
from vtkit.transfer.mixture import Mixture, all_made_by, mixture_of_parts
from vtkit.vocabulary.pair import VocabularyPair


def baseline_mixture(pair: VocabularyPair, method: Fallback = "mean") -> Mixture:
    """Overlapping tokens keep their row, new ones get what :meth:`Mixture.rows` makes of ``method``.

    Args:
        method: ``mean`` of all source rows; ``overlap_mean``, the centroid of the overlap (Mean-Init of the vocabulary
            transfer paper, table 3); noise of 0.02 (``random``), of the moments of all entries of the source
            (``univariate``), or of each dimension's (``multivariate``, as FOCUS, WECHSEL and OFA for tokens without
            evidence).
    """
    return mixture_of_parts(pair, fallback=method)


def random_all_mixture(pair: VocabularyPair) -> Mixture:
    """Every token, overlapping and special ones included, is noise N(0, 0.02²): the embeddings start from nothing."""
    return Mixture(csr_matrix(pair.shape, dtype=np.float32), all_made_by("random", pair.overlap.target_size))
