"""New tokens as mixtures of their neighbours in a multilingual word-vector space, of low rank if wanted (OFA)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vtkit.transfer.mixture import Mixture
from vtkit.transfer.word_space import neighbour_mixture, word_space
from vtkit.vocabulary.pair import VocabularyPair


def ofa_mixture(
    pair: VocabularyPair,
    *,
    vectors: Path,
    neighbours: int = 10,
    temperature: float = 0.1,
    rank: int | None = None,
) -> Mixture:
    """OFA (Liu et al. 2024, arXiv:2311.08849): ``E'_t = Σ softmax(cos(w_t, w_s) / temperature) E_s``.

    ``w`` of a token is the mean of the vectors of the words whose tokenization contains it, the sum runs over the
    nearest source tokens. The paper factorises ``E = U_k Σ_k V_kᵀ`` and mixes the coordinates U_k; mixing is linear,
    so mixing rows of the product gives the same. With a ``rank`` below the width, overlapping tokens copy coordinates
    too, as in the paper: their rows are approximations of the old ones. Tokens without a vector are drawn from normal
    noise with the moments of each coordinate.

    Deviations: overlap is vtkit's rule (the authors ignore case too), and words are not capitalised to find more
    tokens.

    Args:
        vectors: static word vectors that cover both languages in one space.
        neighbours: source tokens that are mixed.
        rank: the paper has 100, 200, 400 and the full width (None).

    Raises:
        DataError: the vectors cannot be read, or cover no token of one of the vocabularies.
    """
    mixture = neighbour_mixture(
        "ofa",
        pair,
        word_space(pair.source, vectors).vectors,
        word_space(pair.target, vectors).vectors,
        neighbours,
        temperature,
    )
    return replace(mixture, rank=rank)
