"""[gates] of a recipe: how strict each check is."""

from __future__ import annotations

from typing import Literal

from vtkit.settings.types import Section

GateLevel = Literal["fail", "warn", "off"]


class GatesSection(Section):
    """[gates]: figures checked after transfer, adaptation and calibration (docs/transfer.md). If a gate fails, ``fail``
    stops the run and ``warn`` prints a warning; ``off`` skips the check."""

    overlap: GateLevel = "fail"
    """Share of the target vocabulary that overlaps, compared with other pairs of vocabularies in these scripts."""

    identity: GateLevel = "fail"
    """Shared tokens have their source rows bit for bit, and their bias if ``transfer.bias`` keeps it."""

    neighbours: GateLevel = "fail"
    """Position of new rows among source rows, and whether new rows differ from each other."""

    activation: GateLevel = "fail"
    """Share of positive activations on probe texts; NaN and infinity."""

    dimensions: GateLevel = "fail"
    """Active dimensions of probe texts: neither dead nor dense."""

    ties: GateLevel = "fail"
    """Share of probe queries whose best score is shared by another text."""

    read_back: GateLevel = "fail"
    """Share of the tokens of held-out texts that a fitted head reads back."""

    trimmed: GateLevel = "warn"
    """Share of the tokens of held-out texts that trimming removed."""

    unicode: GateLevel = "fail"
    """Share of [UNK] in the target corpus, the scripts behind it, and characters that the normalizer loses."""

    retrieval: GateLevel = "fail"
    """Whether the adapted encoder finds texts by spans of them as well as the encoder before training. After the
    transfer, at most a warning: whether the untransferred source finds more."""
