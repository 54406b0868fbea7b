"""The second estimator of the ``parallel`` method: each token, of either language, is the vector of the sentence pairs
in which it occurs, and α-entmax of the cosines makes the mixture. There is nothing to learn."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags_array, vstack

from vtkit.data.sequences import Ragged
from vtkit.transfer.entmax import entmax
from vtkit.transfer.methods.bitext import Bitext, of_translations, strongest
from vtkit.transfer.mixture import Mixture
from vtkit.vocabulary.pair import VocabularyPair

TARGETS_AT_ONCE = 2048

MOST_CANDIDATES = 256  # source tokens of the highest cosines that the entmax of a row is taken over


def cooccurrence_mixture(
    bitext: Bitext, pair: VocabularyPair, alpha: float = 4.0, min_probability: float = 0.05
) -> Mixture:
    """Each new token as ``Σ_s α-entmax(cos(x_t, x_s)) E_s``, over the source tokens that share a pair with it.

    ``x_t`` has the entry ``(n_i m_i)^-¼`` for each pair i of n_i source and m_i target tokens in which t occurs, and 0
    elsewhere: a dictionary entry says more about its words than a long sentence.

    Args:
        min_probability: see :func:`vtkit.transfer.methods.bitext.strongest`.
    """
    lengths = bitext.source.lengths * bitext.target.lengths
    weights = lengths**-0.25
    source = _unit_rows(bitext.source, pair.source_rows, weights)
    target = _unit_rows(bitext.target, pair.overlap.target_size, weights)
    rows = []
    for begin in range(0, pair.overlap.target_size, TARGETS_AT_ONCE):
        cosines = csr_matrix(target[begin : begin + TARGETS_AT_ONCE] @ source.T)
        rows.append(_entmax_of_nonzeros(cosines, alpha))
    weighed = csr_matrix(vstack(rows, format="csr"))
    return of_translations("cooccurrence", strongest(weighed, min_probability), pair)


def _unit_rows(texts: Ragged, size: int, weights: NDArray[np.floating]) -> csr_matrix:
    """The vectors of sentence ids of one language, of length one; (vocabulary, pairs)."""
    pairs = np.repeat(np.arange(len(weights)), texts.lengths)
    present = csr_matrix((np.ones(len(pairs)), (texts.values, pairs)), shape=(size, len(weights)))
    present.sum_duplicates()
    present.data = weights[present.indices]
    lengths = np.sqrt(np.asarray(present.multiply(present).sum(axis=1)).ravel())
    return csr_matrix(diags_array(1.0 / np.where(lengths > 0, lengths, 1.0)) @ present)


def _entmax_of_nonzeros(cosines: csr_matrix, alpha: float) -> csr_matrix:
    """α-entmax of each row's stored values, at most the ``MOST_CANDIDATES`` largest of them; the same shape."""
    cosines.sort_indices()
    having = np.flatnonzero(np.diff(cosines.indptr))
    scores = np.full((len(having), MOST_CANDIDATES), -1e6)  # far below every cosine: no weight
    columns = np.zeros((len(having), MOST_CANDIDATES), dtype=np.int64)
    for place, row in enumerate(having.tolist()):
        span = slice(cosines.indptr[row], cosines.indptr[row + 1])
        best = np.argsort(-cosines.data[span], kind="stable")[:MOST_CANDIDATES]
        scores[place, : len(best)] = cosines.data[span][best]
        columns[place, : len(best)] = cosines.indices[span][best]
    weights = entmax(scores, alpha)
    where = weights > 0
    rows = np.repeat(having, where.sum(axis=1))
    return csr_matrix((weights[where], (rows, columns[where])), shape=cosines.shape)
