"""A document's own tokens, raised in its vector when it is indexed, so that a query for a word of it finds it.

w_j(d) <- w_j(d) + c · [d holds token j],   c the :data:`QUANTILE` of the weights of the collection
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from vtkit.encoder.asymmetric import writes_units
from vtkit.encoder.kinds import refuse_unicoil
from vtkit.encoder.query_tables import can_weigh
from vtkit.system.errors import DataError

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

QUANTILE = 0.9
FILE = "own_tokens.npy"  # file of what each dimension rises by in documents that hold its token


def rises(encoder: SparseEncoder, vectors: sparse.csr_matrix) -> NDArray[np.float32]:
    """The increase of each dimension: c, or 0 for special tokens, fillers and masked tokens, (vocabulary,). DataError:
    the dimensions are latent units, or the encoder is a uniCOIL one, which weights own tokens only."""
    refuse_unicoil(encoder, "index.own_tokens")
    if writes_units(encoder):
        raise DataError("latent units are not tokens: remove index.own_tokens")
    rise = np.quantile(vectors.data, QUANTILE) if vectors.nnz else 1.0
    return np.where(can_weigh(encoder), rise, 0.0).astype(np.float32)


def with_own_tokens(
    vectors: sparse.csr_matrix, held: Sequence[NDArray[np.int64]], rise: NDArray[np.float32]
) -> sparse.csr_matrix:
    """``vectors`` with ``rise`` added in the dimensions that each text holds (``tokens_held`` of ``idf.py``)."""
    columns = np.concatenate([np.zeros(0, dtype=np.int64), *held])
    starts = np.cumsum([0, *map(len, held)])
    raised = sparse.csr_matrix((rise[columns], columns, starts), vectors.shape)
    raised.eliminate_zeros()
    return (vectors + raised).tocsr()
