"""New tokens as mixtures of the source tokens closest in meaning by an embedder of both languages (SemBridge)."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vtkit.settings.transfer import SembridgeTransfer
from vtkit.transfer.embedders import embed
from vtkit.transfer.mixture import Mixture, Texts, mixture_of_parts
from vtkit.transfer.similarity import similarity_part
from vtkit.vocabulary.pair import VocabularyPair


def mixture(pair: VocabularyPair, settings: SembridgeTransfer, texts: Texts, seed: int) -> Mixture:
    """:func:`similarity_mixture` by the embedder of the recipe."""
    return similarity_mixture(pair, partial(embed, name=str(settings.embedder)), settings.alpha)


def similarity_mixture(
    pair: VocabularyPair, embedder: Callable[[Sequence[str]], NDArray[np.float32]], alpha: float = 4.0
) -> Mixture:
    """Each new token as ``Σ_s α-entmax(cos(B(t), B(s))) E_s`` over the tokens ``s`` of the source vocabulary. ``B``
    embeds the text a token stands for (the authors' code leaves ``##`` in it); special tokens, fillers and broken bytes
    take no part.

    Args:
        embedder: gives a unit vector of each text (:func:`vtkit.transfer.embedders.embed`).
        alpha: 4 in the paper, 2.5 in the authors' code; 1 is softmax, of which only the heaviest weights are recorded.
    """
    anchors = [(number, text) for number, text in enumerate(pair.source.texts) if text]
    texts = pair.target.texts
    wanted = [number for number in pair.overlap.new_ids.tolist() if texts[number]]
    if not wanted or not anchors:
        return mixture_of_parts(pair)
    vectors = embedder([*(text for _, text in anchors), *(texts[number] for number in wanted)])
    ids, source_ids = np.array(wanted, dtype=np.int64), np.array([number for number, _ in anchors], dtype=np.int64)
    known, new = vectors[: len(anchors)], vectors[len(anchors) :]
    return mixture_of_parts(pair, [similarity_part("sembridge", pair, ids, new, known, source_ids, alpha)])
