"""A list of methods: each token's row is made by the first that has evidence for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
from scipy.sparse import csr_matrix, diags_array

from vtkit.settings.transfer import Fallback
from vtkit.transfer.mixture import Mixture, all_made_by
from vtkit.transfer.softmax_rows import SoftmaxRows


def back_off(mixtures: Sequence[tuple[str, Mixture]], fallback: Fallback = "mean") -> Mixture:
    """One mixture out of several over the same vocabularies; tokens without evidence in any become ``fallback``.

    A method has evidence for a token where it gives weight to source tokens. ``mean``, ``random``, ``univariate`` and
    ``multivariate`` as methods of the list take every token that is left; as leftovers of another method they are no
    evidence, and the methods behind it are asked.

    Args:
        mixtures: name and mixture of each method, the first to be asked first.

    Raises:
        ValueError: there are none, or they are over different vocabularies.
    """
    if not mixtures:
        raise ValueError("there is no method in the list")
    shape = mixtures[0][1].weights.shape
    weights = csr_matrix(shape, dtype=np.float32)
    methods = all_made_by(fallback, shape[0])
    open_rows = np.ones(shape[0], dtype=bool)
    spread = list[SoftmaxRows]()
    for name, mixture in mixtures:
        if mixture.weights.shape != shape:
            raise ValueError(f"{name} is over {mixture.weights.shape} tokens, the methods before it over {shape}")
        evident = np.ones_like(open_rows) if name in get_args(Fallback) else np.diff(mixture.weights.indptr) > 0
        chosen = open_rows & evident
        weights = weights + csr_matrix(diags_array(chosen.astype(np.float32)) @ mixture.weights)
        methods[chosen] = mixture.methods[chosen]
        spread += [rows.among(chosen) for rows in mixture.spread]
        open_rows &= ~chosen
    weights.eliminate_zeros()
    weights.sort_indices()
    return Mixture(weights, methods, tuple(spread))
