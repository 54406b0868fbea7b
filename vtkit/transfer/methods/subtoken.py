"""New tokens as the mean of the pieces that the source tokenizer cuts their text into.

The robust baseline of the vocabulary-transfer paper, and the method of AdaLM, CAI and FVT. The text of the token is
tokenized, not its spelling: ``##school`` is the continuation "school" and holds no hash signs.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from vtkit.transfer.mixture import Mixture, Part, mixture_of_parts
from vtkit.vocabulary.pair import VocabularyPair


def subtoken_mixture(pair: VocabularyPair) -> Mixture:
    """Each new token as the mean of its pieces in the source vocabulary (:attr:`VocabularyPair.pieces`); the mean of
    all rows where it has none.

    A piece that occurs twice counts twice.
    """
    pieces = pair.pieces
    lengths = [len(found) for found in pieces.values()]
    rows = np.repeat(np.arange(len(pieces)), lengths)
    columns = np.array([piece for found in pieces.values() for piece in found], dtype=np.int64)
    weights = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(pieces), pair.source_rows))
    return mixture_of_parts(pair, [Part("subtoken", np.array(list(pieces), dtype=np.int64), weights)])
