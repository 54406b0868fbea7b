"""The decoder bias of a new vocabulary: how likely each token is before anything has been read.

Resizing a model in transformers leaves old biases at the row numbers where they stood, so a new token inherits
the prior of an unrelated one. Here the bias is always set on purpose, from token frequencies or (see
``Mixture.bias``) from the weights that built the embeddings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vtkit.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TEXTS_AT_ONCE = 1024


def zscore_bias(source_bias: NDArray[np.floating], target_prior: NDArray[np.floating]) -> NDArray[np.float32]:
    """The target prior with the mean and the deviation of the source bias, (target vocabulary,).

    ``b' = μ(b_src) + σ(b_src) · (b_tgt - μ(b_tgt)) / σ(b_tgt)``: Prior-Aware Distribution Alignment of the
    vocabulary-transfer paper, whose target prior is the bias of the model that owns the target vocabulary. A
    vocabulary without such a model takes :func:`log_frequency` of its tokens instead.

    Args:
        source_bias: decoder bias of the source encoder, (source vocabulary,).
        target_prior: any prior over the target tokens up to scale and shift, (target vocabulary,).
    """
    source = np.asarray(source_bias, dtype=np.float64)
    prior = np.asarray(target_prior, dtype=np.float64)
    spread = prior.std()
    scores = (prior - prior.mean()) / spread if spread > 0 else np.zeros_like(prior)
    return np.asarray(source.mean() + source.std() * scores, dtype=np.float32)


def log_frequency(token_counts: NDArray[np.integer], smoothing: float = 1.0) -> NDArray[np.float64]:
    """Smoothed log unigram probability ``ln((n_t + s) / (N + s V))`` of each token, (target vocabulary,)."""
    counts = np.asarray(token_counts, dtype=np.float64)
    result: NDArray[np.float64] = np.log((counts + smoothing) / (counts.sum() + smoothing * len(counts)))
    return result


def count_tokens(
    tokenizer: PreTrainedTokenizerFast, texts: Iterable[str], max_texts: int | None = None
) -> NDArray[np.int64]:
    """How often each token occurs in ``texts``, special tokens aside; (vocabulary,). Texts are read as a stream.

    Args:
        max_texts: stop after so many texts.

    Raises:
        DataError: there is no token in the texts.
    """
    from vtkit.vocabulary.alignment import tokens

    counts = np.zeros(len(tokens(tokenizer)), dtype=np.int64)
    for batch in batches(islice(texts, max_texts), TEXTS_AT_ONCE):
        for encoding in tokenizer.backend_tokenizer.encode_batch_fast(batch, add_special_tokens=False):
            np.add.at(counts, encoding.ids, 1)
    if not counts.any():
        raise DataError("There are no tokens in the texts whose frequencies are to be counted: they are empty.")
    return counts


def batches(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """``texts`` in lists of ``size``."""
    stream = iter(texts)
    while batch := list(islice(stream, size)):
        yield batch
