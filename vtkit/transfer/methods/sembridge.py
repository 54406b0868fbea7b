"""New tokens as mixtures of the source tokens that an embedder finds closest in meaning (SemBridge).

The embedder must know both languages; within one language any sentence embedder will do.
"""

from typing import Any

import numpy as np

from vtkit.transfer.embedders import embed
from vtkit.transfer.entmax import similarity_part
from vtkit.transfer.mixture import Mixture, mixture_of_parts
from vtkit.vocabulary.pair import VocabularyPair


def similarity_mixture(pair: VocabularyPair, embedder: Any, alpha: float = 4.0) -> Mixture:
    """Each new token as ``Σ_s α-entmax(cos(B(t), B(s))) E_s`` over the tokens ``s`` of the source vocabulary.

    ``B`` embeds the text a token stands for, without the mark of its family. The authors' code embeds
    ``decode(id)``, which leaves ``##`` in the text of WordPiece tokens, and takes part of the specials as text. Here
    special tokens, fillers and broken bytes take no part; new tokens of that kind become the mean of all rows.

    Args:
        embedder: of :class:`vtkit.transfer.embedders.Embedder`, or with sentence-transformers' ``encode``.
        alpha: the paper has 4, the authors' code 2.5 as its default; 1 is softmax, all of whose weights count though
            only the heaviest are recorded.
    """
    anchors = [(number, text) for number, text in enumerate(pair.source.texts) if text]
    texts = pair.target.texts
    wanted = [number for number in pair.overlap.new_ids.tolist() if texts[number]]
    if not wanted or not anchors:
        return mixture_of_parts(pair)
    vectors = embed([*(text for _, text in anchors), *(texts[number] for number in wanted)], embedder)
    ids, source_ids = np.array(wanted, dtype=np.int64), np.array([number for number, _ in anchors], dtype=np.int64)
    known, new = vectors[: len(anchors)], vectors[len(anchors) :]
    return mixture_of_parts(pair, [similarity_part("sembridge", pair, ids, new, known, source_ids, alpha)])
