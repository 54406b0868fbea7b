"""[gates] of a recipe: how strict each check is."""

from __future__ import annotations

from typing import Annotated, Literal

from vtkit.settings.types import OneOrMore, Section

Gate = Literal[
    "overlap", "unicode", "trimmed", "read_back", "identity", "neighbours", "activation", "dimensions", "ties",
    "retrieval",
]  # fmt: skip


class GatesSection(Section):
    """[gates]: figures checked after vocabulary, transfer, adaptation and calibration (docs/transfer.md#gates). A gate
    that fails stops the run, if it is not named here."""

    warn: Annotated[tuple[Gate, ...], OneOrMore(Gate)] = ()
    """Gates that only warn if they fail."""

    off: Annotated[tuple[Gate, ...], OneOrMore(Gate)] = ()
    """Gates that are skipped."""
