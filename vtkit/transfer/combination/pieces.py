"""New tokens as the mean of other target tokens that their text is made of: one way to fill the rows that a method has
no evidence for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_matrix

from vtkit.transfer.mixture import Mixture
from vtkit.vocabulary.forms import Vocabulary

SMALLEST_SHARE = 0.5  # a token takes the mean of its pieces where they cover at least this share of its characters


def with_pieces(mixture: Mixture, target: Vocabulary) -> Mixture:
    """``mixture`` with rows for the tokens without weights: the mean of the known tokens their text is made of.

    The text is cut greedily, longest piece first. The first piece should start a word exactly if the token does,
    the others should continue one; where no such piece fits, one of the other kind may. Tokens of which the pieces
    cover less than half keep what they have.
    """
    surfaces = target.surfaces
    has_row = np.diff(mixture.weights.indptr) > 0
    whole = has_row.copy()
    for spread in mixture.spread:  # their weights are not here
        whole[spread.ids] = False
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
        wanted = starts_word if position == 0 else False
        for starts, length in [
            (mark, length)
            for mark in (wanted, not wanted)
            for length in range(min(longest, len(surface) - position), 0, -1)
        ]:
            piece = pieces.get((surface[position : position + length], starts))
            if piece is not None:
                parts.append(piece)
                covered += length
                position += length
                break
        else:
            position += 1
    return parts, covered
