"""Weighting documents by inverse document frequency: ŝ_d = w ⊙ s_d, documents only (CAI, arXiv:2211.03988). Scores are
dot products, so weighting documents is weighting queries, as long as nothing is pruned or quantised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from vtkit.data.text import batches
from vtkit.data.word_counts import pieces
from vtkit.encoder.truncation import whole_encodings
from vtkit.settings.index import DocumentWeighting

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IDF = "idf.npy"  # file of the factor of each dimension of the documents, if they are weighted


class DocumentCounter:
    """Document frequencies of texts on their way to somebody else; :func:`document_frequencies` says what counts."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, size: int, folded_to: NDArray[np.int64] | None = None
    ) -> None:
        self.frequencies: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        self.documents = 0
        self._tokenizer, self._folded_to = tokenizer, folded_to

    def counting(self, texts: Iterable[str]) -> Iterator[str]:
        """``texts``, counted as they pass."""
        for batch in batches(texts):
            self.documents += len(batch)
            for held in tokens_held(self._tokenizer, batch, self._folded_to):
                self.frequencies[held] += 1
            yield from batch


def tokens_held(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], folded_to: NDArray[np.int64] | None = None
) -> Iterator[NDArray[np.int64]]:
    """The distinct tokens of each of ``texts``, or the dimensions they are folded into, sorted;
    :func:`document_frequencies` says what counts."""
    for batch in batches(texts):
        parts = [list(pieces(text)) for text in batch]  # 60 megabytes as one text would take gigabytes
        encodings = chain.from_iterable(
            whole_encodings(tokenizer, some) for some in batches(chain.from_iterable(parts))
        )
        for parts_of_text in parts:
            ids = set(chain.from_iterable(encoding.ids for encoding in islice(encodings, len(parts_of_text))))
            held = np.array(sorted(ids), dtype=np.int64)
            yield held if folded_to is None else np.unique(folded_to[held])


def document_frequencies(
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    size: int,
    folded_to: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], int]:
    """In how many of ``texts`` each token occurs, (size,), and how many texts there are.

    Whole texts count, however long; special tokens do not. Where vectors are folded (``folded_to``, (size,), of
    ``fold_map_of``), a text counts once for a dimension if it holds any of its case variants.
    """
    counter = DocumentCounter(tokenizer, size, folded_to)
    for _ in counter.counting(texts):
        pass
    return counter.frequencies, counter.documents


def idf_weights(frequencies: NDArray[np.integer], documents: int, weighting: DocumentWeighting) -> NDArray[np.float32]:
    """The factor of each dimension of a document, (vocabulary,), for N documents of which N_t hold token t.

    - ``cai-paper``: ``w_t = ln(N / N_t)``, and 1 where no document holds t (CAI).
    - ``cai-code``: the square root of that, as the authors' code has it by default.
    - ``geng``: ``w_t = ln(1 + (N − N_t + ½) / (N_t + ½))`` (Geng et al. 2024, arXiv:2411.04403).
    - ``none``: 1.
    """
    held = np.asarray(frequencies, dtype=np.float64)
    match weighting:
        case "none":
            weights = np.ones_like(held)
        case "geng":
            weights = np.log1p((documents - held + 0.5) / (held + 0.5))
        case "cai-paper" | "cai-code":
            weights = np.where(held > 0, np.log(documents / np.maximum(held, 1)), 1.0)
            if weighting == "cai-code":
                weights = np.sqrt(weights)
    return weights.astype(np.float32)


def weighted(vectors: sparse.csr_matrix, weights: NDArray[np.float32]) -> sparse.csr_matrix:
    """``vectors`` with every dimension multiplied by its weight; dimensions that become 0 are left out."""
    result = vectors.copy()
    result.data = result.data * weights[result.indices]
    result.eliminate_zeros()
    return result


def document_weights(
    vectors: sparse.csr_matrix, held: Iterable[NDArray[np.int64]] | None, weighting: DocumentWeighting
) -> NDArray[np.float32]:
    """:func:`idf_weights` of the dimensions of ``vectors``, by the dimensions that each document holds
    (:func:`tokens_held`); None: by those of its vector."""
    if held is None:
        frequencies: NDArray[np.int64] = np.bincount(vectors.indices, minlength=vectors.shape[1])
    else:
        frequencies = np.zeros(vectors.shape[1], dtype=np.int64)
        for dimensions in held:
            frequencies[dimensions] += 1
    return idf_weights(frequencies, vectors.shape[0], weighting)
