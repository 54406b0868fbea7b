"""New tokens as mixtures of their translations, learned from parallel text: a bridge that needs no pretrained
multilingual model.

p(source token | target token) is estimated with IBM model 1 (Brown et al. 1993) directly on the token ids of both
vocabularies, so a word of several pieces in one language finds the pieces of its translation in the other. Any
mixture of sentence pairs and dictionary entries serves. The probabilities live in one sorted table of the token
pairs that were ever seen together, and nothing is random: the same text gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags_array

from vtkit import console
from vtkit.data.parallel import read_pairs
from vtkit.data.text import batches
from vtkit.errors import DataError
from vtkit.transfer.mixture import Mixture, Part, mixture_of_parts
from vtkit.vocabulary.pair import VocabularyPair

LONGEST_TEXT = 128
"""Tokens of one text that are read; beyond that everything co-occurs with everything."""

CHARACTERS_PER_TOKEN = 16
"""Texts are cut at so many characters for each token that will be read, before they are tokenized."""

MOST_SOURCES = 20
"""Translations of one token that are kept."""

LARGEST_TABLE = 120_000_000
"""Token pairs of the probability table (20 bytes each while learning); text beyond it is left out, with a warning."""

PAIRS_AT_ONCE = 4096
KEYS_AT_ONCE = 8_000_000


class Ragged(NamedTuple):
    """Lists of token ids, one after the other."""

    ids: NDArray[np.int32]
    """All lists, (total length,)."""

    starts: NDArray[np.int64]
    """Where each list begins, and at last where the last one ends; (lists + 1,)."""


@dataclass(frozen=True)
class Bitext:
    """Parallel text as token ids, without special and unknown tokens."""

    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.source.starts) - 1


def pairs_in(files: Sequence[str | Path]) -> Iterator[tuple[str, str]]:
    """The pairs of several files, one after the other."""
    return chain.from_iterable(read_pairs(Path(file)) for file in files)


def translation_mixture(
    bitext: Bitext,
    pair: VocabularyPair,
    iterations: int = 8,
    agreement: float = 0.5,
    min_probability: float = 0.05,
) -> Mixture:
    """Each new token as the mixture of the source tokens it is translated by.

    The weights are ``w(s|t) ∝ p(s|t) · p(t|s)^a``: a pair counts for more when the translation holds in both
    directions. p(s|t) alone gives common source tokens to everything that is rare (rare words collect the
    translations of their neighbours), which the other direction knows not to be theirs. docs/transfer.md has the
    figures.

    New tokens that are nowhere in the parallel text have no weights; ``transfer.fallback`` says what they become.

    Args:
        iterations: rounds of expectation maximisation.
        agreement: the exponent a; 0 is p(s|t) alone.
        min_probability: see :func:`strongest`.
    """
    forward = translation_probabilities(bitext, pair.source_rows, pair.overlap.target_size, iterations)
    if agreement > 0:
        turned = Bitext(source=bitext.target, target=bitext.source)
        backward = translation_probabilities(turned, pair.overlap.target_size, pair.source_rows, iterations)
        forward = in_agreement(forward, backward, agreement)
    return of_translations("parallel", strongest(forward, min_probability), pair)


def of_translations(method: str, translations: csr_matrix, pair: VocabularyPair) -> Mixture:
    """The mixture of the new tokens that have weights among ``translations``, (target vocabulary, source rows)."""
    seen = np.diff(translations.indptr) > 0
    new = pair.overlap.new_ids
    translated = new[seen[new]]
    return mixture_of_parts(pair, [Part(method, translated, translations[translated])])


def in_agreement(forward: csr_matrix, backward: csr_matrix, exponent: float) -> csr_matrix:
    """``p(s|t) · p(t|s)^a`` with rows that sum to one; (target vocabulary, source vocabulary).

    Args:
        forward: p(s|t), (target, source).
        backward: p(t|s), (source, target).
        exponent: a, above 0.
    """
    both = csr_matrix(forward.multiply(backward.T.tocsr().power(exponent)))
    sums = np.asarray(both.sum(axis=1)).ravel()
    scaled = csr_matrix(diags_array(1.0 / np.where(sums > 0, sums, 1.0)) @ both)
    scaled.eliminate_zeros()
    scaled.sort_indices()
    return scaled


def read_bitext(pair: VocabularyPair, pairs: Iterable[tuple[str, str]]) -> Bitext:
    """Tokenize both texts of each pair. Special and unknown tokens are left out (what is unknown has no meaning
    to translate), and then pairs of which one text is empty.

    Raises:
        DataError: no pair has a known token in both texts.
    """
    vocabularies = (pair.source, pair.target)
    usable = [np.array([form is not None for form in vocabulary.forms]) for vocabulary in vocabularies]
    ids: tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]] = ([], [])
    lengths: tuple[list[int], list[int]] = ([], [])
    for batch in batches(pairs, PAIRS_AT_ONCE):
        encoded = [
            vocabulary.tokenizer.backend_tokenizer.encode_batch_fast(
                [texts[language][: LONGEST_TEXT * CHARACTERS_PER_TOKEN] for texts in batch], add_special_tokens=False
            )
            for language, vocabulary in enumerate(vocabularies)
        ]
        for encodings in zip(*encoded, strict=True):
            found = []
            for language, encoding in enumerate(encodings):
                read = np.array(encoding.ids[:LONGEST_TEXT], dtype=np.int32)
                found.append(read[usable[language][read]])
            if all(len(read) for read in found):
                for language, read in enumerate(found):
                    ids[language].append(read)
                    lengths[language].append(len(read))
    if not ids[0]:
        raise DataError("The parallel text has no pair with a known token in both texts; are its columns in order?")
    read_texts = []
    for language in (0, 1):
        flat = np.concatenate(ids[language])
        read_texts.append(Ragged(flat, np.concatenate([[0], np.cumsum(lengths[language])]).astype(np.int64)))
    return Bitext(*read_texts)


def translation_probabilities(bitext: Bitext, source_size: int, target_size: int, iterations: int) -> csr_matrix:
    """p(source token | target token) by IBM model 1, (target vocabulary, source vocabulary).

    In every pair each source token ``s`` is produced by one of the target tokens ``t`` or by the empty word, with
    all of them equally likely beforehand:

        expected count c(s, t) += p(s|t) / (p(s|empty) + Σ_t' p(s|t')),   p(s|t) = c(s, t) / Σ_s' c(s', t)

    from a uniform start, so the first round distributes by co-occurrence alone. Sums run in a fixed order in
    double precision.

    Returns:
        Float64 rows that sum to one for tokens that occur, and empty rows for the others.
    """
    starts, sources, pairs = _table(bitext, source_size, target_size)
    if pairs < len(bitext):
        console.warn(
            f"Only the first {pairs} of {len(bitext)} parallel pairs are used: more would not fit into the table of "
            f"{LARGEST_TABLE} token pairs."
        )
    probabilities = np.ones(len(sources))
    empty = np.ones(source_size)
    for _ in range(iterations):
        counts = np.zeros(len(sources))
        empty_counts = np.zeros(source_size)
        _expect(
            bitext.source.ids, bitext.source.starts, bitext.target.ids, bitext.target.starts, pairs,
            starts, sources, probabilities, empty, counts, empty_counts,
        )  # fmt: skip
        totals = np.add.reduceat(counts, starts[:-1][np.diff(starts) > 0]) if len(counts) else np.empty(0)
        probabilities = counts / np.repeat(totals, np.diff(starts)[np.diff(starts) > 0])
        empty = empty_counts / empty_counts.sum()
    return csr_matrix((probabilities, sources, starts), shape=(target_size, source_size))


def strongest(probabilities: csr_matrix, min_probability: float, most: int = MOST_SOURCES) -> csr_matrix:
    """The translations worth keeping, renormalised.

    Kept are those of at least ``min_probability``. Where a token has none (its probability is spread over many),
    those at least half as probable as its best one are kept instead, because the best evidence there is says more
    than none. At most ``most`` are kept, on ties the lower source ids.
    """
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


def _table(bitext: Bitext, source_size: int, target_size: int) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
    """The token pairs seen together as rows of sorted source ids, and how many sentence pairs they come from."""
    keys = np.empty(0, dtype=np.int64)
    begin = 0
    while begin < len(bitext):
        fresh, end = _co_occurrences(*bitext.source, *bitext.target, source_size, begin, KEYS_AT_ONCE)
        merged = np.union1d(keys, fresh)
        if len(merged) > LARGEST_TABLE and begin > 0:
            break
        keys, begin = merged, end
    counts = np.bincount(keys // source_size, minlength=target_size)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return starts, (keys % source_size).astype(np.int32), begin


@numba.njit(cache=True)
def _co_occurrences(source_ids, source_starts, target_ids, target_starts, source_size, begin, most):  # type: ignore[no-untyped-def]
    """Keys ``target · source_size + source`` of whole sentence pairs from ``begin`` on, until ``most`` are reached."""
    end, room = begin, 0
    while end < len(source_starts) - 1:
        size = (source_starts[end + 1] - source_starts[end]) * (target_starts[end + 1] - target_starts[end])
        if end > begin and room + size > most:
            break
        room += size
        end += 1
    keys = np.empty(room, dtype=np.int64)
    place = 0
    for pair in range(begin, end):
        for j in range(target_starts[pair], target_starts[pair + 1]):
            base = np.int64(target_ids[j]) * source_size
            for i in range(source_starts[pair], source_starts[pair + 1]):
                keys[place] = base + source_ids[i]
                place += 1
    return np.unique(keys), end


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
                t = target_ids[j]
                low, high = starts[t], starts[t + 1] - 1
                while low < high:
                    middle = (low + high) // 2
                    if sources[middle] < s:
                        low = middle + 1
                    else:
                        high = middle
                places[j - first] = low
                total += probabilities[low]
            if total <= 0.0:
                continue
            empty_counts[s] += empty[s] / total
            for j in range(first, last):
                counts[places[j - first]] += probabilities[places[j - first]] / total
