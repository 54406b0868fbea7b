"""[gates] of a recipe: how strict each check is."""

from __future__ import annotations

from typing import Literal

from vtkit.settings.types import Section

GateLevel = Literal["fail", "warn", "off"]


class GatesSection(Section):
    """[gates]: figures checked after transfer, adaptation and calibration (docs/transfer.md). Where a gate fails,
    ``fail`` stops the run and ``warn`` continues; ``off`` skips the check."""

    overlap: GateLevel = "fail"
    """Share of the target vocabulary that overlaps, compared with other pairs of vocabularies in these scripts."""

    identity: GateLevel = "fail"
    """Shared tokens have their source rows bit for bit, and their bias where ``transfer.bias`` keeps it."""

    neighbours: GateLevel = "fail"
    """How new rows lie among source rows, and whether they can be told apart."""

    activation: GateLevel = "fail"
    """Share of positive activations on probe texts; NaN and infinity."""

    dimensions: GateLevel = "fail"
    """Active dimensions of probe texts: neither dead nor dense."""

    ties: GateLevel = "fail"
    """Share of probe queries' best scores that another text has too."""

    read_back: GateLevel = "fail"
    """How many tokens a fitted head reads back, of texts that it was not fitted on."""

    trimmed: GateLevel = "warn"
    """Share of the tokens of held-out texts that trimming took away."""

    unicode: GateLevel = "fail"
    """[UNK] share of the target corpus, the scripts behind it, and what the normalizer loses."""

    retrieval: GateLevel = "fail"
    """Whether the adapted encoder finds texts by spans of them as well as the encoder it was trained from. After the
    transfer: whether the source as it is finds more, which is a warning at most."""
