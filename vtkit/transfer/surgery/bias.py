"""The decoder bias of a new vocabulary, how likely each token is before anything has been read: from token frequencies,
from the model that owns the target vocabulary, or from the source's bias, copied or mixed. Means and deviations are
over :func:`ordinary_rows` only; others were never trained as priors of a text's tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vtkit.data.text import batches
from vtkit.encoder.masked import MASKED_BIAS, is_masked
from vtkit.system.errors import DataError
from vtkit.transfer.mixture import Mixture
from vtkit.vocabulary.forms import Vocabulary, tokens, whole_encodings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SMALLEST_SHARE = 0.5  # share of the target's tokens that the model must have whose bias is the prior


def ordinary_rows(vocabulary: Vocabulary, bias: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Rows of a decoder with ``bias``, (rows,), that priors are taken from: tokens that stand for text and are not
    masked. The vocabulary may have fewer tokens than the decoder has rows."""
    rows = has_text(vocabulary, len(bias)) & ~is_masked(bias)
    if not rows.any():
        raise DataError("The decoder has no unmasked token that stands for text, so its bias cannot be a prior.")
    return rows


def has_text(vocabulary: Vocabulary, size: int) -> NDArray[np.bool_]:
    """Which of ``size`` rows stand for text: not special tokens, fillers, pieces of characters and rows behind the last
    token; (size,)."""
    rows = np.zeros(size, dtype=bool)
    texts = [bool(text) for text in vocabulary.texts][:size]
    rows[: len(texts)] = texts
    return rows


def zscore_bias(
    source_bias: NDArray[np.floating],
    target_prior: NDArray[np.floating],
    source_rows: NDArray[np.bool_],
    target_rows: NDArray[np.bool_],
) -> NDArray[np.float32]:
    """The target prior with the mean and the deviation of the source bias, (target vocabulary,).

    ``b' = μ(b_src) + σ(b_src) · (b_tgt - μ(b_tgt)) / σ(b_tgt)``: Prior-Aware Distribution Alignment of the
    vocabulary-transfer paper, with the prior of the model that owns the target vocabulary (:func:`model_prior`), or
    :func:`log_frequency`.

    Args:
        source_bias: (source vocabulary,).
        target_prior: any prior over the target tokens up to scale and shift, (target vocabulary,).
        source_rows, target_rows: rows that μ and σ are over (:func:`ordinary_rows`); if there are no target rows, all.
    """
    source = np.asarray(source_bias, dtype=np.float64)[source_rows]
    prior = np.asarray(target_prior, dtype=np.float64)
    usual = prior[target_rows] if target_rows.any() else prior
    spread = usual.std()
    scores = (prior - usual.mean()) / spread if spread > 0 else np.zeros_like(prior)
    return np.asarray(source.mean() + source.std() * scores, dtype=np.float32)


def masked(bias: NDArray[np.floating], mixture: Mixture) -> NDArray[np.float32]:
    """``bias`` with the tokens that ``mixture`` masks masked, whatever the method: they stand for nothing; (target
    vocabulary,)."""
    result = np.array(bias, dtype=np.float32)
    result[mixture.methods == "masked"] = MASKED_BIAS
    return result


def model_prior(name: str, target: Vocabulary) -> NDArray[np.float64]:
    """The decoder bias of the masked language model ``name``, a folder or hub id, for ``target``'s tokens by their
    spelling, (target vocabulary,); tokens that it does not have, or masks, get the mean over its ordinary rows."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.families import mlm_head

    owner = load_encoder(name, label="prior model")
    known = Vocabulary(owner.tokenizer)
    bias = mlm_head(owner[0].auto_model).decoder.bias
    if bias is None:
        raise DataError(
            f"The masked-language-model head of {name} has no bias, and so no prior. Remove bias.model: the "
            "prior is then counted in text."
        )
    values = bias.detach().double().numpy()
    places = {token: number for number, token in enumerate(known.tokens) if token and number < len(values)}
    wanted = target.tokens
    rows = np.array([places.get(token, -1) for token in wanted], dtype=np.int64)
    shared = rows >= 0
    if shared.sum() < SMALLEST_SHARE * len(wanted):
        raise DataError(
            f"bias.model = {name} does not own the target vocabulary: it has {shared.sum():,} of its "
            f"{len(wanted):,} tokens. Name the model that the target tokenizer was made for, or remove the setting."
        )
    prior = np.full(len(wanted), values[ordinary_rows(known, values)].mean())
    shared &= ~is_masked(values)[rows]
    prior[shared] = values[rows[shared]]
    return prior


def log_frequency(token_counts: NDArray[np.integer]) -> NDArray[np.float64]:
    """Smoothed log unigram probability ``ln((n_t + 1) / (N + V))`` of each token, (target vocabulary,)."""
    counts = np.asarray(token_counts, dtype=np.float64) + 1
    result: NDArray[np.float64] = np.log(counts / counts.sum())
    return result


def count_tokens(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str]) -> NDArray[np.int64]:
    """How often each token occurs in ``texts``, a stream, special tokens aside; (vocabulary,)."""
    counts = np.zeros(len(tokens(tokenizer)), dtype=np.int64)
    for batch in batches(texts):
        for encoding in whole_encodings(tokenizer, batch):
            np.add.at(counts, encoding.ids, 1)
    if not counts.any():
        raise DataError("The texts to count token frequencies in are empty.")
    return counts
