"""How well queries and documents meet on a vocabulary: words split, and query tokens that relevant documents hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtkit.system.results import Result

if TYPE_CHECKING:
    import numpy as np
    import scipy.sparse as sp
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Coverage(Result):
    """Coverage of a collection's queries, each figure a mean over queries (None without any)."""

    words_split: float | None  # share of a query's words that are several tokens
    queries_split: float | None  # share of the queries with such a word
    tokens_per_word: float | None

    own_tokens_met: float | None
    """Share of a query's own tokens that are active in its relevant documents, on average over these ..."""

    own_tokens_met_elsewhere: float | None
    """... and in all documents. The nearer to the former, the less the tokens tell documents apart."""

    score_by_own_tokens: float | None
    """Share of the score of relevant documents that comes from the query's own tokens; the rest is expansion."""


def coverage(
    words: Sequence[Sequence[int]],
    tokens: Sequence[NDArray[np.int64]],
    queries: sp.csr_matrix,
    documents: sp.csr_matrix,
    relevant: Sequence[NDArray[np.int64]],
) -> Coverage:
    """Coverage of each query's terms.

    Args:
        words: the number of tokens of each word, for each query.
        tokens: the distinct tokens of each query, as dimensions of the vectors.
        queries, documents: their vectors, (queries, vocabulary) and (documents, vocabulary).
        relevant: numbers of the relevant documents of each query.
    """
    import numpy as np

    split = [float(np.mean(np.asarray(counts) > 1)) for counts in words if len(counts)]
    some = [float(any(count > 1 for count in counts)) for counts in words if len(counts)]
    lengths = [float(np.mean(counts)) for counts in words if len(counts)]
    active = (documents > 0).astype(np.float64)
    share = np.asarray(active.mean(axis=0)).ravel()
    met, elsewhere, own_score = [], [], []
    for number, (own, judged) in enumerate(zip(tokens, relevant, strict=True)):
        if not len(own) or not len(judged):
            continue
        met.append(float(active[judged][:, own].mean()))
        elsewhere.append(float(share[own].mean()))
        query = queries[number].toarray().ravel()
        products = np.asarray(documents[judged].multiply(query[None]).sum(axis=0)).ravel()
        if products.sum() > 0:
            own_score.append(float(products[own].sum() / products.sum()))
    figures = (split, some, lengths, met, elsewhere, own_score)
    return Coverage(*(sum(values) / len(values) if values else None for values in figures))
