"""Rows that give weight to nearly every source token (α-entmax with a small α): made in blocks, and never stored, since
50,000 new tokens over 30,000 source tokens are 1.5 billion weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

HEAVIEST = 8  # weights of a row that are kept for its record
WEIGHTS_AT_ONCE = 2_000_000  # weights of a block of rows (8 bytes each, a few times over while they are made)
HALVINGS = 30  # of the interval of a row's threshold: an error of 1e-9, most of which the sum of one takes back


@dataclass(frozen=True)
class DenseRows:
    """``W_t = α-entmax_s(q_t · a_s)`` for some target tokens t over the anchors s."""

    ids: NDArray[np.int64]  # target ids, (rows,)
    queries: NDArray[np.floating]  # q, unit vectors, (rows, width)
    anchors: NDArray[np.floating]  # a, unit vectors, (anchors, width)
    source_ids: NDArray[np.int64]  # of the anchors, (anchors,); several may be one source token
    alpha: float  # 1: softmax

    def times(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """``W values``, (rows, columns) or (rows,), of ``values`` of the source tokens, (source rows, columns) or
        (source rows,)."""
        of_anchors = values[self.source_ids]
        mixed = np.empty((len(self.ids), *values.shape[1:]), dtype=np.float32)
        for block, weights in self._blocks():
            mixed[block] = weights @ of_anchors
        return mixed

    def heaviest(self, source_rows: int) -> csr_matrix:
        """The :data:`HEAVIEST` weights of each row as they are, so that they sum to less than one; (rows, source
        rows)."""
        kept = min(HEAVIEST, len(self.source_ids))
        columns = np.empty((len(self.ids), kept), dtype=np.int64)
        values = np.empty((len(self.ids), kept), dtype=np.float32)
        for block, weights in self._blocks():
            columns[block] = np.argpartition(weights, -kept, axis=1)[:, -kept:]
            values[block] = np.take_along_axis(weights, columns[block], axis=1)
        starts = np.arange(0, columns.size + 1, kept)
        return csr_matrix(
            (values.ravel(), self.source_ids[columns.ravel()], starts), shape=(len(self.ids), source_rows)
        )

    def among(self, chosen: NDArray[np.bool_]) -> DenseRows:
        """The rows of the target tokens that are ``chosen``, (target vocabulary,)."""
        keep = chosen[self.ids]
        return replace(self, ids=self.ids[keep], queries=self.queries[keep])

    def _blocks(self) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        from vtkit.transfer.entmax import Space, solve

        space, size = Space(self.anchors), max(1, WEIGHTS_AT_ONCE // len(self.source_ids))
        for begin in range(0, len(self.ids), size):
            block = slice(begin, begin + size)
            scores, _ = space.similarities(space.vectors(self.queries[block]))
            yield block, solve(scores.double(), self.alpha, HALVINGS).float().cpu().numpy()
