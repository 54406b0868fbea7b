"""New tokens as mixtures of their neighbours in a multilingual word-vector space (OFA)."""

from pathlib import Path

from vtkit.transfer.mixture import Mixture
from vtkit.transfer.word_space import neighbour_mixture, word_space
from vtkit.vocabulary.pair import VocabularyPair


def ofa_mixture(pair: VocabularyPair, vectors: Path) -> Mixture:
    """OFA (Liu et al. 2024, arXiv:2311.08849): ``E'_t = Σ softmax(cos(w_t, w_s) / 0.1) E_s``.

    ``w`` of a token is the mean of the vectors of the words whose tokenization contains it, the sum runs over the
    ten nearest source tokens. The paper factorises ``E = U Σ Vᵀ`` and mixes the coordinates U; mixing is linear, so
    mixing rows of the product gives the same at full rank. Tokens without a vector are drawn from normal noise with
    the moments of each dimension.

    Deviations: the lower ranks of the paper (100, 200, 400) are left out; overlap is vtkit's rule (the authors ignore
    case too), and words are not capitalised to find more tokens.

    Args:
        vectors: static word vectors that cover both languages in one space.
    """
    source, target = (word_space(side, vectors).vectors for side in (pair.source, pair.target))
    return neighbour_mixture("ofa", pair, source, target)
