"""New tokens as the mean of source rows, all or those of the overlap: no meaning yet, but the right region of
the space."""

from __future__ import annotations

from vtkit.transfer.mixture import Mixture, mixture_of_parts
from vtkit.vocabulary.pair import VocabularyPair


def mean_mixture(pair: VocabularyPair) -> Mixture:
    """Overlapping tokens keep their row, each new one gets the mean of all rows of the source."""
    return mixture_of_parts(pair, fallback="mean")


def overlap_mean_mixture(pair: VocabularyPair) -> Mixture:
    """Overlapping tokens keep their row, each new one gets their centroid: Mean-Init of the vocabulary transfer paper
    (table 3)."""
    return mixture_of_parts(pair, fallback="overlap_mean")
