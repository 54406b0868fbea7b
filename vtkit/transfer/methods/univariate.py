"""New tokens as noise that looks like the source's embeddings as a whole: a baseline of transfer."""

from __future__ import annotations

from vtkit.transfer.mixture import Mixture, mixture_of_parts
from vtkit.vocabulary.pair import VocabularyPair


def univariate_mixture(pair: VocabularyPair) -> Mixture:
    """Overlapping tokens keep their row, new ones are N(μ, σ²) with the moments of all entries of the source."""
    return mixture_of_parts(pair, fallback="univariate")
