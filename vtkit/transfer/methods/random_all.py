"""Every token as normal noise N(0, 0.02²): what a transfer is worth at all."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from vtkit.transfer.mixture import Mixture, all_made_by
from vtkit.vocabulary.pair import VocabularyPair


def random_all_mixture(pair: VocabularyPair) -> Mixture:
    """Every token, overlapping and special ones included, is noise N(0, 0.02²): the embeddings start from nothing."""
    return Mixture(csr_matrix(pair.shape, dtype=np.float32), all_made_by("random", pair.overlap.target_size))
