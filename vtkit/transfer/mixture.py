"""What every transfer method returns: each target token as a sparse convex combination of source tokens.

Embeddings, decoder bias and the provenance shown in reports all come from the same weights, so that they cannot
disagree. Rows that depend on no source token in particular (the mean of all, random noise) are kept as a method
name without weights, because a dense row for each of them would not fit in memory for large vocabularies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from vtkit.errors import DataError
from vtkit.vocabulary.alignment import Alignment

METHODS = ("overlap", "parallel", "pieces", "subtoken", "sembridge", "mean", "random")
"""Where a row comes from; ``Mixture.methods`` holds indices into this."""

RANDOM_DEVIATION = 0.02
"""Standard deviation of random rows: the range in which BERT and its family are initialised."""


@dataclass(frozen=True)
class Mixture:
    """Every target token in terms of the source tokens."""

    weights: csr_matrix
    """Float32, (target vocabulary, source rows); rows sum to one, rows of ``mean`` and ``random`` are empty."""

    methods: NDArray[np.int8]
    """Where each row comes from, an index into :data:`METHODS`; (target vocabulary,)."""

    @property
    def method_names(self) -> list[str]:
        """Where each row comes from, in words."""
        return [METHODS[code] for code in self.methods]

    def rows(self, embeddings: NDArray[np.floating], seed: int = 0) -> NDArray[np.float32]:
        """The embeddings of the target vocabulary: ``E' = W E``, (target vocabulary, width).

        Args:
            embeddings: ``E``, (source rows, width).
            seed: of the normal noise N(0, 0.02²) in ``random`` rows.
        """
        embeddings = np.asarray(embeddings, dtype=np.float32)
        self._check_rows(len(embeddings))
        mixed = np.asarray(self.weights @ embeddings, dtype=np.float32)
        mixed[self._of("mean")] = embeddings.mean(axis=0, dtype=np.float64)
        noisy = self._of("random")
        noise = np.random.default_rng(seed).normal(0.0, RANDOM_DEVIATION, (len(noisy), embeddings.shape[1]))
        mixed[noisy] = noise
        return mixed

    def bias(self, source_bias: NDArray[np.floating]) -> NDArray[np.float32]:
        """The decoder bias by the same weights, (target vocabulary,); the source's mean for empty rows."""
        source_bias = np.asarray(source_bias, dtype=np.float32)
        self._check_rows(len(source_bias))
        mixed = np.asarray(self.weights @ source_bias, dtype=np.float32)
        for method in ("mean", "random"):
            mixed[self._of(method)] = source_bias.mean(dtype=np.float64)
        return mixed

    def counts(self) -> dict[str, int]:
        """Target tokens of each method that was used."""
        found = np.bincount(self.methods, minlength=len(METHODS))
        return {name: int(count) for name, count in zip(METHODS, found, strict=True) if count}

    def sources(self, target_id: int) -> list[tuple[int, float]]:
        """The source ids behind one target token with their weights, heaviest first."""
        row = slice(self.weights.indptr[target_id], self.weights.indptr[target_id + 1])
        pairs = zip(self.weights.indices[row].tolist(), self.weights.data[row].tolist(), strict=True)
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))

    def _of(self, method: str) -> NDArray[np.int64]:
        return np.flatnonzero(self.methods == METHODS.index(method))

    def _check_rows(self, rows: int) -> None:
        if rows != self.weights.shape[1]:
            raise ValueError(f"the mixture is over {self.weights.shape[1]} source tokens, but there are {rows} rows")


@dataclass(frozen=True)
class Part:
    """Rows that one method has found."""

    method: str
    """One of :data:`METHODS`."""

    ids: NDArray[np.int64]
    """Target ids, (rows,)."""

    weights: csr_matrix
    """Non-negative weights, none of the rows empty; (rows, source rows). They are brought to a sum of one."""


def assemble(alignment: Alignment, source_rows: int, parts: Sequence[Part] = (), rest: str = "mean") -> Mixture:
    """One mixture out of the overlap and what methods found; new tokens that no part covers become ``rest``.

    Args:
        source_rows: rows of the source's embedding matrix. Often a few more than its tokenizer has tokens, since
            sizes are rounded up.

    Raises:
        DataError: the source's tokenizer has tokens without a row.
        ValueError: a part that covers an overlapping token or one of another part, or a row without weight.
    """
    if int(alignment.target_to_source.max(initial=-1)) >= source_rows:
        raise DataError(
            f"The source's tokenizer has {alignment.source_size} tokens, but the source has {source_rows} embedding "
            "rows: they do not belong together."
        )
    methods = np.full(alignment.target_size, METHODS.index(rest), dtype=np.int8)
    known = alignment.overlap_ids
    methods[known] = METHODS.index("overlap")
    taken = alignment.target_to_source >= 0
    rows, columns = [known], [alignment.target_to_source[known].astype(np.int64)]
    values = [np.ones(len(known))]
    for part in parts:
        if taken[part.ids].any():
            raise ValueError(f"{part.method} gives rows to tokens that have one already")
        taken[part.ids] = True
        methods[part.ids] = METHODS.index(part.method)
        sums = np.asarray(part.weights.sum(axis=1), dtype=np.float64).ravel()
        if (sums <= 0).any():
            raise ValueError(f"{part.method} gives a row without weight")
        lengths = np.diff(part.weights.indptr)
        rows.append(np.repeat(part.ids, lengths))
        columns.append(part.weights.indices.astype(np.int64))
        values.append(part.weights.data / np.repeat(sums, lengths))
    shape = (alignment.target_size, source_rows)
    where = (np.concatenate(rows), np.concatenate(columns))
    weights = csr_matrix((np.concatenate(values), where), shape=shape, dtype=np.float64)
    weights.sum_duplicates()
    weights.eliminate_zeros()
    weights.sort_indices()
    return Mixture(weights.astype(np.float32), methods)
