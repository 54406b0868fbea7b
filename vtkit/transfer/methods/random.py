"""New tokens as normal noise N(0, 0.02²): the baseline that everything else must beat."""

from __future__ import annotations

from vtkit.transfer.mixture import Mixture, mixture_of_parts
from vtkit.vocabulary.pair import VocabularyPair


def random_mixture(pair: VocabularyPair) -> Mixture:
    """Overlapping tokens keep their row; the noise of the others is made in ``Mixture.rows`` from its seed."""
    return mixture_of_parts(pair, fallback="random")
