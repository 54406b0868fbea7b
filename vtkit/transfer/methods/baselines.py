"""Methods that all others have to beat: the mean of source rows, noise, or the mean of a token's pieces."""

from typing import cast

import numpy as np
from scipy.sparse import csr_matrix

from vtkit.settings.transfer import Fallback, MethodSettings
from vtkit.transfer.mixture import Mixture, Part, Texts, all_made_by, mixture_of_parts
from vtkit.vocabulary.pair import VocabularyPair


def mixture(pair: VocabularyPair, settings: MethodSettings, texts: Texts, seed: int) -> Mixture:
    """The mixture of the baseline that ``settings`` name. All but ``subtoken`` and ``random_all`` leave overlapping
    tokens their row, and new ones get what :meth:`Mixture.rows` makes of the name: ``overlap_mean`` is Mean-Init of the
    vocabulary-transfer paper, ``multivariate`` what FOCUS, WECHSEL and OFA give tokens without evidence."""
    match settings.name:
        case "subtoken":
            return subtoken_mixture(pair)
        case "random_all":
            everything = all_made_by("random", pair.overlap.target_size)
            return Mixture(csr_matrix(pair.shape, dtype=np.float32), everything)
        case fallback:
            return mixture_of_parts(pair, fallback=cast(Fallback, fallback))


def subtoken_mixture(pair: VocabularyPair) -> Mixture:
    """Each new token as the mean of its pieces in the source vocabulary (:attr:`VocabularyPair.pieces`), counted as
    often as they occur; the mean of all rows where it has none. The baseline of the vocabulary-transfer paper, and the
    method of AdaLM, CAI and FVT."""
    pieces = pair.pieces
    lengths = [len(cut) for cut in pieces.values()]
    rows = np.repeat(np.arange(len(pieces)), lengths)
    columns = np.array([piece for cut in pieces.values() for piece in cut], dtype=np.int64)
    weights = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(pieces), pair.source_rows))
    return mixture_of_parts(pair, [Part("subtoken", np.array(list(pieces), dtype=np.int64), weights)])
