"""Documents as an index holds them: saturated, raised, weighted and pruned, in this order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from vtkit.encoder.asymmetric import output_tokenizer, writes_units
from vtkit.encoder.folding import folded_dimensions
from vtkit.encoder.idf import IDF, document_weights, tokens_held, weighted
from vtkit.encoder.largest_weights import pruned
from vtkit.encoder.own_tokens import FILE as OWN_TOKENS
from vtkit.encoder.own_tokens import rises, with_own_tokens
from vtkit.encoder.saturation import FILE as SATURATION
from vtkit.encoder.saturation import Saturation, saturates
from vtkit.settings.index import IndexSection

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder


def as_indexed(
    encoder: SparseEncoder,
    vectors: sparse.csr_matrix,
    texts: Sequence[str],
    index: IndexSection,
    sums: NDArray[np.float64],
    kept: Path | None = None,
) -> sparse.csr_matrix:
    """Documents as ``index`` saturates (:mod:`vtkit.encoder.saturation`), raises where they hold tokens
    (:mod:`vtkit.encoder.own_tokens`), weights and prunes them: the largest *weighted* entries of a document are kept.

    Args:
        vectors: with ``index.candidate_dimensions`` entries a document at most.
        texts: of the documents; read where dimensions are tokens.
        sums: of all weights of each document, also of those that ``vectors`` lack, (documents,).
        kept: folder for what further documents need: saturation, what their tokens rise by, and weights.
    """
    if saturates(encoder):
        saturation = Saturation.of(sums)
        vectors = saturation.applied(vectors, sums)
        if kept is not None:
            saturation.to_file(kept / SATURATION)
    held: Iterable[NDArray[np.int64]] | None = None
    if not writes_units(encoder):
        held = tokens_held(output_tokenizer(encoder), texts, folded_dimensions(encoder))
    if index.own_tokens:
        rise = rises(encoder, vectors)
        held = list(held or ())
        vectors = with_own_tokens(vectors, held, rise)
        if kept is not None:
            np.save(kept / OWN_TOKENS, rise, allow_pickle=False)
    if index.document_weighting != "none":
        weights = document_weights(vectors, held, index.document_weighting)
        vectors = weighted(vectors, weights)
        if kept is not None:
            np.save(kept / IDF, weights, allow_pickle=False)
    vectors, removed = pruned(vectors, index.top_dimensions)
    removed.say("weighted documents")
    return vectors
