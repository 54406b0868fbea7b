"""How the rows of several methods become one mixture, and what tokens without evidence become."""

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags_array

from vtkit.settings.transfer import Fallback
from vtkit.transfer.dense_rows import DenseRows
from vtkit.transfer.mixture import Mixture, all_made_by
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.pair import VocabularyPair


def back_off(mixtures: Sequence[tuple[str, Mixture]]) -> Mixture:
    """One mixture out of several over the same vocabularies, each row by the first that has evidence for it (gives the
    token weight), or is a :data:`Fallback`; the mean where none has."""
    shape = mixtures[0][1].weights.shape
    weights = csr_matrix(shape, dtype=np.float32)
    methods = all_made_by("mean", shape[0])
    open_rows = np.ones(shape[0], dtype=bool)
    dense_rows = list[DenseRows]()
    for name, mixture in mixtures:
        evident = np.ones_like(open_rows) if name in get_args(Fallback) else np.diff(mixture.weights.indptr) > 0
        chosen = open_rows & evident
        weights = weights + csr_matrix(diags_array(chosen.astype(np.float32)) @ mixture.weights)
        methods[chosen] = mixture.methods[chosen]
        dense_rows += [rows.among(chosen) for rows in mixture.dense_rows]
        open_rows &= ~chosen
    weights.eliminate_zeros()
    weights.sort_indices()
    return Mixture(weights, methods, tuple(dense_rows))


SHORTEST_WORD = 3
"""Letters of a source token that can be a donor: shorter ones are pieces and abbreviations of everything."""

UNUSED = 0.05  # a source token is free while all rows together give it less weight than this


def with_reassigned(mixture: Mixture, pair: VocabularyPair, counts: NDArray[np.integer] | None = None) -> Mixture:
    """``mixture`` with a source word's row, one of its own where they last, for each token without weights.

    The encoder then reads such a token (the recipient) as a word and keeps it apart from all others, if with a wrong
    meaning; docs/transfer.md has the figures. Donors are the source tokens that start a word, have three letters or
    more and no part in the rows there are. The k-th most frequent recipient gets the row of the k-th most frequent
    donor (the source's ids stand for frequency), and when all are used, they are used again from the rarest on. Target
    tokens that stand for no text are masked.

    Args:
        counts: how often each target token occurs in target text, (target vocabulary,); without them, ids count.
    """
    without = np.flatnonzero(np.diff(mixture.weights.indptr) == 0)
    use = np.asarray(mixture.weights.sum(axis=0)).ravel()
    words = [
        number
        for number, (surface, starts_word) in enumerate(pair.source.surfaces)
        if starts_word and len(surface) >= SHORTEST_WORD and surface.isalpha() and use[number] < UNUSED
    ]
    donors = np.array(words, dtype=np.int64)
    has_text = np.array([bool(pair.target.texts[number]) for number in without.tolist()], dtype=bool)
    recipients = without[has_text] if len(donors) else without[:0]
    methods = mixture.methods.copy()
    methods[without[~has_text]] = "masked"
    methods[recipients] = "reassigned"
    if counts is not None:
        recipients = recipients[np.argsort(-counts[recipients], kind="stable")]
    taken = np.resize(np.concatenate([donors, donors[::-1]]), len(recipients))
    rows = (np.ones(len(recipients), dtype=np.float32), (recipients, taken))
    weights = csr_matrix(mixture.weights + csr_matrix(rows, shape=mixture.weights.shape), dtype=np.float32)
    weights.sort_indices()
    return replace(mixture, weights=weights, methods=methods)


SMALLEST_SHARE = 0.5  # a token takes the mean of its pieces where they cover at least this share of its characters


def with_pieces(mixture: Mixture, target: Vocabulary) -> Mixture:
    """``mixture`` with rows for the tokens without weights: the mean of the known tokens their text is made of, cut
    greedily, longest piece first, pieces that start or continue a word as the token does preferred. Tokens of which the
    pieces cover less than half keep what they have."""
    surfaces = target.surfaces
    has_row = np.diff(mixture.weights.indptr) > 0
    whole = has_row.copy()
    for dense in mixture.dense_rows:  # their weights are not here
        whole[dense.ids] = False
    pieces: dict[tuple[str, bool], int] = {}
    for number, form in enumerate(surfaces):
        if form[0] and whole[number]:
            pieces.setdefault(form, number)
    longest = max((len(surface) for surface, _ in pieces), default=0)
    methods = mixture.methods.copy()
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for number in np.flatnonzero(~has_row).tolist():
        surface, starts_word = surfaces[number]
        parts, covered = _cut(surface, starts_word, pieces, longest)
        if parts and covered >= SMALLEST_SHARE * len(surface):
            rows += [number] * len(parts)
            columns += parts
            values += [1.0 / len(parts)] * len(parts)
            methods[number] = "pieces"
    cuts = csr_matrix((values, (rows, columns)), shape=(len(surfaces), len(surfaces)))
    weights = csr_matrix(mixture.weights + cuts @ mixture.weights, dtype=np.float32)
    weights.sort_indices()
    return replace(mixture, weights=weights, methods=methods)


def _cut(surface: str, starts_word: bool, pieces: dict[tuple[str, bool], int], longest: int) -> tuple[list[int], int]:
    """The pieces of ``surface``, and how many of its characters they cover."""
    parts: list[int] = []
    covered = position = 0
    while position < len(surface):
        wanted = starts_word and position == 0
        cuts = (
            (pieces.get((surface[position : position + length], mark)), length)
            for mark in (wanted, not wanted)
            for length in range(min(longest, len(surface) - position), 0, -1)
        )
        piece, length = next((cut for cut in cuts if cut[0] is not None), (None, 1))
        if piece is not None:
            parts.append(piece)
            covered += length
        position += length
    return parts, covered
