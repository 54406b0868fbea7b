"""Rows of new tokens by similarities of vectors, for ``sembridge``, ``semantic`` and ``focus``."""

import numpy as np
from numpy.typing import NDArray

from vtkit.transfer.dense_rows import DenseRows
from vtkit.transfer.entmax import entmax_rows
from vtkit.transfer.mixture import Part
from vtkit.vocabulary.pair import VocabularyPair


def similarity_part(
    method: str,
    pair: VocabularyPair,
    ids: NDArray[np.int64],
    queries: NDArray[np.floating],
    anchors: NDArray[np.floating],
    source_ids: NDArray[np.int64],
    alpha: float,
) -> Part:
    """The rows of new tokens by α-entmax of their similarities to anchors; without stored weights where these are too
    many.

    Args:
        ids: target ids of the new tokens, (rows,).
        queries, anchors: unit vectors, (rows, width) and (anchors, width).
        source_ids: of the anchors, (anchors,); several may be one source token.
    """
    weights = entmax_rows(queries, anchors, alpha)
    if weights is None:
        dense = DenseRows(ids, queries, anchors, source_ids, alpha)
        return Part(method, ids, dense.heaviest(pair.source_rows), dense)
    weights.indices = source_ids.astype(weights.indices.dtype)[weights.indices]
    weights.resize(len(ids), pair.source_rows)
    weights.sum_duplicates()
    return Part(method, ids, weights)
