"""New tokens as mixtures of their neighbours in a multilingual word-vector space (OFA)."""

from pathlib import Path

from vtkit.settings.transfer import OfaTransfer
from vtkit.transfer.mixture import Mixture, Texts
from vtkit.transfer.word_space import neighbour_mixture, word_space
from vtkit.vocabulary.pair import VocabularyPair


def mixture(pair: VocabularyPair, settings: OfaTransfer, texts: Texts, seed: int) -> Mixture:
    """OFA (Liu et al. 2024, arXiv:2311.08849): ``E'_t = Σ softmax(cos(w_t, w_s) / 0.1) E_s`` over the ten nearest
    source tokens, ``w`` of a token the mean of the vectors of the words whose tokenization contains it; tokens without
    a vector get normal noise with the moments of each dimension.

    The paper mixes the coordinates U of ``E = U Σ Vᵀ``, which at full rank is the same; its lower ranks are left out.
    Overlap is vtkit's rule, and words are not capitalised to find more tokens.
    """
    vectors = Path(str(settings.vectors))
    source, target = (word_space(side, vectors)[0] for side in (pair.source, pair.target))
    return neighbour_mixture("ofa", pair, source, target)
