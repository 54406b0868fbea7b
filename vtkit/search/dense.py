"""Exact search over dense vectors: every document is scored for every query."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

SCORES_AT_ONCE = 16_000_000

Vectors = npt.NDArray[np.float32]
Similarity = Callable[[Vectors, Vectors], Vectors]
"""Scores of queries, (queries, width), and documents, (documents, width): (queries, documents), larger is nearer."""


def nearest_documents(
    queries: Vectors, documents: Vectors, depth: int, similarity: Similarity
) -> tuple[npt.NDArray[np.int32], Vectors]:
    """The nearest ``depth`` documents, (documents, width), of each query, (queries, width), best first; ties keep the
    documents' order.

    Returns:
        Document numbers and scores, both (queries, depth), or as many columns as there are documents.
    """
    depth = min(depth, len(documents))
    ids = np.empty((len(queries), depth), dtype=np.int32)
    scores = np.empty((len(queries), depth), dtype=np.float32)
    at_once = max(1, SCORES_AT_ONCE // max(1, len(documents)))
    for begin in range(0, len(queries), at_once):
        block = slice(begin, begin + at_once)
        similarities = similarity(queries[block], documents)
        ids[block] = np.argsort(-similarities, axis=1, kind="stable")[:, :depth]
        scores[block] = np.take_along_axis(similarities, ids[block].astype(np.int64), axis=1)
    return ids, scores
