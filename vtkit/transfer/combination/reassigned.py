"""New tokens in the place of source words that nothing else stands for: the best row for a token without evidence.

What an encoder knows about a token is in its row, but *that* it marks the tokens it reads, each by itself, it knows of
every word of its vocabulary. A token that nothing is known about (the recipient) is therefore given the row of a source
word that no other target token uses (the donor): its meaning is wrong, but the encoder reads it as a word, weighs it as
one, and keeps it apart from all others, so that a query finds the documents that hold the very same token. Means of
pieces and nearest neighbours do the opposite: they make different words the same. docs/transfer.md has the figures.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from vtkit.transfer.mixture import Mixture
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.pair import VocabularyPair

SHORTEST_WORD = 3
"""Letters of a source token that can be a donor: shorter ones are pieces and abbreviations of everything."""

UNUSED = 0.05  # a source token is free while all rows together give it less weight than this


def with_reassigned(mixture: Mixture, pair: VocabularyPair, counts: NDArray[np.integer] | None = None) -> Mixture:
    """``mixture`` with a source word's row, one of its own where they last, for each token without weights.

    Donors are the source tokens that start a word, consist of three letters or more and have no part in the rows there
    are. The k-th most frequent recipient gets the row of the k-th most frequent donor, so that it weighs about what a
    word of its frequency does; vocabularies list their tokens by falling frequency, so a word's frequency is known by
    its id. When all donors are used they are used again from the rarest on. Target tokens that stand for no text
    (fillers, specials without a counterpart, broken bytes) are masked instead.

    Args:
        counts: how often each target token occurs in target text, (target vocabulary,); without them, ids stand for
            its frequency too.
    """
    without = np.flatnonzero(np.diff(mixture.weights.indptr) == 0)
    donors = _free_words(mixture, pair.source)
    has_text = np.array([bool(pair.target.texts[number]) for number in without.tolist()], dtype=bool)
    recipients = without[has_text] if len(donors) else without[:0]
    methods = mixture.methods.copy()
    methods[without[~has_text]] = "masked"
    methods[recipients] = "reassigned"
    if counts is not None:
        recipients = recipients[np.argsort(-counts[recipients], kind="stable")]
    words = np.resize(np.concatenate([donors, donors[::-1]]), len(recipients))
    rows = (np.ones(len(recipients), dtype=np.float32), (recipients, words))
    weights = csr_matrix(mixture.weights + csr_matrix(rows, shape=mixture.weights.shape), dtype=np.float32)
    weights.sort_indices()
    return replace(mixture, weights=weights, methods=methods)


def _free_words(mixture: Mixture, source: Vocabulary) -> NDArray[np.int64]:
    """Source ids that can be donors, ascending."""
    use = np.asarray(mixture.weights.sum(axis=0)).ravel()
    words = [
        number
        for number, (surface, starts_word) in enumerate(source.surfaces)
        if starts_word and len(surface) >= SHORTEST_WORD and surface.isalpha() and use[number] < UNUSED
    ]
    return np.array(words, dtype=np.int64)
