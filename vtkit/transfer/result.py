"""What a transfer made of a source's rows, as plain values: for the terminal, the manifest and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtkit.encoder.fitted import HeadFit, UnitsFit
from vtkit.system.results import Result

if TYPE_CHECKING:
    from vtkit.transfer.mixture import Mixture
    from vtkit.vocabulary.pair import VocabularyPair


@dataclass(frozen=True)
class Neighbour(Result):
    """A new token, and the source tokens that its row was mixed from."""

    token: str
    method: str
    sources: tuple[tuple[str, float], ...] = ()  # source tokens and their weights, heaviest first


def sample_neighbours(mixture: Mixture, pair: VocabularyPair, count: int = 24, seed: int = 0) -> tuple[Neighbour, ...]:
    """``count`` new tokens that have sources, or as many as there are, by ascending id, sampled with ``seed`` from the
    words of two letters or more, which say most to the eye, if there are any."""
    import numpy as np

    having = np.flatnonzero((mixture.methods != "overlap") & (np.diff(mixture.weights.indptr) > 0))
    surfaces = pair.target.surfaces
    words = [n for n in having.tolist() if surfaces[n][1] and len(surfaces[n][0]) > 1 and surfaces[n][0].isalpha()]
    pool = np.array(words or having.tolist(), dtype=np.int64)
    sampled = np.sort(np.random.default_rng(seed).choice(pool, min(count, len(pool)), replace=False))
    source_tokens, target_tokens = pair.source.legible, pair.target.legible
    return tuple(
        Neighbour(
            target_tokens[number],
            str(mixture.methods[number]),
            tuple((source_tokens[source_id], round(weight, 4)) for source_id, weight in mixture.sources(number)),
        )
        for number in sampled.tolist()
    )


@dataclass(frozen=True)
class Probed(Result):
    """The comparison that ``auto`` made: its rule, and close alternatives."""

    name: str
    reciprocal_rank: float  # mean over the snippets
    p: float | None  # of the difference from the rule; None for the rule itself
    taken: bool


@dataclass(frozen=True)
class MovedRows(Result):
    """Counts of a transfer's rows by their origin."""

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
