"""What a transfer made of a source's rows, as plain values: for the terminal, the manifest and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vtkit.encoder.fitted import HeadFit, UnitsFit
from vtkit.system.results import Result
from vtkit.transfer.neighbours import Neighbour


@dataclass(frozen=True)
class Probed(Result):
    """What ``auto`` compared: its rule, and what comes close to it."""

    name: str
    reciprocal_rank: float  # mean over the probe pairs
    p: float | None  # of the difference from the rule; None for the rule itself
    taken: bool


@dataclass(frozen=True)
class MovedRows(Result):
    """What a transfer made of the source's rows."""

    source_size: int  # tokens of the source's vocabulary
    overlap: Mapping[str, int]  # rule of the overlap -> tokens
    overlap_share: float  # of the new tokens
    methods: Mapping[str, int]  # method of transfer -> rows it gave
    neighbours: tuple[Neighbour, ...]  # some of the new tokens
    probed: tuple[Probed, ...] = ()  # what `auto` chose from, the rule first; empty where it went by the rule alone


@dataclass(frozen=True)
class TransferResult(Result):
    """An encoder on the new vocabulary."""

    target_size: int  # tokens of the new vocabulary
    masked_dimensions: int  # dimensions that `casing.output` masks
    moved: MovedRows | None = None  # none where the encoder was made from nothing, or stayed on its own vocabulary
    parameters: int | None = None  # of an encoder made from nothing, or on its own vocabulary
    source_parameters: int | None = None  # of the source, before its vocabulary was trimmed
    head: HeadFit | None = None  # how a head was fitted to a dense source
    units: UnitsFit | None = None  # how latent units were learned from a dense source
    kind: str = "splade"  # what the encoder is: `splade` or `unicoil`. No later stage changes it
