"""New tokens as mixtures of the source tokens that an embedder finds closest in meaning (SemBridge).

The embedder must know both languages; within one language any sentence embedder will do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vtkit.transfer.bridge import Pooling, embed, load_embedder
from vtkit.transfer.entmax import Sparsity, entmax_rows
from vtkit.transfer.mixture import Mixture, Part, assemble
from vtkit.vocabulary.alignment import Alignment, surface_and_start

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def sembridge_mixture(
    embedder: str,
    source: PreTrainedTokenizerFast,
    target: PreTrainedTokenizerFast,
    alignment: Alignment,
    source_rows: int,
    sparsity: Sparsity | float = 4.0,
    pooling: Pooling = "model",
    prompt: str = "",
) -> Mixture:
    """:func:`similarity_mixture` by the embedder of that name, a folder or a hub id (see :func:`load_embedder`)."""
    loaded = load_embedder(embedder, pooling, prompt)
    return similarity_mixture(loaded, source, target, alignment, source_rows, sparsity)


def similarity_mixture(
    embedder: Any,
    source: PreTrainedTokenizerFast,
    target: PreTrainedTokenizerFast,
    alignment: Alignment,
    source_rows: int,
    sparsity: Sparsity | float = 4.0,
) -> Mixture:
    """Each new token as ``Σ_s α-entmax(cos(B(t), B(s))) E_s`` over the tokens ``s`` of the source vocabulary.

    ``B`` embeds the text a token stands for, without the mark of its family. The authors' code embeds
    ``decode(id)``, which leaves ``##`` in the text of WordPiece tokens, and takes part of the specials as text. Here
    special tokens, fillers and broken bytes take no part; new tokens of that kind become the mean of all rows.

    Args:
        embedder: an embedder of :func:`load_embedder`, or anything with sentence-transformers' ``encode``.
        source_rows: rows of the source's embedding matrix.
        sparsity: α (the paper has 4, the authors' code 2.5 as its default), or how it is chosen for each token.
    """
    anchors = [(number, text) for number, text in enumerate(_texts(source)) if text]
    texts = _texts(target)
    wanted = [number for number in alignment.new_ids.tolist() if texts[number]]
    if not wanted or not anchors:
        return assemble(alignment, source_rows)
    vectors = embed([*(text for _, text in anchors), *(texts[number] for number in wanted)], embedder)
    weights = entmax_rows(vectors[len(anchors) :], vectors[: len(anchors)], sparsity)
    # The columns so far count anchors; as source ids they stay in ascending order.
    weights.indices = np.array([number for number, _ in anchors], dtype=weights.indices.dtype)[weights.indices]
    weights.resize(len(wanted), source_rows)
    return assemble(alignment, source_rows, [Part("sembridge", np.array(wanted, dtype=np.int64), weights)])


def _texts(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """The text of each id without surrounding space; empty for ids that stand for none."""
    return [surface.strip() for surface, _ in surface_and_start(tokenizer)]
