"""New tokens as the mean of all source rows: no meaning yet, but the right region of the space."""

from __future__ import annotations

from vtkit.transfer.mixture import Mixture, assemble
from vtkit.vocabulary.alignment import Alignment


def mean_mixture(alignment: Alignment, source_rows: int) -> Mixture:
    """Overlapping tokens keep their row, each new one gets the mean of all rows of the source."""
    return assemble(alignment, source_rows, rest="mean")
