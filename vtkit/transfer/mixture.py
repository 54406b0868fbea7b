"""What every transfer method returns: each target token as a sparse convex combination of source tokens. Embeddings,
decoder bias and the provenance in reports all come from the same weights. Rows of no source token in particular (the
mean of all, noise) are a method name without weights."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags_array

from vtkit.encoder.masked import MASKED_BIAS, is_masked
from vtkit.settings.transfer import Fallback
from vtkit.system.errors import DataError
from vtkit.transfer.dense_rows import DenseRows
from vtkit.vocabulary.pair import VocabularyPair

RANDOM_DEVIATION = 0.02  # standard deviation of random rows: the range in which BERT and its family are initialised
SMALLEST_WEIGHT = 1e-6  # less than this is left of a row's weights by rounding alone

ROWS_AT_ONCE = 8192

Texts = Callable[[], Iterable[str]]  # opens the stream of target texts that a method trains on


@dataclass(frozen=True)
class Mixture:
    """Every target token in terms of the source tokens."""

    weights: csr_matrix
    """Float32, (target vocabulary, source rows); rows sum to one, rows of a :data:`Fallback` are empty, and of those in
    ``dense_rows`` only the heaviest weights are here."""

    methods: NDArray[np.str_]
    """The origin of each row, in words: "overlap", a method's name, or what tokens without evidence became; (target
    vocabulary,)."""

    dense_rows: tuple[DenseRows, ...] = ()  # rows that give weight to nearly every source token

    def rows(self, embeddings: NDArray[np.floating], seed: int = 0) -> NDArray[np.float32]:
        """The embeddings of the target vocabulary: ``E' = W E``, (target vocabulary, width), ``embeddings`` being E,
        (source rows, width).

        Rows without weights: ``mean`` and ``masked`` are the mean of E; ``overlap_mean`` that of the overlapping
        tokens' rows (of all where nothing overlaps); ``random`` is noise N(0, 0.02²); ``univariate`` N(μ, σ²) with the
        moments of all entries of E, ``multivariate`` with those of each dimension.
        """
        embeddings = np.asarray(embeddings, dtype=np.float32)
        self._refuse_infinite(embeddings, "embeddings")
        width = embeddings.shape[1]
        mixed = self._times(embeddings)
        middle = np.concatenate([self._of("mean"), self._of("masked")])
        mixed[middle] = embeddings.mean(axis=0, dtype=np.float64)
        kept = self._of("overlap")
        shared = mixed[kept] if len(kept) else embeddings
        mixed[self._of("overlap_mean")] = shared.mean(axis=0, dtype=np.float64)
        generator = np.random.default_rng(seed)
        for method, values in (("multivariate", embeddings), ("univariate", embeddings.reshape(-1, 1))):
            noisy = self._of(method)
            if len(noisy):
                mixed[noisy] = generator.normal(*_moments(values), (len(noisy), width))
        noisy = self._of("random")
        mixed[noisy] = generator.normal(0.0, RANDOM_DEVIATION, (len(noisy), width))
        return mixed

    def bias(self, source_bias: NDArray[np.floating], ordinary: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        """The decoder bias by the same weights, (target vocabulary,).

        A masked source token has no part in the biases of new tokens; the weights of the others are brought to a sum of
        one. Rows left without weight get the mean of the ordinary source rows, ``overlap_mean`` that of the unmasked
        overlapping tokens. Overlapping tokens keep their bias to the bit, and rows that the mixture masks are masked.

        Args:
            source_bias: (source rows,).
            ordinary: the source rows that the mean is over, (source rows,); all that are not masked by default.
        """
        source_bias = np.asarray(source_bias, dtype=np.float32)
        self._refuse_infinite(source_bias[:, None], "decoder bias")
        hidden = is_masked(source_bias)
        usual = source_bias[~hidden if ordinary is None else ordinary]
        mixed = self._times(np.where(hidden, np.float32(0), source_bias))
        kept = self._of("overlap")
        if hidden.any():
            left = 1 - self._times(hidden.astype(np.float32))
            mixed /= np.where((left > 0) & (left < 1), left, 1)
        else:
            left = np.ones(len(mixed), dtype=np.float32)
        empty = np.diff(self.weights.indptr) == 0
        mixed[empty | (left <= SMALLEST_WEIGHT)] = usual.mean(dtype=np.float64) if len(usual) else 0.0
        shared = mixed[kept[left[kept] > SMALLEST_WEIGHT]]
        if len(shared):
            mixed[self._of("overlap_mean")] = shared.mean(dtype=np.float64)
        mixed[kept[left[kept] <= SMALLEST_WEIGHT]] = MASKED_BIAS
        mixed[self._of("masked")] = MASKED_BIAS
        return mixed

    def counts(self) -> dict[str, int]:
        """Target tokens of each method that was used; the overlap first, then by falling number."""
        rows = Counter(self.methods.tolist())
        return dict(sorted(rows.items(), key=lambda entry: (entry[0] != "overlap", -entry[1], entry[0])))

    def sources(self, target_id: int) -> list[tuple[int, float]]:
        """The source ids behind one target token with their weights, heaviest first."""
        row = slice(self.weights.indptr[target_id], self.weights.indptr[target_id + 1])
        pairs = zip(self.weights.indices[row].tolist(), self.weights.data[row].tolist(), strict=True)
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))

    def _times(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """The rows' mixtures of ``values`` of the source tokens, (source rows, …)."""
        mixed = np.asarray(self.weights @ values, dtype=np.float32)
        for rows in self.dense_rows:
            mixed[rows.ids] = rows.times(values)
        return mixed

    def _of(self, method: str) -> NDArray[np.int64]:
        return np.flatnonzero(self.methods == method)

    def _refuse_infinite(self, values: NDArray[np.float32], what: str) -> None:
        bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(bad):
            raise DataError(
                f"The source's {what}: {len(bad):,} of {len(values):,} rows are not finite numbers (NaN or infinite), "
                f"row {bad[0]} for one. Its weights are damaged: fetch or train the source again."
            )


def with_fallback(mixture: Mixture, fallback: Fallback) -> Mixture:
    """``mixture`` with its rows without weights made by ``fallback``; masked ones stay masked."""
    methods = mixture.methods.copy()
    without = (np.diff(mixture.weights.indptr) == 0) & (methods != "masked")
    methods[without] = fallback
    return replace(mixture, methods=methods)


def keep_rows(mixture: Mixture, ids: NDArray[np.int64]) -> Mixture:
    """``mixture`` with the overlap and the rows of the target tokens ``ids``; the others lose their weights."""
    keep = mixture.methods == "overlap"
    keep[ids] = True
    weights = csr_matrix(diags_array(keep.astype(np.float32)) @ mixture.weights)
    weights.eliminate_zeros()
    methods = mixture.methods.copy()
    methods[np.diff(weights.indptr) == 0] = "mean"
    return replace(
        mixture, weights=weights, methods=methods, dense_rows=tuple(r.among(keep) for r in mixture.dense_rows)
    )


@dataclass(frozen=True)
class Part:
    """Rows that one method has found."""

    method: str  # its name, for the provenance
    ids: NDArray[np.int64]  # target ids, (rows,)
    weights: csr_matrix
    """Non-negative weights, none of the rows empty; (rows, source rows). They are brought to a sum of one, unless these
    are the heaviest of ``dense_rows``."""

    dense_rows: DenseRows | None = None  # all weights of the rows, where there are too many to store


def mixture_of_parts(pair: VocabularyPair, parts: Sequence[Part] = (), fallback: Fallback = "mean") -> Mixture:
    """One mixture out of the overlap and what methods found; new tokens that no part covers become ``fallback``."""
    overlap = pair.overlap
    methods = all_made_by(fallback, overlap.target_size)
    known = overlap.overlap_ids
    methods[known] = "overlap"
    rows, columns = [known], [overlap.target_to_source[known].astype(np.int64)]
    values = [np.ones(len(known))]
    for part in parts:
        methods[part.ids] = part.method
        sums = np.asarray(part.weights.sum(axis=1), dtype=np.float64).ravel()
        lengths = np.diff(part.weights.indptr)
        rows.append(np.repeat(part.ids, lengths))
        columns.append(part.weights.indices.astype(np.int64))
        values.append(part.weights.data / (np.repeat(sums, lengths) if part.dense_rows is None else 1.0))
    where = (np.concatenate(rows), np.concatenate(columns))
    weights = csr_matrix((np.concatenate(values), where), shape=pair.shape, dtype=np.float64)
    weights.sum_duplicates()
    weights.eliminate_zeros()
    weights.sort_indices()
    dense_rows = tuple(part.dense_rows for part in parts if part.dense_rows is not None)
    return Mixture(weights.astype(np.float32), methods, dense_rows=dense_rows)


def all_made_by(method: str, size: int) -> NDArray[np.str_]:
    """``Mixture.methods`` of ``size`` tokens that one method made; names of any length can be written over it."""
    return np.full(size, method, dtype=np.dtypes.StringDType())


def _moments(values: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each column, in double precision without a double copy of ``values``."""
    total = np.zeros(values.shape[1])
    squares = np.zeros(values.shape[1])
    for begin in range(0, len(values), ROWS_AT_ONCE):
        block = values[begin : begin + ROWS_AT_ONCE].astype(np.float64)
        total += block.sum(axis=0)
        squares += np.square(block).sum(axis=0)
    mean = total / len(values)
    return mean, np.sqrt(np.maximum(squares / len(values) - mean**2, 0))
