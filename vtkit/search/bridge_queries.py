"""Queries in another language than the documents', translated by a table: queries need no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from vtkit.encoder.static_queries import query_tokenizer
from vtkit.encoder.truncation import first_encoding, first_tokens
from vtkit.system.checksums import verify_part
from vtkit.system.errors import DataError
from vtkit.system.results import Result

if TYPE_CHECKING:
    from vtkit.encoder.static_queries import QueryTokenizer
    from vtkit.search.index_info import IndexInfo

FOLDER, TABLE, RECORD, SOURCE, TARGET = "bridge", "translations.npz", "bridge.json", "source", "target"
"""The folder in which a transfer keeps the translations that it learned, and its files."""


@dataclass(frozen=True)
class BridgeRecord(Result):
    """The record of a bridge."""

    language: str | None  # ISO 639-1 code of the texts it translates from; None if unknown
    pairs: int  # sentence pairs and dictionary entries that it was learned from


@dataclass(frozen=True)
class BridgeQueries:
    """Encodes queries in the source's language for documents in the target's.

    Probabilistic structured queries (Darwish and Oard, SIGIR 2003), as a vector over target tokens::

        q_t = Σ_s tf_s · idf_s · p(t | s),   idf_s = ln(1 + (N − df_s + ½) / (df_s + ½)),   df_s = Σ_t p(t | s) · df_t

    over the source tokens s of the query; df_t documents activate t, and there are N documents.
    """

    tokenizer: QueryTokenizer  # the source's
    weights: sparse.csr_matrix  # idf_s · p(t | s), (source vocabulary, target vocabulary)
    output_tokenizer: QueryTokenizer
    prompt: str = ""
    parameters = None  # there is no model

    @classmethod
    def load(cls, folder: Path, language: str, info: IndexInfo) -> BridgeQueries:
        """The bridge in ``folder`` for an index."""
        rerun = "Run the recipe again: vtkit run RECIPE."
        if not (folder / RECORD).is_file():
            raise DataError(
                "query_language needs translations, which a transfer learns from parallel text, and this run has "
                f"none. Name parallel text in the recipe's transfer.parallel.files. {rerun}"
            )
        verify_part(folder)
        record = BridgeRecord.from_file(folder / RECORD, rerun)
        try:
            table = sparse.load_npz(folder / TABLE).tocsr().astype(np.float64)
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise DataError(f"{folder / TABLE} is damaged ({error}). {rerun}") from error
        if record.language is not None and record.language != language:
            raise DataError(
                f"query_language is {language!r}, but this run translates from its source's language, "
                f"{record.language!r}."
            )
        cutting, naming = (_load_tokenizer(folder / side) for side in (SOURCE, TARGET))
        frequencies = info.document_frequencies[: table.shape[1]].astype(np.float64)
        return cls(cutting, weighted(table, frequencies, info.documents), naming)

    def encode(self, queries: Sequence[str], max_length: int) -> sparse.csr_matrix:
        """The vectors of queries, (queries, target vocabulary) float32."""
        limit = min(max_length, self.tokenizer.model_max_length)
        listed = first_tokens(self.tokenizer, queries, limit, add_special_tokens=False)["input_ids"]
        tokens, starts = np.fromiter(chain.from_iterable(listed), np.int64), np.cumsum([0, *map(len, listed)])
        shape = (len(queries), self.weights.shape[0])
        counts = sparse.csr_matrix((np.ones(len(tokens)), tokens, starts), shape=shape)
        vectors = sparse.csr_matrix(counts @ self.weights, dtype=np.float32)
        vectors.sort_indices()
        return vectors

    def by_token(self, query: str, max_length: int) -> tuple[sparse.csr_matrix, list[int]]:
        """As :meth:`vtkit.encoder.sides.EncoderQueries.by_token`."""
        limit = min(max_length, self.tokenizer.model_max_length)
        ids, ends = first_encoding(self.tokenizer, query, limit, add_special_tokens=False)
        return self.weights[ids], ends


def weighted(table: sparse.csr_matrix, frequencies: NDArray[np.float64], documents: int) -> sparse.csr_matrix:
    """idf_s · p(t | s) of :class:`BridgeQueries`, of the ``table`` p(t | s), (source vocabulary, target vocabulary),
    and the ``frequencies`` df_t, (target vocabulary,)."""
    df = np.minimum(table @ frequencies, documents)
    idf = np.log1p((documents - df + 0.5) / (df + 0.5))
    return sparse.csr_matrix(sparse.diags_array(idf) @ table)


def _load_tokenizer(folder: Path) -> QueryTokenizer:
    light = query_tokenizer(folder, str(folder), "")
    if light is not None:
        return light
    from transformers import AutoTokenizer

    from vtkit.encoder.model_folder import SAFELY

    loaded: QueryTokenizer = AutoTokenizer.from_pretrained(str(folder), **SAFELY)
    return loaded
