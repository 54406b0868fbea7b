"""New tokens as normal noise N(0, 0.02²): the baseline that everything else must beat."""

from __future__ import annotations

from vtkit.transfer.mixture import Mixture, assemble
from vtkit.vocabulary.alignment import Alignment


def random_mixture(alignment: Alignment, source_rows: int) -> Mixture:
    """Overlapping tokens keep their row; the noise of the others is drawn in ``Mixture.rows`` from its seed."""
    return assemble(alignment, source_rows, rest="random")
