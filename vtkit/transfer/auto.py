"""``method = "auto"``: each new token's row by the best evidence there is for that token.

1. ``parallel``: its translations, where parallel text is given and the token occurs in it.
2. ``subtoken``: the pieces the source tokenizer cuts it into, where the first of them is a stem: a source word of
   three letters or more that makes up at least half of the token (``receptors`` is ``receptor`` + ``s``).
3. ``sembridge``: its neighbours by an embedder, where one is given and the source cannot read the token, that is, cuts
   it into single characters or into nothing. A neighbour is then a translation. Within the source's own language it
   would be another word: neighbours made ``apoptosis`` fire as ``cancer``.

What is left has no evidence and takes the recipe's ``rest``: by default a source word's row of its own
(:mod:`vtkit.transfer.borrowed`).

docs/transfer.md compares this with every single method.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vtkit.transfer.in_order import in_order
from vtkit.transfer.mixture import Mixture, only
from vtkit.transfer.subtoken import source_pieces, subtoken_mixture
from vtkit.vocabulary.alignment import Alignment, surface_and_start

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SHORTEST_STEM = 3
"""Letters of a piece that can be a stem."""

STEM_SHARE = 0.5
"""Share of a token's characters that its stem must make up."""


def auto_mixture(
    source: PreTrainedTokenizerFast,
    target: PreTrainedTokenizerFast,
    alignment: Alignment,
    source_rows: int,
    bridges: Sequence[tuple[str, Mixture]],
) -> Mixture:
    """Each new token by its best evidence; tokens without any have no weights.

    Args:
        source_rows: rows of the source's embedding matrix.
        bridges: what ``parallel`` and ``sembridge`` found, where the recipe gives their bridges.
    """
    stems, unread = stems_and_unread(source, target, alignment)
    found = dict(bridges)
    pieces = only(subtoken_mixture(source, target, alignment, source_rows), stems)
    order = [("parallel", found["parallel"])] if "parallel" in found else []
    order.append(("subtoken", pieces))
    if "sembridge" in found:
        order.append(("sembridge", only(found["sembridge"], unread)))
    return in_order(order)


def stems_and_unread(
    source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast, alignment: Alignment
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The new tokens that begin with a stem the source knows, and those it cannot read; two lists of target ids."""
    surfaces = surface_and_start(target)
    known = surface_and_start(source)
    stems, unread = [], []
    pieces = source_pieces(source, target, alignment)
    for number in alignment.new_ids.tolist():
        surface, starts_word = surfaces[number]
        if not surface:
            continue
        read = [known[piece] for piece in pieces.get(number, ())]
        if all(len(text) <= 1 for text, _ in read):
            unread.append(number)
            continue
        stem, stem_starts = read[0]
        long_enough = len(stem) >= max(SHORTEST_STEM, STEM_SHARE * len(surface))
        if starts_word and stem_starts and stem.isalpha() and long_enough:
            stems.append(number)
    return np.array(stems, dtype=np.int64), np.array(unread, dtype=np.int64)
