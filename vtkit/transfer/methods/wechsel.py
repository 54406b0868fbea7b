"""New tokens as mixtures of their neighbours in another word-vector space, reached by way of a dictionary (WECHSEL)."""

from pathlib import Path

import numpy as np
from scipy.linalg import orthogonal_procrustes

from vtkit.data.vectors import open_vectors
from vtkit.settings.transfer import WechselTransfer
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.transfer.methods.bitext import pairs_in
from vtkit.transfer.mixture import Mixture, Texts
from vtkit.transfer.word_space import neighbour_mixture, word_space
from vtkit.vocabulary.pair import VocabularyPair


def mixture(pair: VocabularyPair, settings: WechselTransfer, texts: Texts, seed: int) -> Mixture:
    """WECHSEL (Minixhofer et al. 2022, arXiv:2112.06598): ``E'_t = Σ softmax(cos(w_t, w_s R) / 0.1) E_s`` over the ten
    nearest source tokens. R is the orthogonal matrix with the smallest ``|W R - W'|`` (Schönemann's solution ``U Vᵀ``
    with ``U Σ Vᵀ = Wᵀ W'``), W and W' the vectors of a dictionary's words and of their translations, (pairs, width).

    ``w`` of a token is the mean of the vectors of the words that contain it, weighted by 1/rank of a word's place in
    its file (the paper: by frequency, or fastText's n-grams, which files do not hold). Tokens without a vector get
    normal noise with the moments of each dimension; overlapping tokens keep their row, which the authors mix too.
    """
    vectors, source_vectors = Path(str(settings.vectors)), Path(str(settings.source_vectors))
    width, source_width = open_vectors(vectors).width, open_vectors(source_vectors).width
    if width != source_width:
        raise DataError(
            f"{source_vectors} has vectors of {source_width} numbers and {vectors} of {width}: WECHSEL rotates one "
            "space into the other, which needs the same width in both. Train or fetch vectors of one width."
        )
    pairs = list(
        dict.fromkeys(  # each as it is, in lower case and in title case, in the order of the dictionary
            (first, second)
            for source, target in pairs_in(settings.dictionary, pair.source.tokenizer, pair.target.tokenizer)
            for first in (source, source.lower(), source.title())
            for second in (target, target.lower(), target.title())
        )
    )
    of_source, known = word_space(pair.source, source_vectors, "zipf", {word for word, _ in pairs})
    of_target, wanted = word_space(pair.target, vectors, "zipf", {word for _, word in pairs})
    pairs = [(first, second) for first, second in pairs if first in known and second in wanted]
    names = ", ".join(settings.dictionary)
    if not pairs:
        raise DataError(
            f"{names}: no pair has both words in the vectors. The source language comes first in a dictionary; do "
            f"{source_vectors} and {vectors} hold these languages?"
        )
    if len(pairs) < width:
        console.warn(
            f"{names}: only {len(pairs)} pairs have both words in the vectors, fewer than the vectors have dimensions "
            f"({width}), so the alignment of the two spaces is arbitrary in some directions."
        )
    words = [known[word] for word, _ in pairs], [wanted[word] for _, word in pairs]
    rotation, _ = orthogonal_procrustes(*(np.asarray(side, dtype=np.float64) for side in words))
    turned = of_source @ rotation.astype(np.float32)
    return neighbour_mixture("wechsel", pair, turned, of_target)
