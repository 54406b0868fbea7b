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
    of_translations,
    pairs_in,
    read_bitext,
    strongest,
)
from vtkit.transfer.methods.cooccurrence import cooccurrence_mixture
from vtkit.transfer.mixture import Mixture, Texts
from vtkit.vocabulary.pair import VocabularyPair

AGREEMENT = 0.5  # the exponent of the other direction's probabilities


def mixture(pair: VocabularyPair, settings: ParallelTransfer, texts: Texts, seed: int) -> Mixture:
    """:func:`translation_mixture` of the recipe's parallel text, or that of its other estimator."""
    bitext = read_bitext(pair, pairs_in(settings.files, pair.source.tokenizer, pair.target.tokenizer))
    estimate = translation_mixture if settings.estimator == "ibm1" else cooccurrence_mixture
    return estimate(bitext, pair, min_probability=settings.min_probability)


def translation_mixture(
    bitext: Bitext, pair: VocabularyPair, iterations: int = 8, min_probability: float = 0.05
) -> Mixture:
    """Each new token as the mixture of the source tokens it is translated by, ``w(s|t) ∝ p(s|t) · p(t|s)^a``: p(s|t)
    alone gives common source tokens to everything that is rare. New tokens that are nowhere in the text have no
    weights.

    Args:
        iterations: rounds of expectation maximisation.
        min_probability: see :func:`vtkit.transfer.methods.bitext.strongest`.
    """
    forward = translation_probabilities(bitext, pair.source_rows, pair.overlap.target_size, iterations)
    backward = translation_probabilities(bitext.turned(), pair.overlap.target_size, pair.source_rows, iterations)
    return of_translations("parallel", strongest(in_agreement(forward, backward, AGREEMENT), min_probability), pair)


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
                row, end = starts[target_ids[j]], starts[target_ids[j] + 1]
                places[j - first] = row + np.searchsorted(sources[row:end], s)
                total += probabilities[places[j - first]]
            if total <= 0.0:
                continue
            empty_counts[s] += empty[s] / total
            for j in range(first, last):
                counts[places[j - first]] += probabilities[places[j - first]] / total
