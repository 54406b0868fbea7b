"""How often a dimension is active beside how often its token stands in the collection."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from vtkit.system.results import Result

BANDS = 10


@dataclass(frozen=True)
class Band(Result):
    """Tokens of similar frequency."""

    tokens: int
    frequency: float  # mean number of documents that hold the token ...
    active: float  # ... and in whose vectors it is active
    held: float  # share of the documents with the token in whose vectors it is active, on average over tokens


@dataclass(frozen=True)
class Activation(Result):
    """Activation against frequency in the collection."""

    correlation: float | None  # Spearman's, over tokens that stand in the collection
    never_active: int  # tokens of the collection that are active in no document
    only_expansion: int  # dimensions that are active, and whose token stands in no document
    bands: tuple[Band, ...]  # from the rarest tokens to the most frequent


def activation(presence: sp.csr_matrix, vectors: sp.csr_matrix) -> Activation:
    """Compare document frequency with the number of vectors in which a dimension is active.

    Args:
        presence: which document holds which token, (documents, vocabulary), 1 where it does.
        vectors: of the same documents, (documents, vocabulary).
    """
    from scipy.stats import spearmanr

    active = (vectors > 0).astype(np.float64)
    frequency, fires = (np.asarray(each.sum(axis=0), dtype=float).ravel() for each in (presence, active))
    both = np.asarray(presence.multiply(active).sum(axis=0), dtype=float).ravel()
    there = np.flatnonzero(frequency)
    ordered = there[np.argsort(frequency[there], kind="stable")]
    varies = len(there) > 1 and len(np.unique(frequency[there])) > 1 and len(np.unique(fires[there])) > 1
    correlation = float(spearmanr(frequency[there], fires[there]).statistic) if varies else None
    bands = tuple(
        Band(len(of), float(frequency[of].mean()), float(fires[of].mean()), float((both[of] / frequency[of]).mean()))
        for of in np.array_split(ordered, BANDS)
        if len(of)
    )
    return Activation(correlation, int((fires[there] == 0).sum()), int((fires[frequency == 0] > 0).sum()), bands)
