"""A sparse encoder on a part of its own vocabulary: the rows of the tokens that were taken out leave with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from vtkit.encoder.families import mlm_head
from vtkit.transfer.mixture import Mixture, all_made_by
from vtkit.transfer.surgery.graft import graft_encoder
from vtkit.vocabulary.trimmed import kept_ids

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder
    from transformers import PreTrainedTokenizerFast


def trim_encoder(source: SparseEncoder, trimmed: PreTrainedTokenizerFast, folder: Path) -> SparseEncoder:
    """``source`` with the rows and biases of the tokens of ``trimmed``, each of which it has; a static query table too.

    Hidden states of texts whose tokens are all kept are those of ``source`` to the bit, and so are the weights of the
    kept tokens, but for the order of summation that a matrix product of another shape may take.

    Raises:
        DataError: as :func:`vtkit.transfer.surgery.graft.graft_encoder`.
    """
    kept = kept_ids(source.tokenizer, trimmed)
    return graft_encoder(
        source,
        trimmed,
        _copies(kept, mlm_head(source[0].auto_model).decoder.out_features),
        lambda bias: bias[kept],
        folder,
    )


def _copies(kept: NDArray[np.int64], source_rows: int) -> Mixture:
    """The mixture whose rows are the source's rows ``kept``."""
    ones = np.ones(len(kept), dtype=np.float32)
    weights = csr_matrix((ones, kept, np.arange(len(kept) + 1)), shape=(len(kept), source_rows))
    return Mixture(weights, all_made_by("overlap", len(kept)))
