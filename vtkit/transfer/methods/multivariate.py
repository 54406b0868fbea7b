"""New tokens as noise that looks like the source's embeddings in each dimension: a baseline of transfer, and what
FOCUS, WECHSEL and OFA do for tokens without evidence."""

from __future__ import annotations

from vtkit.transfer.mixture import Mixture, mixture_of_parts
from vtkit.vocabulary.pair import VocabularyPair


def multivariate_mixture(pair: VocabularyPair) -> Mixture:
    """Overlapping tokens keep their row, new ones are normal noise with the moments of each dimension of the source.

    The dimensions are independent of one another, as in FOCUS, WECHSEL and OFA.
    """
    return mixture_of_parts(pair, fallback="multivariate")
