"""New tokens as mixtures of their translations, learned from parallel text. p(source token | target token) is estimated
with IBM model 1 (Brown et al. 1993) directly on the token ids of both vocabularies; nothing is random."""

import numba
import numpy as np
from scipy.sparse import csr_matrix, diags_array

from vtkit.settings.transfer import ParallelTransfer
from vtkit.transfer.methods.bitext import (
    LONGEST_TEXT,
    Bitext,
    co_occurrence_table,
    pairs_in,
    place_in_table,
    read_bitext,
)
from vtkit.transfer.mixture import Mixture, Part, Texts, mixture_of_parts
from vtkit.vocabulary.pair import VocabularyPair

MOST_SOURCES = 20  # translations of one token that are kept
AGREEMENT = 0.5  # the exponent of the other direction's probabilities


def mixture(pair: VocabularyPair, settings: ParallelTransfer, texts: Texts, seed: int) -> Mixture:
    """:func:`translation_mixture` of the recipe's parallel text, or that of its other estimator."""
    bitext = read_bitext(pair, pairs_in(settings.files, pair.source.tokenizer, pair.target.tokenizer))
    if settings.estimator == "ibm1":
        return translation_mixture(bitext, pair, min_probability=settings.min_probability)
    from vtkit.transfer.methods.cooccurrence import cooccurrence_mixture

    return cooccurrence_mixture(bitext, pair, min_probability=settings.min_probability)


def translation_mixture(
    bitext: Bitext, pair: VocabularyPair, iterations: int = 8, min_probability: float = 0.05
) -> Mixture:
    """Each new token as the mixture of the source tokens it is translated by, ``w(s|t) ∝ p(s|t) · p(t|s)^a``: p(s|t)
    alone gives common source tokens to everything that is rare. New tokens that are nowhere in the text have no
    weights.

    Args:
        iterations: rounds of expectation maximisation.
        min_probability: see :func:`strongest`.
    """
    forward = translation_probabilities(bitext, pair.source_rows, pair.overlap.target_size, iterations)
    backward = translation_probabilities(bitext.turned(), pair.overlap.target_size, pair.source_rows, iterations)
    return of_translations("parallel", strongest(in_agreement(forward, backward, AGREEMENT), min_probability), pair)


def of_translations(method: str, translations: csr_matrix, pair: VocabularyPair) -> Mixture:
    """The mixture of the new tokens that have weights among ``translations``, (target vocabulary, source rows)."""
    seen = np.diff(translations.indptr) > 0
    new = pair.overlap.new_ids
    translated = new[seen[new]]
    return mixture_of_parts(pair, [Part(method, translated, translations[translated])])


def in_agreement(forward: csr_matrix, backward: csr_matrix, exponent: float) -> csr_matrix:
    """``p(s|t) · p(t|s)^a`` with rows that sum to one; (target vocabulary, source vocabulary).

    Args:
        forward, backward: p(s|t), (target, source), and p(t|s), (source, target).
        exponent: a, above 0.
    """
    both = csr_matrix(forward.multiply(backward.T.tocsr().power(exponent)))
    sums = np.asarray(both.sum(axis=1)).ravel()
    scaled = csr_matrix(diags_array(1.0 / np.where(sums > 0, sums, 1.0)) @ both)
    scaled.eliminate_zeros()
    scaled.sort_indices()
    return scaled


def translation_probabilities(bitext: Bitext, source_size: int, target_size: int, iterations: int) -> csr_matrix:
    """p(source token | target token) by IBM model 1, (target vocabulary, source vocabulary): float64 rows that sum to
    one, empty for tokens that do not occur.

    From a uniform start, each source token ``s`` of a pair is produced by one of its target tokens ``t`` or the empty
    word:

        expected count c(s, t) += p(s|t) / (p(s|empty) + Σ_t' p(s|t')),   p(s|t) = c(s, t) / Σ_s' c(s', t)
    """
    starts, sources, pairs = co_occurrence_table(bitext, source_size, target_size)
    probabilities = np.ones(len(sources))
    empty = np.ones(source_size)
    for _ in range(iterations):
        counts = np.zeros(len(sources))
        empty_counts = np.zeros(source_size)
        _expect(
            bitext.source.values, bitext.source.starts, bitext.target.values, bitext.target.starts, pairs,
            starts, sources, probabilities, empty, counts, empty_counts,
        )  # fmt: skip
        totals = np.add.reduceat(counts, starts[:-1][np.diff(starts) > 0]) if len(counts) else np.empty(0)
        probabilities = counts / np.repeat(totals, np.diff(starts)[np.diff(starts) > 0])
        empty = empty_counts / empty_counts.sum()
    return csr_matrix((probabilities, sources, starts), shape=(target_size, source_size))


def strongest(probabilities: csr_matrix, min_probability: float, most: int = MOST_SOURCES) -> csr_matrix:
    """The translations of at least ``min_probability``, or, where a token has none, those at least half as probable as
    its best one; at most ``most``, on ties the lower source ids; renormalised."""
    table = probabilities.tocsr()
    rows, columns, values = [], [], []
    for row in np.flatnonzero(np.diff(table.indptr)):
        span = slice(table.indptr[row], table.indptr[row + 1])
        ids, weights = table.indices[span], table.data[span]
        keep = weights >= min(min_probability, weights.max())
        if weights.max() < min_probability:
            keep = weights >= weights.max() / 2
        order = np.lexsort((ids[keep], -weights[keep]))[:most]
        chosen = weights[keep][order]
        rows.append(np.full(len(order), row))
        columns.append(ids[keep][order])
        values.append(chosen / chosen.sum())
    if not rows:
        return csr_matrix(table.shape, dtype=np.float64)
    where = (np.concatenate(rows), np.concatenate(columns))
    kept = csr_matrix((np.concatenate(values), where), shape=table.shape)
    kept.sort_indices()
    return kept


@numba.njit(cache=True)
def _expect(  # type: ignore[no-untyped-def]
    source_ids, source_starts, target_ids, target_starts, pairs,
    starts, sources, probabilities, empty, counts, empty_counts,
):  # fmt: skip
    """One expectation step: adds the expected counts of every sentence pair to ``counts`` and ``empty_counts``."""
    places = np.empty(LONGEST_TEXT, dtype=np.int64)
    for pair in range(pairs):
        first, last = target_starts[pair], target_starts[pair + 1]
        for i in range(source_starts[pair], source_starts[pair + 1]):
            s = source_ids[i]
            total = empty[s]
            for j in range(first, last):
                low = place_in_table(starts, sources, target_ids[j], s)
                places[j - first] = low
                total += probabilities[low]
            if total <= 0.0:
                continue
            empty_counts[s] += empty[s] / total
            for j in range(first, last):
                counts[places[j - first]] += probabilities[places[j - first]] / total
