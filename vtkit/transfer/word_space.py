"""The tokens of a vocabulary in a space of word vectors, and each new token's nearest source tokens there: what OFA and
WECHSEL share. A token's vector is the mean of the vectors of the words whose tokenization contains it."""

from collections.abc import Collection
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from vtkit.data.vectors import open_vectors, read_vectors
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.transfer.mixture import Mixture, Part, mixture_of_parts
from vtkit.vocabulary.forms import Vocabulary, whole_encodings
from vtkit.vocabulary.pair import VocabularyPair

SIMILARITIES_AT_ONCE = 16_000_000
NEIGHBOURS, TEMPERATURE = 10, 0.1  # of OFA and of WECHSEL alike

Weighting = Literal["equal", "zipf"]
"""How much each word counts in a token's mean: all the same, or 1/rank of its place in the file."""


def word_space(
    vocabulary: Vocabulary, path: Path, weighting: Weighting = "equal", wanted: Collection[str] = ()
) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
    """Each token as the mean of the vectors of the words that contain it, tokenized as they are and with a space before
    them. Special and unknown tokens have no vector. The file is read once, as a stream.

    Args:
        weighting: ``zipf`` stands for the frequencies of the words: files list them by falling frequency, about 1/rank.
        wanted: words whose own vectors are kept.

    Returns:
        The vector of each token, zero where no word contains it, (vocabulary, width), and those of the wanted words
        that are there.
    """
    file = open_vectors(path)
    known = np.array([bool(text) for text in vocabulary.texts])
    sums = np.zeros((len(known), file.width), dtype=np.float32)
    mass = np.zeros(len(known))
    kept: dict[str, NDArray[np.float32]] = {}
    rank = 0
    read = console.tracked(read_vectors(path), "word vectors read", file.words, lambda block: len(block[0]))
    for words, vectors in read:
        kept.update((w, vector.copy()) for w, vector in zip(words, vectors, strict=True) if w in wanted)
        places: list[int] = []
        ids: list[int] = []
        for prefix in ("", " "):
            texts = [prefix + word for word in words]
            for place, encoding in enumerate(whole_encodings(vocabulary.tokenizer, texts)):
                pieces = set(encoding.ids)
                ids += pieces
                places += [place] * len(pieces)
        touched, rows = np.unique(np.array(ids, dtype=np.int64), return_inverse=True)
        share = np.ones(len(words)) if weighting == "equal" else 1 / np.arange(rank + 1, rank + 1 + len(words))
        contained = csr_matrix((share[places], (rows, places)), shape=(len(touched), len(words)))
        sums[touched] += contained @ vectors
        mass[touched] += np.asarray(contained.sum(axis=1)).ravel()
        rank += len(words)
    sums[~known] = 0
    if not sums.any():
        raise DataError(f"{path}: none of its {rank:,} words contains a token of the vocabulary. Is it this language?")
    sums /= np.maximum(mass, 1e-30)[:, None]
    return sums, kept


def neighbour_mixture(
    method: str,
    pair: VocabularyPair,
    source: NDArray[np.float32],
    target: NDArray[np.float32],
) -> Mixture:
    """New tokens as ``softmax(cos / 0.1)`` over their ten nearest source tokens in one space of vectors, ``source``,
    (source vocabulary, width), and ``target``, (target vocabulary, width); tokens without a vector get normal noise
    with the moments of each dimension of the source's embeddings."""
    anchors = np.flatnonzero(source.any(axis=1))
    ids = pair.overlap.new_ids[target[pair.overlap.new_ids].any(axis=1)]
    if not len(pair.overlap.new_ids):
        return mixture_of_parts(pair)
    if not len(anchors) or not len(ids):
        whose = "source" if not len(anchors) else "new target"
        raise DataError(f"None of the {whose} tokens has a vector: the word vectors are of another language or script.")
    weights = nearest(unit(target[ids]), unit(source[anchors]), NEIGHBOURS, TEMPERATURE)
    weights.indices = anchors.astype(weights.indices.dtype)[weights.indices]
    weights.resize(len(ids), pair.source_rows)
    return mixture_of_parts(pair, [Part(method, ids, weights)], fallback="multivariate")


def nearest(
    queries: NDArray[np.float32], anchors: NDArray[np.float32], neighbours: int, temperature: float
) -> csr_matrix:
    """``softmax(cos / temperature)`` over the nearest anchors of each query, (queries, anchors).

    Args:
        queries, anchors: unit vectors, (queries, width) and (anchors, width).
        neighbours: anchors that have weight; the lowest place wins among equals.
    """
    k = min(neighbours, len(anchors))
    columns, values = [], []
    rows_at_once = max(1, SIMILARITIES_AT_ONCE // len(anchors))
    for begin in range(0, len(queries), rows_at_once):
        similarities = queries[begin : begin + rows_at_once] @ anchors.T
        least = np.partition(similarities, -k, axis=1)[:, -k, None]
        # Anchors above the k-th, then as many of those equal to it as there is room for, the first ones first.
        above, equal = similarities > least, similarities == least
        room = k - above.sum(axis=1, keepdims=True)
        best = np.nonzero(above | (equal & (np.cumsum(equal, axis=1, dtype=np.int32) <= room)))[1].reshape(-1, k)
        scores = np.take_along_axis(similarities, best, axis=1).astype(np.float64) / temperature
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        columns.append(best)
        values.append(weights / weights.sum(axis=1, keepdims=True))
    starts = np.arange(0, k * len(queries) + 1, k)
    return csr_matrix(
        (np.concatenate(values).ravel(), np.concatenate(columns).ravel(), starts), shape=(len(queries), len(anchors))
    )


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of length one; rows of zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-30), dtype=np.float32)
