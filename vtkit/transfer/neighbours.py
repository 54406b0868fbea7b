"""A few new tokens of a transfer, with what their rows were mixed from, for a person to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """``count`` new tokens, or as many as there are, by ascending id.

    They are sampled with ``seed`` from the words of two letters or more that have sources, because single characters
    and word endings say little to the eye; from all new tokens that have sources where there are no such words.
    """
    import numpy as np

    from vtkit.transfer.provenance import new_ids

    having = new_ids(mixture)
    having = having[np.diff(mixture.weights.indptr)[having] > 0]
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
